"""Reads an OCI archive: its config, its layers, and the files that they come to."""

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

_HIDDEN: Final = ".wh."  # before the name of a file that a layer takes away


@dataclass(frozen=True, slots=True)
class Image:
    """An image: the digests of its manifest and of its layers, and their size in bytes."""

    digest: str
    config: Any
    layers: tuple[str, ...]
    size: int
    archive: Path

    def files(self, keep: Callable[[str], bool]) -> dict[str, bytes]:
        """Return files by their paths: the contents of those to keep, b"" of others."""
        found: dict[str, bytes] = {}
        with _opened(self.archive) as blob:
            for layer in self.layers:
                with tarfile.open(fileobj=io.BytesIO(blob(layer)), mode="r:*") as tar:
                    for member in tar:
                        _lay(found, tar, member, keep)
        return found


def read(archive: Path) -> Image:
    with _opened(archive) as blob:
        (named,) = json.loads(blob("index.json"))["manifests"]
        manifest = json.loads(blob(named["digest"]))
        config = json.loads(blob(manifest["config"]["digest"]))
    layers = manifest["layers"]
    return Image(
        digest=named["digest"],
        config=config,
        layers=tuple(one["digest"] for one in layers),
        size=sum(one["size"] for one in layers),
        archive=archive,
    )


def copy(source: Path, target: Path, *, epoch: int) -> None:
    """Copy an archive, with one time, in seconds, for all in it: that of its writing is noted."""
    with tarfile.open(source) as old, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as new:
        for member in old:
            made = tarfile.TarInfo(member.name)
            made.type, made.size, made.mtime = member.type, member.size, epoch
            made.mode = 0o755 if member.isdir() else 0o644
            new.addfile(made, old.extractfile(member) if member.isfile() else None)


def _lay(
    found: dict[str, bytes],
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    keep: Callable[[str], bool],
) -> None:
    path = PurePosixPath("/", member.name)
    if path.name.startswith(_HIDDEN):
        gone = str(path.with_name(path.name.removeprefix(_HIDDEN)))
        for one in [one for one in found if one == gone or one.startswith(f"{gone}/")]:
            del found[one]
        return
    file = tar.extractfile(member) if member.isfile() and keep(str(path)) else None
    if not member.isdir():
        found[str(path)] = b"" if file is None else file.read()


@contextmanager
def _opened(archive: Path) -> Iterator[Callable[[str], bytes]]:
    """Yield what reads a blob by its digest, and a file of the archive by its name."""
    with tarfile.open(archive) as tar:

        def blob(name: str) -> bytes:
            file = tar.extractfile(f"blobs/{name.replace(':', '/')}" if ":" in name else name)
            assert file is not None, name
            return file.read()

        yield blob

"""OCI archives that nodes get, since no registry is needed: named for the shipped manifests."""

import hashlib
import io
import json
import re
import struct
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from reconciler.core.errors import ConfigError

# The kernel's sigaction: a handler, and nothing else.
_IGNORED: Final = struct.pack("<4Q", 1, 0, 0, 0)
_BASE: Final = 0x400000  # where the file is in memory
_HEADERS: Final = 0x78  # bytes


@dataclass(frozen=True, slots=True)
class Machine:
    """The name of a machine in images, its number in ELF, and its code, an instruction a line."""

    architecture: str
    number: int
    code: str

    def program(self) -> bytes:
        """Return an ELF file, which needs nothing beside it."""
        lines = [line.strip().partition("  ")[0] for line in self.code.strip().splitlines()]
        content = _IGNORED + bytes.fromhex("".join(lines))
        size, entry = _HEADERS + len(content), _BASE + _HEADERS + len(_IGNORED)
        ident = b"\x7fELF" + bytes((2, 1, 1)).ljust(12, b"\0")
        # An executable with one segment, described right behind this, and no sections.
        header = struct.pack(
            "<HHIQQQIHHHHHH", 2, self.number, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0
        )
        # The whole file, to be read and executed.
        segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x10000)
        return ident + header + segment + content


# rt_sigaction(SIGCHLD, ignored): nothing that loses its parent stays in a pod as a zombie. Then
# wait, again and again: the first process of a pod is killed, and hears no other signal.
MACHINES: Final[Mapping[str, Machine]] = {
    "x86_64": Machine(
        "amd64",
        62,
        """
        b8 0d 00 00 00     mov eax, 13 (rt_sigaction)
        bf 11 00 00 00     mov edi, 17 (SIGCHLD)
        be 78 00 40 00     mov esi, 0x400078 (_IGNORED)
        31 d2              xor edx, edx
        41 ba 08 00 00 00  mov r10d, 8
        0f 05              syscall
        b8 22 00 00 00     mov eax, 34 (pause)
        0f 05              syscall
        eb f7              jmp to mov eax, 34
        """,
    ),
    "aarch64": Machine(
        "arm64",
        183,
        """
        c8 10 80 d2        mov x8, 134 (rt_sigaction)
        20 02 80 d2        mov x0, 17 (SIGCHLD)
        c1 fe ff 10        adr x1, 0x400078 (_IGNORED)
        02 00 80 d2        mov x2, 0
        03 01 80 d2        mov x3, 8
        01 00 00 d4        svc 0
        28 09 80 d2        mov x8, 73 (ppoll)
        00 00 80 d2        mov x0, 0
        01 00 80 d2        mov x1, 0
        02 00 80 d2        mov x2, 0
        03 00 80 d2        mov x3, 0
        01 00 00 d4        svc 0
        fa ff ff 17        b to mov x8, 73
        """,
    ),
}


_REGISTRY: Final = "registry.example.com/klutchctl"
_REFERENCE: Final = "org.opencontainers.image.ref.name"
_CONTAINERD: Final = "io.containerd.image.name"
_WHOLE: Final = re.compile(r"[^/]+[.:][^/]*/.+|localhost/.+")
_LAYOUT: Final = b'{"imageLayoutVersion": "1.0.0"}'
# What reading another file, or a part of one, may end with.
_NOT_ONE: Final = (
    *(OSError, EOFError, tarfile.TarError, ValueError),
    *(LookupError, TypeError, AttributeError),
)


@dataclass(frozen=True, slots=True)
class Archive:
    """An OCI archive with one image, the name that it gets in a node, and the digest there."""

    path: Path
    name: str
    digest: str


def read_folder(folder: Path) -> Sequence[Archive]:
    """Return the archives (*.tar) of a folder.

    Raises ConfigError where there is none, and for two of one name: each would replace the other.
    """
    if not folder.is_dir():
        raise ConfigError("is no folder", where=str(folder))
    found = [read(path) for path in sorted(folder.glob("*.tar"))]
    if not found:
        raise ConfigError(
            "holds no image",
            where=str(folder),
            hint="Images are OCI archives there, with names that end with .tar",
        )
    paths: dict[str, Path] = {}
    for one in found:
        other = paths.setdefault(one.name, one.path)
        if other != one.path:
            message = f"holds {one.name}, the same image as {other.name}"
            raise ConfigError(message, where=str(one.path), hint="Leave one of them there")
    return found


def read(path: Path) -> Archive:
    """Return what an archive says of its image. Raises ConfigError."""
    try:
        with tarfile.open(path) as archive:
            index = archive.extractfile("index.json")
            content = index.read() if index else b""
            (image,) = json.loads(content)["manifests"]
            name = _name(path, image.get("annotations") or {})
            return Archive(path, name, _digest(content))
    except _NOT_ONE as error:
        raise ConfigError(
            "is no OCI archive with one image", where=str(path), hint="`make images` writes some"
        ) from error


def _name(path: Path, annotations: Mapping[str, str]) -> str:
    """Return the name of an image: a plain word is that of one of ours, as manifests have it."""
    said = annotations.get(_CONTAINERD) or annotations.get(_REFERENCE) or path.name.split(".")[0]
    if _WHOLE.fullmatch(said):
        return said if ":" in said.rpartition("/")[2] else f"{said}:latest"
    name, _, tag = said.partition(":")
    return f"{_REGISTRY}/{name}:{tag or metadata.version('klutchctl')}"


def pause(machine: Machine) -> bytes:
    """Return an OCI archive, the same each time, whose only file is the program that waits."""
    layer = _tar({"pause": (machine.program(), 0o755)})
    run = {"Entrypoint": ["/pause"], "User": "65535:65535"}
    root = {"type": "layers", "diff_ids": [_digest(layer)]}
    config = _json(
        {"architecture": machine.architecture, "os": "linux", "config": run, "rootfs": root}
    )
    described = _described(config, "config.v1+json")
    layers = [_described(layer, "layer.v1.tar")]
    manifest = _json({"schemaVersion": 2, "config": described, "layers": layers})
    index = _json({"schemaVersion": 2, "manifests": [_described(manifest, "manifest.v1+json")]})
    blobs = {f"blobs/{_digest(one).replace(':', '/')}": one for one in (layer, config, manifest)}
    files = {"oci-layout": _LAYOUT, "index.json": index, **blobs}
    return _tar({name: (content, 0o644) for name, content in files.items()})


def _described(content: bytes, kind: str) -> Mapping[str, Any]:
    media_type = f"application/vnd.oci.image.{kind}"
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _tar(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()

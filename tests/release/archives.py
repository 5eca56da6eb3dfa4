"""Packs files into tar archives that are the same for the same files, whenever and wherever."""

import gzip
import os
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import BinaryIO


def files_below(folder: Path, top: str) -> dict[str, Path]:
    """Return the files below a folder by their names in an archive, below `top`; links followed."""
    return {
        f"{top}/{Path(parent, name).relative_to(folder).as_posix()}": Path(parent, name)
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
    }


def pack(target: Path, files: Mapping[str, Path | bytes], *, epoch: int, gzipped: bool) -> None:
    """Write an archive. `epoch`: the time of all in it, in seconds.

    Owners and permissions are those of an archive, not of the files: a file that its user may
    execute is executable.
    """
    with target.open("wb") as raw:
        if not gzipped:
            _write(raw, files, epoch)
            return
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=epoch) as packed:
            _write(packed, files, epoch)


def _write(file: BinaryIO | gzip.GzipFile, files: Mapping[str, Path | bytes], epoch: int) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, source in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.mtime = epoch
            if isinstance(source, bytes):
                member.size = len(source)
                tar.addfile(member, BytesIO(source))
                continue
            state = source.stat()
            member.size = state.st_size
            member.mode = 0o755 if state.st_mode & 0o100 else 0o644
            with source.open("rb") as content:
                tar.addfile(member, content)

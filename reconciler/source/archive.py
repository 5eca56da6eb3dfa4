"""A fleet in a tar archive, as Flux serves and pushes it: read in memory, whole or not at all.

Nothing of it is written to disk. It is bounded in entries, depth and unpacked bytes, since a small
archive may unpack to anything. Links and devices are refused wherever they are: what a checkout
would have in their place is not here.
"""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from reconciler.core.errors import ConfigError, InvalidRepository
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.fleet import base_model
from reconciler.fleet.files import Snapshot
from reconciler.source import gather
from reconciler.source.gather import MAX_DEPTH, MAX_FILES, EntryType, Unreadable

_MOST_UNPACKED: Final = 128 << 20
_BROKEN: Final = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class _File:
    """A file; its `content` is None where that is too large. `id` is that of Git, 20 bytes."""

    content: bytes | None
    id: bytes
    executable: bool


Folder: TypeAlias = "dict[str, Folder | _File]"


class _Refused(Exception):
    """A refusal of the archive: the sentence goes on from its name."""


def read(content: bytes, *, revision: str, folder: str, where: str) -> Snapshot:
    """Return the fleet in an archive. Raises as `opened` and `snapshot`."""
    return snapshot(opened(content, where=where), revision=revision, folder=folder, where=where)


def opened(content: bytes, *, where: str) -> Folder:
    """Unpack a tar archive, compressed by gzip. `where` names it in errors. Raises ConfigError."""
    try:
        return _unpacked(content)
    except _Refused as error:
        raise ConfigError(str(error), where=where) from None
    except _BROKEN:
        raise ConfigError("is no tar archive, compressed by gzip", where=where) from None


def snapshot(top: Folder, *, revision: str, folder: str, where: str) -> Snapshot:
    """Return the fleet in a folder, as in `Snapshot`. Raises ConfigError and InvalidRepository."""
    try:
        store = _Archive(_at(top, folder.rstrip("/")))
        entry = gather.find_entry(store)
        found = gather.gather(store, entry)
    except Unreadable:
        message = f"there is no folder {folder.rstrip('/')!r} in it"
        raise ConfigError(message, where=where) from None
    except InvalidRepository as error:
        raise InvalidRepository(error.problems, revision=revision) from None
    return Snapshot(found.files, revision, entry, found.unread, folder)


def tree_id(top: Folder, folder: str) -> str:
    """Return the id that Git gives a folder, "" where there is none.

    It is that of the commit only where all of the folder is in the archive.
    """
    try:
        return _tree(_at(top, folder.rstrip("/"))).hex()
    except Unreadable:
        return ""


def _tree(found: "Folder | _File") -> bytes:
    """Return the id of a tree, b"" for one without files: Git has none."""
    entries: dict[bytes, bytes] = {}
    for name, one in found.items() if isinstance(found, dict) else ():
        key = os.fsencode(name)
        if isinstance(one, _File):
            entries[key] = (b"100755 " if one.executable else b"100644 ") + key + b"\0" + one.id
        elif below := _tree(one):
            entries[key + b"/"] = b"40000 " + key + b"\0" + below  # Git sorts it so
    return _object_id("tree", b"".join(entries[key] for key in sorted(entries))) if entries else b""


def _object_id(kind: str, content: bytes) -> bytes:
    whole = f"{kind} {len(content)}\0".encode() + content
    return hashlib.sha1(whole, usedforsecurity=False).digest()


class _Bounded(io.RawIOBase):
    """The output of gzip, up to a limit of bytes. Raises _Refused beyond it."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._stream = gzip.GzipFile(fileobj=io.BytesIO(content))
        self._left = _MOST_UNPACKED

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes."""
        part = self._stream.read(size if 0 <= size <= self._left else self._left + 1)
        self._left -= len(part)
        if self._left < 0:
            raise _Refused(f"unpacks to more than {_MOST_UNPACKED >> 20} MiB")
        return part


def _unpacked(content: bytes) -> Folder:
    """Return folders and files. Raises _Refused, and what is in _BROKEN."""
    top: Folder = {}
    with tarfile.open(fileobj=_Bounded(content), mode="r|") as archive:
        for number, member in enumerate(archive):
            if number == MAX_FILES:
                raise _Refused(f"holds more than {MAX_FILES} entries")
            path = member.name.removeprefix("./").rstrip("/")
            if member.isdir() and path in ("", "."):
                continue
            shown = repr(path[:200])
            if problem := base_model.path_problem(path):
                raise _Refused(f"holds {shown}, which {problem}")
            if path.count("/") > MAX_DEPTH:
                raise _Refused(f"holds {shown}, below more than {MAX_DEPTH} folders")
            if not (member.isdir() or member.isreg()) or member.issparse():
                kind = "a link" if member.issym() or member.islnk() else "no file and no folder"
                raise _Refused(f"holds {shown}, which is {kind}: put the file itself there")
            _put(top, path, _content(archive, member))
    return top


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> "Folder | _File":
    if member.isdir():
        return {}
    file = archive.extractfile(member)
    assert file is not None
    content = file.read()
    if len(content) != member.size:
        raise tarfile.ReadError("cut short")
    kept = content if len(content) <= MAX_BYTES else None
    return _File(kept, _object_id("blob", content), bool(member.mode & 0o100))


def _put(top: Folder, path: str, content: "Folder | _File") -> None:
    """Put a file or folder in its place. Raises _Refused where another one is."""
    *above, name = path.split("/")
    folder: Folder | _File | None = top
    for one in above:
        folder = folder.setdefault(one, {}) if isinstance(folder, dict) else None
    if not isinstance(folder, dict) or (name in folder and not (folder[name] == {} == content)):
        raise _Refused(f"holds {path[:200]!r} twice, or below a file")
    folder[name] = content


def _at(top: Folder, path: str) -> "Folder | _File":
    """Return what is at a path, "" for the top. Raises Unreadable."""
    found: Folder | _File = top
    for name in path.split("/") if path else ():
        if not isinstance(found, dict) or name not in found:
            raise Unreadable("missing-file", "does not exist")
        found = found[name]
    return found


class _Archive:
    """A `gather.Store` in folders that were unpacked."""

    def __init__(self, top: "Folder | _File") -> None:
        if not isinstance(top, dict):
            raise Unreadable("missing-file", "does not exist")
        self._top = top

    def entries(self, folder: str) -> Iterator[tuple[str, EntryType]]:
        found = _at(self._top, folder)
        if not isinstance(found, dict):
            raise gather.not_a_file(EntryType.OTHER)
        for name, one in sorted(found.items()):
            yield name, _type(one)

    def read(self, path: str) -> bytes:
        found = _at(self._top, path)
        if not isinstance(found, _File):
            raise gather.not_a_file(EntryType.FOLDER)
        if found.content is None:
            raise gather.too_large()
        return found.content

    def entry_type(self, path: str) -> EntryType:
        return _type(_at(self._top, path))

    def target(self, path: str) -> str:
        """Refuse: no archive with a link is read."""
        raise Unreadable("missing-file", f"is no link: {path}")


def _type(found: "Folder | _File") -> EntryType:
    return EntryType.FOLDER if isinstance(found, dict) else EntryType.FILE

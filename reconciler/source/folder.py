"""A fleet repository in a folder on disk, read so that nothing in it leads out of it.

Every name is opened beneath the folder, one by one, and a link is never followed: a committed
link to a secret on this machine would else end up in the output (CVE-2022-24904).
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from reconciler.core.errors import ConfigError
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.fleet.files import Snapshot
from reconciler.source import gather
from reconciler.source.gather import EntryType, Unreadable

# Without O_NONBLOCK, opening a named pipe would wait for its writer.
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def read(path: Path, *, check_owner: bool = True, whole: bool = False) -> Snapshot:
    """Return the fleet in a folder, or that whose first file is `path`.

    Its revision is the commit at HEAD of the Git work tree it is in, with "+dirty" if the fleet
    is not as committed. `whole` refuses a work tree that Git is writing, or that lacks files of
    that commit. Raises InvalidRepository, ConfigError where the path cannot be opened, or
    the Git repository belongs to another user (unless `check_owner` is false), and HostError.
    """
    is_folder = path.is_dir()
    top = path if is_folder else path.parent
    try:
        descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if not is_folder:
            os.stat(path, follow_symlinks=False)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
    try:
        store = _Folder(descriptor)
        entry = gather.find_entry(store) if is_folder else path.name
        gathered = gather.gather(store, entry)
    finally:
        os.close(descriptor)
    folder, revision = "", ""
    if _in_git(top):
        from reconciler.source import git  # takes 80 ms, and many fleets are looked at without

        folder, revision = git.work_tree(top, gathered, check_owner=check_owner, whole=whole)
    return Snapshot(gathered.files, revision, entry, gathered.unread, folder)


def _in_git(folder: Path) -> bool:
    absolute = folder.resolve()
    return any((parent / ".git").exists() for parent in (absolute, *absolute.parents))


class _Folder:
    """A `gather.Store` beneath an open folder."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def entries(self, folder: str) -> Iterator[tuple[str, EntryType]]:
        descriptor = self._open(folder, folder.split("/") if folder else ["."], os.O_DIRECTORY)
        try:
            with os.scandir(descriptor) as found:
                # Sorted, so that the same file is the one too many each time.
                entries = sorted((entry.name, _type_of(entry)) for entry in found)
        finally:
            os.close(descriptor)
        yield from entries

    def read(self, path: str) -> bytes:
        descriptor = self._open(path, path.split("/"), 0)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise gather.not_a_file(_type(status.st_mode))
            if status.st_size > MAX_BYTES:
                raise gather.too_large()
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(content) > MAX_BYTES:
            raise gather.too_large()
        return content

    def _open(self, path: str, names: list[str], flags: int) -> int:
        """Return a descriptor of what is at `names`, opened one beneath the other."""
        descriptor = os.dup(self._descriptor)
        for name in names:
            last = name is names[-1]
            try:
                inner = os.open(
                    name, _FLAGS | (flags if last else os.O_DIRECTORY), dir_fd=descriptor
                )
            except OSError as error:
                raise _refusal(error, name, descriptor) from None
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor


def _refusal(error: OSError, name: str, folder: int) -> Unreadable:
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return gather.not_a_file(EntryType.LINK)
    if error.errno == errno.ENXIO:  # a socket
        return gather.not_a_file(EntryType.OTHER)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Unreadable("missing-file", "does not exist")
    return Unreadable("unreadable-file", f"cannot be read: {error.strerror}")


def _type_of(entry: os.DirEntry[str]) -> EntryType:
    if entry.is_symlink():
        return EntryType.LINK
    if entry.is_dir(follow_symlinks=False):
        return EntryType.FOLDER
    return EntryType.FILE if entry.is_file(follow_symlinks=False) else EntryType.OTHER


def _type(mode: int) -> EntryType:
    return EntryType.FOLDER if stat.S_ISDIR(mode) else EntryType.OTHER

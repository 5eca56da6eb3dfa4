"""The fleet in a folder on disk: its files, and those that no include reads.

Every name is opened beneath the folder, one by one, and a link is never followed: a committed link
to a secret on this machine would else end up in the output (CVE-2022-24904).
"""

import contextlib
import errno
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from reconciler.core.errors import ConfigError, InvalidRepository, Origin, Problem, Severity
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.fleet import files
from reconciler.fleet.files import Patterns, Snapshot
from reconciler.source import listed
from reconciler.source.gather import (
    EntryType,
    Unreadable,
    find_entry,
    gather,
    not_a_file,
    too_large,
    walk,
)

# Without O_NONBLOCK, opening a named pipe would wait for its writer.
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def read_folder(path: Path, *, check_owner: bool = True, whole: bool = False) -> Snapshot:
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
        if not os.fstat(descriptor).st_nlink:
            raise ConfigError(
                "this folder was deleted", where=str(path), hint="Change into another"
            )
        store = _Folder(descriptor)
        entry = find_entry(store) if is_folder else path.name
        gathered = gather(store, entry)
        folder, revision = "", ""
        if git_entries(top):
            from reconciler.source import git  # takes 80 ms, and many fleets are without

            folder, revision = git.work_tree(top, gathered, check_owner=check_owner, whole=whole)
    finally:
        os.close(descriptor)
    return Snapshot(gathered.files, revision, entry, gathered.unread, folder)


def git_entries(folder: Path) -> Sequence[Path]:
    """Return each `.git` in a folder and in those that it lies in, the nearest one first."""
    absolute = folder.resolve()
    places = (parent / ".git" for parent in (absolute, *absolute.parents))
    return [place for place in places if place.exists()]


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
                raise not_a_file(_type(status.st_mode))
            if status.st_size > MAX_BYTES:
                raise too_large()
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(content) > MAX_BYTES:
            raise too_large()
        return content

    def entry_type(self, path: str) -> EntryType:
        descriptor = self._open(path, path.split("/"), 0)
        try:
            mode = os.fstat(descriptor).st_mode
        finally:
            os.close(descriptor)
        return EntryType.FILE if stat.S_ISREG(mode) else _type(mode)

    def target(self, path: str) -> str:
        above, _, name = path.rpartition("/")
        descriptor = self._open(above, above.split("/") if above else ["."], os.O_DIRECTORY)
        try:
            return os.readlink(name, dir_fd=descriptor)
        except OSError as error:
            raise _refusal(error, name, descriptor) from None
        finally:
            os.close(descriptor)

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
            return not_a_file(EntryType.LINK)
    if error.errno == errno.ENXIO:  # a socket
        return not_a_file(EntryType.OTHER)
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


def unread_documents(folder: Path, snapshot: Snapshot) -> Iterator[Problem]:
    """Yield a warning for each file below a folder that has documents of a fleet, and is not read.

    A folder with a first file of its own is another fleet, and one with `services.yaml` is the
    sandbox's. Where there are more than MAX_FILES, none is looked at. What lists of the fleet's
    files leave out is a problem, too (`listed.problems`).
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        store = _Folder(descriptor)
        found = walk(store, Patterns(_YAML))
        with contextlib.suppress(InvalidRepository):
            paths = sorted(path for path, one in found if one is EntryType.FILE)
            others = {posixpath.dirname(one) for one in paths if one.endswith(_ENTRIES)}
            for path in paths:
                if posixpath.basename(path) in listed.KUSTOMIZATIONS:
                    yield from listed.problems(path, store.read, snapshot)
                above = {str(one) for one in PurePosixPath(path).parents}
                if path in snapshot.files or path in snapshot.unread or others & above:
                    continue
                with contextlib.suppress(Unreadable):
                    if _OF_A_FLEET.search(store.read(path)):
                        yield Problem(Origin(path), *_UNREAD, severity=Severity.WARNING)
    finally:
        os.close(descriptor)


_YAML: Final = ("**/*.yaml", "**/*.yml", "**/Kustomization")
_ENTRIES: Final = tuple(f"/{name}" for name in (*files.ENTRY_NAMES, "services.yaml"))
_OF_A_FLEET: Final = re.compile(
    rb"(?m)^apiVersion: *[\"']?fleet\.klutchctl\.dev/.*(?:\n(?!kind: [\"']?FleetS)|\Z)"
)
_UNREAD: Final = (
    "unread-file",
    "has documents of a fleet, and no include reads it",
    "Name it in spec.include, or move it out of the repository",
)

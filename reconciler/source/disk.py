"""Reads a fleet from a folder on disk, and finds files that no include reads.

Every name is opened beneath the folder, one by one, and a link is never followed: a committed link
to a secret on this machine would else end up in the output (CVE-2022-24904).

Flux and Argo CD bring files as a ConfigMap: a kustomization lists them, and a Pod lists the keys
that it mounts. Neither complains of a file that is left out, and without it, its units are
released. So those lists are compared with the files, which they name relative to the folder.
"""

import contextlib
import errno
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Final

from reconciler.core.errors import ConfigError, InvalidRepository, Origin, Problem, Severity
from reconciler.core.yaml_text import MAX_BYTES, Fields, Items, Node, UnreadableText, read, read_all
from reconciler.fleet import files
from reconciler.fleet.files import Patterns, Snapshot
from reconciler.source.gather import (
    EntryType,
    Gathered,
    Unreadable,
    find_entry,
    gather,
    not_a_file,
    too_large,
    walk,
)

# Without O_NONBLOCK, opening a named pipe would wait for its writer.
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_ENDINGS: Final = (".yaml", ".yml")
KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")


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
        """Return a descriptor of the file at `names`, opened one beneath the other."""
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
    files leave out is a problem, too: they are parsed within the limits of a fleet.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        store = _Folder(descriptor)
        found = walk(store, Patterns(_YAML))
        paths = list[str]()
        with contextlib.suppress(InvalidRepository):
            paths = sorted(path for path, one in found if one is EntryType.FILE)
        others = {posixpath.dirname(one) for one in paths if one.endswith(_ENTRIES)}
        for path in paths:
            above = {str(one) for one in PurePosixPath(path).parents}
            if path in snapshot.files or path in snapshot.unread or others & above:
                continue
            with contextlib.suppress(Unreadable):
                if _OF_A_FLEET.search(store.read(path)):
                    yield Problem(Origin(path), *_UNREAD, severity=Severity.WARNING)
        load = Gathered(store).read
        lists = (one for one in paths if posixpath.basename(one) in KUSTOMIZATIONS)
        lacks = chain.from_iterable(problems(one, load, snapshot) for one in lists)
        yield from islice(lacks, _MOST_LACKS)
    except InvalidRepository as error:
        yield from error.problems
    finally:
        os.close(descriptor)


_YAML: Final = ("**/*.yaml", "**/*.yml", "**/Kustomization")
_MOST_LACKS: Final = 1_000  # each list may lack each file of the fleet
_ENTRIES: Final = tuple(f"/{name}" for name in (*files.ENTRY_NAMES, "services.yaml"))
_OF_A_FLEET: Final = re.compile(
    rb"(?m)^apiVersion: *[\"']?fleet\.klutchctl\.dev/.*(?:\n(?!kind: [\"']?FleetS)|\Z)"
)
_UNREAD: Final = (
    "unread-file",
    "has documents of a fleet, and no include reads it",
    "Name it in spec.include, or move it out of the repository",
)


def problems(path: str, load: Callable[[str], bytes], snapshot: Snapshot) -> Iterator[Problem]:
    """Yield the files that the kustomization at `path` lacks, or lists though they are absent.

    `load` returns the content of a file, and raises Unreadable and InvalidRepository. A file that
    is no kustomization is left to Kustomize.
    """
    try:
        document = read(load(path), path)
        generators = document.sections("configMapGenerator")
        resources = [_beside(path, one) for one in document.texts("resources")]
        resources = [one for one in resources if one.endswith(_ENDINGS) and _is_inside(one)]
        for generator in generators:
            listed = dict(_listed(path, generator))
            if listed.keys() & snapshot.files.keys():
                yield from _differing(generator, listed, load, snapshot)
                keys = {key: file for file, (key, _) in listed.items()}
                for resource in resources:
                    yield from _unmounted(resource, load, generator.text("name"), keys)
    except (UnreadableText, Unreadable):
        return


def _beside(path: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))


def _is_inside(path: str) -> bool:
    return not path.startswith(("/", "../")) and ":" not in path  # no URL either


def _listed(path: str, generator: Fields) -> Iterator[tuple[str, tuple[str, Origin]]]:
    """Yield each file, with its key and the place of its line."""
    for number, entry in enumerate(generator.texts("files")):
        key, _, file = entry.rpartition("=")
        files = generator.nodes["files"]
        assert isinstance(files, Items)
        if _is_inside(file := _beside(path, file)):
            yield file, (key or posixpath.basename(file), files.nodes[number].origin)


def _differing(
    generator: Fields,
    listed: Mapping[str, tuple[str, Origin]],
    load: Callable[[str], bytes],
    snapshot: Snapshot,
) -> Iterator[Problem]:
    for file in sorted(snapshot.files.keys() - listed.keys()):
        hint = f"Add the line `- {file.replace('/', '.')}={file}`"
        yield _warning(generator.at("files"), f"leaves out {file} of the fleet", hint)
    for file, (_, origin) in listed.items():
        try:
            if file not in snapshot.files:
                load(file)
        except Unreadable as error:
            yield _warning(origin, f"lists {file}, which {error.message}", "Take its line away")


def _unmounted(
    path: str, load: Callable[[str], bytes], name: str, keys: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield the keys of ConfigMap `name` that a volume in the file at `path` leaves out."""
    for volume in (one for node in read_all(load(path), path) for one in _volumes(node)):
        items = {item.text("key"): item for item in volume.sections("items")}
        if volume.text("name") != name or not items:
            continue
        for key in sorted(keys.keys() - items.keys()):
            hint = f"Add the line `- {{key: {key}, path: {keys[key]}}}`"
            yield _warning(volume.at("items"), f"leaves out key {key}", hint)
        for key, item in items.items():
            if keys.get(key, item.text("path")) != item.text("path"):
                wrong = f"key {key} is {keys[key]}, and comes as {item.text('path')}"
                yield _warning(item.at("path"), wrong, f"Let it come as {keys[key]}")


def _warning(origin: Origin, message: str, hint: str) -> Problem:
    return Problem(origin, "unlisted-file", message, hint, severity=Severity.WARNING)


def _volumes(node: Node) -> Iterator[Fields]:
    """Yield each mapping that stands at a key `configMap`."""
    if isinstance(node, Items):
        for one in node.nodes:
            yield from _volumes(one)
    elif isinstance(node, Fields):
        for key, one in node.nodes.items():
            if key == "configMap" and isinstance(one, Fields):
                yield one
            yield from _volumes(one)

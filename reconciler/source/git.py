"""Reads a fleet repository from a Git commit. No other module reads Git repositories.

From a commit, files are read out of its tree object: nothing is checked out, no filter or hook
runs, no link or submodule is followed. A ref is looked up by its name and never parsed: the
language of revisions has been a way to attack libgit2 (CVE-2024-24575, CVE-2024-24577).
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import pygit2
from pygit2.enums import FileMode, SortMode

from reconciler.core.documents import first_of
from reconciler.core.errors import ConfigError, InvalidRepository
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.fleet import base_model
from reconciler.fleet.files import Snapshot
from reconciler.source import gather, opening
from reconciler.source.gather import EntryType, Gathered, Unreadable

_NAMESPACES: Final = ("refs/heads/", "refs/tags/", "refs/remotes/")
_DAMAGED: Final = "A partial or damaged clone lacks objects: fetch them"
_LEFT_OUT: Final = Unreadable(
    "missing-file",
    "is committed, and a sparse checkout leaves it out",
    "`git sparse-checkout disable`, or add its folder; commit it if it was taken away",
)
_ANCESTORS: Final = 200
_LONGEST_TARGET: Final = 4_096  # of a link, in bytes: as on Linux
_OBJECT_ID: Final = re.compile("[0-9a-f]{40}([0-9a-f]{24})?")
_TYPES: Final = {
    FileMode.BLOB: EntryType.FILE,
    FileMode.BLOB_EXECUTABLE: EntryType.FILE,
    FileMode.TREE: EntryType.FOLDER,
    FileMode.LINK: EntryType.LINK,
    FileMode.COMMIT: EntryType.SUBMODULE,
}


def read(repository: Path, ref: str, *, folder: str = "") -> Snapshot:
    """Return the fleet in a commit of a repository that is our own.

    `ref` is HEAD, the full name of a branch, tag or remote branch with or without its
    `refs/.../`, or a whole commit id. `folder` is as in `Snapshot`. Raises InvalidRepository,
    ConfigError for a repository or ref that cannot be used, and HostError.
    """
    opened = opening.opened(repository, check_owner=False, own=True)
    return _read(opened, _commit(opened, ref), folder, "")


def read_at(path: Path, ref: str, *, check_owner: bool = True) -> Snapshot:
    """Return the fleet that a path means, as it is in a commit of the repository it lies in.

    `path` is a folder or first file as in `disk.read_folder`; it need not be there now, only in
    the commit. `ref` and errors are as in `read`.
    """
    there = _existing(path)
    opened = opening.opened(there, check_owner=check_owner)
    commit = _commit(opened, ref)
    inside = _inside(opened, there, path)
    if not inside:
        return _read(opened, commit, "", "")
    above, _, name = inside.rpartition("/")
    if _is_file(opened, commit, inside):
        return _read(opened, commit, f"{above}/" if above else "", name)
    return _read(opened, commit, f"{inside}/", "")


def commit_at(path: Path, ref: str, *, check_owner: bool = True) -> str:
    """Return the id of the commit that `read_at` would read. Raises ConfigError and HostError."""
    return str(_commit(opening.opened(_existing(path), check_owner=check_owner), ref).id)


def ancestors(path: Path, revision: str, *, check_owner: bool = True) -> Sequence[str]:
    """Return the last first parents of a revision that are in the clone: none without Git."""
    found: list[str] = []
    with contextlib.suppress(ConfigError, pygit2.GitError, KeyError, ValueError):
        repository = opening.opened(_existing(path), check_owner=check_owner)
        walk = repository.walk(revision.removesuffix("+dirty"), SortMode.TOPOLOGICAL)
        walk.simplify_first_parent()
        found.extend(str(one.id) for one in islice(walk, _ANCESTORS))
    return found[1:]


def tree_id(repository: pygit2.Repository, commit: str, folder: str) -> str:
    """Return the id of a folder's tree, as `git rev-parse COMMIT:FOLDER` does, "" without one."""
    try:
        return str(_subfolder(repository, repository[commit].peel(pygit2.Commit), folder).id)
    except (ConfigError, pygit2.GitError, KeyError, ValueError):
        return ""


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())


def _read(opened: pygit2.Repository, commit: pygit2.Commit, folder: str, entry: str) -> Snapshot:
    store = _Commit(opened, _subfolder(opened, commit, folder))
    try:
        name = entry or gather.find_entry(store)
        found = gather.gather(store, name)
    except InvalidRepository as error:
        raise InvalidRepository(error.problems, revision=str(commit.id)) from None
    return Snapshot(found.files, str(commit.id), name, found.unread, folder)


def _inside(opened: pygit2.Repository, there: Path, path: Path) -> str:
    """Return the place of `path` in the repository's trees; `there` is the existing part."""
    top = Path(opened.workdir or opened.path).resolve()
    missing = path.absolute().relative_to(there.absolute()).parts
    try:
        found = there.resolve().relative_to(top).parts
    except ValueError:
        raise ConfigError(f"it is outside the work tree {top}", where=str(path)) from None
    return "/".join((*found, *missing))


def _is_file(opened: pygit2.Repository, commit: pygit2.Commit, path: str) -> bool:
    if base_model.path_problem(path):
        return False  # as a folder, it is refused with that problem
    try:
        return _type_of(_descend(_top(commit), path.split("/"))) is not EntryType.FOLDER
    except Unreadable:
        return False


def work_tree(
    top: Path, gathered: Gathered, *, check_owner: bool, whole: bool = False
) -> tuple[str, str]:
    """Return where `top` lies in its Git work tree, and the revision of the gathered files.

    Both are as in `Snapshot`, and "" without a repository or commit. `whole` refuses a work tree
    that may be a checkout cut short: a file of the fleet that was taken away on purpose is
    committed as such. Raises ConfigError and HostError.
    """
    try:
        repository = opening.opened_if_any(top, check_owner=check_owner)
    except opening.NewerFormat:
        if whole:  # nothing could tell a checkout that was cut short
            raise
        return "", ""
    if repository is None or repository.workdir is None or repository.head_is_unborn:
        return "", ""
    # Git holds it for as long as it writes files.
    if whole and (Path(repository.path) / "index.lock").exists():
        hint = "If no Git command runs there, remove index.lock in its Git folder"
        raise ConfigError("Git is writing to this work tree", where=str(top), hint=hint)
    inside = _inside(repository, top, top)
    commit = _commit(repository, "HEAD")
    try:
        store = _Commit(repository, _subfolder(repository, commit, inside))
    except ConfigError:
        store = None  # the folder is new
    walked = () if store is None else tuple(gather.walk(store, gathered.patterns))
    submodules = (path for path, found in walked if found is EntryType.SUBMODULE)
    gathered.refuse_submodules(submodules, whole=whole)
    if store is not None:
        gathered.refuse_links(_links_to_folders(store, walked))
    committed = {path for path, found in walked if found is EntryType.FILE}
    missing = sorted(committed - gathered.files.keys() - gathered.unread.keys())
    if whole and missing:
        raise ConfigError(
            f"the work tree lacks {first_of(missing, 1)}, which is committed",
            where=str(top),
            hint="Restore it, or commit that it was taken away",
        )
    # Committed files may be kept out of the work tree on purpose.
    settings, sparse = repository.config, "core.sparseCheckout"
    for path in missing if sparse in settings and settings.get_bool(sparse) else ():
        gathered.refuse(path, _LEFT_OUT)
    as_committed = (
        store is not None
        and committed <= gathered.files.keys()
        and all(store.id_of(path) == pygit2.hash(text) for path, text in gathered.files.items())
    )
    revision = str(commit.id) if as_committed else f"{commit.id}+dirty"
    return f"{inside}/" if inside else "", revision


def _links_to_folders(
    store: "_Commit", walked: Iterable[tuple[str, EntryType | Unreadable]]
) -> Iterator[tuple[str, str]]:
    """Yield path and target of each link that may lead to files of the fleet."""
    for path, found in walked:
        if found is EntryType.LINK and path.endswith("/"):
            with contextlib.suppress(Unreadable):
                yield path, store.target(path.rstrip("/"))


def _commit(repository: pygit2.Repository, ref: str) -> pygit2.Commit:
    try:
        found = _candidates(repository, ref)
    except (pygit2.GitError, KeyError, ValueError) as error:
        raise ConfigError(f"{ref!r} is no commit: {opening.reason(error)}", where="ref") from None
    if not found:
        hint = "Write HEAD, a branch, a tag or a whole commit id; what a shallow clone lacks, fetch"
        raise ConfigError(f"{ref!r} is not in the repository", where="ref", hint=hint)
    if len({commit.id for commit in found.values()}) > 1:
        hint = f"Write one of {', '.join(found)}"
        raise ConfigError(f"{ref!r} has several meanings", where="ref", hint=hint)
    return next(iter(found.values()))


def _candidates(repository: pygit2.Repository, ref: str) -> dict[str, pygit2.Commit]:
    """Return the commits that `ref` can mean, by full names."""
    if ref == "HEAD":
        return {ref: repository.head.peel(pygit2.Commit)}
    if _OBJECT_ID.fullmatch(ref):
        target = repository.get(ref)
        return {} if target is None else {ref: target.peel(pygit2.Commit)}
    names = [ref] if ref.startswith(_NAMESPACES) else [space + ref for space in _NAMESPACES]
    return {
        name: repository.lookup_reference(name).peel(pygit2.Commit)
        for name in names
        if pygit2.reference_is_valid_name(name) and name in repository.references
    }


def _subfolder(repository: pygit2.Repository, commit: pygit2.Commit, folder: str) -> pygit2.Tree:
    path = folder.rstrip("/")
    top = _top(commit)
    if not path:
        return top
    if problem := base_model.path_problem(path):
        raise ConfigError(f"{path!r} {problem}", where="folder")
    try:
        found = _descend(top, path.split("/"))
    except Unreadable:
        found = None
    if not isinstance(found, pygit2.Tree):
        raise ConfigError(f"there is no folder {path!r} in commit {commit.id}", where="folder")
    return found


def _top(commit: pygit2.Commit) -> pygit2.Tree:
    try:
        return commit.tree
    except pygit2.GitError as error:
        raise ConfigError(
            f"cannot be read: {opening.reason(error)}", where=f"commit {commit.id}", hint=_DAMAGED
        ) from None


class _Commit:
    """A `gather.Store` in a tree object."""

    def __init__(self, repository: pygit2.Repository, top: pygit2.Tree) -> None:
        self._repository, self._top = repository, top
        self._folders: dict[str, pygit2.Object] = {}

    def entries(self, folder: str) -> Iterator[tuple[str, EntryType]]:
        tree = self._at(folder) if folder else self._top
        if not isinstance(tree, pygit2.Tree):
            raise gather.not_a_file(EntryType.OTHER)
        for entry in tree:
            # No client writes a name with a slash. It must not pass for a path.
            yield os.fsdecode(entry.raw_name or b"").replace("/", "\\x2f"), _type_of(entry)

    def id_of(self, path: str) -> pygit2.Oid | None:
        """Return the id of the file at `path`, or None. Raises Unreadable."""
        try:
            return self._at(path).id
        except Unreadable:
            return None

    def read(self, path: str) -> bytes:
        found = self._at(path)
        entry_type = _type_of(found)
        if entry_type is not EntryType.FILE:
            raise gather.not_a_file(entry_type)
        return self._content(found, MAX_BYTES)

    def entry_type(self, path: str) -> EntryType:
        return _type_of(self._at(path))

    def target(self, path: str) -> str:
        return os.fsdecode(self._content(self._at(path), _LONGEST_TARGET))

    def _content(self, found: pygit2.Object, most: int) -> bytes:
        try:
            _, size = self._repository.odb.read_header(found.id)
            if size > most:
                raise gather.too_large()
            _, content = self._repository.odb.read(found.id)
        except (pygit2.GitError, KeyError) as error:
            raise _broken(error) from None
        return content

    def _at(self, path: str) -> pygit2.Object:
        """Return the entry at a path. A folder holds many files, and is looked up once."""
        above, inside, name = path.rpartition("/")
        if not inside:
            return _descend(self._top, [name])
        if above not in self._folders:
            self._folders[above] = _descend(self._top, above.split("/"))
        return _descend(self._folders[above], [name])


def _descend(tree: pygit2.Object, names: list[str]) -> pygit2.Object:
    """Return the entry at a path, name by name: a link or submodule on the way leads nowhere."""
    found: pygit2.Object = tree
    try:
        for name in names:
            if not isinstance(found, pygit2.Tree):
                raise gather.not_a_file(_type_of(found))
            found = found[name]
    except KeyError:
        raise Unreadable("missing-file", "does not exist") from None
    except (pygit2.GitError, ValueError) as error:
        raise _broken(error) from None
    return found


def _type_of(entry: pygit2.Object) -> EntryType:
    return _TYPES.get(FileMode(entry.filemode or 0), EntryType.OTHER)


def _broken(error: Exception) -> Unreadable:
    return Unreadable("unreadable-file", f"cannot be read: {opening.reason(error)}", _DAMAGED)

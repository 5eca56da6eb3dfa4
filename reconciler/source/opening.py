"""Opens the Git repository that a folder lies in, unless a commit chose the folder."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pygit2
from pygit2.enums import FileMode, RepositoryOpenFlag

from reconciler.core.errors import ConfigError, HostError
from reconciler.source import disk

# How libgit2 says that a repository has a newer format than it knows, such as SHA-256 or reftable.
_NEWER: Final = ("unknown object format", "unsupported extension", "unsupported repository version")
# Earlier ones send credentials on to another host after a redirect (CVE-2026-53586).
_OLDEST: Final = (1, 9, 5)
_CHOICES: Final = {
    FileMode.LINK: (
        "a symbolic link",
        "Put the folder itself there, or name the one that the link leads to",
    ),
    FileMode.COMMIT: (
        "a submodule",
        "Put the files themselves there, or name a clone that is by itself",
    ),
}


class NewerFormat(ConfigError):
    """A repository in a format that libgit2 does not know: its files are as readable as any."""


def opened(path: Path, *, check_owner: bool, own: bool = False) -> pygit2.Repository:
    """Return the repository that a folder lies in, for reading its branches.

    `own`: that is made by us at this path. Raises ConfigError where there is none, it cannot be
    opened, or a commit chose the folder, and HostError.
    """
    repository = _opened(path, check_owner=check_owner, own=own, judging=not own)
    if repository is None:
        raise ConfigError("there is no Git repository here", where=str(path))
    return repository


def opened_if_any(path: Path, *, check_owner: bool) -> pygit2.Repository | None:
    """Return the repository that a folder lies in.

    Raises ConfigError, NewerFormat of them for a repository that only Git itself can read, and
    HostError.
    """
    return _opened(path, check_owner=check_owner, own=False, judging=False)


def _opened(path: Path, *, check_owner: bool, own: bool, judging: bool) -> pygit2.Repository | None:
    check_library()
    pygit2.settings.owner_validation = check_owner
    try:
        if own:
            return _exactly(path)
        if judging:
            _refuse_chosen(path)
        return _nearest(path.resolve())
    except (pygit2.GitError, KeyError, ValueError) as error:
        if "is not owned by current user" in str(error):
            raise ConfigError(
                "the Git repository belongs to another user",
                where=str(path),
                hint="Usual in CI containers; `klutchctl --git-owner-check=off ...` trusts it, or"
                " `git config --global --add safe.directory <path>`",
            ) from None
        message = f"the Git repository cannot be opened: {reason(error)}"
        if any(words in message for words in _NEWER):
            hint = "Commits and branches of this format are not read: leave --ref and --base out"
            raise NewerFormat(message, where=str(path), hint=hint) from None
        raise ConfigError(message, where=str(path)) from None


def _refuse_chosen(folder: Path) -> None:
    """Refuse a folder to which a link or submodule of a commit leads.

    With the place, the commit would choose the branches, or the fleet in them, that judge it.
    """
    for place in (*_links(folder), *(entry.parent for entry in disk.git_entries(folder))):
        for outer in filter(None, map(_exactly, disk.git_entries(place.parent))):
            mode = _committed_as(outer, place)
            if mode in _CHOICES:
                name, hint = _CHOICES[mode]
                problem = f"{place} is {name} in Git: its commit would choose its own rules"
                raise ConfigError(problem, where=str(folder), hint=hint)


def _links(folder: Path) -> Sequence[Path]:
    """Return each link on the way to a folder that is there, by a path without links."""
    found, here, names = [], Path("/"), [*reversed(_as_the_shell_came(folder).parts)]
    while names:
        here = here.parent if (name := names.pop()) == ".." else here / name
        if here.is_symlink():
            found.append(here)
            names += reversed(here.readlink().parts)
            here = here.parent
    return found


def _as_the_shell_came(path: Path) -> Path:
    """Return a path from the root; only a shell knows by which links it came to where it is."""
    shell_folder = os.environ.get("PWD", "")
    with contextlib.suppress(OSError):
        if shell_folder.startswith("/") and os.path.samefile(shell_folder, "."):
            return shell_folder / path
    return path.absolute()


def _committed_as(repository: pygit2.Repository, place: Path) -> FileMode:
    """Return the mode in the index, or else at HEAD, of a link or clone in a work tree."""
    top = Path(repository.workdir or repository.path).resolve()
    status = place.lstat()
    for entry in repository.index:
        # Not by name: file systems may take `Fleet` for `fleet`.
        if entry.mode in _CHOICES and _is(top / entry.path, status):
            return FileMode(entry.mode)
    if repository.head_is_unborn or not place.is_relative_to(top):
        return FileMode.UNREADABLE
    tree, name = repository.head.peel(pygit2.Tree), place.relative_to(top).as_posix()
    return FileMode(tree[name].filemode if name in tree else 0)


def _is(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), status)
    except OSError:
        return False


def _nearest(folder: Path) -> pygit2.Repository | None:
    """Return the repository that a folder lies in.

    A bare one counts only where no `.git` is above: else it may be plain files of a commit, by
    which that commit would bring the branches that it is judged by. No commit can hold a `.git`.
    """
    above = disk.git_entries(folder)
    if not above:
        found = pygit2.discover_repository(str(folder))
        return None if found is None else pygit2.Repository(found)
    device = folder.stat().st_dev  # like Git, which does not look beyond a mount
    near = (place for place in above if place.parent.stat().st_dev == device)
    return next(filter(None, map(_exactly, near)), None)


def _exactly(path: Path) -> pygit2.Repository | None:
    """Return the repository at a path, or None where there is none."""
    try:
        return pygit2.Repository(
            str(path), RepositoryOpenFlag.NO_SEARCH | RepositoryOpenFlag.NO_DOTGIT
        )
    except pygit2.GitError as error:
        if str(error).startswith("Repository not found"):
            return None
        raise


def check_library() -> None:
    """Raise HostError where libgit2 is one that must not talk to servers."""
    if tuple(map(int, pygit2.LIBGIT2_VERSION.split(".")[:3])) < _OLDEST:
        raise HostError(
            f"libgit2 {pygit2.LIBGIT2_VERSION} is not safe to use",
            hint="Install pygit2 1.21 or later, built with libgit2 1.9.5 or later",
        )


def reason(error: Exception) -> str:
    return str(error.args[0]) if error.args else type(error).__name__

"""Gathers the files of a fleet, from a folder on disk or by another `Store`, within limits.

The first file says which others belong to it; nothing else is opened, and a folder that no
include reaches is not looked into.
"""

import contextlib
import os
import posixpath
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import Final, Protocol

from reconciler.core.errors import InvalidRepository, Origin, Problem
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.fleet import base_model, files, wording
from reconciler.fleet.files import Patterns

MAX_FILES: Final = 10_000
MAX_TREE_BYTES: Final = 64 << 20
MAX_VALUES: Final = 4_000_000  # each takes a hundred bytes of memory, and two in a file
MAX_DEPTH: Final = 64
_MARKS: Final = (b",", b":", b"\n", b"[", b"{")


class EntryType(Enum):
    """The type of an entry in a folder; the value is its name in a sentence."""

    FILE = "a file"
    FOLDER = "a folder"
    LINK = "a symbolic link"
    SUBMODULE = "a submodule"
    OTHER = "neither a file nor a folder"


class Unreadable(Exception):
    """A file that cannot be read: `code`, a sentence that goes on from its path, and a hint."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        self.code, self.message, self.hint = code, message, hint
        super().__init__(message)


class Store(Protocol):
    """A folder on disk or in a commit. Paths are relative to it, "" is the folder itself."""

    def entries(self, folder: str) -> Iterator[tuple[str, EntryType]]:
        """Yield the entries of a folder, in any order. Raises Unreadable."""
        ...

    def read(self, path: str) -> bytes:
        """Return the bytes of a file of at most MAX_BYTES. Raises Unreadable, at links too."""
        ...

    def entry_type(self, path: str) -> EntryType:
        """Return the type of the entry at a path that leads through no link. Raises Unreadable."""
        ...

    def target(self, path: str) -> str:
        """Return the target of a link. Raises Unreadable."""
        ...


class Gathered:
    """The files that were fetched, and those that could not be, each with its problem."""

    def __init__(self, store: Store) -> None:
        self.files: dict[str, bytes] = {}
        self.unread: dict[str, Problem] = {}
        self.patterns = Patterns(())
        self._store, self._bytes, self._values = store, 0, 0

    def fetch(self, path: str) -> bytes:
        """Fetch a file, once, and return its bytes, none if it cannot be read."""
        if path in self.files or path in self.unread:
            return self.files.get(path, b"")
        try:
            self.files[path] = self.read(path)
        except Unreadable as error:
            self.refuse(path, error)
        return self.files.get(path, b"")

    def read(self, path: str) -> bytes:
        """Read a file, which counts each time. Raises Unreadable and InvalidRepository."""
        content = self._store.read(path)
        self._bytes += len(content)
        # A reference stands for a text, which takes as much as ten values.
        self._values += sum(map(content.count, _MARKS)) + 10 * content.count(b"${")
        if self._bytes > MAX_TREE_BYTES or self._values > MAX_VALUES:
            raise _stopped("tree-too-large", wording.CODES["tree-too-large"])
        return content

    def fetch_all(self, patterns: Patterns) -> None:
        self.patterns = patterns
        for path, found in walk(self._store, patterns):
            if found is EntryType.FILE:
                self.fetch(path)
            else:
                self.refuse(path, found)

    def refuse_submodules(self, paths: Iterable[str], *, whole: bool) -> None:
        """Refuse submodules of the commit, which a checkout fills or leaves empty.

        What was put in place of one, or (but for `whole`) taken away, is to be committed yet.
        """
        for path in paths:
            try:
                names = {name for name, _ in self._store.entries(path.rstrip("/"))}
            except Unreadable as error:
                if path in self.unread or (error.code == "missing-file" and not whole):
                    continue
                names = set()
            if not names or ".git" in names:
                self.refuse(path, EntryType.SUBMODULE)

    def refuse_links(self, links: Iterable[tuple[str, str]]) -> None:
        """Refuse links of the commit that a checkout without links holds as files with a target."""
        for path, target in links:
            with contextlib.suppress(Unreadable):
                if self._store.read(path.rstrip("/")) == os.fsencode(target):
                    self.refuse(path, EntryType.LINK)

    def refuse(self, path: str, found: EntryType | Unreadable) -> None:
        """Note why a file or, with "/" at the end, a folder is not read."""
        meant = not_a_folder if path.endswith("/") else not_a_file
        error = meant(found) if isinstance(found, EntryType) else found
        shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        shown = "".join(
            character if character.isprintable() else repr(character)[1:-1] for character in shown
        )
        self.unread[shown] = Problem(Origin(shown), error.code, error.message, error.hint)


def walk(store: Store, patterns: Patterns) -> Iterator[tuple[str, EntryType | Unreadable]]:
    """Yield each path that a pattern matches, with its entry or why that is not known.

    Folders are yielded only where a pattern meant a file there. With "/" at the end: the path of
    what a pattern goes into, and that cannot be gone into. Raises InvalidRepository.
    """
    folders = [("", patterns.start)]
    seen = 0
    while folders:
        folder, reaching = folders.pop()
        try:
            entries = list(islice(store.entries(folder), MAX_FILES - seen + 1))
        except Unreadable as error:
            yield f"{folder}/", error
            continue
        seen += len(entries)
        if seen > MAX_FILES:
            message = f"the includes look into folders with more than {MAX_FILES} files"
            raise _stopped("too-many-files", message, "Name narrower folders in spec.include")
        for name, entry_type in entries:
            reach = patterns.step(reaching, name)
            is_folder = entry_type is EntryType.FOLDER
            wanted = reach.named if is_folder else bool(reach.hits)
            path = f"{folder}/{name}" if folder else name
            inside = bool(reach.below) and (
                is_folder or (not wanted and _may_hold_files(store, path, entry_type))
            )
            if not wanted and not inside:
                continue
            deep = f"has more than {MAX_DEPTH} folders" if path.count("/") > MAX_DEPTH else ""
            if problem := base_model.path_problem(path) or deep:
                shown = f"{path}/" if inside else path
                yield shown, Unreadable("bad-path", f"cannot be read: the path {problem}")
                continue
            if wanted:
                yield path, entry_type
            if is_folder and inside:
                folders.append((path, reach.below))
            elif inside:
                yield f"{path}/", entry_type


def _may_hold_files(store: Store, path: str, entry_type: EntryType) -> bool:
    """Return whether files of a pattern may be behind a path that is no folder.

    What is not looked into must not pass for an empty folder: its units would be released.
    """
    if entry_type is not EntryType.LINK:
        return entry_type is not EntryType.FILE
    try:
        target = store.target(path)
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        # With `x/..` the way is another one where x is a link.
        if base_model.path_problem(place) or ".." in target.lstrip("./").split("/"):
            return True
        return store.entry_type(place) is not EntryType.FILE
    except Unreadable:
        return True


def gather(store: Store, entry: str) -> Gathered:
    """Return the files of the fleet whose first file is `entry`. Raises InvalidRepository."""
    gathered = Gathered(store)
    gathered.fetch_all(files.patterns(gathered.fetch(entry), entry))
    for path, text in list(gathered.files.items()):
        for named in sorted(files.ca_files(text, path)):
            gathered.fetch(named)
    return gathered


def find_entry(store: Store) -> str:
    """Return the name of the file to begin with. Raises InvalidRepository."""
    try:
        names = {name for name, _ in store.entries("")}
    except Unreadable as error:
        raise _stopped(error.code, error.message, error.hint) from None
    found = files.entry_file(names)
    if isinstance(found, Problem):
        raise InvalidRepository([found])
    return found


def not_a_file(entry_type: EntryType) -> Unreadable:
    hint = {
        EntryType.FOLDER: "An include of what is inside ends with /*.yaml or /**/*.yaml",
        EntryType.LINK: "Links are not followed: put the file itself there",
        EntryType.SUBMODULE: "Submodules are not read: put the files themselves there",
    }.get(entry_type, "")
    return Unreadable("not-a-file", f"is {entry_type.value}, and must be a file", hint)


def not_a_folder(entry_type: EntryType) -> Unreadable:
    """Return the problem of a path that is no folder, where files are looked for in it."""
    message = f"is {entry_type.value}, and spec.include looks for files in it"
    hint = "That is not read: put the files there themselves, or include narrower folders"
    return Unreadable("not-a-folder", message, hint)


def too_large() -> Unreadable:
    """Return the problem of a file above the limit."""
    return Unreadable("file-too-large", f"is larger than {MAX_BYTES >> 20} MiB")


def _stopped(code: str, message: str, hint: str = "") -> InvalidRepository:
    return InvalidRepository([Problem(Origin("."), code, message, hint)])

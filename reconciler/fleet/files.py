"""Finds the files of a fleet and their documents: the first file, and all that it includes.

A snapshot is text at a revision, not a checkout. A cache keeps parsed and resolved parts from one
load to the next, for a watch: a commit that changes one file of thousands costs little more.
`Patterns` tells which paths an include means.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Any, Final, TypeAlias, TypeVar

from reconciler.core import yaml_text
from reconciler.core.errors import Origin, Problem
from reconciler.core.yaml_text import Items, Node, Scalar, UnreadableText, child
from reconciler.fleet import base_model, parsing
from reconciler.fleet.models import API_VERSION, FleetDocument
from reconciler.fleet.parsing import Document, RawDocument, Scope

T = TypeVar("T")


Match: TypeAlias = Callable[[str], re.Match[str] | None]

_WILD: Final = frozenset("*?[")


@dataclass(eq=False, slots=True)
class _Place:
    """A place in patterns that begin alike: the next steps, and the patterns that end here.

    `deep` is what `**` leads to: a place that stays (`stays`) below any folder.
    """

    stays: bool = False
    ends: set[int] = field(default_factory=set)
    named: dict[str, "_Place"] = field(default_factory=dict)
    wild: dict[str, tuple[Match, "_Place"]] = field(default_factory=dict)
    deep: "_Place | None" = None

    def next(self, segment: str) -> "_Place":
        """Return the place behind a segment, which is made where there is none."""
        if segment == "**":
            self.deep = self.deep or _Place(stays=True)
            return self.deep
        if _WILD.isdisjoint(segment):
            return self.named.setdefault(segment, _Place())
        if segment not in self.wild:
            self.wild[segment] = re.compile(translate(segment)).match, _Place()
        return self.wild[segment][1]

    def after(self, name: str, *, dots: bool) -> Iterator["_Place"]:
        """Yield the places behind a name, other than this one."""
        if name in self.named:
            yield self.named[name]
        hidden = name.startswith(".") and not dots
        for segment, (match, node) in self.wild.items():
            if match(name) and not (hidden and not segment.startswith(".")):
                yield node

    def with_deep(self) -> Iterator["_Place"]:
        """Yield this place, and those that no folder at all leads to."""
        node: _Place | None = self
        while node is not None:
            yield node
            node = node.deep


@dataclass(frozen=True, slots=True)
class Reach:
    """The verdict of patterns on one name.

    `below` is how far they are for what is inside it, empty where none of them is about that.
    `hits` are the numbers of the patterns that end here. `named`: one ends here by more than
    `**`, so that this was meant to be a file.
    """

    below: frozenset[_Place]
    hits: frozenset[int]
    named: bool


class Patterns:
    """Several patterns, compiled into one: a path is held against all of them in one pass.

    `*` and `?` are inside one name, `[...]` sets, `**` any number of folders. A wildcard does not
    match a name that begins with a dot, as in a shell: `.git` and `.github` are never meant. Where
    a pattern forbids (`dots`), it does: no name may escape it. Matching goes name by name, so that
    a folder which no pattern can reach is never opened.
    """

    def __init__(self, texts: Iterable[str], *, dots: bool = False) -> None:
        """Compile patterns that have no problem. `dots`: wildcards match names such as `.a`."""
        self.texts = tuple(texts)
        self._dots = dots
        root = _Place()
        for number, text in enumerate(self.texts):
            node = root
            for segment in text.split("/"):
                node = node.next(segment)
            node.ends.add(number)
        self.start: Final = frozenset(root.with_deep())
        self._folders: dict[str, frozenset[_Place]] = {"": self.start}

    def step(self, reached: frozenset[_Place], name: str) -> Reach:
        """Return how far the patterns are when `name` is the next name of a path."""
        below: set[_Place] = set()
        hits: set[int] = set()
        named = False
        for node in reached:
            if node.stays and (self._dots or not name.startswith(".")):
                below.update(node.with_deep())
                hits |= node.ends
            for other in node.after(name, dots=self._dots):
                below.update(other.with_deep())
                hits |= other.ends
                named = named or bool(other.ends)
        goes_on = (one for one in below if one.stays or one.named or one.wild)
        return Reach(frozenset(goes_on), frozenset(hits), named)

    def hits(self, path: str) -> frozenset[int]:
        """Return the numbers of the patterns that name the file at `path`."""
        folder, _, name = path.rpartition("/")
        return self.step(self._reached(folder), name).hits

    def matches(self, path: str) -> bool:
        """Return whether any of the patterns names the file at `path`."""
        return bool(self.hits(path))

    def _reached(self, folder: str) -> frozenset[_Place]:
        """Return how far the patterns are inside a folder; asked once for each."""
        if folder not in self._folders:
            above, _, name = folder.rpartition("/")
            self._folders[folder] = self.step(self._reached(above), name).below
        return self._folders[folder]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Paths relative to the fleet's folder, with "/", and the bytes of the files that were read.

    `revision` is as in `fleet.values.Fleet`. `entry` is the file to begin with; "" for the one
    that bears the usual name. `unread` are files that could not be read, and why: whoever needs
    one has this problem. With "/" at the end it is what an include goes into, and that could not
    be. `folder` is where all this lies in its Git repository: "" for the top, else ending in "/".
    """

    files: Mapping[str, bytes] = field(repr=False)
    revision: str
    entry: str = ""
    unread: Mapping[str, Problem] = field(default_factory=dict)
    folder: str = ""

    def digests(self, paths: Iterable[str]) -> dict[str, str]:
        """Return digests of the bytes of files by their paths."""
        return {path: hashlib.sha256(self.files[path]).hexdigest() for path in paths}


@dataclass(frozen=True, slots=True)
class _Part:
    made_of: tuple[object, ...]
    value: Any
    problems: tuple[Problem, ...]


class LoadCache:
    """The parts of the last pass. Values are shared by passes, and must not be changed.

    A part is taken from the cache only where all that it was made of is equal, so that a pass with
    a cache gives what one without it gives.
    """

    def __init__(self) -> None:
        self._before: dict[Hashable, _Part] = {}
        self._now: dict[Hashable, _Part] = {}

    def begin(self) -> None:
        """Begin a pass; results that the last one did not use are forgotten."""
        self._before, self._now = self._now, {}

    def recall(
        self,
        key: Hashable,
        made_of: tuple[object, ...],
        make: Callable[[list[Problem]], T],
        *,
        problems: list[Problem],
    ) -> T:
        """Return the result of `make`, and add the problems that it finds.

        `key` names the part; `made_of` is all that `make` looks at.
        """
        part = self._before.get(key)
        if part is None or part.made_of != made_of:
            found: list[Problem] = []
            part = _Part(made_of, make(found), tuple(found))
        self._now[key] = part
        problems.extend(part.problems)
        recalled: T = part.value
        return recalled


@dataclass(frozen=True, slots=True)
class Repository:
    """All documents, in the order of their places. `paths` are the files they stand in.

    `complete`: every file that belongs to the fleet could be read. `refused` are the names of
    documents that are not among them, and "" for one whose name is not known: what is not found
    may be in these.
    """

    fleet: Document[FleetDocument]
    documents: Sequence[RawDocument]
    paths: frozenset[str]
    complete: bool
    refused: frozenset[str] = frozenset()

    def of(self, kind: str) -> Iterable[RawDocument]:
        return (document for document in self.documents if document.kind == kind)


def read(snapshot: Snapshot, problems: list[Problem], cache: LoadCache) -> Repository | None:
    """Return the documents of a fleet, or None where its first file is too incomplete."""
    entry = snapshot.entry or entry_file([*snapshot.files, *snapshot.unread])
    if isinstance(entry, Problem):
        problems.append(entry)
        return None
    first = _documents(entry, snapshot, problems, cache)
    fleet = None if first is None else _fleet_document(first, entry, problems)
    if first is None or fleet is None:
        return None
    matched, unmatched = cache.recall(
        "included",
        (fleet, [*snapshot.files], [*snapshot.unread]),
        lambda _: included(fleet, snapshot.files, snapshot.unread),
        problems=problems,
    )
    problems.extend(unmatched)
    documents, complete = [*first], not unmatched
    for path in sorted(matched - {entry}):
        more = _documents(path, snapshot, problems, cache)
        documents.extend(more or ())
        complete = complete and more is not None
    others = [
        document
        for document in documents
        if document.kind == "Fleet" and document.node is not fleet.node
    ]
    only = "there is one Fleet document, and it stands in the file that is read first"
    hint = "Includes do not include: name the files there"
    problems.extend(Problem(one.origin, "second-fleet", only, hint) for one in others)
    documents = [document for document in documents if document not in others]
    paths = (matched | {entry}) & snapshot.files.keys()
    refused = {one.name for one in documents if not one.kind or (one.kind, one.name) == _NAMELESS}
    known = [one for one in documents if one.kind]
    named = parsing.without_duplicates(known, problems)
    refused |= {""} if len(named) < len(known) else set()
    return Repository(fleet, named, paths, complete, frozenset(refused))


def _documents(
    path: str, snapshot: Snapshot, problems: list[Problem], cache: LoadCache
) -> list[RawDocument] | None:
    """Return the documents in a file; None where it cannot be read as a whole."""
    content = snapshot.files.get(path)
    if content is not None:
        return cache.recall(
            ("file", path),
            (content,),
            lambda found: parsing.read_documents(path, content, found),
            problems=problems,
        )
    unread = snapshot.unread.get(path)
    problems.append(unread or Problem(Origin(path), "missing-file", "there is no such file"))
    return None


def _fleet_document(
    documents: Sequence[RawDocument], entry: str, problems: list[Problem]
) -> Document[FleetDocument] | None:
    fleets = [document for document in documents if document.kind == "Fleet"]
    if not fleets:
        if not problems:
            problems.append(_no_fleet(entry, empty=not documents))
        return None
    scope = Scope(parsing.variables_of(fleets[0]))
    read = parsing.document(fleets[0], FleetDocument, scope=scope, problems=problems)
    return read or _valid_part(fleets[0])


def _valid_part(raw: RawDocument) -> Document[FleetDocument]:
    """Return as much of a Fleet with mistakes as lets the documents behind it be checked."""
    include = [{"glob": glob, "optional": True} for glob in globs_of(raw.node)]
    right = {
        "apiVersion": API_VERSION,
        "kind": "Fleet",
        "metadata": {"name": raw.name or "unnamed"},
        "spec": {
            "include": include,
            "vars": parsing.variables_of(raw),
            "policies": {"default": "Allow"},
        },
    }
    return Document.of(raw, FleetDocument.model_validate(right))


def _no_fleet(entry: str, *, empty: bool) -> Problem:
    hint = "`klutchctl init` shows how a fleet begins"
    if empty:
        return Problem(Origin(entry, 1, 1), "empty-fleet", "there is no document in here", hint)
    return Problem(
        Origin(entry, 1, 1), "no-fleet", "there is no document of kind Fleet in here", hint
    )


_NAMELESS: Final = ("Cluster", "")
ENTRY_NAMES: Final = ("fleet.yaml", "klutch-fleet.yaml")


def entry_file(names: Collection[str]) -> str | Problem:
    """Return the file at the top of a fleet's folder that is read first."""
    found = [name for name in ENTRY_NAMES if name in names]
    if len(found) == 1:
        return found[0]
    if found:
        first, code, hint = "both fleet.yaml and", "two-entry-files", "Name the right one"
    else:
        first, code, hint = "neither fleet.yaml nor", "no-entry-file", "`klutchctl init` makes one"
    return Problem(Origin("."), code, f"the folder has {first} klutch-fleet.yaml", hint)


def patterns(content: bytes, path: str) -> Patterns:
    """Return the include patterns of the first file, as far as readable: for fetchers of files."""
    return Patterns(glob for node in _nodes(content, path) for glob in globs_of(node))


def globs_of(document: Node) -> list[str]:
    """Return the globs that a Fleet includes, as far as they can be read."""
    include = child(child(document, "spec"), "include")
    items = include.nodes if isinstance(include, Items) else ()
    texts = (_text(item) or _text(child(item, "glob")) for item in items)
    return [text for text in texts if not base_model.pattern_problem(text)]


def ca_files(content: bytes, path: str) -> frozenset[str]:
    """Return the paths at `caFile`, as far as they can be read: for fetchers of files."""
    if b"caFile" not in content:
        return frozenset()
    texts = (_text(child(child(node, "spec"), "caFile")) for node in _nodes(content, path))
    return frozenset(text for text in texts if not base_model.path_problem(text))


def included(
    fleet: Document[FleetDocument], files: Mapping[str, object], unread: Mapping[str, Problem]
) -> tuple[frozenset[str], list[Problem]]:
    patterns = Patterns(include.glob for include in fleet.model.spec.include)
    hits = {path: patterns.hits(path) for path in (*files, *unread)}
    closed = any(path.endswith("/") for path in unread)  # what they match may be in there
    matched = frozenset(path for path, hit in hits.items() if hit or path.endswith("/"))
    used = frozenset().union(*hits.values())
    problems: list[Problem] = []
    for index, include in enumerate(fleet.model.spec.include):
        if index not in used and not include.optional and not closed:
            problems.append(
                Problem(
                    fleet.at("spec", "include", index),
                    "include-matches-nothing",
                    "this include matches no file",
                    "Or write {glob: ..., optional: true}",
                )
            )
    return matched, problems


def _nodes(content: bytes, path: str) -> Iterable[Node]:
    try:
        return yaml_text.read_all(content, path)
    except UnreadableText:
        return ()


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, Scalar) else ""

"""From the files of a repository to its documents: the first file, and all that it includes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reconciler.core.origin import Origin
from reconciler.core.problems import Problem
from reconciler.core.tree import Tree
from reconciler.fleet import forms, includes, parse
from reconciler.fleet.documents import API_VERSION, FleetDocument
from reconciler.fleet.forms import Document
from reconciler.fleet.memory import Memory
from reconciler.fleet.parse import Written
from reconciler.fleet.substitute import Scope


@dataclass(frozen=True, slots=True)
class Repository:
    """All documents, in the order of their places. `paths` are the files they stand in.

    `complete`: every file that belongs to the fleet could be read.
    """

    fleet: Document[FleetDocument]
    documents: Sequence[Written]
    paths: frozenset[str]
    complete: bool

    def of(self, kind: str) -> Iterable[Written]:
        """Return the documents of a kind."""
        return (one for one in self.documents if one.kind == kind)


def read(tree: Tree, problems: list[Problem], memory: Memory) -> Repository | None:
    """Return the documents of a fleet, or None where its first file says too little."""
    entry = tree.entry or includes.entry([*tree.files, *tree.unread])
    if isinstance(entry, Problem):
        problems.append(entry)
        return None
    first = _documents(entry, tree, problems, memory)
    fleet = None if first is None else _fleet_document(first, entry, problems)
    if first is None or fleet is None:
        return None
    matched, unmatched = memory.recall(
        "included",
        (fleet, [*tree.files], [*tree.unread]),
        lambda _: includes.included(fleet, tree.files, tree.unread),
        problems=problems,
    )
    problems.extend(unmatched)
    documents, complete = [*first], not unmatched
    for path in sorted(matched - {entry}):
        more = _documents(path, tree, problems, memory)
        documents.extend(more or ())
        complete = complete and more is not None
    others = [one for one in documents if one.kind == "Fleet" and one is not fleet.written]
    problems.extend(map(_second_fleet, others))
    documents = [one for one in documents if one not in others]
    paths = (matched | {entry}) & tree.files.keys()
    named = parse.without_duplicates(documents, problems)
    return Repository(fleet, named, paths, complete)


def _documents(
    path: str, tree: Tree, problems: list[Problem], memory: Memory
) -> list[Written] | None:
    """Return the documents in a file; None where it cannot be read as a whole."""
    content = tree.files.get(path)
    if content is not None:
        return memory.recall(
            ("file", path),
            (content,),
            lambda found: parse.read(path, content, found),
            problems=problems,
        )
    unread = tree.unread.get(path)
    problems.append(unread or Problem(Origin(path), "missing-file", "there is no such file"))
    return None


def _fleet_document(
    documents: Sequence[Written], entry: str, problems: list[Problem]
) -> Document[FleetDocument] | None:
    fleets = [one for one in documents if one.kind == "Fleet"]
    if not fleets:
        if not problems:
            problems.append(_no_fleet(entry, empty=not documents))
        return None
    scope = Scope(parse.variables_of(fleets[0]))
    read = forms.document(fleets[0], FleetDocument, scope=scope, problems=problems)
    return read or _what_is_right(fleets[0])


def _what_is_right(written: Written) -> Document[FleetDocument]:
    """Return as much of a Fleet with mistakes as lets the documents behind it be checked."""
    include = [{"glob": glob, "optional": True} for glob in includes.globs_of(written.node)]
    right = {
        "apiVersion": API_VERSION,
        "kind": "Fleet",
        "metadata": {"name": written.name or "unnamed"},
        "spec": {
            "include": include,
            "vars": parse.variables_of(written),
            "policies": {"default": "Allow"},
        },
    }
    return Document(written, FleetDocument.model_validate(right))


def _no_fleet(entry: str, *, empty: bool) -> Problem:
    hint = "`klutchctl init` shows how a fleet begins"
    if empty:
        return Problem(Origin(entry, 1, 1), "empty-fleet", "there is no document in here", hint)
    message = "there is no document of kind Fleet in here"
    return Problem(Origin(entry, 1, 1), "no-fleet", message, hint)


def _second_fleet(document: Written) -> Problem:
    message = "there is one Fleet document, and it stands in the file that is read first"
    hint = "Includes do not include: name the files there"
    return Problem(document.origin, "second-fleet", message, hint)

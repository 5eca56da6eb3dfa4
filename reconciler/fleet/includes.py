"""Which files belong to a fleet: the one that is read first, and what it includes and names."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from reconciler.core import yaml_text
from reconciler.core.origin import Origin
from reconciler.core.problems import Problem
from reconciler.core.yaml_text import Items, Node, Scalar, UnreadableText
from reconciler.fleet import globs
from reconciler.fleet.documents import FleetDocument
from reconciler.fleet.forms import Document
from reconciler.fleet.globs import Patterns
from reconciler.fleet.parse import child

ENTRY_NAMES: Final = ("fleet.yaml", "klutch-fleet.yaml")


def entry(names: Collection[str]) -> str | Problem:
    """Return which of the files at the top of a fleet's folder is read first."""
    found = [name for name in ENTRY_NAMES if name in names]
    if len(found) == 1:
        return found[0]
    if found:
        message = "the folder holds both fleet.yaml and klutch-fleet.yaml"
        hint = "Name the one that is meant"
        return Problem(Origin("."), "two-entry-files", message, hint)
    message = "the folder holds neither fleet.yaml nor klutch-fleet.yaml"
    hint = "`klutchctl init` makes one"
    return Problem(Origin("."), "no-entry-file", message, hint)


def patterns(content: bytes, path: str) -> Patterns:
    """Return what the first file includes, as far as that can be read: for who fetches files."""
    return Patterns(glob for node in _documents(content, path) for glob in globs_of(node))


def globs_of(document: Node) -> list[str]:
    """Return the globs that a Fleet includes, as far as they can be read."""
    include = child(child(document, "spec"), "include")
    items = include.nodes if isinstance(include, Items) else ()
    texts = (_text(item) or _text(child(item, "glob")) for item in items)
    return [text for text in texts if not globs.pattern_problem(text)]


def ca_files(content: bytes, path: str) -> frozenset[str]:
    """Return the paths at `caFile`, as far as they can be read: for who fetches files."""
    if b"caFile" not in content:
        return frozenset()
    texts = (_text(child(child(node, "spec"), "caFile")) for node in _documents(content, path))
    return frozenset(text for text in texts if not globs.path_problem(text))


def included(
    fleet: Document[FleetDocument], files: Mapping[str, object], unread: Mapping[str, Problem]
) -> tuple[frozenset[str], list[Problem]]:
    """Return the files that the includes match, and those that match nothing as problems."""
    patterns = Patterns(include.glob for include in fleet.model.spec.include)
    hits = {path: patterns.hits(path) for path in (*files, *unread)}
    matched = frozenset(path for path, numbers in hits.items() if numbers)
    used = frozenset().union(*hits.values())
    problems: list[Problem] = []
    for index, include in enumerate(fleet.model.spec.include):
        if index not in used and not include.optional:
            origin = fleet.written.at("spec", "include", index)
            hint = "Or write {glob: ..., optional: true}"
            message = "this include matches no file"
            problems.append(Problem(origin, "include-matches-nothing", message, hint))
    return matched, problems


def _documents(content: bytes, path: str) -> Iterable[Node]:
    try:
        return yaml_text.read_all(content, path)
    except UnreadableText:
        return ()


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, Scalar) else ""

"""A line of a file as it may be shown: keys, names, words and numbers, and nothing that is free.

Pure. A file may hold a credential in the wrong place, and what is shown lands in logs. Shown are
keys, and the values of those keys whose values name something; the rest is `...`, and so is all
below a key that may hold a credential.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import yaml

from reconciler.core.errors import Origin

MAX_WIDTH: Final = 120

# Values of these name a document, an object, a kind or a word of the format.
_NAMING: Final = frozenset(
    {"apiVersion", "clusters", "controlPlane", "default", "deletionPolicy", "dependsOn"}
    | {"exclude", "glob", "group", "include", "kind", "mode", "name", "names", "namespaces"}
    | {"onClusterLeave", "operator", "optional", "owner", "paths", "rbac", "resource", "state"}
    | {"template", "templateNamespaces", "templates", "version"}
)
# Anything may stand below these.
_FREE: Final = frozenset({"annotations", "args", "env", "overrides", "parameters", "vars"})
_CREDENTIAL: Final = re.compile(
    "pass|pwd|secret|token|cred|auth|cert|data|key$|kubeconfig|private", re.IGNORECASE
)
_WORD: Final = re.compile(r"[-A-Za-z0-9._/*?\[\]${}]{1,80}")
_KEY: Final = re.compile(r"[-A-Za-z0-9._/]{1,60}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}|true|false")
_MARKS: Final = frozenset(" {}[],:-")
_HIDDEN: Final = "..."


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A line as it is shown, and the column, from 0, at which its problem stands."""

    line: str
    column: int


@dataclass(frozen=True, slots=True)
class _Scalar:
    start: int
    end: int
    shown: bool
    text: str = field(default="", repr=False)


def excerpt(content: bytes, origin: Origin) -> Excerpt | None:
    """Return the line of a problem, or None where it has none or cannot be told apart."""
    try:
        text = content.decode("utf-8-sig")
        found = list(_on_line(text, origin.line - 1)) if origin.line else []
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError):
        return None
    lines = text.split("\n")
    if not found or origin.line > len(lines):
        return None
    return _shown(lines[origin.line - 1].rstrip("\r"), found, origin.column - 1)


def word_at(content: bytes, origin: Origin) -> str:
    """Return the key or word that stands at a place, "" where that must not be shown."""
    try:
        found = _on_line(content.decode("utf-8-sig"), origin.line - 1)
        return next((o.text for o in found if o.shown and o.start == origin.column - 1), "")
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError):
        return ""


def _shown(line: str, scalars: Sequence[_Scalar], column: int) -> Excerpt | None:
    shown, at = "", 0
    caret: int | None = None
    for scalar in scalars:
        marks = _between(line[at : scalar.start])
        if caret is None and column < scalar.start:
            caret = len(shown) + min(column - at, len(marks))
        shown += marks
        if caret is None and column < scalar.end:
            caret = len(shown)
        shown += line[scalar.start : scalar.end] if scalar.shown else _HIDDEN
        at = scalar.end
    marks = _between(line[at:])
    if caret is None:
        caret = len(shown) + min(column - at, len(marks))
    shown = (shown + marks).rstrip()
    return Excerpt(shown[:MAX_WIDTH], caret) if caret < MAX_WIDTH else None


def _between(text: str) -> str:
    """Return what stands between values: marks only, and no comment."""
    kept = []
    for character in text:
        if character not in _MARKS:
            break
        kept.append(character)
    return "".join(kept)


def _on_line(text: str, line: int) -> Iterator[_Scalar]:
    for event, path, is_key in _scalars(text):
        assert event.start_mark is not None
        assert event.end_mark is not None
        start, end = event.start_mark, event.end_mark
        if start.line > line:
            return
        if start.line == line and end.line == line:
            shown = _may_be_shown(event, path, is_key=is_key)
            yield _Scalar(start.column, end.column, shown, event.value)
        elif start.line == line:
            yield _Scalar(start.column, 1 << 30, shown=False)
        elif start.line < line < end.line or (end.line == line and end.column):
            yield _Scalar(0, end.column if end.line == line else 1 << 30, shown=False)


def _may_be_shown(event: yaml.ScalarEvent, path: Sequence[str], *, is_key: bool) -> bool:
    above, own = (path, "") if is_key else (path[:-1], path[-1] if path else "")
    if any(key in _FREE or _CREDENTIAL.search(key) for key in above):
        return False
    if is_key:
        return _KEY.fullmatch(event.value) is not None
    if own in _FREE or _CREDENTIAL.search(own):
        return False
    if event.implicit[0] and _NUMBER.fullmatch(event.value):
        return True
    return own in _NAMING and _WORD.fullmatch(event.value) is not None


def _scalars(text: str) -> Iterator[tuple[yaml.ScalarEvent, tuple[str, ...], bool]]:
    """Yield each scalar with the keys that lead to it; a key with those that lead to its map."""
    keys: list[str | None] = []  # of each open map the present key; None for a list
    waits: list[bool] = []  # for a key
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        is_key = bool(waits) and waits[-1] and keys[-1] is not None
        if isinstance(event, yaml.CollectionEndEvent):
            keys.pop()
            waits.pop()
        elif isinstance(event, yaml.ScalarEvent):
            yield event, tuple(key for key in (keys[:-1] if is_key else keys) if key), is_key
            if is_key:
                keys[-1], waits[-1] = event.value or " ", False
                continue
        elif isinstance(event, yaml.MappingStartEvent):
            keys.append("")
            waits.append(True)
            continue
        elif isinstance(event, yaml.SequenceStartEvent):
            keys.append(None)
            waits.append(False)
            continue
        elif not isinstance(event, yaml.AliasEvent):
            continue
        if waits and keys[-1] is not None:
            waits[-1] = not waits[-1] if isinstance(event, yaml.AliasEvent) else True

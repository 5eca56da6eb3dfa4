"""Words the problems of fleet files: codes, hints with the nearest name, short lists, excerpts.

An excerpt is a line of a file as it may be shown: keys, names, words and numbers, and nothing that
is free. A file may hold a credential in the wrong place, and what is shown lands in logs. Shown are
keys, and the values of those keys whose values name something; the rest is `...`, and so is all
below a key that may hold a credential.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

import yaml

from reconciler.core.documents import first_of
from reconciler.core.errors import Origin, Problem

_SHOWN: Final = 3
_MOST_KNOWN: Final = 12
_LONGEST: Final = 60
_LABELS_SHOWN: Final = 20


def quoted(text: str) -> str:
    """Return a key or name as it is shown: on one line, without control characters, not long."""
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def nearest(word: str, known: Collection[str]) -> str:
    """Return a hint: which of `known` may be meant, else all of them if they are few."""
    names = sorted(known)
    for close in get_close_matches(word[:_LONGEST], names, n=1, cutoff=0.6):
        return f"Did you mean {close}?"
    if folded := [name for name in names if name.casefold() == word.casefold()]:
        return f"Did you mean {folded[0]}?"
    if not names:
        return "There is none"
    return f"Known: {', '.join(names)}" if len(names) <= _MOST_KNOWN else ""


def as_label(text: str) -> str:
    """Return the DNS label that is most like a text, or ""."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")


def as_plural(text: str) -> str:
    """Return the plural of a kind; of a plural, or a text in small letters, only the form."""
    word = as_label(text)
    if not text[:1].isupper() or re.search("[^s]s$", word):
        return word
    if re.search("[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("ss", "x", "z", "ch", "sh")) else f"{word}s"


def few(names: Iterable[str]) -> str:
    """Return the names in a sentence: the first three in order, and how many there are more."""
    ordered = sorted(set(names))
    if len(ordered) > _SHOWN:
        return first_of(ordered, _SHOWN)
    return " and ".join(filter(None, [", ".join(ordered[:-1]), *ordered[-1:]]))


def labels(pairs: Iterable[tuple[str, str]], first: Collection[str] = ()) -> str:
    """Return the labels as a sentence: 20 at most, those with the keys `first` first.

    `pairs` are keys and values.
    """
    ordered = sorted(set(pairs), key=lambda pair: (pair[0] not in first, pair))
    if not ordered:
        return "They have no labels"
    return "Their labels: " + first_of((f"{key}={value}" for key, value in ordered), _LABELS_SHOWN)


CODES: Final[Mapping[str, str]] = {
    # Files
    "no-entry-file": "the folder has neither fleet.yaml nor klutch-fleet.yaml",
    "two-entry-files": "the folder has both fleet.yaml and klutch-fleet.yaml",
    "unreadable-file": "a file cannot be read",
    "not-a-file": "a folder, link, submodule or device stands where a file should be",
    "not-a-folder": "a link, submodule or device stands where an include looks for files",
    "file-too-large": "a file is larger than 1 MiB",
    "tree-too-large": "the files are larger than 64 MiB, or 4,000,000 values, together",
    "fleet-too-large": "more than 1,000,000 units, or values in them, or 1,000 for each konnector",
    "too-many-files": "the includes look into folders with more than 10,000 files",
    "bad-path": "a path or pattern is absolute, leaves the repository or cannot name a file",
    "missing-file": "a file that is named is not there",
    # Text
    "not-utf-8": "a file is not UTF-8 text",
    "not-yaml": "a file is not YAML",
    "yaml-alias": "YAML aliases are not read",
    "yaml-tag": "YAML tags are not read",
    "yaml-merge-key": "YAML merge keys are not read",
    "duplicate-key": "a mapping has one key twice",
    "too-deep": "values are nested deeper than 64 levels",
    "not-a-number": "a number that JSON does not have",
    # Documents
    "empty-fleet": "there is no document at all",
    "rancher-fleet": "the file belongs to Rancher Fleet",
    "unknown-api-version": "a document is not of fleet.klutchctl.dev/v1alpha1",
    "unknown-kind": "a document has a kind that does not exist",
    "no-fleet": "there is no Fleet document in the file that is read first",
    "second-fleet": "there is more than one Fleet document",
    "duplicate-document": "two documents have one kind and name",
    "unknown-key": "a mapping has a key that does not exist",
    "missing-field": "a field that is required is absent",
    "wrong-type": "a value has another type than its field",
    "bad-value": "a value has another form than its field",
    "not-one-of": "a value is none of those that are allowed",
    "private-key": "a file for certificates contains a private key",
    "not-certificates": "a file for certificates contains something else",
    # Substitution
    "bad-reference": "a ${...} is not closed, or is none of those that exist",
    "unknown-variable": "a ${vars.NAME} is not in Fleet.spec.vars",
    "missing-label": "a ${cluster.labels.NAME} that a cluster does not have",
    "misplaced-reference": "a ${cluster...} stands where no one cluster is meant",
    # References
    "include-matches-nothing": "an include matches no file",
    "selector-matches-nothing": "a selector selects no cluster",
    "unknown-cluster": "a Cluster is named that does not exist",
    "unknown-control-plane": "a ControlPlane is named that does not exist",
    "unknown-template": "a Template is named that does not exist",
    "unknown-binding": "a Binding is named that does not exist",
    "dependency-cycle": "Bindings wait for each other",
    "duplicate-unit": "one resource is bound twice in one cluster",
    "duplicate-access": "two Cluster documents are one cluster",
    "duplicate-space": "two Clusters would share one binding space",
    "claim-outside-ceiling": "a claim reaches further than its Template allows",
    "duplicate-claim": "two claims of a Binding are alike",
    "no-konnector-image": "a konnector is to be deployed and no image is named",
    "parameters-not-carried": "parameters in a cluster whose mode cannot carry them",
    "space-name-too-long": "the name of a binding space has more than 63 characters",
    # Denied
    "policy-denied": "a Policy does not allow what a Binding asks for",
    "policy-limit": "a Policy's limit is exceeded",
    "policy-kind": "a document of another kind than Binding stands where a Policy matches",
    "fleet-renamed": "a pull request gives the Fleet another name",
    # Warnings
    "unlisted-file": "a list of a pipeline leaves out a file of the fleet",
    "unread-file": "a file has documents of a fleet, and no include reads it",
    "wide-secrets": 'a claim is on all Secrets of the provider, and does not name "all"',
    "policy-default": "the files set no default for paths without a Policy",
    "long-space-name": "the name of a binding space leaves little room for namespaces",
    "dependency-elsewhere": "a Binding depends on one that no cluster shares with it",
}


MAX_WIDTH: Final = 120

# Values of these name a document, an object, a kind or a word of the format.
_NAMING: Final = frozenset(
    {"apiVersion", "clusters", "controlPlane", "default", "deletionPolicy", "dependsOn"}
    | {"exclude", "glob", "group", "include", "kind", "mode", "name", "names", "namespaces"}
    | {"onClusterLeave", "operator", "optional", "owner", "paths", "rbac", "resource", "state"}
    | {"template", "templateNamespaces", "templates", "version"}
)
# Labels select, and are no secrets.
_LABELS: Final = frozenset({"labels", "matchExpressions", "matchLabels"})
# Anything may stand below these.
_FREE: Final = frozenset({"annotations", "args", "env", "overrides", "parameters", "vars"})
_CREDENTIAL: Final = re.compile(
    "pass|pwd|secret|token|cred|auth|cert|(?<!meta)data|key$|kubeconfig|private", re.IGNORECASE
)
_WORD: Final = re.compile(r"[-A-Za-z0-9._/*?\[\]${}]{1,80}")
# What names something has variables in it, and no other marks, as a pasted secret may have.
_NAME: Final = re.compile(r"([-A-Za-z0-9._/*?]|\$\{[-A-Za-z0-9._]{1,40}\}){1,80}")
_KEY: Final = re.compile(r"[-A-Za-z0-9._/]{1,60}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}|true|false")
_MARKS: Final = frozenset(" \t{}[],:-?")
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
    """Return the line of a problem, or None where it has none or cannot be separated."""
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


def too_large(origin: Origin) -> Problem:
    return Problem(origin, "fleet-too-large", f"leads to {CODES['fleet-too-large']}")


def _between(text: str) -> str:
    """Return the text between values: marks, no comment, and a sign of all else."""
    bare = next((at for at, one in enumerate(text) if one not in _MARKS), len(text))
    rest = text[bare:]
    if not rest or rest.startswith("#"):
        return text[:bare]
    end = rest[len(rest.rstrip("".join(_MARKS))) :]
    return f"{text[:bare]}{_HIDDEN}{end}"


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


def is_name(keys: Sequence[str], text: str) -> bool:
    """Return whether the text at these keys names something, so that a message may quote it."""
    return _NAME.fullmatch(text) is not None and _is_naming(keys)


def _is_naming(keys: Sequence[str]) -> bool:
    names = keys[-1:] and (keys[-1] in _NAMING or not _LABELS.isdisjoint(keys))
    return bool(names) and not _may_be_secret(keys)


def _may_be_secret(keys: Iterable[str]) -> bool:
    return any(key in _FREE or _CREDENTIAL.search(key) for key in keys)


def _may_be_shown(event: yaml.ScalarEvent, path: Sequence[str], *, is_key: bool) -> bool:
    if _may_be_secret(path):
        return False
    if is_key:
        return _KEY.fullmatch(event.value) is not None
    if event.implicit[0] and _NUMBER.fullmatch(event.value):
        return True
    return _WORD.fullmatch(event.value) is not None and _is_naming(path)


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

"""Parses YAML into nodes with line and column. Pure, and without knowledge of the content.

Scalars mean what they mean to kubectl (sigs.k8s.io/yaml), not to PyYAML: dates and `12:30:45`
are text, `0o10` and `1e3` are numbers, `y` and `on` are flags. Refused, as they only serve to
surprise: aliases, tags, merge keys, duplicate keys. JSON reads as YAML.

No node shows its text in a repr, and no error quotes the text: it may hold a credential.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import yaml

from reconciler.core import yaml_hints
from reconciler.core.errors import ConfigError, Origin
from reconciler.core.manifest import JSON

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64

_FLAGS: Final = {
    spelling: value
    for words, value in (("y yes true on", True), ("n no false off", False))
    for word in words.split()
    for spelling in (word, word.capitalize(), word.upper())
}
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
# YAML 1.1, libyaml's, ends a line at them, and 1.2 does not; editors agree with neither.
_OTHER_BREAK: Final = re.compile("[\x85\u2028\u2029]|\r(?!\n)")
_INTEGER: Final = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"\.(nan|NaN|NAN)|[-+]?\.(inf|Inf|INF)")
_NUMBER_STARTS: Final = frozenset("+-.0123456789")


class UnreadableText(ConfigError):
    """An unreadable text: `origin` has the place, `code` the reason for machines."""

    def __init__(self, message: str, *, origin: Origin, code: str, hint: str = "") -> None:
        self.origin, self.code = origin, code
        super().__init__(message, where=str(origin), hint=hint)


class Shape(Enum):
    """The type of a scalar; the value is its name in a sentence."""

    TEXT = "text"
    NUMBER = "a number"
    FLAG = "true or false"
    NULL = "empty"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value as written, without its quotes."""

    text: str = field(repr=False)
    shape: Shape
    origin: Origin

    def plain(self) -> JSON:
        """Return the JSON value that kubectl would read. Raises ConfigError for .inf and .nan."""
        match self.shape:
            case Shape.TEXT:
                return self.text
            case Shape.FLAG:
                return _FLAGS[self.text]
            case Shape.NULL:
                return None
            case Shape.NUMBER:
                value = _number(self.text)
                if value is None:
                    raise UnreadableText(
                        "JSON has no such number", origin=self.origin, code="not-a-number"
                    )
                return value


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    nodes: tuple["Node", ...] = field(repr=False)
    origin: Origin

    def plain(self) -> JSON:
        return [node.plain() for node in self.nodes]


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping, with readers that refuse a value of another shape by a ConfigError.

    An absent field reads as the empty value. So does a null where a list or a mapping is
    wanted, as Go programs write it; a null where text or a flag is wanted is refused.
    """

    nodes: Mapping[str, "Node"] = field(repr=False)
    origin: Origin
    key_origins: Mapping[str, Origin] = field(default_factory=dict, repr=False)

    def plain(self) -> dict[str, JSON]:
        return {key: node.plain() for key, node in self.nodes.items()}

    def at(self, key: str) -> Origin:
        """Return where the value of `key` stands; of an absent one, the mapping itself."""
        return self.nodes[key].origin if key in self.nodes else self.origin

    def error(self, message: str, *, at: str = "", hint: str = "") -> ConfigError:
        """Return an error at the value of the key `at`, or at the mapping itself."""
        return ConfigError(message, where=str(self.at(at)), hint=hint)

    def has(self, key: str) -> bool:
        """Return whether `key` has a value: it is there, not null and not the empty text."""
        match self.nodes.get(key):
            case None:
                return False
            case Scalar(text=text, shape=shape):
                return shape is not Shape.NULL and text != ""
            case _:
                return True

    def text(self, key: str) -> str:
        """Return the text at `key`, or ""."""
        node = self.nodes.get(key)
        return "" if node is None else _text(node, key)

    def flag(self, key: str) -> bool:
        """Return the flag at `key`, or False."""
        node = self.nodes.get(key)
        if node is None:
            return False
        if isinstance(node, Scalar) and node.shape is Shape.FLAG:
            return _FLAGS[node.text]
        raise _unfit(node, key, "true or false, without quotes")

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of texts at `key`, or ()."""
        return tuple(_text(node, f"each of {key}") for node in self._items(key))

    def sections(self, key: str) -> "tuple[Fields, ...]":
        """Return the list of mappings at `key`, or ()."""
        return tuple(_fields(node, f"each of {key}") for node in self._items(key))

    def section(self, key: str) -> "Fields | None":
        """Return the mapping at `key`, or None."""
        node = self.nodes.get(key)
        return None if node is None or _is_null(node) else _fields(node, key)

    def _items(self, key: str) -> "tuple[Node, ...]":
        node = self.nodes.get(key)
        if node is None or _is_null(node):
            return ()
        if isinstance(node, Items):
            return node.nodes
        raise _unfit(node, key, "a list")


Node = Scalar | Items | Fields


def read(content: bytes, path: str) -> Fields:
    """Return the one mapping that `content` holds; nothing at all reads as an empty mapping.

    `path` names the text in errors. Raises UnreadableText, and at a second document.
    """
    documents = _read(content, path, limit=1)
    node = documents[0] if documents else Fields({}, Origin(path, 1, 1))
    return Fields({}, node.origin) if _is_null(node) else _fields(node, "the document")


def read_all(content: bytes, path: str) -> tuple[Node, ...]:
    """Return the documents in `content`, without empty ones.

    `path` names the text in errors. Raises UnreadableText.
    """
    return tuple(node for node in _read(content, path, limit=None) if not _is_null(node))


def _read(content: bytes, path: str, *, limit: int | None) -> list[Node]:
    text = _decode(content, path)
    problem: UnreadableText
    try:
        return list(_Reader(text, path).documents(limit))
    except yaml.MarkedYAMLError as error:
        problem = _syntax_error(error, text, path)
    except yaml.reader.ReaderError as error:
        origin = _byte_origin(content, path, error.position)
        problem = UnreadableText(f"not YAML: {error.reason}", origin=origin, code="not-yaml")
    # Raised out here: as the context of the new error, the old one would carry the text along.
    raise problem


class _Reader:
    """Builds nodes from libyaml's events, which come one by one: no bomb gets to go off."""

    def __init__(self, text: str, path: str) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._path = path

    def documents(self, limit: int | None) -> Iterator[Node]:
        next(self._events)  # the start of the stream
        for count, event in enumerate(self._events):
            if isinstance(event, yaml.StreamEndEvent):
                return
            if count == limit:
                message = "only one document is read; a second one starts here"
                raise self._refused(event, message, code="several-documents")
            yield self._node(next(self._events), MAX_DEPTH)
            next(self._events)  # the end of the document

    def _node(self, event: yaml.Event, depth: int) -> Node:
        self._check(event, depth)
        origin = self._origin(event)
        if isinstance(event, yaml.ScalarEvent):
            shape = _shape(event.value) if event.implicit[0] else Shape.TEXT
            return Scalar(event.value, shape, origin)
        if isinstance(event, yaml.SequenceStartEvent):
            return Items(tuple(self._node(item, depth - 1) for item in self._until_end()), origin)
        return self._mapping(origin, depth - 1)

    def _check(self, event: yaml.Event, depth: int) -> None:
        if isinstance(event, yaml.AliasEvent):
            message = "aliases (*name) are not read: write the value out"
            raise self._refused(event, message, code="yaml-alias")
        if not isinstance(event, yaml.NodeEvent) or getattr(event, "tag", None) is not None:
            message = "tags (!name) are not read: quote what is to be text"
            raise self._refused(event, message, code="yaml-tag")
        if depth == 0:
            message = f"nested deeper than {MAX_DEPTH} levels"
            raise self._refused(event, message, code="too-deep")

    def _mapping(self, origin: Origin, depth: int) -> Fields:
        nodes: dict[str, Node] = {}
        key_origins: dict[str, Origin] = {}
        for event in self._until_end():
            self._check(event, depth)
            if not isinstance(event, yaml.ScalarEvent):
                hint = yaml_hints.of_template() if isinstance(event, yaml.MappingStartEvent) else ""
                raise self._refused(event, "a key must be text", code="wrong-type", hint=hint)
            key = event.value
            if key == "<<":
                message = "merge keys (<<) are not read: write the fields out"
                raise self._refused(event, message, code="yaml-merge-key")
            if key in nodes:
                place, first = self._origin(event), key_origins[key]
                hint = yaml_hints.of_twice(key, place.column, first.line)
                message = "this key is there twice"
                raise self._refused(event, message, code="duplicate-key", hint=hint)
            key_origins[key] = self._origin(event)
            nodes[key] = self._node(next(self._events), depth)
        return Fields(nodes, origin, key_origins)

    def _until_end(self) -> Iterator[yaml.Event]:
        """Yield the first event of each node up to the end of the present collection."""
        for event in self._events:
            if isinstance(event, yaml.CollectionEndEvent):
                return
            yield event

    def _origin(self, event: yaml.Event) -> Origin:
        return _origin(self._path, event.start_mark)

    def _refused(
        self, event: yaml.Event, message: str, *, code: str, hint: str = ""
    ) -> UnreadableText:
        return UnreadableText(message, origin=self._origin(event), code=code, hint=hint)


def _decode(content: bytes, path: str) -> str:
    if len(content) > MAX_BYTES:
        message = f"larger than {MAX_BYTES} bytes"
        raise UnreadableText(message, origin=Origin(path), code="file-too-large")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        origin = _byte_origin(content, path, error.start)
    else:
        if (found := _OTHER_BREAK.search(text)) is None:
            return text
        origin = _byte_origin(text.encode(), path, len(text[: found.start()].encode()))
        message = f"a line break that versions of YAML read differently (U+{ord(found[0]):04X})"
        hint = "End lines with a line feed; in text, write an escape in double quotes"
        raise UnreadableText(message, origin=origin, code="not-yaml", hint=hint)
    raise UnreadableText("not UTF-8 text", origin=origin, code="not-utf-8")


def _byte_origin(content: bytes, path: str, position: int) -> Origin:
    before = content[:position]
    column = len(before.rpartition(b"\n")[2].decode("utf-8-sig", errors="replace")) + 1
    return Origin(path, before.count(b"\n") + 1, column)


def _syntax_error(error: yaml.MarkedYAMLError, text: str, path: str) -> UnreadableText:
    """Take libyaml's constant sentence and the place; the rest of the error quotes the text."""
    origin = _origin(path, error.problem_mark)
    hint = yaml_hints.of_syntax(text, origin.line) if origin.line else ""
    return UnreadableText(f"not YAML: {error.problem}", origin=origin, code="not-yaml", hint=hint)


def _origin(path: str, mark: "yaml.Mark | yaml._yaml.Mark | None") -> Origin:
    return Origin(path) if mark is None else Origin(path, mark.line + 1, mark.column + 1)


def _shape(text: str) -> Shape:
    """Classify a scalar without quotes as go.yaml.in/yaml/v2 resolves it."""
    if text in _NULLS:
        return Shape.NULL
    if text in _FLAGS:
        return Shape.FLAG
    if text[0] not in _NUMBER_STARTS:
        return Shape.TEXT
    number = _NOT_FINITE.fullmatch(text) is not None or _number(text) is not None
    return Shape.NUMBER if number else Shape.TEXT


def _number(text: str) -> int | float | None:
    """Return the number that Go reads, or None: also for one that is too large for it."""
    # Go skips underscores: after a leading dot only between digits, else anywhere but in front.
    bare = re.sub("(?<=[0-9])_(?=[0-9])" if text[0] in "._" else "_", "", text)
    match = _INTEGER.fullmatch(bare)
    if match and len(bare) <= 70:  # no 64-bit integer is longer, in any base
        sign, digits = match.groups()
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        value = int(f"{sign}{digits}", 8 if octal else 0)
        if -(1 << 63) <= value < 1 << 64:
            return value
    real = float(bare) if _FLOAT.fullmatch(bare) else math.inf
    return real if math.isfinite(real) else None


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.shape is Shape.NULL


def _text(node: Node, name: str) -> str:
    if not isinstance(node, Scalar) or node.shape is not Shape.TEXT:
        raise _unfit(node, name, "text")
    if "\0" in node.text:
        message = f"{name} contains a NUL character"
        raise UnreadableText(message, origin=node.origin, code="wrong-type")
    return node.text


def _fields(node: Node, name: str) -> Fields:
    if not isinstance(node, Fields):
        raise _unfit(node, name, "a mapping")
    return node


def _unfit(node: Node, name: str, wanted: str) -> UnreadableText:
    found = kind_of(node)
    hint = "Put it in quotes" if wanted == "text" and found in ("a number", "true or false") else ""
    message = f"{name} must be {wanted}, and is {found}"
    return UnreadableText(message, origin=node.origin, code="wrong-type", hint=hint)


def kind_of(node: Node) -> str:
    """Return the kind of a node, in the words of a sentence."""
    match node:
        case Scalar(shape=shape):
            return shape.value
        case Items():
            return "a list"
        case Fields():
            return "a mapping"


def child(node: Node | None, step: str | int) -> Node | None:
    """Return the value of a mapping or list at a key or index, or None."""
    match node:
        case Fields() if isinstance(step, str):
            return node.nodes.get(step)
        case Items() if isinstance(step, int) and step < len(node.nodes):
            return node.nodes[step]
        case _:
            return None


def locate(node: Node, steps: Sequence[str | int]) -> tuple[Origin, Node]:
    """Return the place and node at `steps`, as deep as they are there.

    Steps that the text does not have are passed over: a shorthand has less than it stands for.
    """
    for step in steps:
        node = child(node, step) or node
    return node.origin, node

"""JSON schemas, drafts 4 to 2020-12, as forms that accept what they do, and at times more.

Whatever a form cannot say is a note with its path. Refuses to know plans and CRDs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Final
from urllib.parse import unquote

from reconciler.blueprints.offering import forms, scalars
from reconciler.blueprints.offering.forms import ANY, ANYTHING, FREE, OPEN, WELCOMING, Form
from reconciler.blueprints.offering.scalars import Lose, Schema
from reconciler.blueprints.offering.words import described, title_of
from reconciler.core.manifest import JSON, canonical, get_list, get_map, get_maps, get_texts

DEEPEST: Final = 24  # levels of objects and arrays in a form
MOST_OCTETS: Final = 64 * 1024
_MOST_NODES: Final = 20_000  # after `$ref`s were followed
_MOST_CALLS: Final = 60  # of schemas in each other

_DROPPED: Final = {
    "not": "what it excludes is accepted",
    "patternProperties": "names that fit no property are not checked",
    "propertyNames": "names are not checked",
    "contains": "not checked",
    "dependentRequired": "the condition is dropped",
    "unevaluatedProperties": "other properties are accepted",
    "unevaluatedItems": "other items are accepted",
    "$dynamicRef": "not followed",
    "$recursiveRef": "not followed",
    "disallow": "what it excludes is accepted",
    "extends": "not followed",
    "divisibleBy": "not checked",
}
_BESIDE_A_REF: Final = frozenset(
    [
        "$ref",
        "$schema",
        "$id",
        "id",
        "$comment",
        "title",
        "description",
        "default",
        "definitions",
        "$defs",
        "examples",
    ]
)
_OPEN_OBJECT: Final[Form] = {"type": "object", OPEN: True}


class _TooLarge(Exception):
    """The schema has more nodes than a CRD should."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a form does not say of a schema: where, and what becomes of it."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A form of an object, and what it does not say."""

    form: Form
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a schema stands: its path, the references that led there, and how deep that is."""

    path: str
    references: tuple[str, ...] = ()
    depth: int = 0

    def inner(self, step: str = "", reference: str = "") -> "_Place":
        """Return the place of a schema within."""
        followed = (*self.references, reference) if reference else self.references
        return _Place(self.path + step, followed, self.depth + 1)


def read(schema: JSON, path: str) -> Reading:
    """Return the form of parameters, an object. None, which says nothing, accepts anything."""
    if schema is None:
        return Reading(FREE)
    if not isinstance(schema, Mapping):
        return _free(path, "no schema, which is an object")
    size = len(canonical(schema))
    if size > MOST_OCTETS:
        return _free(path, f"{size // 1024} kB are too much")
    reader = _Reader(schema)
    try:
        form = reader.form(schema, _Place(path))
    except _TooLarge:
        return _free(path, "too much when its references are followed")
    if forms.type_of(form) not in ("object", ANY):
        reader.lose(path, "no schema of an object: anything is accepted")
    if forms.type_of(form) != "object":
        form = FREE
    return fitting(form, path, reader.notes)


def _free(path: str, why: str) -> Reading:
    return Reading(FREE, (Note(path, f"{why}: anything is accepted"),))


def fitting(form: Form, path: str, notes: Iterable[Note]) -> Reading:
    """Return a form without its deepest levels, if that takes them to be small enough."""
    depth = deepest = forms.depth_of(form)
    kept: Form = {key: value for key, value in form.items() if key != "nullable"}
    while depth and (depth > DEEPEST or len(canonical(kept)) > MOST_OCTETS):
        depth -= 1
        kept = forms.cut(kept, depth)
    cut_off = f"too much: what is deeper than {depth} levels is accepted as it is"
    more = [] if depth == deepest else [Note(path, cut_off)]
    return Reading(kept, tuple(dict.fromkeys([*notes, *more])))


@dataclass(slots=True)
class _Reader:
    """One schema. `notes` grow while it is read."""

    root: Schema
    notes: list[Note] = field(default_factory=list)
    nodes: int = 0

    def lose(self, path: str, what: str) -> None:
        """Note what a form does not say."""
        self.notes.append(Note(path, what))

    def _loser(self, place: _Place, keyword: str = "") -> Lose:
        def lose(what: str) -> None:
            self.lose(place.path, f"{keyword}: {what}" if keyword else what)

        return lose

    def form(self, schema: JSON, place: _Place) -> Form:
        """Return the form of a schema. Raises _TooLarge."""
        self.nodes += 1
        if self.nodes > _MOST_NODES:
            raise _TooLarge
        if not isinstance(schema, Mapping) or place.depth > _MOST_CALLS:
            if schema is not True:
                self.lose(place.path, "no schema, one for nothing, or too deep: all is accepted")
            return ANYTHING
        if isinstance(schema.get("$ref"), str):
            return self._referred(schema, place)
        form = self._own(schema, place)
        for part in get_list(schema, "allOf"):
            form = forms.narrowed(form, self.form(part, place.inner()), self._loser(place, "allOf"))
        for keyword, alternatives in self._alternatives(schema, place):
            form = forms.narrowed(form, alternatives, self._loser(place, keyword))
        for key, what in _DROPPED.items():
            if key in schema and schema[key] not in (True, {}):
                self.lose(place.path, f"{key}: {what}")
        return {**form, **_words(schema)}

    def _referred(self, schema: Schema, place: _Place) -> Form:
        reference = str(schema["$ref"])
        if schema.keys() - _BESIDE_A_REF:
            self.lose(place.path, "what stands beside $ref is dropped")
        loop = reference == "#" or reference in place.references
        target = None if loop else _at(self.root, reference)
        if target is None:
            leads = "to itself" if loop else "elsewhere"
            self.lose(place.path, f"$ref leads {leads}: anything is accepted")
            return {**ANYTHING, **_words(schema)}
        return {**self.form(target, place.inner(reference=reference)), **_words(schema)}

    def _alternatives(self, schema: Schema, place: _Place) -> Iterable[tuple[str, Form]]:
        """Return what one of several forms fits, with the keyword that says so."""
        branch = partial(self._branch, schema, place=place)
        for key in ("anyOf", "oneOf"):
            parts = get_list(schema, key)
            branches = [branch(part) for part in parts if not _is_null(part)]
            if len(branches) > 1 and not _is_exact(branches):
                self.lose(place.path, f"{key}: any mix of its alternatives is accepted")
            if branches:
                either: Form = reduce(forms.common, branches)
                null = len(branches) < len(parts)
                yield key, self._or_null(either, place) if null else either
        if "if" in schema:
            self.lose(place.path, "if: the condition is dropped")
            then, otherwise = (branch(schema.get(key, {})) for key in ("then", "else"))
            yield "if", forms.common(then, otherwise)
        for key in ("dependencies", "dependentSchemas"):
            parts = list(get_map(schema, key).values())
            if parts:
                self.lose(place.path, f"{key}: the condition is dropped")
            for part in get_maps(parts):
                yield key, forms.common(branch(part), _OPEN_OBJECT)

    def _branch(self, schema: Schema, part: JSON, place: _Place) -> Form:
        """Return the form of an alternative, which is of the type that stands beside it."""
        if isinstance(part, Mapping) and not {"type", "$ref", "enum", "const"} & part.keys():
            part = {"type": schema["type"], **part} if "type" in schema else part
        return self.form(part, place.inner())

    def _own(self, schema: Schema, place: _Place) -> Form:
        """Return the form that the keywords of one schema mean by themselves."""
        lose = self._loser(place)
        values, kinds = scalars.listed(schema), scalars.kinds(schema, lose)
        kind = scalars.one_of(kinds - {"null"})
        if kind == ANY:
            if kinds:
                lose("several types: anything is accepted")
            return ANYTHING
        form = forms.made(kind) | scalars.bounds(kind, schema, lose)
        if values is not None:
            form |= scalars.enum(kind, values, lose)
        if kind == "object":
            form |= self._object(schema, place)
        if kind == "array":
            form |= self._array(schema, place)
        nullable = "null" in kinds and (values is None or None in values)
        return self._or_null(form, place) if nullable else form

    def _or_null(self, form: Form, place: _Place) -> Form:
        """Return a form that null fits, too. API servers take none that is in a list of values."""
        if "enum" in form:
            self.lose(place.path, "a list of values with null: other ones are accepted, too")
        return {**{key: value for key, value in form.items() if key != "enum"}, "nullable": True}

    def _array(self, schema: Schema, place: _Place) -> dict[str, Any]:
        if schema.get("uniqueItems") is True:
            self.lose(place.path, "uniqueItems: the same item may be there twice")
        items, places = schema.get("items", True), schema.get("prefixItems")
        if isinstance(items, list | tuple):
            items, places = schema.get("additionalItems", True), items
        inner = place.inner("[]")
        if not isinstance(places, list | tuple):
            return {"items": self.form(items, inner)}
        self.lose(place.path, "a schema for each place: any of them is accepted at any place")
        parts = [self.form(part, inner) for part in places]
        parts += [] if items is False else [self.form(items, inner)]
        return {"items": reduce(forms.common, parts) if parts else ANYTHING}

    def _object(self, schema: Schema, place: _Place) -> dict[str, Any]:
        properties = {
            name: self.form(inner, place.inner(f".{name}"))
            for name, inner in get_map(schema, "properties").items()
        }
        required = sorted(set(get_texts(schema, "required")))
        if "required" in schema and not isinstance(schema["required"], list | tuple):
            self.lose(place.path, "required: dropped, as it is no list of names")
        rest = self._rest(schema, place, alone=not properties and not required)
        # What has to be there is named, so that it can be spoken of.
        properties |= {name: ANYTHING for name in required if name not in properties}
        found: dict[str, Any] = {"required": required} if required else {}
        if properties:
            found["properties"] = dict(sorted(properties.items()))
        return found | rest

    def _rest(self, schema: Schema, place: _Place, *, alone: bool) -> dict[str, Any]:
        """Return what an object says of properties that it does not name."""
        said, patterns = schema.get("additionalProperties"), get_map(schema, "patternProperties")
        if said is False and not patterns:
            return {}
        if said is None and not patterns:
            return {OPEN: True, WELCOMING: True} if alone else {OPEN: True}
        parts = [self.form(inner, place.inner(".*")) for inner in patterns.values()]
        if said is not False:
            parts.append(self.form(True if said is None else said, place.inner(".*")))
        values = reduce(forms.common, parts)
        if forms.type_of(values) == ANY:
            return {OPEN: True, WELCOMING: True}
        if alone:
            return {"additionalProperties": values}
        self.lose(place.path, "additionalProperties: those beside named ones are not checked")
        return {OPEN: True, WELCOMING: True}


def _words(schema: Schema) -> dict[str, str]:
    words = {"title": title_of(schema), "description": described(schema)}
    return {key: text for key, text in words.items() if text}


def _is_null(schema: JSON) -> bool:
    """Tell whether null alone fits."""
    return isinstance(schema, Mapping) and schema.get("type") in ("null", ["null"])


def _is_exact(branches: Sequence[Form]) -> bool:
    """Tell whether what the branches have in common is just what either accepts: bare scalars."""
    types = frozenset(forms.type_of(form) for form in branches)
    bare = {"type", "nullable", "title", "description", forms.INT_OR_STRING}
    if not all(form.keys() <= bare for form in branches) or types & {ANY, "object", "array"}:
        return False
    return scalars.one_of(types) != ANY


def _at(root: Schema, reference: str) -> JSON:
    """Return what a reference into the same document leads to; None elsewhere."""
    head, *steps = unquote(reference).split("/")
    if head != "#" or not steps:
        return None
    found: JSON = root
    for step in (step.replace("~1", "/").replace("~0", "~") for step in steps):
        if isinstance(found, Mapping):
            found = found.get(step)
        elif (
            isinstance(found, list | tuple)
            and re.fullmatch("[0-9]{1,9}", step)
            and int(step) < len(found)
        ):
            found = found[int(step)]
        else:
            return None
    return found

"""Builds the schema of an offering's parameters, if the schemas of all plans are equal.

Where they are not, an object that `klutch-osb` checks by the claim's plan. JSON schemas become
structural schemas of CRDs, which accept at least the same: keywords without a counterpart there are
left out, as `validation` checks a whole schema. Does not know CRDs.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import gt, lt
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import jsonpointer

from reconciler.blueprints import cel
from reconciler.blueprints.offering import validation
from reconciler.blueprints.offering.catalogue import Plan, Schemas
from reconciler.blueprints.offering.outcomes import described, line, names, title_of
from reconciler.blueprints.offering.validation import MOST_OCTETS
from reconciler.core.manifest import JSON, canonical, digest, get_map, get_texts, grouped

Form: TypeAlias = Mapping[str, Any]
Schema: TypeAlias = Mapping[str, JSON]

OPEN: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
RULES: Final = "x-kubernetes-validations"
# Nullable, or API servers would take a null for a property that is not there.
ANYTHING: Final[Form] = {OPEN: True, "nullable": True}
FREE: Final[Form] = {"type": "object", OPEN: True}
SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})

_DEEPEST: Final = 24
_MOST_NODES: Final = 5_000  # after `$ref`s were followed
_SAFE: Final = 2**53  # numbers below it are the same to all readers
_OF_VALUES: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}
_TYPES: Final = SCALARS | {"object", "array", "null"}
_LOWER: Final = ("minimum", "minLength", "minItems", "minProperties")
_UPPER: Final = ("maximum", "maxLength", "maxItems", "maxProperties")
_COUNTS: Final = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
}
# Those that an API server checks, and means what JSON schemas mean by them.
_FORMATS: Final = frozenset(
    ("date-time", "date", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "password")
)
_MOST_FROZEN: Final = 100  # a CRD takes about 300 comparisons of texts without a bound


class _TooLarge(Exception):
    """The schema has more nodes than a CRD should."""


def form_of(schema: JSON) -> Form:
    """Return the form of parameters, an object; `FREE` for a schema without a useful rule."""
    if not isinstance(schema, Mapping) or len(canonical(schema)) > MOST_OCTETS:
        return FREE
    try:
        form = _Reader(schema).form(schema, (), 0)
    except _TooLarge:
        return FREE
    if form.get("type") != "object" or len(canonical(form)) > MOST_OCTETS:
        return FREE
    return {key: value for key, value in form.items() if key != "nullable"}


@dataclass(slots=True)
class _Reader:
    """A schema. `nodes` are those that were read."""

    root: Schema
    nodes: int = 0

    def form(self, schema: JSON, references: tuple[str, ...], depth: int) -> Form:
        """Return the form of a schema. Raises _TooLarge."""
        self.nodes += 1
        if self.nodes > _MOST_NODES:
            raise _TooLarge
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return ANYTHING
        words = {"title": title_of(schema), "description": described(schema)}
        texts = {key: text for key, text in words.items() if text}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return {**texts, **self._own(schema, references, depth)}
        target = None if reference in references else _at(self.root, reference)
        return {**self.form(target, (*references, reference), depth), **texts}

    def _own(self, schema: Schema, references: tuple[str, ...], depth: int) -> Form:
        kinds = _kinds(schema)
        kind = _one_of(kinds - {"null"})
        if not kind:
            return ANYTHING
        form: dict[str, Any] = {INT_OR_STRING: True} if kind == INT_OR_STRING else {"type": kind}
        for key in _COUNTS.get(kind, ()):
            if _is_safe(schema.get(key), whole=kind != "number"):
                form[key] = int(schema[key]) if kind != "number" else schema[key]  # type: ignore[arg-type]
        if kind == "string" and schema.get("format") in _FORMATS:
            form["format"] = schema["format"]
        if kind == "array":
            form["items"] = self.form(schema.get("items", True), references, depth + 1)
        if kind == "object":
            form |= self._object(schema, references, depth + 1)
        if "null" in kinds:
            return {**form, "nullable": True}  # API servers take no null that is among values
        return form | (_values(schema, kind) if kind in SCALARS else {})

    def _object(self, schema: Schema, references: tuple[str, ...], depth: int) -> dict[str, Any]:
        properties: dict[str, Form] = {
            name: self.form(inner, references, depth)
            for name, inner in sorted(get_map(schema, "properties").items())
        }
        required = sorted(set(get_texts(schema, "required")))
        properties |= {name: ANYTHING for name in required if name not in properties}
        found: dict[str, Any] = {"required": required} if required else {}
        found |= {"properties": properties} if properties else {}
        others = schema.get("additionalProperties")
        if "patternProperties" in schema or (others is not False and properties):
            return found | {OPEN: True}
        if others is False:
            return found
        values = self.form(others, references, depth)
        # A map of anything else would be nothing that a rule on it could see.
        return found | (
            {"additionalProperties": values} if (values.get("type") in SCALARS) else {OPEN: True}
        )


def _kinds(schema: Schema) -> frozenset[str]:
    """Return the types that a schema names, or implies by its keywords; none are all."""
    stated = schema.get("type")
    names = frozenset({stated} if isinstance(stated, str) else get_texts(schema, "type"))
    if names or "type" in schema:
        return names if names <= _TYPES else frozenset()
    if values := _listed(schema):
        return frozenset(map(_kind_of, values))
    if {"properties", "required", "additionalProperties"} & schema.keys():
        return frozenset({"object"})
    return frozenset({"array"} if "items" in schema else ())


def _one_of(kinds: frozenset[str]) -> str:
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds == {"integer", "number"}:
        return "number"
    return INT_OR_STRING if kinds == {"integer", "string"} else ""


def _listed(schema: Schema) -> list[JSON]:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return list(values) if isinstance(values, list | tuple) else []


def _values(schema: Schema, kind: str) -> dict[str, Any]:
    """Return the list of values of a form, where all of them are of its type and exact."""
    fits = {kind, "integer"} if kind == "number" else {kind}
    values = list({canonical(value): value for value in _listed(schema)}.values())
    exact = all(
        _kind_of(one) in fits and (isinstance(one, str | bool) or _is_safe(one)) for one in values
    )
    return {"enum": values} if values and exact else {}


def _kind_of(value: JSON) -> str:
    if value is None:
        return "null"
    return _OF_VALUES.get(type(value), "object" if isinstance(value, Mapping) else "array")


def _is_safe(value: JSON, *, whole: bool = False) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < _SAFE:
        return False
    return not whole or float(value).is_integer()


def _at(root: Schema, reference: str) -> JSON:
    """Return the target of a reference into the same document; None for others."""
    path = unquote(reference).removeprefix("#")
    if path == unquote(reference) or not path:
        return None
    try:
        found: JSON = jsonpointer.resolve_pointer(root, path, None)
    except jsonpointer.JsonPointerException:
        return None
    return found


def stricter(new: Any, old: Any, path: str) -> Iterator[str]:
    """Return the values that only the older form takes, in sentences with their places.

    What an open object let pass without naming it may be named now.
    """
    kind, before = (
        one.get("type") or (INT_OR_STRING in one and INT_OR_STRING) for one in (new, old)
    )
    if new == old or not kind:
        return
    wider = {("integer", "number"), ("integer", INT_OR_STRING), ("string", INT_OR_STRING)}
    if kind != before and (before, kind) not in wider:
        yield f"{path}: its type is new"
        return
    if old.get("nullable") and not new.get("nullable"):
        yield f"{path}: that it is not null is new"
    yield from (f"{path}: {limit} is new" for limit in _limits(new, old))
    if kind == "array":
        yield from stricter(new["items"], old["items"], f"{path}.[]")
    if kind == "object":
        yield from _stricter_object(new, old, path)


def _limits(new: Form, old: Form) -> Iterator[str]:
    for keys, is_tighter in ((_LOWER, gt), (_UPPER, lt)):
        tighter = (key for key in keys if key in new)
        yield from (
            f"its {key}" for key in tighter if key not in old or is_tighter(new[key], old[key])
        )
    values = [set(map(canonical, one["enum"])) if "enum" in one else None for one in (new, old)]
    if values[0] is not None and (values[1] is None or values[1] - values[0]):
        yield "which values it may have"
    if "format" in new and new["format"] != old.get("format"):
        yield "its format"
    if RULES in new and RULES not in old:
        yield "that it cannot be changed"


def _stricter_object(new: Form, old: Form, path: str) -> Iterator[str]:
    known, named = get_map(old, "properties"), get_map(new, "properties")
    values, rest = new.get("additionalProperties"), old.get("additionalProperties")
    for name in sorted(set(get_texts(new, "required")) - set(get_texts(old, "required"))):
        yield f"{path}.{name}: that it has to be there is new"
    for name, inner in named.items():
        before = known.get(name, rest)
        if before is not None:
            yield from stricter(inner, before, f"{path}.{name}")
    if OPEN in new:
        return
    for name in sorted(known.keys() - named.keys()):
        if values is None:
            yield f"{path}.{name}: that it is no parameter is new"
        else:
            yield from stricter(values, known[name], f"{path}.{name}")
    if values is None and (rest is not None or OPEN in old):
        yield f"{path}: that it has no other properties is new"
    elif values is not None and (rest is not None or OPEN in old):
        yield from stricter(values, ANYTHING if rest is None else rest, f"{path}.*")


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a kind. `words` name those of each plan, where they differ."""

    form: Form
    words: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def required(self) -> list[str]:
        return ["parameters"] if self.form.get("required") else []


def of_instances(plans: Sequence[Plan]) -> Parameters:
    def parts(schemas: Schemas) -> dict[str, JSON]:
        return {"create": schemas.create, "update": schemas.update}

    return _of(plans, parts, _form)


def of_bindings(plans: Sequence[Plan]) -> Parameters:
    """Return the parameters of bindings, which do not name the plan of their instance."""

    def form(schemas: Schemas) -> Form:
        return form_of(schemas.bind)

    return _of(plans, lambda schemas: {"bind": schemas.bind}, form)


def _of(
    plans: Sequence[Plan],
    parts: Callable[[Schemas], dict[str, JSON]],
    form: Callable[[Schemas], Form],
) -> Parameters:
    ordered = sorted(plans, key=lambda plan: plan.name)
    groups = list(grouped(ordered, lambda plan: digest(parts(plan.schemas))).values())
    warnings = tuple(dict.fromkeys(_warnings(groups, parts)))
    if len(groups) == 1:
        return Parameters(form(groups[0][0].schemas), warnings=warnings)
    words = (_named(group, parts(group[0].schemas)) for group in groups)
    return Parameters(FREE, line(f"Of plan {'; of plan '.join(words)}."), warnings)


def _warnings(
    groups: Iterable[list[Plan]], parts: Callable[[Schemas], dict[str, JSON]]
) -> Iterator[str]:
    for group in groups:
        for part, schema in parts(group[0].schemas).items():
            for flaw in validation.checked(schema).flaws:
                of = f"plan {names([plan.name for plan in group])}: schema to {part}"
                yield f"{of}: {flaw}: it is left to the broker"


def _named(group: Sequence[Plan], parts: dict[str, JSON]) -> str:
    named = sorted({name for schema in parts.values() for name in get_map(schema, "properties")})
    return f"{names([plan.name for plan in group])}: {', '.join(named) or 'none is named'}"


def _form(schemas: Schemas) -> Form:
    """Return the parameters that a plan takes when an instance is made or changed."""
    create = form_of(schemas.create)
    if schemas.update == schemas.create or not validation.limits_updates(schemas.update):
        return create
    update, named = form_of(schemas.update), validation.changeable(schemas)
    first, second = (get_map(one, "properties") for one in (create, update))
    found: dict[str, Any] = {}
    for name in sorted(first.keys() | second.keys()):
        one, other = first.get(name), second.get(name)
        found[name] = one or other if one is None or other is None or one == other else ANYTHING
    frozen = [
        name
        for name, one in found.items()
        if named is not None and name not in named and _is_scalar(one)
    ]
    for name in frozen[:_MOST_FROZEN]:
        fixed = rule("self == oldSelf", f"{name} cannot be changed")
        found[name] = {**found[name], RULES: [fixed]}
    is_closed = all(
        OPEN not in one and "additionalProperties" not in one for one in (create, update)
    )
    required = get_texts(create, "required")
    return {
        "type": "object",
        **({"properties": found} if found else {}),
        **({"required": required} if required else {}),
        **({} if is_closed else {OPEN: True}),
    }


def _is_scalar(form: Any) -> bool:
    is_one = form.get("type") in SCALARS or INT_OR_STRING in form
    return is_one and not form.get("nullable")


def rule(text: str, message: str) -> dict[str, JSON]:
    """Return a validation of a CRD."""
    return {"rule": text, "message": message}


def immutable(name: str) -> dict[str, JSON]:
    """Return that an optional property of the spec is not changed, added or taken away."""
    there = f"has(self.{name}) == has(oldSelf.{name})"
    same = f"(!has(self.{name}) || self.{name} == oldSelf.{name})"
    return rule(f"{there} && {same}", f"{name} is immutable")


def fixed_plans(fixed: Collection[str], plans: Collection[str]) -> dict[str, JSON] | None:
    if not fixed or len(plans) < 2:
        return None
    if set(fixed) == set(plans):
        return rule("self == oldSelf", "the plan cannot be changed")
    listed = cel.texts(fixed)
    message = f"an instance of plan {names(fixed)} stays in it"
    return rule(f"self == oldSelf || !(oldSelf in {listed})", message)

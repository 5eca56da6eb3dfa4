"""Forms: the structural schemas of CRDs, and what two of them have in common. Pure values.

A form accepts at least what it stands for: where that cannot be said exactly, it accepts more. A
node without a type accepts anything and says nothing else. Refuses to know JSON schemas and plans.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from reconciler.core.manifest import JSON, canonical

Form: TypeAlias = Mapping[str, Any]

OPEN: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
# On an object whose other properties are welcome, not just let pass: never written to a file.
WELCOMING: Final = "x-welcoming"
ANY: Final = "anything"
MIXED: Final = "an integer or a string"
# Nullable, or API servers would take a null for a property that is not there.
ANYTHING: Final[Form] = {OPEN: True, "nullable": True}
FREE: Final[Form] = {"type": "object", OPEN: True, WELCOMING: True}

LOWER: Final = ("minimum", "minLength", "minItems", "minProperties")
UPPER: Final = ("maximum", "maxLength", "maxItems", "maxProperties")
ALIKE: Final = ("pattern", "format", "multipleOf")
EXCLUSIVE: Final = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}
_WORDS: Final = ("title", "description")


def type_of(form: Form) -> str:
    """Return the type of a form; `ANY` and `MIXED` are such, too."""
    return MIXED if form.get(INT_OR_STRING) else form.get("type", ANY)


def properties_of(form: Form) -> Mapping[str, Form]:
    """Return the forms of the properties that an object names."""
    found: Mapping[str, Form] = form.get("properties", {})
    return found


def required_of(form: Form) -> frozenset[str]:
    """Return the properties that an object has to have."""
    return frozenset(form.get("required", ()))


def values_of(form: Form) -> Form | None:
    """Return the form of the values of a map, None where it is none."""
    found: Form | None = form.get("additionalProperties")
    return found


def is_closed(form: Form) -> bool:
    """Tell whether an object has no property but those that it names."""
    return OPEN not in form and values_of(form) is None


def known(values: Iterable[JSON]) -> list[JSON]:
    """Return values in order, each once; 1 and true are two of them."""
    return list({canonical(value): value for value in values}.values())


def made(kind: str, **said: JSON) -> dict[str, Any]:
    """Return a form of a type that says this; what is None is left out."""
    head: dict[str, Any] = {INT_OR_STRING: True} if kind == MIXED else {"type": kind}
    return head | {key: value for key, value in said.items() if value is not None}


def common(one: Form, other: Form, *, named: bool = False) -> Form:
    """Return the narrowest form that accepts what either does.

    `named`: a property that just one of them names is as that one says, though the other one may
    let anything pass under that name.
    """
    if one == other:
        return one
    kind = _wider(type_of(one), type_of(other))
    words = {key: one.get(key, other.get(key)) for key in _WORDS if one.get(key, other.get(key))}
    if kind == ANY:
        return {**ANYTHING, **words}
    found = made(kind, nullable=True if one.get("nullable") or other.get("nullable") else None)
    if "enum" in one and "enum" in other:
        found["enum"] = known([*one["enum"], *other["enum"]])
    if type_of(one) == type_of(other):
        found |= {key: one[key] for key in ALIKE if key in one and one[key] == other.get(key)}
    if not {type_of(one), type_of(other)} - {"integer", "number"} or type_of(one) == type_of(other):
        found |= _bounds(one, other, tighter=False)
    if kind == "array":
        found["items"] = common(one["items"], other["items"], named=named)
    if kind == "object":
        found |= _common_object(one, other, named=named)
    return found | words


def _wider(one: str, other: str) -> str:
    if one == other:
        return one
    pair = {one, other}
    if pair == {"integer", "number"}:
        return "number"
    return MIXED if pair <= {"integer", "string", MIXED} else ANY


def _common_object(one: Form, other: Form, *, named: bool) -> dict[str, Any]:
    def of(name: str) -> Form:
        first, second = (_property(each, name, named=named) for each in (one, other))
        if first is None or second is None:
            return first or second or ANYTHING
        return common(first, second, named=named)

    names = sorted(properties_of(one).keys() | properties_of(other).keys())
    found: dict[str, Any] = {"properties": {name: of(name) for name in names}} if names else {}
    required = required_of(one) & required_of(other)
    maps = (values_of(one), values_of(other))
    if is_closed(one) and is_closed(other):
        rest: dict[str, Any] = {}
    elif maps[0] is not None and maps[1] is not None and not names:
        rest = {"additionalProperties": common(maps[0], maps[1], named=named)}
    else:
        rest = {OPEN: True}
        welcoming = [WELCOMING in each or values_of(each) is not None for each in (one, other)]
        rest |= {WELCOMING: True} if any(welcoming) else {}
    return found | rest | ({"required": sorted(required)} if required else {})


def _property(form: Form, name: str, *, named: bool) -> Form | None:
    """Return what an object says of a property; None where it leaves that to the other one."""
    said = properties_of(form).get(name)
    if said is not None:
        return said
    if values_of(form) is not None:
        return values_of(form)
    return None if named or is_closed(form) else ANYTHING


def narrowed(one: Form, other: Form, lost: Callable[[str], None]) -> Form:
    """Return a form that accepts at least what both do; `lost` hears what it cannot say."""
    if type_of(other) == ANY or one == other:
        return {**other, **one} if type_of(one) == ANY else one
    if type_of(one) == ANY:
        return {**other, **{key: one[key] for key in _WORDS if key in one}}
    kind = _narrower(type_of(one), type_of(other))
    if kind is None:
        lost("nothing fits both of its types: the first one counts")
        return one
    nullable = one.get("nullable") and other.get("nullable")
    found = made(kind, nullable=nullable or None)
    found |= {key: one.get(key, other.get(key)) for key in _WORDS if key in {**one, **other}}
    limits = _bounds(one, other, tighter=True)
    found |= _both_enums(one, other, lost) | (whole(limits) if kind == "integer" else limits)
    for key in ALIKE:
        said = [each[key] for each in (one, other) if key in each]
        if len(known(said)) > 1:
            lost(f"the second {key} is dropped")
        found |= {key: said[0]} if said else {}
    if kind == "array":
        found["items"] = narrowed(one["items"], other["items"], lost)
    return found | (_narrowed_object(one, other, lost) if kind == "object" else {})


def _narrower(one: str, other: str) -> str | None:
    if one == other:
        return one
    pair = {one, other}
    if MIXED in pair and pair & {"integer", "string"}:
        return "string" if "string" in pair else "integer"
    return "integer" if "integer" in pair and pair & {"number", MIXED} else None


def _both_enums(one: Form, other: Form, lost: Callable[[str], None]) -> dict[str, Any]:
    said = [each["enum"] for each in (one, other) if "enum" in each]
    if len(said) < 2:
        return {"enum": said[0]} if said else {}
    second = {canonical(value) for value in said[1]}
    both = [value for value in said[0] if canonical(value) in second]
    if not both:
        lost("no value is in both of its lists: the first one counts")
    return {"enum": both or said[0]}


def _narrowed_object(one: Form, other: Form, lost: Callable[[str], None]) -> dict[str, Any]:
    def of(name: str) -> Form:
        said = [_property(each, name, named=False) for each in (one, other)]
        first, second = (ANYTHING if each is None else each for each in said)
        return narrowed(first, second, lost)

    names = sorted(properties_of(one).keys() | properties_of(other).keys())
    found: dict[str, Any] = {"properties": {name: of(name) for name in names}} if names else {}
    required = required_of(one) | required_of(other)
    maps = [each for each in (values_of(one), values_of(other)) if each is not None]
    if is_closed(one) or is_closed(other):
        rest: dict[str, Any] = {}
    elif maps and not names:
        rest = {"additionalProperties": narrowed(maps[0], maps[-1], lost)}
    else:
        welcoming = all(WELCOMING in each or values_of(each) is not None for each in (one, other))
        rest = {OPEN: True, WELCOMING: True} if welcoming or maps else {OPEN: True}
    return found | rest | ({"required": sorted(required)} if required else {})


def _bounds(one: Form, other: Form, *, tighter: bool) -> dict[str, Any]:
    """Return the bounds that hold for both, or those that hold for either."""
    found: dict[str, Any] = {}
    for keys, better in ((LOWER, max if tighter else min), (UPPER, min if tighter else max)):
        for key in keys:
            said = [each for each in (one, other) if key in each]
            if not said or (len(said) == 1 and not tighter):
                continue
            found[key] = better(each[key] for each in said)
            flags = [EXCLUSIVE.get(key) in each for each in said if each[key] == found[key]]
            if any(flags) if tighter else all(flags):
                found[EXCLUSIVE[key]] = True
    return found


def whole(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return bounds of a number as those of an integer, which API servers want to be such."""
    found = dict(limits)
    for key, cut_ in (("minimum", math.ceil), ("maximum", math.floor)):
        if key in found and not float(found[key]).is_integer():
            found[key] = cut_(found[key])
            found.pop(EXCLUSIVE[key], None)
    return found


def depth_of(form: Form) -> int:
    """Return how many levels of objects and arrays a form has; 0 for what holds nothing."""
    return max((1 + depth_of(inner) for inner in _inner(form)), default=0)


def _inner(form: Form) -> Sequence[Form]:
    parts = [form.get("items"), values_of(form)]
    return [*properties_of(form).values(), *(part for part in parts if part is not None)]


def cut(form: Form, depth: int) -> Form:
    """Return a form of so many levels; what is deeper may be anything."""
    if not _inner(form):
        return form
    if depth == 0:
        return (
            {**FREE, **{key: form[key] for key in ("nullable", *_WORDS) if key in form}}
            if (type_of(form) == "object")
            else {**form, "items": ANYTHING}
        )
    return _inside(form, lambda inner: cut(inner, depth - 1))


def silent(form: Form) -> Form:
    """Return a form without its words."""
    return _inside({key: value for key, value in form.items() if key not in _WORDS}, silent)


def finished(form: Form) -> dict[str, Any]:
    """Return a form as a CRD has it."""
    head = {key: form[key] for key in _WORDS if key in form}
    rest = {key: value for key, value in form.items() if key != WELCOMING}
    return _inside(head | rest, finished)


def _inside(form: Form, change: Callable[[Form], Form]) -> dict[str, Any]:
    """Return a form in which those that it holds are changed."""
    found = dict(form)
    if "properties" in form:
        found["properties"] = {name: change(inner) for name, inner in properties_of(form).items()}
    for key in ("items", "additionalProperties"):
        if key in form:
            found[key] = change(form[key])
    return found

"""Validates parameters by a plan's JSON schema (drafts 4 to 2020-12), before a call.

An invalid part of a schema, or one that costs too much to check, is a flaw: the broker alone checks
it. No sentence quotes a value. Does not know CRDs and claims.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import prod
from typing import Any, Final, TypeAlias

import jsonschema
import orjson
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from pydantic_core import SchemaError, SchemaValidator, core_schema
from referencing import Registry

from reconciler.blueprints.offering.catalogue import Plan, Schemas
from reconciler.blueprints.offering.outcomes import line
from reconciler.core.manifest import JSON, canonical, get_map, get_text

MOST_OCTETS: Final = 64 * 1024
_MOST_STEPS: Final = 30_000  # each is a keyword at a value, or 64 octets of that: 0.3 s in all
_STEPS_OF_A_REFERENCE: Final = 8
_DEEPEST: Final = 100  # keywords in each other: Rust panics where Python's stack ends
_MOST_OF_SCHEMA: Final = 500_000  # of a schema itself, once
_OCTETS_OF_STEP: Final = 64
_MOST_SENTENCES: Final = 3
_MOST_FLAWS: Final = 20
_LONGEST: Final = 80
_DRAFTS: Final[tuple[type[Validator], ...]] = (
    *(jsonschema.Draft202012Validator, jsonschema.Draft201909Validator),
    *(jsonschema.Draft7Validator, jsonschema.Draft6Validator, jsonschema.Draft4Validator),
)
_LONGEST_PATTERN: Final = 1000
_MOST_PATTERNS: Final = 100  # of a schema
_MOST_REPEATS: Final = 20_000  # as if all repetitions of a pattern were in each other
_COUNT: Final = re.compile(r"[1-9][0-9]*(?=\})")
# Rust reads these otherwise than ECMA 262: sets between sets, classes of Unicode.
_ODD: Final = re.compile(r"\[[^\]]*(?:\[|&&|--|~~)|\\[pPzAxu]\{?")
_CLASS: Final = re.compile(r"\\.")
_CLASSES: Final = {r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[0-9A-Za-z_]", r"\W": "[^0-9A-Za-z_]"}
_UNCHECKED: Final = (
    *("patternProperties", "unevaluatedProperties", "unevaluatedItems"),
    *("$dynamicRef", "$recursiveRef"),
)
# Keywords that may allow further names, also beside "additionalProperties": false.
_FURTHER: Final = frozenset(("$ref", "patternProperties"))
_CITED: Final = frozenset(
    (
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "type"),
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("enum", "const", "pattern", "uniqueItems"),
    )
)

_Rule: TypeAlias = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class _TooCostlyError(Exception):
    """A check took more steps than it may."""


@dataclass(slots=True)
class _Check:
    """A check: the steps left, sizes of values by identity, and unchecked parts."""

    sizes: Mapping[int, int]
    steps: int
    depth: int = 0
    unsure: int = 0


_CHECK: ContextVar[_Check] = ContextVar("check")


def _counted(rule: _Rule, steps: int = 1) -> _Rule:
    def run(of: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        check = _CHECK.get()
        octets = len(instance) if isinstance(instance, str) else check.sizes.get(id(instance), 0)
        listed = len(value) if isinstance(value, list | dict) else 0
        check.steps -= steps + octets // _OCTETS_OF_STEP + listed // 8
        if check.steps < 0 or check.depth > _DEEPEST:
            raise _TooCostlyError
        check.depth += 1
        try:
            yield from rule(of, value, instance, schema) or ()
        finally:
            check.depth -= 1

    return run


def _sure(rule: _Rule) -> _Rule:
    """Let a rule that negates another refuse only if the whole value was checked."""

    def run(of: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        check = _CHECK.get()
        before = check.unsure
        errors = list(rule(of, value, instance, schema) or ())
        if check.unsure == before:
            yield from errors

    return run


def _unchecked(of: Any, value: Any, instance: Any, schema: Any) -> None:
    _CHECK.get().unsure += 1


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> SchemaValidator | None:
    """Return a pattern that matches in linear time; None: there is none."""
    most = prod(int(count) for count in _COUNT.findall(pattern))
    if len(pattern) > _LONGEST_PATTERN or most > _MOST_REPEATS or _ODD.search(pattern):
        return None
    # Rust's are of all of Unicode, which costs much.
    pattern = _CLASS.sub(lambda found: _CLASSES.get(found[0], found[0]), pattern)
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def _pattern(of: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str):
        expression = _expression(value)
        if expression is None:
            _unchecked(of, value, instance, schema)
        elif not expression.isinstance_python(instance):
            yield ValidationError("")


def _unique(of: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if value and isinstance(instance, list) and len(set(map(canonical, instance))) < len(instance):
        yield ValidationError("")


def _additional(rule: _Rule) -> _Rule:
    def run(of: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if "patternProperties" in schema:
            _unchecked(of, value, instance, schema)
        else:
            yield from rule(of, value, instance, schema) or ()

    return run


def _counting(draft: type[Validator], rules: Mapping[str, _Rule]) -> type[Validator]:
    counted = {name: _counted(rule) for name, rule in {**draft.VALIDATORS, **rules}.items()}
    counted["$ref"] = _counted(counted["$ref"], _STEPS_OF_A_REFERENCE)
    made: type[Validator] = jsonschema.validators.extend(draft, counted)  # type: ignore[no-untyped-call]
    return made


def _bounded(draft: type[Validator]) -> type[Validator]:
    """Return a draft's validator of which no check runs for long, or asks another machine."""
    rules: dict[str, _Rule] = dict(draft.VALIDATORS)
    changed: dict[str, _Rule] = {name: _unchecked for name in _UNCHECKED if name in rules}
    changed |= {name: _sure(rules[name]) for name in ("not", "oneOf", "if") if name in rules}
    additional = _additional(rules["additionalProperties"])
    changed |= {"pattern": _pattern, "uniqueItems": _unique, "additionalProperties": additional}
    return _counting(draft, changed)


_BOUNDED: Final = {draft: _bounded(draft) for draft in _DRAFTS}


def _of_schemas(draft: type[Validator]) -> Validator:
    """Return a validator of schemas; `$schema` within one would lead to another class."""
    plain = {key: value for key, value in dict(draft.META_SCHEMA).items() if key != "$schema"}
    return _counting(draft, {"uniqueItems": _unique})(plain, registry=Registry())


# Of later drafts, only what was there before is looked at.
_OLD, _NEW = _of_schemas(jsonschema.Draft4Validator), _of_schemas(jsonschema.Draft7Validator)


@dataclass(frozen=True, slots=True)
class Checked:
    """A schema that was checked itself. `flaws` are sentences on checks left to the broker."""

    validator: Validator | None
    flaws: tuple[str, ...] = ()

    def problems(self, parameters: Mapping[str, JSON]) -> list[str]:
        """Return why a plan refuses parameters, each with its place; none where it may not."""
        if self.validator is None:
            return []
        errors = _errors(self.validator, orjson.loads(canonical(parameters)))
        return list(dict.fromkeys([one for error in errors or () for one in _sentences(error)]))


def _errors(
    validator: Validator, value: Any, *, steps: int = _MOST_STEPS
) -> list[ValidationError] | None:
    """Return the first errors of a value; None where that cannot be found out at this cost."""
    sizes: dict[int, int] = {}
    token = _CHECK.set(_Check(sizes, steps))
    try:
        _measure(value, sizes)
        return list(islice(validator.iter_errors(value), _MOST_FLAWS))
    except Exception:
        # A library at work on what a broker wrote: whatever stops it is the broker's to check.
        return None
    finally:
        _CHECK.reset(token)


def _measure(value: Any, sizes: dict[int, int]) -> int:
    """Return about how many octets a value has, and note those of all that it holds."""
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, dict | list):
        return 1
    inner = (*value, *value.values()) if isinstance(value, dict) else value
    sizes[id(value)] = 2 + sum(_measure(one, sizes) for one in inner)
    return sizes[id(value)]


def _sentences(error: Any) -> Iterator[str]:
    path, keyword, expected = list(error.absolute_path), str(error.validator), error.validator_value
    if keyword == "required":
        missing = [name for name in expected if name not in error.instance]
        yield from (f"{_shown([*path, name])} is missing" for name in missing)
    elif keyword == "additionalProperties" and expected is False:
        others = sorted(error.instance.keys() - get_map(error.schema, "properties").keys())
        yield from (f"{_shown([*path, name])} is no parameter" for name in others)
    elif keyword in _CITED:
        yield f"{_shown(path)} does not fit {keyword}: {_cited(expected)}"
    else:
        rule = keyword if error.validator is not None else "a schema that nothing fits"
        yield f"{_shown(path)} does not fit {rule}"


def _shown(path: Iterable[Any]) -> str:
    steps = (f"[{one}]" if isinstance(one, int) else f".{one}" for one in path)
    return line("parameters" + "".join(steps), longest=2 * _LONGEST)


def _cited(value: JSON) -> str:
    return line(canonical(value).decode(), longest=_LONGEST)


def checked(schema: JSON) -> Checked:
    """Return a schema fit to check parameters; None, without any rule, accepts anything."""
    return Checked(None) if schema is None else _checked(canonical(schema))


@lru_cache(maxsize=256)
def _checked(text: bytes) -> Checked:
    schema = orjson.loads(text)
    if not isinstance(schema, dict):
        return _unchecked_schema("no schema, which is an object")
    if len(text) > MOST_OCTETS or text.count(b'"pattern"') > _MOST_PATTERNS:
        return _unchecked_schema(f"{len(text) // 1024} kB, or its patterns, are too much")
    draft = _draft(schema)
    _alone(schema)
    faults = _faults(draft, schema)
    if faults is None:
        return _unchecked_schema("too much of a schema")
    if faults:
        return _unchecked_schema(*map(_flaw, faults))
    made = _BOUNDED[draft](schema, registry=Registry())
    return Checked(made, tuple(dict.fromkeys(_left_out(schema, "")))[:_MOST_FLAWS])


def _unchecked_schema(*why: str) -> Checked:
    return Checked(None, tuple(dict.fromkeys(why))[:_MOST_FLAWS])


def _draft(schema: Mapping[str, JSON]) -> type[Validator]:
    """Return the draft that a schema names, else the later of two that it fits best."""
    named = {"$schema": get_text(schema, "$schema")}
    stated = jsonschema.validators.validator_for(named, default=jsonschema.Draft3Validator)
    if stated in _BOUNDED:
        return stated
    return min(
        (jsonschema.Draft7Validator, jsonschema.Draft4Validator),
        key=lambda one: len(_faults(one, schema) or ()),
    )


def _faults(draft: type[Validator], schema: Mapping[str, JSON]) -> list[ValidationError] | None:
    of = _OLD if draft is jsonschema.Draft4Validator else _NEW
    return _errors(of, schema, steps=_MOST_OF_SCHEMA)


def _flaw(fault: Any) -> str:
    place = "".join(f"/{one}" for one in fault.absolute_path)
    return f"{line(place, longest=2 * _LONGEST)}: {_cited(fault.instance)} is not valid there"


def _alone(schema: Any) -> None:
    """Have each part of a schema be of one draft, and of one document."""
    if isinstance(schema, dict):
        for key in ("$schema", "$id", "id"):
            if isinstance(schema.get(key), str):
                del schema[key]
    for inner in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(inner, dict | list):
            _alone(inner)


def _left_out(schema: Any, place: str) -> Iterator[str]:
    """Yield the parts of a schema that are valid, and are not checked."""
    parts = schema.items() if isinstance(schema, dict) else enumerate(schema)
    for key, value in parts:
        at = f"{place}/{key}"
        if key == "pattern" and isinstance(value, str) and _expression(value) is None:
            yield f"{line(at)}: {_cited(value)} is no pattern that can be checked quickly"
        elif key in _UNCHECKED and isinstance(value, dict | str):
            yield line(at)
        elif key == "$ref" and isinstance(value, str) and not value.startswith("#"):
            yield f"{line(at)} leads out of the schema"
        if isinstance(value, dict | list):
            yield from _left_out(value, at)


def of_new(plan: Plan, schema: JSON, parameters: Mapping[str, JSON]) -> str:
    """Return why a plan refuses parameters by one of its schemas; "" where it may not."""
    return _refusal(plan, checked(schema).problems(parameters))


def of_update(plan: Plan, parameters: Mapping[str, JSON], changed: Iterable[str]) -> str:
    """Return why a plan refuses a change to these parameters; "" where it may not.

    `changed` are the names of those that the instance has otherwise.
    """
    named = changeable(plan.schemas)
    if named is None:
        schema = plan.schemas.update if limits_updates(plan.schemas.update) else plan.schemas.create
        return of_new(plan, schema, parameters)
    frozen = [
        f"{_shown([name])} cannot be changed" for name in sorted(changed) if name not in named
    ]
    sent = {name: value for name, value in parameters.items() if name in named}
    return _refusal(plan, [*frozen, *checked(plan.schemas.update).problems(sent)])


def changeable(schemas: Schemas) -> frozenset[str] | None:
    """Return the parameters that an update may change; None where it may change any.

    They are those that the schema names, also where it does not forbid others.
    """
    update = get_map(schemas.update)
    closed = update.get("additionalProperties") is False
    is_open = not closed and ("allOf" in update or update.get("additionalProperties") is not None)
    if not limits_updates(schemas.update) or is_open or update.keys() & _FURTHER:
        return None
    return frozenset(get_map(update, "properties"))


def limits_updates(update: JSON) -> bool:
    """Return whether a schema of updates limits the parameters that may change."""
    return (
        bool(get_map(update, "properties")) or get_map(update).get("additionalProperties") is False
    )


def _refusal(plan: Plan, problems: list[str]) -> str:
    if not problems:
        return ""
    more = len(problems) - _MOST_SENTENCES
    text = "; ".join(problems[:_MOST_SENTENCES]) + (f"; and {more} more" if more > 0 else "")
    return f"plan {plan.name} refuses it: {text}"

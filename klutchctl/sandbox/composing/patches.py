"""Compose resources from the input of function-patch-and-transform, `pt.fn.crossplane.io/v1beta1`.

A part of that function, by its documented rules. Input that is not of this part is refused: a
composition that works here works with the function itself. Pure.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from reconciler.core import conditions
from reconciler.core.manifest import (
    JSON,
    Manifest,
    get,
    get_int,
    get_map,
    get_maps,
    get_text,
    name_of,
    namespace_of,
    put,
)

_Entry = TypeVar("_Entry")
_IS_UPWARD: Final = {"ToCompositeFieldPath": True, "FromCompositeFieldPath": False}
_STEP: Final = re.compile(r"\[([^\[\]]+)\]|([^.\[\]]+)")


class Refused(Exception):
    """The input cannot be carried out: the text is the reason."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A composed resource that exists, with the connection details of the provider."""

    resource: Manifest
    details: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Composed:
    """The answer. `resources` are by their names, each with the answer of its readiness checks."""

    composite: Manifest
    resources: dict[str, tuple[Manifest, bool]] = field(default_factory=dict)
    details: dict[str, bytes] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def compose(
    resources: Sequence[Manifest],
    composite: Manifest,
    desired: Manifest,
    observed: Mapping[str, Observed],
) -> Composed:
    """Return the result of these templates. `desired` is that of earlier steps of the pipeline.

    Raises Refused.
    """
    composed = Composed(desired)
    for template in resources:
        name, base = get_text(template, "name"), get_map(template, "base")
        if not name or not base:
            raise Refused("each resource needs a name and a base")
        try:
            _compose(composed, template, composite, observed.get(name))
        except (Refused, ValueError, TypeError, LookupError, re.error) as error:
            raise Refused(f"resource {name}: {error}") from error
    return composed


def _compose(
    composed: Composed, template: Manifest, composite: Manifest, live: Observed | None
) -> None:
    name, resource = get_text(template, "name"), get_map(template, "base")
    ready = False
    if live is not None:
        place = {"name": name_of(live.resource), "namespace": namespace_of(live.resource)}
        for key, text in place.items():
            resource = put(resource, text, "metadata", key) if text else resource
        ready = is_ready(live.resource, get_maps(template, "readinessChecks"))
        composed.details |= connection(live, get_maps(template, "connectionDetails"))
    for patch in get_maps(template, "patches"):
        upward = _known(_IS_UPWARD, get_text(patch, "type"), "patches")
        if upward and live is None:
            continue
        path = get_text(patch, "fromFieldPath")
        value = read(live.resource if upward and live else composite, path)
        if value is None:
            if get_text(patch, "policy", "fromFieldPath") == "Required":
                composed.warnings.append(f"resource {name}: {path} is required, and is not there")
                if live is None:  # one that exists stays desired: else it would be deleted
                    return
            continue
        value = transformed(value, get_maps(patch, "transforms"))
        to = get_text(patch, "toFieldPath") or path
        if upward:
            composed.composite = write(composed.composite, to, value)
        else:
            resource = write(resource, to, value)
    composed.resources[name] = resource, ready


def read(source: Manifest, path: str) -> JSON:
    """Return the value at a path such as `metadata.labels[a/b]` or `spec.ports[0].name`."""
    return get(source, *_steps(path))


def write(target: Manifest, path: str, value: JSON) -> Manifest:
    """Return the object with a value at a path; objects on the way are made. Raises Refused."""
    steps = [*_steps(path)]
    if any(isinstance(step, int) for step in steps):
        raise Refused(f"{path} leads into an array, which is not known here")
    return put(target, value, *map(str, steps))


def _steps(path: str) -> Iterator[str | int]:
    for bracketed, plain in _STEP.findall(path):
        yield int(bracketed) if bracketed.isdecimal() else bracketed or plain


def transformed(value: JSON, transforms: Iterable[Manifest]) -> JSON:
    """Return the value after all transforms. Raises Refused, and ValueError for such a value."""
    for one in transforms:
        kind = get_text(one, "type")
        value = _known(_TRANSFORMS, kind, "transforms")(value, get_map(one, kind))
    return value


def _known(table: Mapping[str, _Entry], kind: str, subject: str) -> _Entry:
    if kind not in table:
        raise Refused(f"{subject} of type {kind!r} are not known")
    return table[kind]


def _format(value: JSON, options: Manifest) -> str:
    wanted = value if isinstance(value, int | float) else _text(value)
    return get_text(options, "fmt").replace("%v", "%s") % wanted


def _convert_text(value: JSON, options: Manifest) -> str:
    return _known(_TEXTS, get_text(options, "convert"), "conversions")(_text(value))


def _regexp(value: JSON, options: Manifest) -> str:
    pattern = get_text(options, "regexp", "match")
    found = re.search(pattern, _text(value))
    if found is None:
        raise Refused(f"{_text(value)!r} does not match {pattern}")
    return found[get_int(options, "regexp", "group") or 0] or ""


def _map(value: JSON, options: Manifest) -> JSON:
    if value not in options:
        raise Refused(f"the map has no {value!r}")
    return options[str(value)]


def _match(value: JSON, options: Manifest) -> JSON:
    for pattern in get_maps(options, "patterns"):
        kind = get_text(pattern, "type")
        if _known(_PATTERNS, kind, "patterns")(_text(value), get_text(pattern, kind)):
            return pattern.get("result")
    return value if options.get("fallbackTo") == "Input" else options.get("fallbackValue")


def _convert(value: JSON, options: Manifest) -> JSON:
    return _known(_TYPES, get_text(options, "toType"), "conversions")(_text(value))


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


_TRANSFORMS: Final[Mapping[str, Callable[[JSON, Manifest], JSON]]] = {
    "string": lambda value, options: _known(
        _STRINGS, get_text(options, "type"), "string transforms"
    )(value, options),
    "map": _map,
    "match": _match,
    "convert": _convert,
}
_STRINGS: Final[Mapping[str, Callable[[JSON, Manifest], str]]] = {
    "Format": _format,
    "Convert": _convert_text,
    "Regexp": _regexp,
}
_TEXTS: Final[Mapping[str, Callable[[str], str]]] = {
    "ToUpper": str.upper,
    "ToLower": str.lower,
    "ToBase64": lambda text: base64.b64encode(text.encode()).decode(),
    "FromBase64": lambda text: base64.b64decode(text, validate=True).decode(),
}
_TYPES: Final[Mapping[str, Callable[[str], JSON]]] = {
    "string": str,
    "int": int,
    "int64": int,
    "float64": float,
    "bool": lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
}
_PATTERNS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "literal": lambda text, wanted: text == wanted,
    "regexp": lambda text, wanted: re.search(wanted, text) is not None,
}


def is_ready(live: Manifest, checks: Sequence[Manifest]) -> bool:
    """Return whether all checks pass; without one it is condition Ready. Raises Refused."""
    return all(
        _known(_CHECKS, get_text(check, "type"), "readiness checks")(live, check)
        for check in checks or _DEFAULT_CHECKS
    )


def _has_condition(live: Manifest, check: Manifest) -> bool:
    found = conditions.get(live, get_text(check, "matchCondition", "type"))
    return found is not None and found.status == get_text(check, "matchCondition", "status")


def _field(live: Manifest, check: Manifest) -> JSON:
    return read(live, get_text(check, "fieldPath"))


_CHECKS: Final[Mapping[str, Callable[[Manifest, Manifest], bool]]] = {
    "None": lambda _live, _check: True,
    "NonEmpty": lambda live, check: _field(live, check) is not None,
    "MatchString": lambda live, check: _field(live, check) == get_text(check, "matchString"),
    "MatchInteger": lambda live, check: _field(live, check) == get_int(check, "matchInteger"),
    "MatchTrue": lambda live, check: _field(live, check) is True,
    "MatchFalse": lambda live, check: _field(live, check) is False,
    "MatchCondition": _has_condition,
}
_DEFAULT_CHECKS: Final[Sequence[Manifest]] = (
    {"type": "MatchCondition", "matchCondition": {"type": "Ready", "status": "True"}},
)


def connection(live: Observed, wanted: Iterable[Manifest]) -> dict[str, bytes]:
    """Return the connection details that are there already. Raises Refused."""
    found = {
        get_text(one, "name"): _known(_DETAILS, get_text(one, "type"), "details")(live, one)
        for one in wanted
    }
    return {name: value for name, value in found.items() if value is not None}


def _from_field(live: Observed, wanted: Manifest) -> bytes | None:
    value = read(live.resource, get_text(wanted, "fromFieldPath"))
    return None if value is None else _text(value).encode()


_DETAILS: Final[Mapping[str, Callable[[Observed, Manifest], bytes | None]]] = {
    "FromValue": lambda _live, one: get_text(one, "value").encode(),
    "FromConnectionSecretKey": lambda live, one: live.details.get(
        get_text(one, "fromConnectionSecretKey")
    ),
    "FromFieldPath": _from_field,
}

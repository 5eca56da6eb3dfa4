"""Random catalogues of brokers, with schemas of all drafts, and values that their schemas accept.

All follows from the number that a `Catalogues` is made with.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from jsonschema import Draft7Validator, FormatChecker

NAMES: Final = (
    *("size", "max_size", "storage", "if", "in", "__x", "a-b", "dotted.name", "with space"),
    *("1st", "$x", "-", "\u00fcml", "'quoted'", "back\\slash", "plan", "metadata", "null", ""),
)
_TEXTS: Final = ("", "a", "ab", "abc", "small", "2026-01-01", "it's", "\u00e4\u00f6", "10.0.0.1")
_NUMBERS: Final = (-3, -1, 0, 1, 2, 5, 10, 255, 0.5, -0.5, 2.5)
_PATTERNS: Final = ("^a", "b$", "^(a|b)+$", "^(?=a)", "[a-c]{1,3}", "^[a-z]{1,63}(-[a-z]{1,63})*$")
_FORMATS: Final = ("date", "duration", "email", "ipv4", "uuid", "made-up", "byte", "regex")
_CHECKED: Final = FormatChecker(("date", "email", "ipv4", "uuid"))  # as API servers do
_POOL: Final = (*_TEXTS, *_NUMBERS, True, False, None)
_SCALARS: Final = ("string", "integer", "number", "boolean")


class Catalogues:
    """What random catalogues are made of."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def catalogue(self, *, plans: int = 4) -> dict[str, Any]:
        """Return a catalogue of a few offerings with up to so many plans each."""
        count = self._random.randint(1, 3)
        return {"services": [self._service(number, plans) for number in range(count)]}

    def _service(self, number: int, most: int) -> dict[str, Any]:
        count = self._random.randint(1, most)
        shared = self.parameters()
        plans = [self._plan(f"{number}-{place}", shared) for place in range(count)]
        return {
            "id": f"service-{number}",
            "name": self._pick(("my-db", "My.Service v2", "3scale", "a b c")) + str(number),
            "description": self._pick(("A service.", "Two\nlines\x07", "x" * 3000, "\u200bodd")),
            "bindable": self._happens(0.7),
            "plan_updateable": self._happens(0.5),
            "metadata": {"displayName": "It's\u2028odd", "documentationUrl": "https://x.example"},
            "plans": plans,
        }

    def _plan(self, number: str, shared: dict[str, Any]) -> dict[str, Any]:
        create = self._pick((shared, self.parameters(), None))
        update = self._pick((shared, self.parameters(), None, {"type": "object"}))
        bind = self._pick((shared, self.parameters(), None))
        instance = {
            verb: {"parameters": schema}
            for verb, schema in (("create", create), ("update", update))
            if schema is not None
        }
        binding = {"create": {"parameters": bind}} if bind is not None else {}
        schemas = {"service_instance": instance, "service_binding": binding}
        more = {"bindable": self._happens(0.5)} if self._happens(0.3) else {}
        names = (f"small-{number}", f"it's \\ {number}", f"v1.2 {number}", f"\u00fc{number}")
        return {
            "id": f"plan-{number}",
            "name": self._pick(names),
            "description": "A plan.",
            "schemas": schemas,
            **more,
        }

    def parameters(self) -> dict[str, Any]:
        schema = self._object(3)
        schema["type"] = "object"
        schema["definitions"] = {name: self._scalar() for name in ("x", "y")}
        if self._happens(0.3):
            schema["$schema"] = "http://json-schema.org/draft-07/schema#"
        return schema

    def _schema(self, depth: int) -> Any:
        roll = self._random.random()
        if depth == 0 or roll < 0.45:
            return self._scalar()
        if roll < 0.6:
            return self._object(depth - 1)
        if roll < 0.72:
            return self._array(depth - 1)
        if roll < 0.8:
            return {"$ref": self._pick(("#/definitions/x", "#/definitions/y"))}
        return self._random.random() < 0.5 if roll < 0.84 else self._mixed(depth - 1)

    def _scalar(self) -> dict[str, Any]:
        kind = self._pick(_SCALARS)
        schema: dict[str, Any] = {"type": kind}
        if self._happens(0.2):
            schema["type"] = self._random.sample([*_SCALARS, "null"], self._random.randint(1, 3))
        keywords: dict[str, Callable[[], Any]] = {
            "minimum": lambda: self._pick(_NUMBERS),
            "maximum": lambda: self._pick(_NUMBERS),
            "exclusiveMinimum": lambda: self._pick(_NUMBERS),
            "exclusiveMaximum": lambda: self._pick((*_NUMBERS, 2**63, 1e300)),
            "multipleOf": lambda: self._pick((1, 2, 0.5)),
            "minLength": lambda: self._random.randint(0, 2),
            "maxLength": lambda: self._random.randint(1, 30),
            "pattern": lambda: self._pick(_PATTERNS),
            "format": lambda: self._pick(_FORMATS),
            "enum": lambda: self._values_of(schema["type"]),
            "const": lambda: self._pick(self._values_of(schema["type"])),
            "default": lambda: self._pick((*_TEXTS, *_NUMBERS, None)),
            "description": lambda: self._pick(("A text.", "Two\nlines\x07", "It's: #odd")),
        }
        fitting = [key for key in keywords if _fits_type(key, kind)]
        for key in self._random.sample(fitting, self._random.choice((0, 0, 1, 1, 2, 3))):
            schema[key] = keywords[key]()
        return schema

    def _values_of(self, types: Any) -> list[Any]:
        pool = [one for one in _POOL if _is_of(one, types)]
        return self._random.sample(pool, min(len(pool), self._random.randint(1, 4)))

    def _object(self, depth: int) -> dict[str, Any]:
        names = self._random.sample(NAMES, self._random.randint(0, 4))
        schema: dict[str, Any] = {
            "type": "object", "properties": {name: self._schema(depth) for name in names}
        }  # fmt: skip
        if names and self._happens(0.4):
            schema["required"] = self._random.sample(names, self._random.randint(1, len(names)))
        if self._happens(0.1):
            schema["required"] = [*schema.get("required", ()), "not named"]
        rest = self._pick((None, None, False, False, True, "schema"))
        if rest is not None:
            schema["additionalProperties"] = self._schema(depth) if rest == "schema" else rest
        keywords: dict[str, Callable[[], Any]] = {
            "patternProperties": lambda: {"^z": self._schema(depth)},
            "maxProperties": lambda: self._random.randint(1, 6),
            "anyOf": lambda: self._branches(depth),
            "oneOf": lambda: self._branches(depth),
            "allOf": lambda: self._branches(depth),
            "not": lambda: {"required": ["never"]},
            "if": lambda: {"required": [self._pick(NAMES)]},
            "then": lambda: self._object(depth - 1) if depth > 0 else {},
            "dependencies": lambda: {self._pick(NAMES): {"required": [self._pick(NAMES)]}},
            "propertyNames": lambda: {"maxLength": 40},
        }
        for key in self._random.sample(list(keywords), self._random.choice((0, 0, 0, 1, 2))):
            schema[key] = keywords[key]()
        return schema

    def _branches(self, depth: int) -> list[Any]:
        count = self._random.randint(1, 3)
        return [
            self._object(depth - 1) if depth > 0 else {"required": [self._pick(NAMES)]}
            for _ in range(count)
        ]

    def _array(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array"}
        keywords: dict[str, Callable[[], Any]] = {
            "items": lambda: self._schema(depth) if self._happens(0.8) else [self._schema(depth)],
            "minItems": lambda: self._random.randint(0, 1),
            "maxItems": lambda: self._random.randint(1, 4),
            "uniqueItems": lambda: True,
            "contains": lambda: self._scalar(),
        }
        for key in self._random.sample(list(keywords), self._random.randint(0, 3)):
            schema[key] = keywords[key]()
        return schema

    def _mixed(self, depth: int) -> dict[str, Any]:
        key = self._pick(("anyOf", "oneOf", "allOf"))
        return {key: [self._schema(max(depth, 0)) for _ in range(self._random.randint(1, 3))]}

    def fitting(self, schema: Any, *, tries: int) -> Iterator[Any]:
        """Return values that the schema accepts, of so many tries."""
        if schema is None:
            yield {"anything": [1, {"a": None}]}
            return
        validator = Draft7Validator(schema, format_checker=_CHECKED)
        for _ in range(tries):
            value = self._value(schema, schema)
            if isinstance(value, Mapping) and validator.is_valid(value):
                yield value

    def _value(self, schema: Any, root: Any) -> Any:
        """Return a value that fits quite likely."""
        if not isinstance(schema, dict):
            return self._pick((*_TEXTS, *_NUMBERS, None, True, {"a": 1}, [1]))
        if "$ref" in schema:
            return self._value(root["definitions"][schema["$ref"][-1]], root)
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else self._pick(schema["enum"])
        mixed = [key for key in ("anyOf", "oneOf", "allOf") if key in schema]
        if mixed and "type" not in schema:
            return self._value(self._pick(schema[mixed[0]]), root)
        return self._value_of_type(schema, root)

    def _value_of_type(self, schema: dict[str, Any], root: Any) -> Any:
        kind = schema.get("type", "object")
        kind = self._pick(kind) if isinstance(kind, list) else kind
        if kind == "object":
            return self._object_value(schema, root)
        if kind == "array":
            items = schema.get("items", True)
            count = 0 if items is False else self._random.randint(0, 3)
            return [self._value(items, root) for _ in range(count)]
        return self._pick([one for one in _POOL if _is_of(one, kind)])

    def _object_value(self, schema: dict[str, Any], root: Any) -> dict[str, Any]:
        parts = [schema]
        for key in ("anyOf", "oneOf"):
            parts += [self._pick(schema[key])] if key in schema else []
        parts += schema.get("allOf", [])
        found = {}
        for part in parts:
            for name, inner in part.get("properties", {}).items():
                if name in part.get("required", ()) or self._happens(0.6):
                    found[name] = self._value(inner, root)
            for name in part.get("required", ()):
                found.setdefault(name, self._value(schema["properties"].get(name, True), root))
        if schema.get("additionalProperties") is not False and self._happens(0.3):
            found["other"] = self._value(schema.get("additionalProperties", True), root)
        return found

    def _pick(self, values: Sequence[Any]) -> Any:
        return self._random.choice(values)

    def _happens(self, chance: float) -> bool:
        return self._random.random() < chance


def _fits_type(keyword: str, kind: str) -> bool:
    numeric = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    if keyword in numeric:
        return kind in ("integer", "number")
    return kind == "string" or keyword not in ("minLength", "maxLength", "pattern", "format")


def _is_of(value: Any, types: Any) -> bool:
    return bool(Draft7Validator({"type": types}).is_valid(value))

"""The JSON document of a plan back into values, each field checked, with its place in errors."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from reconciler.core.diff import FieldChange
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.origin import Origin
from reconciler.core.refs import Kind, Ref
from reconciler.fleet.values import UnitKey
from reconciler.planning.changes import (
    Action,
    Change,
    Held,
    Plan,
    Step,
    UnseenCluster,
    Verb,
    WidenedClaim,
)

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_NAMES: Final[Mapping[type, str]] = {str: "text", int: "a number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class _Object:
    """One JSON object of the document; `place` is its file and JSON pointer."""

    content: Manifest
    place: str

    def text(self, key: str) -> str:
        return self._value(key, str, "")

    def number(self, key: str) -> int:
        return self._value(key, int, 0)

    def flag(self, key: str) -> bool:
        return self._value(key, bool, False)

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self._typed(item, str, place) for item, place in self._items(key))

    def text_map(self, key: str) -> dict[str, str]:
        found = self.object(key)
        return {name: found.text(name) for name in found.content}

    def object(self, key: str) -> "_Object":
        found = self.optional(key)
        if found is None:
            raise ConfigError("is missing", where=self._at(key))
        return found

    def optional(self, key: str) -> "_Object | None":
        value = self.content.get(key)
        return None if value is None else _object(value, self._at(key))

    def each(self, key: str, read: "Callable[[_Object], T]") -> tuple[T, ...]:
        return tuple(read(_object(item, place)) for item, place in self._items(key))

    def _items(self, key: str) -> Iterator[tuple[JSON, str]]:
        value = self.content.get(key)
        if value is None:
            return
        if not isinstance(value, list):
            raise ConfigError("must be a list", where=self._at(key))
        for index, item in enumerate(value):
            yield item, f"{self._at(key)}/{index}"

    def _value(self, key: str, wanted: type[T], default: T) -> T:
        value = self.content.get(key)
        return default if value is None else self._typed(value, wanted, self._at(key))

    def _typed(self, value: JSON, wanted: type[T], place: str) -> T:
        # A bool is an int to Python, and not to JSON.
        if isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
            return value
        raise ConfigError(f"must be {_NAMES[wanted]}", where=place)

    def _at(self, key: str) -> str:
        escaped = key.replace("~", "~0").replace("/", "~1")
        if not escaped.isprintable():
            escaped = ascii(escaped)
        return f"{self.place}/{escaped}"


def read(document: JSON, path: str) -> Plan:
    """Return the plan in a document of our major version; fields that are unknown are ignored.

    Raises ConfigError with `path: ` and the JSON pointer of what is wrong.
    """
    found = _object(document, f"{path}: ")
    return Plan(
        fleet=found.text("fleet"),
        revision=found.text("revision"),
        digest=found.text("files"),
        changes=found.each("changes", _change),
        sections=found.text_map("sections"),
        widened=found.each("widened", _widened),
        held=found.each("held", _held),
        unseen=found.each("unseen", _unseen),
        warnings=found.texts("warnings"),
        clusters_total=found.number("clusters"),
        id=found.text("id"),
        repository=found.text("repository"),
    )


def _object(value: JSON, place: str) -> _Object:
    if not isinstance(value, Mapping):
        raise ConfigError("must be an object", where=place)
    return _Object(value, place)


def _change(found: _Object) -> Change:
    after = found.optional("after")
    unit = found.optional("unit")
    return Change(
        cluster=found.text("cluster"),
        subject=found.text("subject"),
        ref=_ref(found.object("ref")),
        action=_word(found, "action", Action),
        reason=found.text("reason"),
        origin=_origin(found.optional("origin")),
        unit=None if unit is None else _unit(unit),
        before=found.text("before"),
        uid=found.text("uid"),
        after=None if after is None else after.content,
        fields=found.each("fields", _field),
        steps=found.each("steps", _step),
        instances=found.number("instances") or None,
        keeps_data=found.flag("keepsData"),
        held=found.texts("held"),
    )


def _word(found: _Object, key: str, known: type[E]) -> E:
    word = found.text(key)
    if word not in set(known):
        listed = ", ".join(known)
        raise ConfigError(f"must be one of {listed}", where=f"{found.place}/{key}")
    return known(word)


def _field(found: _Object) -> FieldChange:
    return FieldChange(found.text("path"), found.content.get("before"), found.content.get("after"))


def _step(found: _Object) -> Step:
    return Step(_word(found, "verb", Verb), _ref(found.object("ref")), found.text("note"))


def _ref(found: _Object) -> Ref:
    kind = Kind(
        group=found.text("group"),
        version=found.text("version"),
        kind=found.text("kind"),
        plural=found.text("plural"),
        namespaced=found.flag("namespaced"),
    )
    return Ref(found.text("cluster"), kind, found.text("namespace"), found.text("name"))


def _unit(found: _Object) -> UnitKey:
    return UnitKey(found.text("cluster"), found.text("group"), found.text("resource"))


def _origin(found: _Object | None) -> Origin | None:
    if found is None:
        return None
    return Origin(found.text("path"), found.number("line"), found.number("column"))


def _widened(found: _Object) -> WidenedClaim:
    return WidenedClaim(
        unit=_unit(found.object("unit")),
        binding=found.text("binding"),
        claim=found.text("claim"),
        before=found.text("before"),
        after=found.text("after"),
        origin=_origin(found.optional("origin")),
    )


def _held(found: _Object) -> Held:
    return Held(found.text("guard"), found.text("message"), found.texts("clusters"))


def _unseen(found: _Object) -> UnseenCluster:
    return UnseenCluster(found.text("name"), found.text("reason"), found.text("remedy"))

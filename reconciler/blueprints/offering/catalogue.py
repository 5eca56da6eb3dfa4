"""Parses a broker's catalogue, and tolerates unknown and malformed parts where ids stay clear.

A field that decides something has the type of OSB 2.17 (null: absent), or the catalogue is refused;
words and metadata of another type read as absent. Does not know files and CRDs.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any, Final

from reconciler.blueprints.offering.outcomes import LONGEST_NAME, line, name_in, scrub
from reconciler.core import manifest as m
from reconciler.core.documents import object_of
from reconciler.core.errors import KlutchError
from reconciler.core.manifest import Manifest

_MIB: Final = 2**20
MOST_OCTETS: Final = 8 * _MIB
_MOST_MEMORY: Final = 128 * _MIB
_LONGEST_DURATION: Final = 366 * 24 * 60 * 60
_MOST_PROBLEMS: Final = 20  # that are worth a sentence each
_POLLING: Final = "maximum_polling_duration"
_FLAGS: Final = (
    "allow_context_updates",
    "bindable",
    "binding_rotatable",
    "bindings_retrievable",
    "free",
    "instances_retrievable",
    "plan_updateable",
)


class CatalogueFault(KlutchError):
    """A catalogue that cannot be used. `problems` are sentences."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("the broker's catalogue: " + "; ".join(self.problems))


@dataclass(frozen=True, slots=True)
class MaintenanceInfo:
    """The version of a plan's maintenance for new instances."""

    version: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Schemas:
    """The allowed parameters, as JSON schemas; None where the broker states none.

    What is no object is no schema, and kept for a warning: `read` takes it for one of anything.
    """

    create: m.JSON = None
    update: m.JSON = None
    bind: m.JSON = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of an offering; the offering has the defaults of its fields."""

    id: str
    name: str
    description: str = ""
    bindable: bool = False
    plan_updateable: bool = False
    binding_rotatable: bool = False
    maximum_polling_duration: timedelta | None = None
    maintenance: MaintenanceInfo | None = None
    schemas: Schemas = Schemas()


@dataclass(frozen=True, slots=True)
class Offering:
    """A service that a broker offers, in plans."""

    id: str
    name: str
    description: str = ""
    instances_retrievable: bool = False
    bindings_retrievable: bool = False
    metadata: Manifest = field(default_factory=dict)
    plans: tuple[Plan, ...] = ()

    def plan(self, plan_id: str) -> Plan | None:
        return next((plan for plan in self.plans if plan.id == plan_id), None)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All that a broker offers. Equal digests are of equal content.

    `repeated` are sentences on keys that stand twice in an object: the last one counts.
    """

    offerings: tuple[Offering, ...]
    digest: str
    repeated: tuple[str, ...] = ()

    def offering(self, service_id: str) -> Offering | None:
        return next((one for one in self.offerings if one.id == service_id), None)


def catalogue_of(document: bytes) -> Catalogue:
    """Read the answer to GET /v2/catalog.

    Raises CatalogueFault: it is too large or no JSON object, has no list of services, or its
    parts cannot be told apart.
    """
    if len(document) > MOST_OCTETS:
        raise CatalogueFault([f"it is larger than {MOST_OCTETS // _MIB} MiB"])
    read = object_of(document, most_memory=_MOST_MEMORY)
    if read is None:
        raise CatalogueFault(["it is no JSON object, or one that is too wide or too deep"])
    if not isinstance(read.get("services"), list):
        raise CatalogueFault(["it has no list `services`"])
    services = m.get_maps(read, "services")
    if problems := [*_shape_problems(read, services), *_alike(services)]:
        raise CatalogueFault(problems[:_MOST_PROBLEMS])
    offerings = tuple(map(_offering, services))
    repeated = tuple(islice(_repeated(document), _MOST_PROBLEMS))
    return Catalogue(offerings, m.digest(m.get_list(read, "services")), repeated)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """An object of a document as it was written."""

    pairs: list[tuple[str, Any]]


def _repeated(document: bytes) -> Iterator[str]:
    """Return where a key stands twice in one object, of a document that was read already."""
    text = document.decode("utf-8-sig")
    pending = [("", json.loads(text, object_pairs_hook=_Pairs, parse_int=str, parse_float=str))]
    while pending:
        place, value = pending.pop()
        if isinstance(value, _Pairs):
            counted = Counter(key for key, _ in value.pairs)
            at = line(place, longest=200) or "/"
            for key in (key for key, count in counted.items() if count > 1):
                yield f"{at}: key {key[:60]!a} stands twice: the last counts"
        inner: Iterable[tuple[Any, Any]]
        inner = value.pairs if isinstance(value, _Pairs) else enumerate(value)
        for step, one in inner:
            if isinstance(one, _Pairs | list):
                pending.append((f"{place}/{step}", one))


def _shape_problems(read: Manifest, services: list[Manifest]) -> Iterable[str]:
    if len(services) != len(m.get_list(read, "services")):
        yield "a service is no object"
    for number, service in enumerate(services, 1):
        named = _named("service", number, service)
        yield from _part_problems(named, service)
        plans = m.get_maps(service, "plans")
        if not plans or len(plans) != len(m.get_list(service, "plans")):
            yield f"{named} has no list of plans, or a plan is no object"
        for place, plan in enumerate(plans, 1):
            yield from _part_problems(f"{_named('plan', place, plan)} of {named}", plan)


def _part_problems(named: str, part: Manifest) -> Iterable[str]:
    for key in ("id", "name"):
        text = m.get_text(part, key)
        if not text:
            yield f"{named} has no {key}"
        elif not name_in(part, key):
            yield f"the {key} of {named} is longer than {LONGEST_NAME}, or cannot be printed"
    for key in _FLAGS:
        if not isinstance(part.get(key), bool | None):
            yield f"{key} of {named} is neither true nor false"
    if m.get_int(part, _POLLING) is None and part.get(_POLLING) is not None:
        yield f"{_POLLING} of {named} is no whole number"


def _named(noun: str, number: int, part: Manifest) -> str:
    name = m.get_text(part, "name")
    return f"{noun} {name[:60]!a}" if name else f"{noun} {number}"


def _alike(services: list[Manifest]) -> Iterable[str]:
    """Return duplicates: ids in the catalogue, and names in one list."""
    plans = [plan for service in services for plan in m.get_maps(service, "plans")]
    yield from _twice("service", "id", services)
    yield from _twice("service", "name", services)
    yield from _twice("plan", "id", plans)
    for number, service in enumerate(services, 1):
        found = _twice("plan", "name", m.get_maps(service, "plans"))
        yield from (f"{problem} in {_named('service', number, service)}" for problem in found)


def _twice(noun: str, key: str, parts: list[Manifest]) -> Iterable[str]:
    counted = Counter(m.get_text(part, key) for part in parts)
    for text, count in counted.items():
        if text and count > 1:
            yield f"{count} {noun}s have the {key} {text[:60]!a}"


def _offering(service: Manifest) -> Offering:
    return Offering(
        id=m.get_text(service, "id"),
        name=m.get_text(service, "name"),
        description=m.get_text(service, "description"),
        instances_retrievable=m.get_bool(service, "instances_retrievable"),
        bindings_retrievable=m.get_bool(service, "bindings_retrievable"),
        metadata=m.get_map(service, "metadata"),
        plans=tuple(_plan(plan, service) for plan in m.get_maps(service, "plans")),
    )


def _plan(plan: Manifest, service: Manifest) -> Plan:
    return Plan(
        id=m.get_text(plan, "id"),
        name=m.get_text(plan, "name"),
        description=m.get_text(plan, "description"),
        bindable=_own_or_offerings("bindable", plan, service),
        plan_updateable=_own_or_offerings("plan_updateable", plan, service),
        binding_rotatable=m.get_bool(plan, "binding_rotatable"),
        maximum_polling_duration=_duration(m.get_int(plan, _POLLING)),
        maintenance=_maintenance(plan),
        schemas=Schemas(
            create=_schema(plan, "service_instance", "create"),
            update=_schema(plan, "service_instance", "update"),
            bind=_schema(plan, "service_binding", "create"),
        ),
    )


def _own_or_offerings(key: str, plan: Manifest, service: Manifest) -> bool:
    own = m.get(plan, key)
    return own if isinstance(own, bool) else m.get_bool(service, key)


def _duration(seconds: int | None) -> timedelta | None:
    if seconds is None or seconds <= 0:
        return None
    return timedelta(seconds=min(seconds, _LONGEST_DURATION))


def _maintenance(plan: Manifest) -> MaintenanceInfo | None:
    version = name_in(plan, "maintenance_info", "version")
    description = scrub(m.get_text(plan, "maintenance_info", "description"))
    return MaintenanceInfo(version, description) if version else None


def _schema(plan: Manifest, *path: str) -> m.JSON:
    """Return the schema at a path, or the value in its place; None where there is none."""
    found: m.JSON = plan
    for step in ("schemas", *path, "parameters"):
        if not isinstance(found, Mapping):
            break
        found = found.get(step)
    return found

"""Rules of service instances and bindings: ids, differences, last requests.

Converts objects of compositions, and their brokers, to the values of generated kinds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from bind.osb.dataservices import managed
from bind.osb.dataservices.managed import Seen, composed_for
from bind.osb.decisions import record
from bind.osb.decisions.record import Operation, Record
from bind.osb.decisions.view import BindingView, Broker, InstanceView, Pause, Place, asked
from reconciler.api.osb import BrokerSpec, GeneratedKind, Timing
from reconciler.blueprints.offering.catalogue import Catalogue, Offering, Plan
from reconciler.blueprints.offering.messages import PLATFORM, OriginatingIdentity
from reconciler.core import conditions, keys, manifest
from reconciler.core.conditions import Condition
from reconciler.core.documents import object_of
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.secret import Secret

SOON: Final = timedelta(seconds=1)  # the next step is due
POLL: Final = timedelta(seconds=10)
RESYNC: Final = timedelta(minutes=10)
DENIED: Final = timedelta(minutes=5)
_NOWHERE: Final = Place("", "", "")
_MOST_MEMORY: Final = 64 * 2**20  # an object has a few MiB at most


@dataclass(frozen=True, slots=True)
class OfBroker(Seen):
    """An object at a broker. `catalogue` is the broker's, None where it was never read: `unread`.

    `confirmed`: the broker itself answered in the last minute, so that a 404 is its own.
    """

    catalogue: Catalogue | None = field(default=None, repr=False)
    confirmed: bool = False
    unread: str = "The broker's catalogue was never read"

    @property
    def service_id(self) -> str:
        """The id of its service, "" where it was never asked for."""
        return _id(self.at_provider, "service")

    @property
    def plan_id(self) -> str:
        return _id(self.at_provider, "plan")

    @property
    def plan(self) -> Plan | None:
        """Its plan, None where the catalogue does not have it."""
        offering = None if self.catalogue is None else self.catalogue.offering(self.service_id)
        return None if offering is None else offering.plan(self.plan_id)

    @property
    def offered(self) -> str:
        """The digest of the catalogue, "" where it was never read."""
        return "" if self.catalogue is None else self.catalogue.digest

    def marks(self, *names: str) -> dict[str, str]:
        return {name: self.annotations[name] for name in names if self.annotations.get(name)}


def _id(at_provider: Manifest, of: str) -> str:
    """Return an id, whose name instances and bindings spell otherwise."""
    return manifest.get_text(at_provider, f"{of}Id") or manifest.get_text(at_provider, f"{of}ID")


def resolve(
    catalogue: Catalogue, service: str, plan: str, *, service_id: str = ""
) -> tuple[Offering, Plan] | str:
    """Return the ids of the names, or the reason why there are none.

    A service is the one of this name, else the only one whose name begins so: some brokers add
    their own to it. What is there keeps its `service_id`, whatever the names have become.
    """
    offering = catalogue.offering(service_id) if service_id else _offering(catalogue, service)
    if offering is None:
        return f"The broker's catalogue has no service with the id {service_id} any more"
    if isinstance(offering, str):
        return offering
    found = next((one for one in offering.plans if one.name == plan), None)
    if found is None:
        names = ", ".join(sorted(one.name for one in offering.plans))
        return f"The service {offering.name} has no plan {plan}; there are: {names}"
    return offering, found


def _offering(catalogue: Catalogue, name: str) -> Offering | str:
    exact = [one for one in catalogue.offerings if one.name == name]
    alike = exact or [one for one in catalogue.offerings if one.name.startswith(name)]
    if len(alike) == 1:
        return alike[0]
    names = ", ".join(sorted(one.name for one in alike or catalogue.offerings))
    if alike:
        return f"Several services have names that begin with {name}: {names}"
    return f"The broker's catalogue has no service {name}; there are: {names}"


def read_json(text: str) -> Manifest | None:
    """Return the object that a text holds, None where it holds none."""
    return object_of(text.encode(), most_memory=_MOST_MEMORY)


def changed_parameters(sent: Manifest, wanted: Manifest) -> dict[str, JSON]:
    """Return whole parameters for an update, null for those that left; {} for no difference."""
    gone = {key: None for key in sent if key not in wanted}
    is_same = manifest.canonical(in_order(sent)) == manifest.canonical(in_order(wanted))
    return {} if is_same else {**gone, **wanted}


def in_order(parameters: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return parameters with their lists in one order; brokers have one of their own."""
    return {name: _sorted(value) for name, value in parameters.items()}


def _sorted(value: JSON) -> JSON:
    if isinstance(value, Mapping):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return sorted(map(_sorted, value), key=manifest.canonical)
    return value


def context(seen: Seen) -> dict[str, JSON]:
    """Return the context of a request, for the broker."""
    wanted = seen.wanted
    name = composed_for(seen.live).name or manifest.name_of(seen.live)
    known: dict[str, JSON] = {} if seen.place is None else seen.place.context(name)
    for key, field_name in (("organization_guid", "organizationGuid"), ("space_guid", "spaceGuid")):
        if stated := manifest.get_text(wanted, field_name):
            known[key] = stated
    return {**known, **manifest.get_text_map(wanted, "context")}


def originating_identity(live: Manifest) -> OriginatingIdentity | None:
    """Return the identity on whose behalf an object is served, by this platform's marks."""
    stated = manifest.get_map(live, "spec", "forProvider", "originatingIdentity")
    value = read_json(manifest.get_text(stated, "value"))
    platform = manifest.get_text(stated, "platform") or PLATFORM
    return OriginatingIdentity(value) if value is not None and platform == PLATFORM else None


@dataclass(frozen=True, slots=True)
class _Broker(Broker):
    """The broker of a ProviderConfig: without versions of maintenance, and read if that may be."""

    observes: bool = True

    def offering(self, kind: GeneratedKind) -> Offering | None:
        found = Broker.offering(self, kind)
        if found is None:
            return None
        plans = tuple(replace(one, maintenance=None) for one in found.plans)
        reads = found.instances_retrievable and self.observes
        return replace(found, plans=plans, instances_retrievable=reads)


def dressed(live: Manifest, stated: Iterable[Condition], spec: Manifest) -> Manifest:
    """Return an object as the claim of a generated kind would be."""
    metadata = {**manifest.get_map(live, "metadata"), "finalizers": [keys.OSB]}
    status: dict[str, JSON] = {"conditions": list(conditions.dump(stated))}
    return {**live, "metadata": metadata, "spec": spec, "status": status}


def record_of(seen: OfBroker, kind: str, one: str, instance: str) -> Record:
    """Return the record of an id at the broker, of which nothing else is known."""
    return Record(
        id=one,
        broker=managed.config_name(seen.live),
        kind=kind,
        instance=instance,
        service=seen.service_id,
        plan=seen.plan_id,
        claim=record.claim_of(seen.kind, seen.live),
        state=record.INTENDED,
        term=seen.term,
        origin=seen.annotations.get(keys.OSB_ORIGIN, ""),
    )


def with_object(one: Record, cluster: str) -> Record:
    return replace(one, live=record.created(one, "").manifest, cluster=cluster)


def broker_of(seen: OfBroker) -> Broker:
    """Return the broker behind an object's ProviderConfig."""
    config = seen.config or {}
    origin = manifest.get_text(config, "spec", "url")
    moved = manifest.annotations_of(config).get(keys.OSB_MOVED, "")
    return _Broker(
        BrokerSpec(manifest.name_of(config), uid=manifest.uid_of(config)),
        seen.catalogue,
        is_fresh=seen.confirmed,
        origin=origin,
        takes_over=bool(origin) and moved == origin,
        observes=managed.may(seen.live, "Observe"),
    )


def operation_of(seen: OfBroker, key: str, plan: str, since: datetime | None) -> Operation:
    longest = None if seen.plan is None else seen.plan.maximum_polling_duration
    begun = since or seen.now
    deadline = begun + (longest or Timing().max_polling)
    return Operation(Secret(key) if key else None, plan, begun, deadline)


def view_of(
    seen: OfBroker,
    kind: GeneratedKind,
    live: Manifest | None,
    made: tuple[Record, ...],
    bindings: tuple[BindingView, ...],
    pauses: Mapping[str, Pause],
) -> InstanceView:
    """Return an instance with its bindings, as it is decided about. `made` are its own records."""
    records = (*made, *(one for each in bindings for one in each.records))
    return InstanceView(
        seen.cluster,
        kind,
        "",
        manifest.name_of(live or {}),
        live,
        place=seen.place or _NOWHERE,
        broker=asked(broker_of(seen), records, managed.PROVIDER_CONFIG.kind),
        records=made,
        bindings=bindings,
        pauses=pauses,
        term=seen.term,
        now=seen.now,
    )

"""Converts objects of compositions, and their brokers, to the values of generated kinds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from bind.osb.dataservices import managed, rules
from bind.osb.decisions import record
from bind.osb.decisions.record import Operation, Record
from bind.osb.decisions.view import BindingView, Broker, InstanceView, Pause, Place, asked
from reconciler.api.osb import BrokerSpec, GeneratedKind, Timing
from reconciler.blueprints.offering.catalogue import Offering
from reconciler.core import conditions, keys, manifest
from reconciler.core.conditions import Condition
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.secret import Secret

_NOWHERE: Final = Place("", "", "")


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


def record_of(seen: rules.OfBroker, kind: str, one: str, instance: str) -> Record:
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


def broker_of(seen: rules.OfBroker) -> Broker:
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


def operation_of(seen: rules.OfBroker, key: str, plan: str, since: datetime | None) -> Operation:
    longest = None if seen.plan is None else seen.plan.maximum_polling_duration
    begun = since or seen.now
    deadline = begun + (longest or Timing().max_polling)
    return Operation(Secret(key) if key else None, plan, begun, deadline)


def view_of(
    seen: rules.OfBroker,
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
    )

"""Instances of a broker as decisions see them, built of what a sentence says."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bind.osb.decisions import record
from bind.osb.decisions.record import Claim, Intent, Operation, Record, Sent, State, Verb
from bind.osb.decisions.view import Broker, InstanceView, Next, Place
from reconciler.api.osb import BrokerSpec, GeneratedKind
from reconciler.blueprints.offering.catalogue import Catalogue, MaintenanceInfo, Offering, Plan
from reconciler.core import conditions, keys, manifest
from reconciler.core.decision import Create, Delete, Patch, Step
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from reconciler.core.secret import Secret
from tests.kit.json_patch import merged

NOW: Final = datetime(2026, 11, 25, 12, tzinfo=UTC)
UID: Final = "11111111-1111-4111-8111-111111111111"
OTHER_UID: Final = "22222222-2222-4222-8222-222222222222"
KIND: Final = GeneratedKind(
    Kind("services.acme.example", "v1", "DatabaseInstance", "databaseinstances"),
    "acme",
    "service-1",
    {"small": "plan-s", "big": "plan-b"},
)
PLACE: Final = Place("shop", "cluster-uid", "space-uid")
CATALOGUE: Final = Catalogue(
    (
        Offering(
            "service-1",
            "database",
            instances_retrievable=True,
            plans=(
                Plan("plan-s", "small", maintenance=MaintenanceInfo("2.0.0", "a newer system")),
                Plan("plan-b", "big", maximum_polling_duration=timedelta(minutes=10)),
            ),
        ),
    ),
    digest="catalogue-1",
)
BROKER: Final = Broker(BrokerSpec("acme", "klutch-osb", secret="acme"), CATALOGUE, is_fresh=True)


def claim(
    *,
    uid: str = UID,
    deleting: bool = False,
    held: bool = True,
    marks: Mapping[str, str] | None = None,
    says: Mapping[str, tuple[str, str]] | None = None,
    **spec: Any,
) -> Manifest:
    """Return a claim; `says` are its conditions: status and reason by type."""
    metadata: dict[str, Any] = {
        "name": "orders",
        "namespace": "app",
        "uid": uid,
        "resourceVersion": "7",
        "finalizers": [keys.OSB] if held else [],
        "annotations": dict(marks or {}),
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-25T11:59:00Z"
    stated = [
        {"type": name, "status": status, "reason": reason}
        for name, (status, reason) in (says or {}).items()
    ]
    return {
        "apiVersion": KIND.kind.api_version,
        "kind": KIND.kind.kind,
        "metadata": metadata,
        "spec": {"plan": "small", **spec},
        "status": {"conditions": stated},
    }


def sent(live: Manifest | None = None, **fields: Any) -> Sent:
    live = claim() if live is None else live
    parameters = dict(manifest.get_map(live, "spec", "parameters"))
    made = Sent(
        KIND.plans[manifest.get_text(live, "spec", "plan")],
        record.digest_of(UID, parameters),
        manifest.get_text(live, "spec", "maintenanceVersion") or "2.0.0",
        record.digests_of(UID, parameters),
    )
    return replace(made, **fields)


def intent(verb: Verb = "Provision", target: Sent | None = None, **fields: Any) -> Intent:
    """Return what was begun just now."""
    return replace(Intent("Provision", NOW, target or sent()), verb=verb, **fields)


def operation(**fields: Any) -> Operation:
    """Return what the broker does since a minute."""
    made = Operation(Secret("op-1"), "plan-s", NOW - timedelta(minutes=1), NOW + timedelta(hours=1))
    return replace(made, **fields)


def held(state: State, *, uid: str = UID, mark: str = "", **fields: Any) -> Record:
    identity = record.identifier(uid, fields.get("number", 0))
    made = Record(
        id=identity,
        broker="acme",
        kind=record.INSTANCE,
        instance=identity,
        service="service-1",
        plan="plan-s",
        claim=Claim(KIND.kind.group, KIND.kind.kind, "app", "orders", uid),
        state=state,
        cluster="plane",
    )
    made = replace(made, **fields)
    created = dict(record.created(made, "klutch-osb").manifest)
    metadata: dict[str, Any] = {
        **manifest.get_map(created, "metadata"),
        "uid": f"record-of-{identity}",
        "resourceVersion": "3",
        "annotations": {keys.OSB_ORPHAN: mark} if mark else {},
    }
    return replace(made, live={**created, "metadata": metadata})


def view(live: Manifest | None, *records: Record, **fields: Any) -> InstanceView:
    made = InstanceView(
        "plane", KIND, "app", "orders", live, place=PLACE, broker=BROKER, records=records, now=NOW
    )
    return replace(made, **{"free": True, **fields})


# What follows, in words


def said(found: Next) -> dict[str, tuple[str, str]]:
    """Return the conditions that a decision states: status and reason by type."""
    return {one.type: (one.status, one.reason) for one in found.decision.conditions}


def message(found: Next, name: str) -> str:
    condition = conditions.find(found.decision.conditions, name)
    return "" if condition is None else condition.message


def phase(found: Next) -> str:
    return str(found.decision.fields.get("phase", ""))


def written(found: Next) -> list[str]:
    """Return what a decision writes: verb, kind and name."""
    names = []
    for step in found.decision.steps:
        match step:
            case Create(kind, made):
                names.append(f"create {kind} {manifest.name_of(made)}")
            case Patch(ref):
                names.append(f"patch {ref.kind} {ref.name}")
            case Delete(ref):
                names.append(f"delete {ref.kind} {ref.name}")
    return names


def recorded(found: Next, before: Record | None = None) -> Any:
    """Return the record after the decision: made by it, or changed. What it lacks is an error."""
    for step in found.decision.steps:
        if isinstance(step, Create):
            return record.read(step.manifest, "plane")
    assert before is not None
    assert before.live is not None
    live: Any = before.live
    for step in found.decision.steps:
        if isinstance(step, Patch) and step.ref.name == before.id:
            live = merged(live, {"spec": step.body.get("spec", {})})
    return record.read(live, "plane")


def follows(seen: InstanceView, found: Next) -> str:
    """Return a decision in words: writes, Events, call, conditions, and when to look again.

    A record is as it is then, with what is open of it; of another spec than the claim's, that too.
    """
    words = [_step(seen, step) for step in found.decision.steps]
    words += ["begins"] if found.begins else []
    words += [f"Event {note.reason}" for note in found.decision.notes]
    if found.ask is not None:
        call: Any = found.ask.call
        of = "" if call.instance in (UID, OTHER_UID) else f" of {call.instance}"
        words.append(f"{type(call).__name__} {call.plan}{of}")
    words += [
        one.type if one.status == "True" else f"{one.type}/{one.reason}"
        for one in found.decision.conditions
    ]
    again, rests = found.decision.again, False
    for one in found.pauses.values():
        rests = one.until is not None and again == one.until - seen.now
        words += ["read"] if one.checked == seen.now else []
        words += [f"read after {one.tried}"] if one.tried else []
    words += ["reads the catalogue"] if found.reads_catalogue else []
    words += [f"{'rests' if rests else 'again'} {again.total_seconds():g} s"] if again else []
    return "; ".join(words)


def _step(seen: InstanceView, step: Step) -> str:
    known = {one.id: one for one in (*seen.records, *seen.others)}
    match step:
        case Create(_, made):
            return f"create {_state(seen, record.read(made, 'plane'))}"
        case Delete():
            return "delete record"
        case Patch(ref, body) if ref.name in known:
            live: Any = known[ref.name].live
            return _state(seen, record.read(merged(live, {"spec": body["spec"]}), "plane"))
    return "patch claim"


def _state(seen: InstanceView, one: Record) -> str:
    words = [f"{one.state} {one.number}" if one.number else one.state]
    if one.operation is not None:
        words.append("at work")
    if (open_ := one.intent) is not None:
        tries = f" after {open_.tries}" if open_.tries else ""
        later = open_.since - NOW
        waits = f" in {later.total_seconds():g} s" if later > timedelta() else ""
        is_other = seen.live is not None and open_.target.digest != sent(seen.live).digest
        of = " of another spec" if is_other else ""
        words.append(f"{open_.closed} {open_.verb}".strip() + tries + waits + of)
    return ", ".join(words)

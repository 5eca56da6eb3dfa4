"""Decides when a binding gets its next number, and builds the first record."""

from datetime import timedelta
from typing import Final

from bind.osb import engine
from bind.osb.decisions import binding_state as state
from bind.osb.decisions import causes, credentials, record
from bind.osb.decisions.binding_state import Seen, circumstances, is_bound, target
from bind.osb.decisions.record import Intent, Record
from bind.osb.decisions.view import BUSY, CLOSED, Next, begun, parameters_of, soon
from reconciler.blueprints.offering import validation
from reconciler.blueprints.offering.catalogue import Plan
from reconciler.core import conditions, keys, manifest
from reconciler.core.conditions import Cause
from reconciler.core.decision import Patch, finalized

TAKEN: Final = timedelta(minutes=1)  # until it is seen whether a Secret's name is free
_SLOW: Final = timedelta(hours=1)  # between rotations, after several failed in a row


def begin(seen: Seen) -> Next:
    """Have a record made of the next number, before the first call about it."""
    if (waits := _hindrance(seen)) is not None:
        return waits
    assert seen.view.broker is not None
    assert seen.view.current is not None
    instance, uid = seen.view.current, manifest.uid_of(seen.claim)
    number = max((one.number for one in seen.binding.records), default=-1) + 1
    new = Record(
        id=record.identifier(uid, number),
        broker=instance.broker,
        kind=record.BINDING,
        instance=instance.id,
        service=instance.service,
        plan=instance.plan,
        claim=record.claim_of(seen.binding.kind.kind, seen.claim),
        state=record.INTENDED,
        number=number,
        intent=Intent("Bind", seen.view.now, target(seen, instance.plan)),
        asked=credentials.terms(seen.claim).request,
        term=seen.view.term,
        broker_uid=instance.broker_uid,
        origin=instance.origin,
    )
    return begun(new.id, record.created(new, seen.view.broker.spec.namespace))


def retry(seen: Seen, candidate: Record) -> Next | None:
    """Ask again for a refused or failed binding, once that is worth it; None where it is not."""
    intent = candidate.intent
    if intent is not None and not _is_worth_it(seen, intent):
        return None
    if (waits := _hindrance(seen)) is not None:
        return waits if seen.current is None else None
    instance = seen.view.current
    assert instance is not None
    tries = 0 if intent is None else min(intent.tries, 1)  # that it was called is not forgotten
    step = record.changed(
        candidate,
        intent=Intent("Bind", seen.view.now, target(seen, instance.plan), tries),
        instance=instance.id,
        service=instance.service,
        plan=instance.plan,
        asked=credentials.terms(seen.claim).request,
    )
    return begun(candidate.id, step)


def _is_worth_it(seen: Seen, intent: Intent) -> bool:
    if intent.closed == record.PAUSED:
        return intent.since <= seen.view.now
    present = circumstances(seen, intent.closed)
    return bool(present) and present != intent.catalog


def _hindrance(seen: Seen) -> Next | None:
    """Return the reason, or the first step, where nothing may be begun now."""
    if (reason := not_ready(seen)) is not None:
        return Next(state.trouble(seen, *reason, again=CLOSED))
    if not seen.view.free:
        return Next(state.trouble(seen, causes.BIND_WAITS, BUSY))
    match credentials.state(seen.binding, seen.current):
        case credentials.UNREAD:
            return Next(state.of(seen, again=CLOSED))
        case credentials.TAKEN:
            return Next(state.trouble(seen, *taken(seen), again=TAKEN))
    return None if (patch := finalized_claim(seen)) is None else soon(patch)


def taken(seen: Seen) -> tuple[Cause, str]:
    """Return the condition about a Secret that is somebody else's."""
    name = credentials.name_of(seen.claim)
    return causes.SECRET_TAKEN, f"Secret {name} is not this binding's; it is left as it is"


def finalized_claim(seen: Seen) -> Patch | None:
    """Return the patch that puts our finalizer on a claim with a binding; None if it has it."""
    return finalized(seen.binding.cluster, seen.binding.kind.kind, seen.claim, keys.OSB)


def not_ready(seen: Seen) -> tuple[Cause, str] | None:
    """Return why no binding may be begun now; None where one may."""
    broker, instance = seen.view.broker, seen.view.current
    if broker is None:
        return causes.NO_BROKER_TO_BIND, f"there is no ServiceBroker {seen.binding.kind.broker}"
    if (problem := _unusable(seen)) or instance is None:
        return causes.BIND_WAITS, problem
    if broker.unready:
        return causes.BIND_WAITS, broker.unready
    if seen.view.place is None:
        return causes.BIND_WAITS, "it is not known yet in which app cluster the claim is"
    plan = seen.view.plan(instance.plan)
    return None if plan is None else _refused(seen, plan)


def _refused(seen: Seen, plan: Plan) -> tuple[Cause, str] | None:
    """Return the reason why a plan has no such binding. A rotation repeats accepted parameters."""
    if not plan.bindable:
        return causes.NOT_BINDABLE, f"plan {plan.name} has no bindings"
    if seen.current is not None:
        return None
    problem = validation.of_new(plan, plan.schemas.bind, parameters_of(seen.claim))
    return (causes.BIND_INVALID, problem) if problem else None


def _unusable(seen: Seen) -> str:
    """Return why the instance cannot be bound, "" where it can."""
    named, instance = f"{seen.view.kind.kind} {seen.view.name}", seen.view.current
    if seen.view.live is None:
        return f"there is no {named}"
    if manifest.is_deleting(seen.view.live):
        return f"{named} is being deleted"
    is_usable = conditions.get(seen.view.live, causes.PROVISIONED, conditions.FALSE) is None
    if instance is None or instance.state != record.PRESENT or not is_usable:
        return f"{named} is not provisioned"
    return ""


def further(seen: Seen, gone: Record) -> Record:
    """Return the record of the next number, after a binding failed and is gone.

    It is bound after a pause, and after some in a row not by itself any more; but a rotation goes
    on, slowly, because what expires has no other way.
    """
    base = -1 if seen.current is None else seen.current.number
    pause = timedelta() if is_bound(gone) or gone.made_at else engine.further(gone.number - base)
    is_last = pause is None and seen.current is None
    intent = Intent(
        "Bind",
        seen.view.now + (_SLOW if pause is None else pause),
        target(seen, gone.plan),
        closed=record.FAILED if is_last else record.PAUSED,
        catalog=circumstances(seen, record.FAILED),
    )
    return record.further(gone, intent)

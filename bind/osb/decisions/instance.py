"""Decides the next step of an instance: provision, update, deprovision.

finalizer -> record with its intent -> call -> record -> status. Each step may be repeated: ids
follow from the claim's uid, and a record says what was begun.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from bind.osb import engine
from bind.osb.decisions import causes, instance_status, record
from bind.osb.decisions import instance_wants as wants
from bind.osb.decisions.instance_moves import InstanceMoves
from bind.osb.decisions.instance_status import READY
from bind.osb.decisions.moves import orphaned
from bind.osb.decisions.record import Intent, Record, Sent
from bind.osb.decisions.view import (
    CLOSED,
    NO_PAUSE,
    Ask,
    InstanceView,
    Next,
    deletion_of,
    due,
    plan_name,
    soon,
)
from reconciler.blueprints.offering import messages
from reconciler.core import keys, manifest
from reconciler.core.conditions import Cause
from reconciler.core.decision import Decision, Step, modification, unheld, writes
from reconciler.core.manifest import Manifest, get_text, is_deleting, uid_of

WHEN_UNBOUND: Final = "WhenUnbound"
IMMEDIATE: Final = "Immediate"
RETAIN: Final = "Retain"


def look(  # noqa: PLR0911 - a row each
    view: InstanceView, *, free: bool, now: datetime
) -> Next:
    """Return what follows from the present state of an instance.

    `free`: it may begin something that changes it at the broker.
    """
    live, current = view.live, view.current
    if live is None:
        return _unclaimed(view, (*view.records, *view.others), free=free, now=now)
    if is_deleting(live):
        return _leave(view, live, free=free, now=now)
    if view.broker is None:
        return _held(view, causes.NO_BROKER, causes.no_broker(view.records, view.kind.broker))
    if current is not None and view.broker.moved:
        cause = causes.MOVED if current.state == record.PRESENT else causes.PROVISION_MOVED
        return _held(view, cause, view.broker.moved, READY)
    if keys.OSB not in manifest.finalizers_of(live):
        held = [*manifest.finalizers_of(live), keys.OSB]
        patch = modification(view.cluster, view.kind.kind, live, metadata={"finalizers": held})
        return soon(patch)
    if current is None:
        return _begin(view, live, free=free, now=now)
    if current.is_unstamped:
        return soon(record.changed(current))
    if older := [one for one in view.records if one is not current]:
        return InstanceMoves(view, older[0], now).remove()
    return _go_on(view, current, free=free, now=now)


def _begin(view: InstanceView, live: Manifest, *, free: bool, now: datetime) -> Next:
    """Have a record made, before the first call."""
    if view.others:
        return _take_over(view, live, free=free, now=now)
    target = wants.wanted(view, None)
    if (refusal := _not_offered(view, target)) is not None:
        return refusal
    if not free:
        return _waits(view, causes.PENDING, "another operation of this instance is in progress")
    assert view.broker is not None
    uid = uid_of(live)
    new = Record(
        id=uid,
        broker=view.broker.spec.name,
        kind=record.INSTANCE,
        instance=uid,
        service=view.kind.offering,
        plan=target.plan,
        claim=record.claim_of(view.kind.kind, live),
        state=record.INTENDED,
        intent=Intent("Provision", now, target),
        asked=wants.asked(view),
        term=view.term,
        broker_uid=view.broker.spec.uid,
        origin=view.broker.origin,
    )
    return replace(soon(record.created(new, view.broker.spec.namespace)), begins=True)


def _take_over(view: InstanceView, live: Manifest, *, free: bool, now: datetime) -> Next:
    """Do with what a predecessor of a claim's name left as its record says; the claim waits."""
    for other in view.others:
        if other.mark.get(keys.OSB_ORPHAN) == keys.ORPHAN_ADOPT:
            return soon(_reclaimed(other, now, claim=record.claim_of(view.kind.kind, live)))
    left = view.others[0]
    advice = (
        f"annotate BrokerRecord {left.id} with {keys.OSB_ORPHAN}: Adopt to take it over, "
        "Deprovision to delete it at the broker, or Forget"
    )
    message = f"an earlier claim of this name left its instance at the broker; {advice}"
    held = _held(view, causes.PREDECESSOR, message)
    follows = _unclaimed(view, view.others, free=free, now=now)
    return replace(follows, decision=Decision.merge((follows.decision, held.decision)))


def _reclaimed(left: Record, now: datetime, **fields: object) -> Step | None:
    """Have a record count again; what its state was before follows from what was sent.

    What was begun meanwhile may be done, and hold data: it goes with its claim, and not before.
    """
    if left.sent is not None:
        return record.changed(left, state=record.PRESENT, operation=None, **fields)
    made_at = left.made_at or now
    return record.changed(left, state=record.INTENDED, operation=None, made_at=made_at, **fields)


def _not_offered(view: InstanceView, target: Sent) -> Next | None:
    """Say why nothing new is asked of the broker; None where it may be."""
    broker = view.broker
    assert broker is not None
    if broker.catalogue is None:
        why = broker.closed or "its catalogue was not read yet"
        return _waits(view, causes.PENDING, f"ServiceBroker {broker.spec.name}: {why}")
    offering = broker.offering(view.kind)
    if offering is None:
        message = f"the catalogue has no offering {view.kind.offering} any more"
        return _held(view, causes.NOT_OFFERED, message)
    if not target.plan or offering.plan(target.plan) is None:
        assert view.live is not None
        message = f"offering {offering.name} has no plan {plan_name(view.live)!r} any more"
        return _held(view, causes.NOT_OFFERED, message)
    if problem := wants.invalid(view, target, None):
        return _held(view, causes.INVALID, problem)
    if broker.closed:
        message = f"ServiceBroker {broker.spec.name}: {broker.closed}"
        return _waits(view, causes.PENDING, message)
    return None


def _go_on(view: InstanceView, current: Record, *, free: bool, now: datetime) -> Next:
    if current.state in (record.ORPHANED, record.RETAINED):
        return soon(_reclaimed(current, now))
    if current.state == record.LEAVING:
        return InstanceMoves(view, current, now).remove()
    if current.operation is not None:
        return InstanceMoves(view, current, now).poll()
    if current.intent is not None and not current.intent.closed:
        return InstanceMoves(view, current, now).send(current.intent)
    if current.state == record.INTENDED:
        return _retry(view, current, free=free, now=now)
    return _keep(view, current, free=free, now=now)


def _retry(view: InstanceView, current: Record, *, free: bool, now: datetime) -> Next:
    """Provision what was refused, or failed too often, once something is another than then."""
    target = wants.wanted(view, None)
    if not wants.is_news(view, current, target):
        return Next(instance_status.of(view, current, phase="Failed"))
    if (refusal := _not_offered(view, target)) is not None:
        return refusal
    if not free:
        return _waits(view, causes.PENDING, "another operation of this instance is in progress")
    tries = 1 if current.intent is None else min(current.intent.tries, 1)
    intent = Intent("Provision", now, target, tries)  # that it may be there is not forgotten
    step = record.changed(current, intent=intent, plan=target.plan, asked=wants.asked(view))
    return replace(soon(step), begins=True)


def _keep(view: InstanceView, current: Record, *, free: bool, now: datetime) -> Next:
    """Have the broker's instance follow its claim, and read it now and then."""
    target, closed = wants.wanted(view, current.sent), current.intent
    assert view.broker is not None
    if closed is not None and closed.closed == record.MISSING:
        if wants.is_news(view, current, target) and free:
            return _anew(view, current, closed, now)
        return _read(view, current, now)
    if wants.is_as_wanted(current.sent, target) and not wants.heals(view, current):
        return _read(view, current, now)
    is_unread = wants.is_retrievable(view) and view.pause(current).checked is None
    if is_unread and current.sent is not None and not current.sent.digest:
        return _read(view, current, now)  # it was there before our PUT: is it what we want?
    if closed is not None and not wants.is_news(view, current, target):
        return _read(view, current, now)
    return _change(view, current, target, free=free, now=now)


def _anew(view: InstanceView, current: Record, closed: Intent, now: datetime) -> Next:
    """Provision again what is missing, under its id."""
    target = wants.wanted(view, None)
    if problem := wants.invalid(view, target, None):
        return _held(view, causes.INVALID, problem)
    intent = Intent("Provision", now, target)
    fields = {"state": record.INTENDED, "sent": None, "asked": wants.asked(view)}
    made_at = current.made_at or closed.since  # its data may be there again
    step = record.changed(current, intent=intent, made_at=made_at, **fields)
    return replace(soon(step), begins=True)


def _change(
    view: InstanceView, current: Record, target: Sent, *, free: bool, now: datetime
) -> Next:
    assert view.broker is not None
    assert view.live is not None
    if view.broker.plan(view.kind, target.plan) is None and view.broker.catalogue is not None:
        message = f"there is no plan {plan_name(view.live)!r} any more"
        return _held(view, causes.UPDATE_NOT_OFFERED, message, READY)
    if problem := wants.invalid(view, target, current.sent):
        return _held(view, causes.UPDATE_INVALID, problem, READY)
    if not free or view.broker.closed:
        message = view.broker.closed or "another operation of this instance is in progress"
        again = CLOSED if view.broker.closed else None
        return _held(view, causes.UPDATE_WAITS, message, READY, again)
    intent = Intent("Update", now, target)
    return replace(
        soon(record.changed(current, intent=intent, asked=wants.asked(view))),
        begins=True,
    )


def _read(view: InstanceView, current: Record, now: datetime) -> Next:
    """Read the instance at the broker when that is due; else say what is known of it."""
    decision = instance_status.kept(view, current)
    assert view.broker is not None
    if not wants.is_retrievable(view):
        return Next(decision)
    pause = view.pause(current)
    resync = view.broker.spec.timing.resync
    due_at = now if pause.checked is None else pause.checked + resync
    if due_at <= now and not view.broker.closed and due(pause, now):
        call = messages.FetchInstance(current.instance, current.service, current.plan)
        return Next(replace(decision, again=resync), Ask(current.id, call))
    again = max(due_at - now, CLOSED) if view.broker.closed or not due(pause, now) else due_at - now
    return Next(replace(decision, again=again))


def _leave(  # noqa: PLR0911 - a row each
    view: InstanceView, live: Manifest, *, free: bool, now: datetime
) -> Next:
    """Deprovision, as the claim's policy says, and take the finalizer off then."""
    current = view.current
    lift = unheld(view.cluster, view.kind.kind, live, keys.OSB)
    if current is None:
        return Next(writes(lift))
    policy = get_text(live, "spec", "deletionPolicy") or WHEN_UNBOUND
    if all(one.mark.get(keys.OSB_ORPHAN) == keys.ORPHAN_FORGET for one in view.records):
        return Next(_let_go(view, lift, keeps=False))
    if policy != RETAIN and current.state == record.PRESENT and current.is_open:
        return _end(view, current, deletion_of(live, now), now)
    if (hold := _hold(view, policy)) is not None:
        return _held(view, *hold, "Deleting", causes.looked_at_again(hold[0]))
    if policy == RETAIN or _was_never_made(current):
        return Next(_let_go(view, lift, keeps=policy == RETAIN))
    for one in sorted(view.records, key=lambda each: each.number):
        if one.state == record.LEAVING:
            return InstanceMoves(view, one, now).remove()
    if not (free or current.is_open):
        message = "another operation of this instance is in progress"
        return _held(view, causes.NOT_DELETED, message, "Deleting")
    step = record.changed(current, state=record.LEAVING, intent=None, operation=None)
    return replace(soon(step), begins=True, pauses={current.id: NO_PAUSE})


def _end(view: InstanceView, current: Record, deleted_at: datetime, now: datetime) -> Next:
    """Poll an update to its end, for so long; one that waits for its next try is not sent."""
    operation = current.operation
    if operation is not None:
        until = engine.patient_until(operation.deadline, deleted_at)
        if now < until:
            polls = InstanceMoves(view, current, now).poll()
            again = min(polls.decision.again or CLOSED, until - now)
            return replace(polls, decision=replace(polls.decision, again=again))
    return soon(record.changed(current, intent=None, operation=None))


def _hold(view: InstanceView, policy: str) -> tuple[Cause, str] | None:
    """Return why a claim's instance is not deleted now; None where it is."""
    if view.broker is None and policy != RETAIN:
        return causes.NO_BROKER_TO_DELETE, causes.no_broker(view.records, view.kind.broker)
    if view.broker is not None and view.broker.moved and policy != RETAIN:
        return causes.MOVED_TO_DELETE, view.broker.moved
    is_mass = causes.mass_deletion(view, view.kind, crd_is_deleting=view.crd_is_deleting)
    if is_mass is not None:
        return is_mass
    held = [
        one
        for one in view.bindings
        if one.records or (policy != IMMEDIATE and one.live is not None)
    ]
    if held and policy != RETAIN:
        names = sorted(manifest.name_of(one.live) for one in held if one.live is not None)[:3]
        return causes.STILL_BOUND, f"{len(held)} bindings are still there: {', '.join(names)}"
    return None


def _was_never_made(current: Record) -> bool:
    """Return whether the broker surely has nothing of a record: its first call was refused."""
    intent = current.intent
    return (
        current.state == record.INTENDED
        and current.made_at is None
        and intent is not None
        and intent.closed in (record.REFUSED, record.FAILED)
        and not intent.tries
    )


def _let_go(view: InstanceView, lift: Step | None, *, keeps: bool) -> Decision:
    """Return the steps after which a claim may go, without a call."""
    over = _retained if keeps else record.deleted
    return writes(*map(over, view.records), lift)


def _retained(one: Record) -> Step | None:
    """Have a record stay without its claim; what may have been done is not forgotten."""
    is_over = one.intent is not None and one.intent.closed
    intent = None if is_over else one.intent
    return record.changed(one, state=record.RETAINED, intent=intent, operation=None)


def _unclaimed(
    view: InstanceView, records: tuple[Record, ...], *, free: bool, now: datetime
) -> Next:
    """Keep what has no claim any more, until somebody says what becomes of it (law 1)."""
    is_bound = any(binding.records for binding in view.bindings)
    for one in sorted(records, key=lambda each: each.number):
        wish = one.mark.get(keys.OSB_ORPHAN, "")
        if one.state == record.LEAVING:
            return InstanceMoves(view, one, now).remove()
        if one.state not in (record.ORPHANED, record.RETAINED):
            return orphaned(one, operation=None)
        if is_bound:
            continue  # by records without claim as well, which come first
        if wish == keys.ORPHAN_FORGET:
            return soon(record.deleted(one))
        if wish == keys.ORPHAN_DEPROVISION and free and view.broker is not None:
            step = record.changed(one, state=record.LEAVING, intent=None, operation=None)
            return replace(soon(step), begins=True)
    return Next()


def _held(
    view: InstanceView,
    cause: Cause,
    message: str,
    phase: str = instance_status.PENDING,
    again: timedelta | None = None,
) -> Next:
    """Return what the status says where nothing is done now; `again`: until that is looked at."""
    said = [(cause, message)]
    return Next(instance_status.of(view, view.current, phase=phase, false=said, again=again))


def _waits(view: InstanceView, cause: Cause, message: str) -> Next:
    return _held(view, cause, message, again=CLOSED)

"""Decides the next step of an instance: provision, update, deprovision.

finalizer -> record with its intent -> call -> record -> status. Each step may be repeated: ids
follow from the claim's uid, and a record says what was begun.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from bind.osb import engine
from bind.osb.decisions import causes, record
from bind.osb.decisions import instance_state as state
from bind.osb.decisions import view as views
from bind.osb.decisions.instance_moves import InstanceMoves
from bind.osb.decisions.moves import orphaned
from bind.osb.decisions.record import Intent, Record, Sent
from reconciler.blueprints.offering import messages
from reconciler.core import keys, manifest
from reconciler.core.conditions import Cause
from reconciler.core.decision import Decision, Step, finalized, unfinalized, writes
from reconciler.core.manifest import Manifest, get_text, is_deleting, uid_of

WHEN_UNBOUND: Final = "WhenUnbound"
IMMEDIATE: Final = "Immediate"
RETAIN: Final = "Retain"


def look(view: views.InstanceView) -> views.Next:  # noqa: PLR0911 - a row each
    """Return the decision from the present state of an instance."""
    live, current = view.live, view.current
    if live is None:
        return _unclaimed(view, (*view.records, *view.others))
    if is_deleting(live):
        return _leave(view, live)
    if view.broker is None:
        return _blocked(view, causes.NO_BROKER, causes.no_broker(view.records, view.kind.broker))
    if current is not None and view.broker.moved:
        cause = causes.MOVED if current.state == record.PRESENT else causes.PROVISION_MOVED
        return _blocked(view, cause, view.broker.moved)
    if (patch := finalized(view.cluster, view.kind.kind, live, keys.OSB)) is not None:
        return views.soon(patch)
    if current is None:
        return _begin(view, live)
    if current.is_unstamped:
        return views.soon(record.changed(current))
    if older := [one for one in view.records if one is not current]:
        return InstanceMoves(view, older[0]).remove()
    return _go_on(view, current)


def _begin(view: views.InstanceView, live: Manifest) -> views.Next:
    """Have a record made, before the first call."""
    if view.others:
        return _take_over(view, live)
    target = state.wanted(view, None)
    if (refusal := _not_offered(view, target)) is not None:
        return refusal
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
        intent=Intent("Provision", view.now, target),
        asked=state.asked(view),
        term=view.term,
        broker_uid=view.broker.spec.uid,
        origin=view.broker.origin,
    )
    return views.begun(new.id, record.created(new, view.broker.spec.namespace))


def _take_over(view: views.InstanceView, live: Manifest) -> views.Next:
    """Follow the record of a predecessor with the claim's name; the claim waits."""
    for other in view.others:
        if other.mark.get(keys.OSB_ORPHAN) == keys.ORPHAN_ADOPT:
            return views.soon(_reclaimed(view, other, claim=record.claim_of(view.kind.kind, live)))
    left = view.others[0]
    advice = (
        f"annotate BrokerRecord {left.id} with {keys.OSB_ORPHAN}: Adopt to take it over, "
        "Deprovision to delete it at the broker, or Forget"
    )
    message = f"an earlier claim of this name left its instance at the broker; {advice}"
    waits = _blocked(view, causes.PREDECESSOR, message)
    follows = _unclaimed(view, view.others)
    return replace(follows, decision=Decision.merge((follows.decision, waits.decision)))


def _reclaimed(view: views.InstanceView, left: Record, **fields: object) -> Step | None:
    """Have a record count again; its former state follows from its sent target.

    What was begun meanwhile may be done, and hold data: it goes with its claim, and not before.
    """
    if left.sent is not None:
        return record.changed(left, state=record.PRESENT, operation=None, **fields)
    made_at = left.made_at or view.now
    return record.changed(left, state=record.INTENDED, operation=None, made_at=made_at, **fields)


def _not_offered(view: views.InstanceView, target: Sent) -> views.Next | None:
    """Report why nothing new is asked of the broker; None where it may be."""
    broker = view.broker
    assert broker is not None
    if broker.catalogue is None:
        return _waits(view, causes.PENDING, broker.unready)
    offering = view.offering
    if offering is None:
        message = f"the catalogue has no offering {view.kind.offering} any more"
        return _blocked(view, causes.NOT_OFFERED, message)
    if not target.plan or offering.plan(target.plan) is None:
        assert view.live is not None
        message = f"offering {offering.name} has no plan {views.plan_name(view.live)!r} any more"
        return _blocked(view, causes.NOT_OFFERED, message)
    if problem := state.invalid(view, target, None):
        return _blocked(view, causes.INVALID, problem)
    if broker.closed or not view.free:
        return _waits(view, causes.PENDING, broker.unready or views.BUSY)
    return None


def _go_on(view: views.InstanceView, current: Record) -> views.Next:
    if current.state in (record.ORPHANED, record.RETAINED):
        return views.soon(_reclaimed(view, current))
    moves = InstanceMoves(view, current)
    if current.state == record.LEAVING:
        return moves.remove()
    if current.operation is not None:
        return moves.poll()
    if current.intent is not None and not current.intent.closed:
        return moves.send(current.intent)
    if current.state == record.INTENDED:
        is_news = state.is_news(view, current, state.wanted(view, None))
        return _retry(view, current) if is_news else views.Next(state.kept(view, current))
    return _keep(view, current)


def _retry(view: views.InstanceView, current: Record) -> views.Next:
    """Provision an instance that was refused, failed too often, or is missing, under its id."""
    target, closed = state.wanted(view, None), current.intent
    if (refusal := _not_offered(view, target)) is not None:
        return refusal
    tries = 1 if closed is None else min(closed.tries, 1)
    intent = Intent("Provision", view.now, target, tries)  # that it may be there is not forgotten
    made_at, asked = current.made_at, state.asked(view)
    if closed is not None and closed.closed == record.MISSING:
        made_at = made_at or closed.since  # its data may be there again
    fields = {"state": record.INTENDED, "sent": None, "plan": target.plan, "asked": asked}
    step = record.changed(current, intent=intent, made_at=made_at, **fields)
    return views.begun(current.id, step)


def _keep(view: views.InstanceView, current: Record) -> views.Next:
    """Have the broker's instance follow its claim, and read it now and then."""
    target, closed = state.wanted(view, current.sent), current.intent
    assert view.broker is not None
    if closed is not None and closed.closed == record.MISSING:
        is_news = state.is_news(view, current, target)
        return _retry(view, current) if is_news else _read(view, current)
    heals = state.drifts(view) and state.asked(view) != current.asked
    if state.is_as_wanted(current.sent, target) and not heals:
        return _read(view, current)
    is_unread = state.is_retrievable(view) and view.pause(current).checked is None
    if is_unread and current.sent is not None and not current.sent.digest:
        return _read(view, current)  # it existed before our PUT: compare it first
    if closed is not None and not state.is_news(view, current, target):
        return _read(view, current)
    return _change(view, current, target)


def _change(view: views.InstanceView, current: Record, target: Sent) -> views.Next:
    assert view.broker is not None
    assert view.live is not None
    if view.plan(target.plan) is None and view.broker.catalogue is not None:
        message = f"there is no plan {views.plan_name(view.live)!r} any more"
        return _blocked(view, causes.UPDATE_NOT_OFFERED, message)
    if problem := state.invalid(view, target, current.sent):
        return _blocked(view, causes.UPDATE_INVALID, problem)
    if not view.free or view.broker.closed:
        message = view.broker.closed or views.BUSY
        again = views.CLOSED if view.broker.closed else None
        return _blocked(view, causes.UPDATE_WAITS, message, again)
    intent = Intent("Update", view.now, target)
    return views.soon(record.changed(current, intent=intent, asked=state.asked(view)), begins=True)


def _read(view: views.InstanceView, current: Record) -> views.Next:
    """Read the instance at the broker when that is due; else report the known state."""
    decision = state.kept(view, current)
    assert view.broker is not None
    if not state.is_retrievable(view):
        return views.Next(decision)
    pause = view.pause(current)
    resync = view.broker.spec.timing.resync
    due_at = view.now if pause.checked is None else pause.checked + resync
    waits = view.broker.closed or not pause.is_over(view.now)
    if due_at <= view.now and not waits:
        call = messages.FetchInstance(current.instance, current.service, current.plan)
        return views.Next(replace(decision, again=resync), views.Ask(current.id, call))
    again = due_at - view.now
    return views.Next(replace(decision, again=max(again, views.CLOSED) if waits else again))


def _leave(view: views.InstanceView, live: Manifest) -> views.Next:  # noqa: PLR0911 - a row each
    """Deprovision, by the claim's policy, and take the finalizer off then."""
    current = view.current
    lift = unfinalized(view.cluster, view.kind.kind, live, keys.OSB)
    if current is None:
        return views.Next(writes(lift))
    policy = get_text(live, "spec", "deletionPolicy") or WHEN_UNBOUND
    if all(one.mark.get(keys.OSB_ORPHAN) == keys.ORPHAN_FORGET for one in view.records):
        return views.Next(_let_go(view, lift, keeps=False))
    if policy != RETAIN and current.state == record.PRESENT and current.is_open:
        return _end(view, current, views.deletion_of(live, view.now))
    if (reason := _delete_blocker(view, policy)) is not None:
        return _blocked(view, *reason, causes.looked_at_again(reason[0]))
    if policy == RETAIN or current.was_never_sent(view.now):
        return views.Next(_let_go(view, lift, keeps=policy == RETAIN))
    for one in sorted(view.records, key=lambda each: each.number):
        if one.state == record.LEAVING:
            return InstanceMoves(view, one).remove()
    if not (view.free or current.is_open):
        return _blocked(view, causes.NOT_DELETED, views.BUSY)
    step = record.changed(current, state=record.LEAVING, intent=None, operation=None)
    return views.begun(current.id, step)


def _end(view: views.InstanceView, current: Record, deleted_at: datetime) -> views.Next:
    """Poll an update to its end, for so long; one that waits for its next try is not sent."""
    operation = current.operation
    if operation is not None:
        until = engine.patient_until(operation.deadline, deleted_at)
        if view.now < until:
            return InstanceMoves(view, current).poll().within(until - view.now)
    return views.soon(record.changed(current, intent=None, operation=None))


def _delete_blocker(view: views.InstanceView, policy: str) -> tuple[Cause, str] | None:
    """Return why a claim's instance is not deleted now; None where it is."""
    if policy == RETAIN:
        return causes.mass_deletion(view, view.kind, crd_is_deleting=view.crd_is_deleting)
    if (reason := causes.delete_blocker(view, view)) is not None:
        return reason
    bound = [
        one
        for one in view.bindings
        if one.records or (policy != IMMEDIATE and one.live is not None)
    ]
    if not bound:
        return None
    names = sorted(manifest.name_of(one.live) for one in bound if one.live is not None)[:3]
    return causes.STILL_BOUND, f"{len(bound)} bindings are still there: {', '.join(names)}"


def _let_go(view: views.InstanceView, lift: Step | None, *, keeps: bool) -> Decision:
    """Return the steps after which a claim may go, without a call."""
    return writes(*map(_retained if keeps else record.deleted, view.records), lift)


def _retained(one: Record) -> Step | None:
    """Keep a record without its claim; possible results are not forgotten."""
    intent = one.intent if one.intent is not None and not one.intent.closed else None
    return record.changed(one, state=record.RETAINED, intent=intent, operation=None)


def _unclaimed(view: views.InstanceView, records: tuple[Record, ...]) -> views.Next:
    """Keep records without a claim, until somebody decides about them (law 1)."""
    is_bound = any(binding.records for binding in view.bindings)
    for one in sorted(records, key=lambda each: each.number):
        wish = one.mark.get(keys.OSB_ORPHAN, "")
        if one.state == record.LEAVING:
            return InstanceMoves(view, one).remove()
        if one.state not in (record.ORPHANED, record.RETAINED):
            return orphaned(one, operation=None)
        if is_bound:
            continue  # by records without claim as well, which come first
        if wish == keys.ORPHAN_FORGET:
            return views.soon(record.deleted(one))
        if wish == keys.ORPHAN_DEPROVISION and view.free and view.broker is not None:
            step = record.changed(one, state=record.LEAVING, intent=None, operation=None)
            return views.soon(step, begins=True)
    return views.Next()


def _blocked(
    view: views.InstanceView, cause: Cause, message: str, again: timedelta | None = None
) -> views.Next:
    """Return the status of an instance that waits; `again`: until the next look."""
    return views.Next(state.of(view, view.current, false=[(cause, message)], again=again))


def _waits(view: views.InstanceView, cause: Cause, message: str) -> views.Next:
    return _blocked(view, cause, message, again=views.CLOSED)

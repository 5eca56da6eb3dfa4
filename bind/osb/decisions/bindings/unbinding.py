"""How bindings go: all numbers of a claim that is deleted, and what is left without its claim."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from bind.osb.decisions import causes, holds, pacing, record
from bind.osb.decisions.bindings import outcomes as become
from bind.osb.decisions.bindings import status
from bind.osb.decisions.bindings.seen import Seen, is_of_former, is_still_bound, was_never_sent
from bind.osb.decisions.record import Operation, Record
from bind.osb.decisions.view import (
    CLOSED,
    SOON,
    Ask,
    BindingView,
    InstanceView,
    Next,
    deletion_of,
    due,
    parameters_of,
    soon,
)
from reconciler.blueprints.offering import messages
from reconciler.core import keys, manifest
from reconciler.core.conditions import Cause
from reconciler.core.decision import NOTHING, Decision, Note, Step, Task
from reconciler.core.secret import Secret


def bind(seen: Seen, candidate: Record) -> Next:
    """Ask for a binding, again where the outcome is not known."""
    intent, decision = candidate.intent, status.begun(seen)
    assert intent is not None
    wait = waits(seen, candidate, since=intent.since)
    if wait is None and (seen.view.place is None or seen.has_no_catalogue):
        wait = CLOSED
    if wait is not None:
        return Next(replace(decision, again=wait))
    return Next(decision, Ask(candidate.id, _bind_call(seen, candidate)))


def _bind_call(seen: Seen, candidate: Record) -> messages.Bind:
    """Return the bind; a broker that can rotate is told what it takes the place of."""
    assert seen.view.place is not None
    place, current = seen.view.place, seen.current
    plan = seen.plan(candidate.plan)
    is_rotatable = plan is not None and plan.binding_rotatable
    replaces = (
        current is not None
        and is_rotatable
        and current.instance == candidate.instance
        and not is_of_former(seen.view, current)
    )
    return messages.Bind(
        candidate.instance,
        candidate.id,
        candidate.service,
        candidate.plan,
        app=place.space,
        context=place.context(seen.view.name),
        parameters=parameters_of(seen.claim) or None,
        predecessor=current.id if current is not None and replaces else "",
    )


def poll(seen: Seen, one: Record) -> Next:
    """Ask how far an operation is, when that is due. One past its deadline is decided without.

    But no bind is, because its record may be old, and its credentials in use for long.
    """
    operation = one.operation
    assert operation is not None
    is_late = operation.deadline <= seen.now
    if is_late and one.state != record.INTENDED:
        return become.failed(seen, one, "it took too long")
    decision = status.of(seen)
    wait = waits(seen, one)
    if wait is not None:
        again = wait if is_late else min(wait, operation.deadline - seen.now)
        return Next(replace(decision, again=again))
    return Next(decision, Ask(one.id, _last_operation(one, operation.plan, operation.key)))


def _last_operation(one: Record, plan: str, key: Secret | None) -> messages.LastOperation:
    return messages.LastOperation(one.instance, one.service, plan, key, binding=one.id)


def unbind(seen: Seen, leaving: Record) -> Next:
    """Have a binding deleted at the broker, until that is confirmed."""
    operation = leaving.operation
    if operation is not None and (not is_still_bound(leaving) or _is_waited_for(seen, operation)):
        return poll(seen, leaving)
    decision = status.of(seen)
    wait = waits(seen, leaving)
    if wait is not None:
        return Next(replace(decision, again=wait))
    if seen.pause(leaving).misses:  # it was busy: some brokers go on only while they are asked
        key = operation.key if operation is not None else None
        return Next(decision, Ask(leaving.id, _last_operation(leaving, leaving.plan, key)))
    call = messages.Unbind(leaving.instance, leaving.id, leaving.service, leaving.plan)
    return Next(decision, Ask(leaving.id, call))


def _is_waited_for(seen: Seen, operation: Operation) -> bool:
    """Tell whether a bind is polled to its end, before its claim goes."""
    times = [
        deletion_of(live, seen.now)
        for live in (seen.binding.live, seen.view.live)
        if live is not None and manifest.is_deleting(live)
    ]
    return bool(times) and seen.now < pacing.patient_until(operation.deadline, min(times))


def fetch(seen: Seen, one: Record, decision: Decision) -> Next:
    """Read a binding with its credentials, when that is due."""
    wait = waits(seen, one)
    if wait is not None:
        return Next(replace(decision, again=wait))
    call = messages.FetchBinding(one.instance, one.id, one.service, one.plan)
    return Next(decision, Ask(one.id, call))


def waits(seen: Seen, one: Record, *, since: datetime | None = None) -> timedelta | None:
    """Return how long a call waits, None where it is due."""
    pause = seen.pause(one)
    if since is not None and since > seen.now:
        return since - seen.now
    if not due(pause, seen.now):
        assert pause.until is not None
        return pause.until - seen.now
    return CLOSED if seen.broker is None or seen.broker.closed else None


IMMEDIATE: Final = "Immediate"


def has_no_claim(binding: BindingView) -> bool:
    """Tell whether what is left of a binding is an orphan: its finalizer was taken off by force."""
    live = binding.live
    if live is None:
        return True
    return manifest.is_deleting(live) and keys.OSB not in manifest.finalizers_of(live)


def ends(view: InstanceView, binding: BindingView) -> bool:
    """Tell whether all of a claim's binding is to go: with its claim, or with its instance."""
    if binding.live is None:
        return False
    if manifest.is_deleting(binding.live):
        return True
    if view.live is None or not manifest.is_deleting(view.live):
        return False
    if manifest.get_text(view.live, "spec", "deletionPolicy") != IMMEDIATE:
        return False
    return holds.mass_deletion(view, view.kind, crd_is_deleting=view.crd_is_deleting) is None


def leave(seen: Seen) -> Next:
    """Unbind all numbers; then the Secret goes, the last record, and the claim's finalizer."""
    records = sorted(seen.binding.records, key=lambda one: one.number)
    if not records:
        return become.finished(seen, (), ())
    for one in records:
        is_forgotten = one.mark.get(keys.OSB_ORPHAN) == keys.ORPHAN_FORGET
        if is_forgotten or was_never_sent(one, seen.now):
            return become.gone(seen, one, ends=True)
    if (reason := _hold(seen)) is not None:
        return Next(status.of(seen, false=[reason], again=holds.again(reason[0])))
    for one in records:
        if one.state == record.LEAVING and one.is_open:
            return unbind(seen, one)
    return next_to_leave(seen, (*(one for one in records if one.is_open), *records))


def _hold(seen: Seen) -> tuple[Cause, str] | None:
    """Return why nothing is unbound now; None where it may be."""
    broker = seen.binding.kind.broker
    if seen.broker is None:
        return causes.NO_BROKER_TO_DELETE, holds.no_broker(seen.binding.records, broker)
    if seen.broker.moved:
        return causes.MOVED_TO_DELETE, seen.broker.moved
    is_deleting = seen.binding.crd_is_deleting
    return holds.mass_deletion(
        seen.view, seen.binding.kind, crd_is_deleting=is_deleting, undo="unbind"
    )


def next_to_leave(seen: Seen, records: tuple[Record, ...]) -> Next:
    """Have the first of these leave that may; what is open needs no leave of others."""
    for one in records:
        intent = one.intent if one.state == record.LEAVING else None
        if intent is not None and intent.since > seen.now:
            continue
        if seen.free or one.holds_turn(seen.now):
            return replace(soon(_left(one)), begins=True)
    waits = [one.intent.since - seen.now for one in records if one.intent is not None]
    again = min((wait for wait in waits if wait > SOON), default=CLOSED)
    return Next(status.of(seen, again=again))


def _left(one: Record) -> Step | None:
    """Have a record leave; what the broker does for it meanwhile can still be asked for."""
    if one.operation is not None:
        return record.changed(one, state=record.LEAVING)
    return record.changed(one, state=record.LEAVING, intent=None)


def orphans(seen: Seen) -> Next:
    """Keep what has no claim any more, until somebody says what becomes of it (law 1)."""
    records = sorted(seen.binding.records, key=lambda one: one.number)
    for one in records:
        if was_never_sent(one, seen.now):
            return Next(_forgotten(one))
        if one.state not in (record.ORPHANED, record.RETAINED, record.LEAVING):
            return Next(_orphaned(one))
    return next((found for one in records if (found := _kept(seen, one))), Next(NOTHING))


def _kept(seen: Seen, orphan: Record) -> Next | None:
    """Return what follows for one that is known to be an orphan; None where it just stays."""
    if orphan.state == record.LEAVING:
        return unbind(seen, orphan) if orphan.is_open else next_to_leave(seen, (orphan,))
    wish = orphan.mark.get(keys.OSB_ORPHAN, "")
    if wish == keys.ORPHAN_FORGET:
        return Next(_forgotten(orphan))
    if wish == keys.ORPHAN_DEPROVISION and seen.free and seen.broker is not None:
        return next_to_leave(seen, (orphan,))
    return poll(seen, orphan) if orphan.operation is not None else None


def _forgotten(one: Record) -> Decision:
    return Decision(tasks=(Task((record.deleted(one),)),), again=SOON)


def _orphaned(one: Record) -> Decision:
    """Have a record say that its claim is absent. What was begun is only waited for."""
    intent = one.intent
    if intent is not None:
        intent = replace(intent, closed=record.PAUSED, tries=max(intent.tries, 1))
    step = record.changed(one, state=record.ORPHANED, intent=intent)
    claim = f"{one.claim.kind} {one.claim.namespace}/{one.claim.name}"
    note = Note(
        "Orphaned",
        f"{claim} is gone without its deletion; binding {one.id} stays at the broker until "
        f"annotation {keys.OSB_ORPHAN} says Deprovision or Forget",
        type="Warning",
    )
    tasks = () if step is None else (Task((step,)),)
    return Decision(tasks=tasks, notes=(note,), again=SOON)


def reclaimed(one: Record) -> Next:
    """Have a record count again whose claim is there after all."""
    state = record.INTENDED if one.sent is None else record.PRESENT
    return soon(record.changed(one, state=state))

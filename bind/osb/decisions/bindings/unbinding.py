"""Ends bindings: all numbers of a claim in deletion, and those without a claim."""

from dataclasses import replace

from bind.osb import engine
from bind.osb.decisions import causes, record
from bind.osb.decisions.bindings import status
from bind.osb.decisions.bindings.moves import finished
from bind.osb.decisions.bindings.moves import of as moves_of
from bind.osb.decisions.bindings.seen import Seen, is_of_former, is_still_bound, was_never_sent
from bind.osb.decisions.moves import orphaned
from bind.osb.decisions.record import Operation, Record
from bind.osb.decisions.view import CLOSED, SOON, Next, Place, deletion_of, parameters_of, soon
from reconciler.blueprints.offering import messages
from reconciler.core import keys, manifest
from reconciler.core.conditions import Cause
from reconciler.core.decision import NOTHING, Decision, Step


def bind(seen: Seen, candidate: Record) -> Next:
    """Ask for a binding, again where the outcome is not known."""
    intent, decision, moves = candidate.intent, status.begun(seen), moves_of(seen, candidate)
    assert intent is not None
    if seen.view.place is None or seen.has_no_catalogue:
        return Next(replace(decision, again=moves.wait(intent.since) or CLOSED))
    return moves.asks(decision, _bind_call(seen, candidate, seen.view.place), intent.since)


def _bind_call(seen: Seen, candidate: Record, place: Place) -> messages.Bind:
    """Return the bind; a broker that can rotate is told what it takes the place of."""
    current, plan = seen.current, seen.plan(candidate.plan)
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


def unbind(seen: Seen, leaving: Record) -> Next:
    """Have a binding deleted at the broker, until that is confirmed."""
    operation, moves = leaving.operation, moves_of(seen, leaving)
    if operation is not None and (not is_still_bound(leaving) or _is_waited_for(seen, operation)):
        return moves.poll()
    ids = (leaving.instance, leaving.id, leaving.service, leaving.plan)
    call: messages.Call = messages.Unbind(*ids)
    if moves.pause.misses:  # it was busy: some brokers go on only while they are asked
        call = moves.last_operation(leaving.plan, operation)
    return moves.asks(status.of(seen), call)


def _is_waited_for(seen: Seen, operation: Operation) -> bool:
    """Return whether a bind is polled to its end, before its claim goes."""
    times = [
        deletion_of(live, seen.now)
        for live in (seen.binding.live, seen.view.live)
        if live is not None and manifest.is_deleting(live)
    ]
    return bool(times) and seen.now < engine.patient_until(operation.deadline, min(times))


def fetch(seen: Seen, one: Record, decision: Decision) -> Next:
    """Read a binding with its credentials, when that is due."""
    call = messages.FetchBinding(one.instance, one.id, one.service, one.plan)
    return moves_of(seen, one).asks(decision, call)


def leave(seen: Seen) -> Next:
    """Unbind all numbers; then the Secret goes, the last record, and the claim's finalizer."""
    records = sorted(seen.binding.records, key=lambda one: one.number)
    if not records:
        return finished(seen, (), ())
    for one in records:
        is_forgotten = one.mark.get(keys.OSB_ORPHAN) == keys.ORPHAN_FORGET
        if is_forgotten or was_never_sent(one, seen.now):
            return moves_of(seen, one).gone()
    if (reason := _hold(seen)) is not None:
        return Next(status.of(seen, false=[reason], again=causes.looked_at_again(reason[0])))
    for one in records:
        if one.state == record.LEAVING and one.is_open:
            return unbind(seen, one)
    return next_to_leave(seen, (*(one for one in records if one.is_open), *records))


def _hold(seen: Seen) -> tuple[Cause, str] | None:
    """Return why nothing is unbound now; None where it may be."""
    broker = seen.binding.kind.broker
    if seen.broker is None:
        return causes.NO_BROKER_TO_DELETE, causes.no_broker(seen.binding.records, broker)
    if seen.broker.moved:
        return causes.MOVED_TO_DELETE, seen.broker.moved
    is_deleting = seen.binding.crd_is_deleting
    return causes.mass_deletion(
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
            return soon(record.deleted(one))
        if one.state not in (record.ORPHANED, record.RETAINED, record.LEAVING):
            return _orphaned(one)
    return next((found for one in records if (found := _kept(seen, one))), Next(NOTHING))


def _kept(seen: Seen, orphan: Record) -> Next | None:
    """Return what follows for one that is known to be an orphan; None where it just stays."""
    if orphan.state == record.LEAVING:
        return unbind(seen, orphan) if orphan.is_open else next_to_leave(seen, (orphan,))
    wish = orphan.mark.get(keys.OSB_ORPHAN, "")
    if wish == keys.ORPHAN_FORGET:
        return soon(record.deleted(orphan))
    if wish == keys.ORPHAN_DEPROVISION and seen.free and seen.broker is not None:
        return next_to_leave(seen, (orphan,))
    return moves_of(seen, orphan).poll() if orphan.operation is not None else None


def _orphaned(one: Record) -> Next:
    """Have a record say that its claim is absent. What was begun is only waited for."""
    intent = one.intent
    if intent is not None:
        intent = replace(intent, closed=record.PAUSED, tries=max(intent.tries, 1))
    return orphaned(one, intent=intent)


def reclaimed(one: Record) -> Next:
    """Have a record count again whose claim is there after all."""
    state = record.INTENDED if one.sent is None else record.PRESENT
    return soon(record.changed(one, state=state))

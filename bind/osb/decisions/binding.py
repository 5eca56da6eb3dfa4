"""Decides the next step of a binding: bind, rotate, restore its Secret, unbind.

finalizer -> record with its intent -> call -> Secret -> record -> status. Each step may be
repeated. At every moment the Secret holds credentials of a binding that is not being undone.
"""

from dataclasses import replace
from datetime import datetime
from typing import Final

from bind.osb import engine
from bind.osb.decisions import binding_moves as moves
from bind.osb.decisions import binding_numbers as numbers
from bind.osb.decisions import binding_state as state
from bind.osb.decisions import causes, credentials, record
from bind.osb.decisions import view as views
from bind.osb.decisions.binding_state import CHECKS, Seen
from bind.osb.decisions.moves import orphaned
from bind.osb.decisions.record import Operation, Record
from reconciler.blueprints.offering import messages
from reconciler.core import conditions, keys, manifest
from reconciler.core.decision import NOTHING, Decision, Patch, writes

GOING: Final = 0
UNBINDING: Final = 1
OTHER: Final = 2


def look(view: views.InstanceView, binding: views.BindingView) -> views.Next:
    """Return the decision from the present state of a binding."""
    seen = state.seen(view, binding)
    if seen.binding.live is None:
        return orphans(seen)
    if state.ends(view, binding):
        return leave(seen)
    for one in binding.records:
        if one.state in (record.ORPHANED, record.RETAINED):
            before = record.INTENDED if one.sent is None else record.PRESENT
            return views.soon(record.changed(one, state=before))
    if binding.records and (patch := numbers.finalized_claim(seen)) is not None:
        return views.soon(patch)
    for row in (_open, _leaves, _late, _candidate):
        if (next_ := row(seen)) is not None:
            return _noted(seen, next_)
    return _noted(seen, _kept(seen))


def urgency(view: views.InstanceView, binding: views.BindingView) -> int:
    """Return the turn of a binding beside others: running ones, leaving ones, all else."""
    now = view.now
    if any(one.blocks(now) for one in binding.records):
        return GOING
    is_over = any(one.leave_at is not None and one.leave_at <= now for one in binding.records)
    is_leaving = any(one.state == record.LEAVING for one in binding.records)
    return UNBINDING if is_over or is_leaving or state.ends(view, binding) else OTHER


def needs_secret(view: views.InstanceView, binding: views.BindingView) -> bool:
    """Return whether a look has to read the Secret: before it is written, and now and then."""
    seen = state.seen(view, binding)
    if seen.binding.live is None:
        return False
    if manifest.is_deleting(seen.binding.live):
        return len(binding.records) <= 1
    if seen.current is None or seen.candidate is not None or seen.leaving or seen.lost:
        return True
    checked = view.pause(seen.current).checked
    return checked is None or any(time <= view.now for time in _times(seen, seen.current, checked))


def _times(seen: Seen, current: Record, checked: datetime | None) -> list[datetime]:
    """Return when credentials leave, others are due, and the Secret is to be looked at."""
    due_at = _due_at(seen, current)
    check_at = None if checked is None else checked + CHECKS
    times = (*(one.leave_at for one in seen.older), due_at, check_at)
    return [time for time in times if time is not None]


def _open(seen: Seen) -> views.Next | None:
    """Go on with an open binding; a late one comes after those that are to leave."""
    for one in seen.leaving:
        if one.is_open:
            return unbind(seen, one)
    for one in seen.binding.records:
        if one is seen.candidate and one.is_late(seen.view.now):
            continue
        if one.operation is not None:
            return moves.of(seen, one).poll()
        if one.state == record.INTENDED and one.is_open:
            return bind(seen, one)
    return None


def _leaves(seen: Seen) -> views.Next | None:
    """End replaced and failed bindings, unless the Secret may have them."""
    for old in seen.older:
        if (step := _leaves_later(seen, old)) is not None:
            return views.soon(step)
    over = [old for old in seen.older if old.leave_at is not None and old.leave_at <= seen.view.now]
    undone = (*over, *seen.lost)
    paused = [
        one for one in seen.leaving if one.intent is None or one.intent.since <= seen.view.now
    ]
    going = [one for one in (*paused, *undone) if not credentials.may_contain(seen.binding, one)]
    if not (seen.view.free and going) or seen.view.broker is None:
        return None
    return next_to_leave(seen, tuple(going))


def _leaves_later(seen: Seen, old: Record) -> Patch | None:
    """Return the step that a crash left undone: a replaced binding gets its end."""
    current = seen.current
    if current is None or old.leave_at is not None or credentials.are_same(current, old):
        return None
    leave_at = credentials.leaves_at(seen.claim, old, current.made_at or seen.view.now)
    return record.changed(old, leave_at=leave_at)


def _candidate(seen: Seen) -> views.Next | None:
    """Bring a number to its credentials: the first, or the successor of the present one."""
    candidate = seen.candidate
    if candidate is None:
        return numbers.begin(seen) if seen.current is None else None
    if candidate.state == record.PRESENT:
        if seen.is_retrievable and seen.view.pause(candidate).misses < engine.MOST_READS:
            return fetch(seen, candidate, state.begun(seen))
        if seen.has_no_catalogue:
            return views.Next(state.of(seen, again=views.CLOSED))
        message = "the broker made a binding, and gives no credentials of it"
        return moves.of(seen, candidate).mitigated(message, causes.NO_CREDENTIALS)
    if (next_ := numbers.retry(seen, candidate)) is not None or seen.current is not None:
        return next_
    return views.Next(state.of(seen, false=state.unstated(seen)))


def _late(seen: Seen) -> views.Next | None:
    """Ask for a binding that may never end, now and then; credentials that count are kept."""
    candidate = seen.candidate
    if candidate is None or not candidate.is_late(seen.view.now):
        return None
    asked = moves.of(seen, candidate).poll()
    if asked.ask is not None or seen.current is None:
        return asked
    kept = _kept(seen)
    waits = (asked.decision.again, kept.decision.again)
    again = min((wait for wait in waits if wait is not None), default=None)
    return replace(kept, decision=replace(kept.decision, again=again))


def _kept(seen: Seen) -> views.Next:
    """Keep the credentials that count where they are, and replace them when that is due."""
    current = seen.current
    assert current is not None
    match credentials.state(seen.binding, current):
        case credentials.TAKEN:
            return views.Next(state.of(seen, false=[numbers.taken(seen)], again=numbers.TAKEN))
        case credentials.ABSENT | credentials.EDITED:
            return _restored(seen, current)
    if seen.candidate is None and _is_due(seen, current) and _may_begin(seen):
        return numbers.begin(seen)
    decision = state.of(seen, true=_well(seen, current), false=state.unstated(seen))
    # A crash may have kept the status from what only the broker's answer had.
    noted = manifest.get_text(seen.claim, "status", "bindingID")
    is_unsaid = noted != current.id or not manifest.get_map(seen.claim, "status", "binding")
    if is_unsaid and seen.is_retrievable and not seen.view.pause(current).misses:
        return fetch(seen, current, decision)
    repair = credentials.repaired(seen.binding, current)
    return views.Next(
        replace(decision, tasks=writes(repair, failure=causes.SECRET_NOT_WRITTEN).tasks)
    )


def _well(seen: Seen, current: Record) -> list[str]:
    """Return the conditions that are True where the Secret has its credentials.

    Of a rotation also what failed before, or its process could not say any more.
    """
    is_read = seen.binding.secret is not None
    well = [causes.BOUND] if is_read or not conditions.get(seen.claim, causes.BOUND) else []
    is_over = not (seen.candidate or seen.lost or seen.leaving or _is_due(seen, current))
    has_old = any(one.leave_at is not None for one in seen.older)
    if is_over and (has_old or conditions.get(seen.claim, causes.ROTATED) is not None):
        well.append(causes.ROTATED)
    return well


def _due_at(seen: Seen, current: Record) -> datetime | None:
    if state.is_of_former(seen.view, current):
        return seen.view.now
    is_same = state.is_same(seen)
    return credentials.due_at(seen.claim, current, seen.older, seen.view.now, is_same=is_same)


def _is_due(seen: Seen, current: Record) -> bool:
    due_at = _due_at(seen, current)
    return due_at is not None and due_at <= seen.view.now


def _may_begin(seen: Seen) -> bool:
    return seen.view.free and numbers.not_ready(seen) is None


def _restored(seen: Seen, current: Record) -> views.Next:
    """Give a Secret that was lost or edited its credentials back, or new ones."""
    name = credentials.name_of(seen.claim)
    message = f"Secret {name} was deleted or changed; klutch-osb writes the credentials again"
    decision = state.of(seen, false=[(causes.SECRET_LOST, message)], again=CHECKS)
    if seen.is_retrievable and seen.view.pause(current).misses < engine.MOST_READS:
        return fetch(seen, current, decision)
    if seen.candidate is not None or not _may_begin(seen):
        return views.Next(decision)
    next_ = numbers.begin(seen)
    stated = replace(next_.decision, conditions=decision.conditions, fields=decision.fields)
    return replace(next_, decision=stated)


def _noted(seen: Seen, next_: views.Next) -> views.Next:
    """Return the decision with the time of the next look, and with the last reading."""
    decision, current = next_.decision, seen.current
    times = [one.intent.since for one in seen.binding.records if one.intent is not None]
    if current is not None:
        pause = seen.view.pause(current)
        if seen.binding.secret is not None:
            is_kept = credentials.state(seen.binding, current) == credentials.KEPT
            # Else it is read until it is as it should be.
            pause = replace(pause, checked=seen.view.now if is_kept else None)
            next_ = replace(next_, pauses={**next_.pauses, current.id: pause})
        times += _times(seen, current, pause.checked)
        times += [current.expires_at] if current.expires_at is not None else []
    waits = [time - seen.view.now for time in times if time is not None and time > seen.view.now]
    waits += [] if decision.again is None else [decision.again]
    return replace(next_, decision=replace(decision, again=min(waits, default=None)))


def bind(seen: Seen, candidate: Record) -> views.Next:
    """Ask for a binding, again where the outcome is not known."""
    intent, decision, ours = candidate.intent, state.begun(seen), moves.of(seen, candidate)
    assert intent is not None
    if seen.view.place is None or seen.has_no_catalogue:
        return views.Next(replace(decision, again=ours.wait(intent.since) or views.CLOSED))
    return ours.asks(decision, _bind_call(seen, candidate, seen.view.place), intent.since)


def _bind_call(seen: Seen, candidate: Record, place: views.Place) -> messages.Bind:
    """Return the bind; a broker that can rotate gets the predecessor."""
    current, plan = seen.current, seen.view.plan(candidate.plan)
    is_rotatable = plan is not None and plan.binding_rotatable
    replaces = (
        current is not None
        and is_rotatable
        and current.instance == candidate.instance
        and not state.is_of_former(seen.view, current)
    )
    return messages.Bind(
        candidate.instance,
        candidate.id,
        candidate.service,
        candidate.plan,
        app=place.space,
        context=place.context(seen.view.name),
        parameters=views.parameters_of(seen.claim) or None,
        predecessor=current.id if current is not None and replaces else "",
        may_wait=seen.is_retrievable,
    )


def unbind(seen: Seen, leaving: Record) -> views.Next:
    """Have a binding deleted at the broker, until that is confirmed."""
    operation, ours = leaving.operation, moves.of(seen, leaving)
    if operation is not None and (
        not state.is_still_bound(leaving) or _is_waited_for(seen, operation)
    ):
        return ours.poll()
    ids = (leaving.instance, leaving.id, leaving.service, leaving.plan)
    call: messages.Call = messages.Unbind(*ids)
    if ours.pause.misses:  # it was busy: some brokers go on only while they are asked
        call = ours.last_operation(leaving.plan, operation)
    return ours.asks(state.of(seen), call)


def _is_waited_for(seen: Seen, operation: Operation) -> bool:
    """Return whether a bind is polled to its end, before its claim goes."""
    times = [
        views.deletion_of(live, seen.view.now)
        for live in (seen.binding.live, seen.view.live)
        if live is not None and manifest.is_deleting(live)
    ]
    return bool(times) and seen.view.now < engine.patient_until(operation.deadline, min(times))


def fetch(seen: Seen, one: Record, decision: Decision) -> views.Next:
    """Read a binding with its credentials, when that is due."""
    call = messages.FetchBinding(one.instance, one.id, one.service, one.plan)
    return moves.of(seen, one).asks(decision, call)


def leave(seen: Seen) -> views.Next:
    """Unbind all numbers; then the Secret goes, the last record, and the claim's finalizer."""
    records = sorted(seen.binding.records, key=lambda one: one.number)
    if not records:
        return moves.finished(seen, (), ())
    for one in records:
        is_forgotten = one.mark.get(keys.OSB_ORPHAN) == keys.ORPHAN_FORGET
        if is_forgotten or one.was_never_sent(seen.view.now):
            return moves.of(seen, one).gone()
    if (reason := causes.delete_blocker(seen.view, seen.binding, undo="unbind")) is not None:
        return views.Next(state.of(seen, false=[reason], again=causes.looked_at_again(reason[0])))
    for one in records:
        if one.state == record.LEAVING and one.is_open:
            return unbind(seen, one)
    return next_to_leave(seen, (*(one for one in records if one.is_open), *records))


def next_to_leave(seen: Seen, records: tuple[Record, ...]) -> views.Next:
    """End the first of these that may leave; an open one needs no leave of others."""
    for one in records:
        intent = one.intent if one.state == record.LEAVING else None
        if intent is not None and intent.since > seen.view.now:
            continue
        if seen.view.free or one.blocks(seen.view.now):
            # What the broker does for it meanwhile can still be asked for.
            begun = {} if one.operation is not None else {"intent": None}
            return views.soon(record.changed(one, state=record.LEAVING, **begun), begins=True)
    waits = [one.intent.since - seen.view.now for one in records if one.intent is not None]
    again = min((wait for wait in waits if wait > views.SOON), default=views.CLOSED)
    return views.Next(state.of(seen, again=again))


def orphans(seen: Seen) -> views.Next:
    """Keep records without a claim, until somebody decides about them (law 1)."""
    now = seen.view.now  # all others wait for one that the broker works on
    records = sorted(seen.binding.records, key=lambda one: (not one.blocks(now), one.number))
    for one in records:
        if one.was_never_sent(now):
            return views.soon(record.deleted(one))
        if one.state not in (record.ORPHANED, record.RETAINED, record.LEAVING):
            return _orphaned(one)
    return next((found for one in records if (found := _wished(seen, one))), views.Next(NOTHING))


def _wished(seen: Seen, orphan: Record) -> views.Next | None:
    """Return the decision about a known orphan; None where it just stays."""
    if orphan.state == record.LEAVING:
        return unbind(seen, orphan) if orphan.is_open else next_to_leave(seen, (orphan,))
    wish = orphan.mark.get(keys.OSB_ORPHAN, "")
    if wish == keys.ORPHAN_FORGET:
        return views.soon(record.deleted(orphan))
    if wish == keys.ORPHAN_DEPROVISION and seen.view.free and seen.view.broker is not None:
        return next_to_leave(seen, (orphan,))
    return moves.of(seen, orphan).poll() if orphan.operation is not None else None


def _orphaned(one: Record) -> views.Next:
    """Have a record state that its claim is absent. A begun operation is only waited for."""
    intent = one.intent
    if intent is not None:
        intent = replace(intent, closed=record.PAUSED, tries=max(intent.tries, 1))
    return orphaned(one, intent=intent)

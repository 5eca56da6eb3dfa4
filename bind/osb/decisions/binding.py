"""Decides the next step of a binding: bind, rotate, restore its Secret, unbind.

finalizer -> record with its intent -> call -> Secret -> record -> status. Each step may be
repeated. At every moment the Secret holds credentials of a binding that is not being undone.
"""

from dataclasses import replace
from datetime import datetime
from typing import Final

from bind.osb import engine
from bind.osb.decisions import causes, credentials, record
from bind.osb.decisions.bindings import moves, numbers, status, unbinding
from bind.osb.decisions.bindings import seen as look_of
from bind.osb.decisions.bindings.seen import CHECKS, Seen
from bind.osb.decisions.record import Record
from bind.osb.decisions.view import CLOSED, Ask, BindingView, InstanceView, Next, soon
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.core import conditions, manifest
from reconciler.core.decision import Patch, writes

GOING: Final = 0
UNBINDING: Final = 1
OTHER: Final = 2


def look(view: InstanceView, binding: BindingView, *, free: bool, now: datetime) -> Next:
    """Return what follows from the present state of a binding.

    `free`: it may begin something that changes it at the broker.
    """
    if look_of.has_no_claim(binding):
        left = replace(binding, live=None)
        return unbinding.orphans(look_of.seen(view, left, free=free, now=now))
    seen = look_of.seen(view, binding, free=free, now=now)
    if look_of.ends(view, binding):
        return unbinding.leave(seen)
    for one in binding.records:
        if one.state in (record.ORPHANED, record.RETAINED):
            return unbinding.reclaimed(one)
    if binding.records and (patch := numbers.finalized(seen)) is not None:
        return soon(patch)
    for row in (_open, _leaves, _late, _candidate):
        if (next_ := row(seen)) is not None:
            return _noted(seen, next_)
    return _noted(seen, _kept(seen))


def answered(
    view: InstanceView, binding: BindingView, ask: Ask, outcome: Outcome, *, now: datetime
) -> Next:
    """Return what follows from the answer to a call."""
    if look_of.has_no_claim(binding):
        binding = replace(binding, live=None)
    seen = look_of.seen(view, binding, now=now)
    asked = next((one for one in binding.records if one.id == ask.record), None)
    if asked is None:
        return Next()
    return moves.of(seen, asked).answered(ask.call, outcome)


def urgency(view: InstanceView, binding: BindingView, *, now: datetime) -> int:
    """Return when a binding has its turn beside others: what goes on, what goes, all else."""
    if any(one.holds_turn(now) for one in binding.records):
        return GOING
    is_over = any(one.leave_at is not None and one.leave_at <= now for one in binding.records)
    is_leaving = any(one.state == record.LEAVING for one in binding.records)
    return UNBINDING if is_over or is_leaving or look_of.ends(view, binding) else OTHER


def needs_secret(binding: BindingView, *, now: datetime) -> bool:
    """Return whether a look has to read the Secret: before it is written, and now and then."""
    live = binding.live
    if live is None or look_of.has_no_claim(binding):
        return False
    if manifest.is_deleting(live):
        return len(binding.records) <= 1
    state = look_of.numbers_of(binding.records, look_of.Numbers)
    if state.current is None or state.candidate is not None or state.leaving or state.lost:
        return True
    if any(one.leave_at is not None and one.leave_at <= now for one in state.older):
        return True
    due_at = credentials.due_at(live, state.current, state.older, now)
    checked = binding.pause(state.current).checked
    return checked is None or checked + CHECKS <= now or (due_at is not None and due_at <= now)


def secret_name(binding: BindingView) -> str:
    """Return the name of a binding's Secret, where its claim is there."""
    return "" if binding.live is None else credentials.name_of(binding.live)


def _open(seen: Seen) -> Next | None:
    """Go on with what was begun; what is late comes after what is to leave."""
    for one in seen.leaving:
        if one.is_open:
            return unbinding.unbind(seen, one)
    for one in seen.binding.records:
        if one is seen.candidate and one.is_late(seen.now):
            continue
        if one.operation is not None:
            return moves.of(seen, one).poll()
        if one.state == record.INTENDED and one.is_open:
            return unbinding.bind(seen, one)
    return None


def _leaves(seen: Seen) -> Next | None:
    """Have go what was replaced, or never came to be, unless the Secret may have it."""
    for old in seen.older:
        if (step := _leaves_later(seen, old)) is not None:
            return soon(step)
    over = [old for old in seen.older if old.leave_at is not None and old.leave_at <= seen.now]
    undone = (*over, *seen.lost)
    going = [one for one in undone if not credentials.may_hold(seen.binding, one)]
    paused = [one for one in seen.leaving if one.intent is None or one.intent.since <= seen.now]
    if not seen.free or not (going or paused) or seen.broker is None:
        return None
    return unbinding.next_to_leave(seen, (*paused, *going))


def _leaves_later(seen: Seen, old: Record) -> Patch | None:
    """Return the step that a crash kept from being done: what was replaced gets its end."""
    current = seen.current
    if current is None or old.leave_at is not None or old.sent is None or current.sent is None:
        return None
    if old.sent.secret == current.sent.secret:
        return None
    leave_at = credentials.leaves_at(seen.claim, old, current.made_at or seen.now)
    return record.changed(old, leave_at=leave_at)


def _candidate(seen: Seen) -> Next | None:
    """Have a number come to hold credentials: the first, or what is to replace the present one."""
    candidate = seen.candidate
    if candidate is None:
        return numbers.begin(seen) if seen.current is None else None
    if candidate.state == record.PRESENT:
        if seen.is_retrievable and seen.pause(candidate).misses < engine.MOST_READS:
            return unbinding.fetch(seen, candidate, status.begun(seen))
        if seen.has_no_catalogue:
            return Next(status.of(seen, again=CLOSED))
        message = "the broker made a binding, and gives no credentials of it"
        return moves.of(seen, candidate).mitigated(message, causes.NO_CREDENTIALS)
    if (next_ := numbers.retry(seen, candidate)) is not None or seen.current is not None:
        return next_
    return Next(status.of(seen))


def _late(seen: Seen) -> Next | None:
    """Ask for what may never end, now and then; credentials that count are kept meanwhile."""
    candidate = seen.candidate
    if candidate is None or not candidate.is_late(seen.now):
        return None
    asked = moves.of(seen, candidate).poll()
    if asked.ask is not None or seen.current is None:
        return asked
    kept = _kept(seen)
    waits = (asked.decision.again, kept.decision.again)
    again = min((wait for wait in waits if wait is not None), default=None)
    return replace(kept, decision=replace(kept.decision, again=again))


def _kept(seen: Seen) -> Next:
    """Keep the credentials that count where they are, and replace them when that is due."""
    current = seen.current
    assert current is not None
    match credentials.state(seen.binding, current):
        case credentials.TAKEN:
            return Next(status.of(seen, false=[numbers.taken(seen)], again=numbers.TAKEN))
        case credentials.ABSENT | credentials.EDITED:
            return _restored(seen, current)
    if seen.candidate is None and _is_due(seen, current) and _may_begin(seen):
        return numbers.begin(seen)
    decision = status.of(seen, true=_well(seen, current))
    if _is_unsaid(seen, current) and seen.is_retrievable and not seen.pause(current).misses:
        return unbinding.fetch(seen, current, decision)
    repair = credentials.repaired(seen.binding, current)
    return Next(replace(decision, tasks=writes(repair, failure=causes.SECRET_NOT_WRITTEN).tasks))


def _well(seen: Seen, current: Record) -> list[str]:
    """Return what is well where the Secret has what it should.

    Of a rotation also what failed before, or its process could not say any more.
    """
    is_read = seen.binding.secret is not None
    well = [causes.BOUND] if is_read or not conditions.said(seen.claim, causes.BOUND) else []
    is_over = seen.candidate is None and not seen.lost and not _is_due(seen, current)
    has_old = any(one.leave_at is not None for one in seen.older)
    if is_over and (has_old or conditions.said(seen.claim, causes.ROTATED) is not None):
        well.append(causes.ROTATED)
    return well


def _is_unsaid(seen: Seen, current: Record) -> bool:
    """Return whether a crash kept the status from what only the broker's answer had."""
    said = manifest.get_text(seen.claim, "status", "bindingID")
    return said != current.id or not manifest.get_map(seen.claim, "status", "binding")


def _is_due(seen: Seen, current: Record) -> bool:
    if look_of.is_of_former(seen.view, current):
        return True
    due_at = credentials.due_at(seen.claim, current, seen.older, seen.now)
    return due_at is not None and due_at <= seen.now


def _may_begin(seen: Seen) -> bool:
    return seen.free and numbers.not_ready(seen) is None


def _restored(seen: Seen, current: Record) -> Next:
    """Give a Secret that was lost or edited its credentials back, or new ones."""
    name = credentials.name_of(seen.claim)
    message = f"Secret {name} was deleted, or has not what was written; it gets credentials again"
    decision = status.of(seen, false=[(causes.SECRET_LOST, message)], again=CHECKS)
    if seen.is_retrievable and seen.pause(current).misses < engine.MOST_READS:
        return unbinding.fetch(seen, current, decision)
    if seen.candidate is not None or not _may_begin(seen):
        return Next(decision)
    next_ = numbers.begin(seen)
    stated = replace(next_.decision, conditions=decision.conditions, fields=decision.fields)
    return replace(next_, decision=stated)


def _noted(seen: Seen, next_: Next) -> Next:
    """Return what follows, with when to look again for what is to come, and what was read."""
    decision, current = next_.decision, seen.current
    times = [one.intent.since for one in seen.binding.records if one.intent is not None]
    times += [one.leave_at for one in seen.older if one.leave_at is not None]
    if current is not None:
        checked = seen.pause(current).checked
        if seen.binding.secret is not None:
            is_kept = credentials.state(seen.binding, current) == credentials.KEPT
            checked = seen.now if is_kept else None  # else it is read until it is as it should be
            pause = replace(seen.pause(current), checked=checked)
            next_ = replace(next_, pauses={**next_.pauses, current.id: pause})
        due_at = credentials.due_at(seen.claim, current, seen.older, seen.now)
        check_at = None if checked is None else checked + CHECKS
        times += [time for time in (due_at, current.expires_at, check_at) if time is not None]
    timer = credentials.next_timer(times, seen.now)
    waits = [wait for wait in (decision.again, timer) if wait is not None]
    return replace(next_, decision=replace(decision, again=min(waits, default=None)))

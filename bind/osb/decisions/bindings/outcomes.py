"""What a binding becomes after a call: bound, at work, refused, tried again, or gone.

Each is what the Secret and the record hold next, and the claim's status, in one decision. The
Secret comes first: what it holds is always of a binding that is not undone.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from bind.osb.decisions import causes, credentials, pacing, record, rotation
from bind.osb.decisions.bindings import numbers, status
from bind.osb.decisions.bindings.seen import Numbers, Seen, circumstances, is_held, remembered
from bind.osb.decisions.record import Intent, Operation, Record, Sent
from bind.osb.decisions.view import CLOSED, NO_PAUSE, SOON, Next, soon
from reconciler.blueprints.offering.outcomes import (
    Accepted,
    Denied,
    Done,
    Outcome,
    Progress,
    Unsent,
)
from reconciler.core import conditions, keys
from reconciler.core.conditions import Cause
from reconciler.core.decision import Decision, Note, Step, Task, unheld
from reconciler.core.manifest import is_deleting

_AT_ONCE: Final = timedelta(minutes=1)  # a longer pause of an unbind lets others go on


def bound(seen: Seen, one: Record, done: Done) -> Next:
    """Have the Secret and the record hold what the broker gave; what it replaces leaves later."""
    assert done.credentials is not None
    wanted = credentials.secret_of(seen.binding, one, done.credentials)
    if wanted is None:
        return mitigated(seen, one, causes.NO_CREDENTIALS, "its credentials fit into no Secret")
    new = _made(seen, one, credentials.digest(seen.claim, wanted), done)
    if seen.binding.secret is None and not _is_same(one, new):
        return Next(status.of(seen, again=CLOSED))  # the Secret has to be read first
    is_taken = credentials.state(seen.binding, seen.current) == credentials.TAKEN
    is_left = is_taken or seen.binding.secret is None
    secret = None if is_left else credentials.written(seen.binding, wanted)
    next_ = _present(seen, one, new, secret)
    decision = next_.decision
    stated = [*decision.conditions, *status.projected(seen, done)]
    if is_taken:
        stated = [
            *(each for each in stated if each.type != causes.BOUND),
            conditions.false(*numbers.taken(seen)),
        ]
    fields = {**decision.fields, "endpoints": list(done.endpoints) or None}
    decision = replace(decision, conditions=tuple(stated), fields=fields)
    return replace(next_, decision=decision)


def _made(seen: Seen, one: Record, digest: str, done: Done) -> Record:
    """Return a record as it holds credentials; what was read once more is as old as before."""
    target = one.sent or (one.intent.target if one.intent is not None else Sent(one.plan))
    is_anew = not is_held(one)
    return replace(
        one,
        state=record.PRESENT,
        sent=replace(target, secret=digest),
        intent=None,
        operation=None,
        made_at=seen.now if is_anew else one.made_at,
        expires_at=done.expires_at if is_anew else done.expires_at or one.expires_at,
        renew_before=done.renew_before if is_anew else done.renew_before or one.renew_before,
    )


def settled(seen: Seen, one: Record) -> Next:
    """Have a record hold what the Secret has of it already.

    Its credentials were written, and the answer after that was none: undoing it would leave the
    Secret with credentials that are refused.
    """
    secret = seen.binding.secret
    assert secret is not None
    assert secret.live is not None
    new = _made(seen, one, credentials.digest(seen.claim, secret.live), Done())
    return _present(seen, one, new, None)


def _present(seen: Seen, one: Record, new: Record, secret: Step | None) -> Next:
    steps = [secret, _held(one, new), *_replaced(seen, new)]
    after = seen.after(new)
    is_rotated = seen.current is not None and seen.current.id != one.id
    is_same = is_rotated and _is_same(seen.current, new)
    true = [causes.BOUND, *((causes.ROTATED,) if is_rotated and not is_same else ())]
    notes = _notes(seen, one, is_rotated=is_rotated, is_same=is_same)
    failure = causes.SECRET_NOT_WRITTEN
    if seen.current is not None:
        failure = causes.of_rotation(failure)
    decision = replace(
        status.of(after, true=true, again=SOON),
        tasks=(Task(tuple(step for step in steps if step is not None), failure),),
        notes=notes if secret is not None or not is_held(one) else (),
    )
    return remembered(seen, one, Next(decision), until=None, count=0, misses=0)


def _held(one: Record, new: Record) -> Step | None:
    return record.changed(
        one,
        state=new.state,
        sent=new.sent,
        intent=None,
        operation=None,
        made_at=new.made_at,
        expires_at=new.expires_at,
        renew_before=new.renew_before,
    )


def _is_same(one: Record | None, other: Record) -> bool:
    if one is None or one.sent is None or other.sent is None:
        return False
    return one.sent.secret == other.sent.secret


def _replaced(seen: Seen, new: Record) -> list[Step | None]:
    """Return the steps after which what was replaced leaves in time.

    Equal credentials do not: at many brokers the same user stands behind both bindings, so that
    undoing the old one would end what the Secret holds. They stay until others have replaced them.
    """
    lost = credentials.state(seen.binding, seen.current) in (credentials.ABSENT, credentials.EDITED)
    is_lost = lost and not credentials.is_named(seen.binding, new)
    steps: list[Step | None] = []
    for old in (*seen.older, seen.current):
        if old is None or old.id == new.id or old.leave_at is not None or _is_same(old, new):
            continue
        leave_at = rotation.leaves_at(seen.claim, old, seen.now)
        is_at_once = is_lost and old is seen.current
        steps.append(record.changed(old, leave_at=seen.now if is_at_once else leave_at))
    return steps


def _notes(seen: Seen, one: Record, *, is_rotated: bool, is_same: bool) -> tuple[Note, ...]:
    if is_same:
        message = (
            f"binding {one.id} has the credentials of the one before it, which is kept: "
            "undoing that might end them"
        )
        return (Note("SameCredentials", message, type="Warning"),)
    if is_rotated:
        return (Note("Rotated", f"the Secret has the credentials of binding {one.id} now"),)
    if is_held(one):
        return (Note("SecretRestored", f"credentials of binding {one.id} were read again"),)
    return (Note("Bound", f"the Secret has the credentials of binding {one.id}"),)


def unread(seen: Seen, one: Record) -> Next:
    """Have a record say that the binding is there, while its credentials are not known."""
    target = one.intent.target if one.intent is not None else Sent(one.plan)
    step = record.changed(one, state=record.PRESENT, sent=target, intent=None, operation=None)
    next_ = Next(_with(status.of(seen, again=SOON), step))
    return remembered(seen, one, next_, until=None, count=0, misses=0)


def accepted(seen: Seen, one: Record, outcome: Accepted) -> Next:
    """Have a record hold the operation that has begun."""
    plan = seen.plan(one.plan)
    longest = plan.maximum_polling_duration if plan is not None else None
    deadline = seen.now + (longest or seen.timing.max_polling)
    operation = Operation(outcome.operation, one.plan, seen.now, deadline)
    intent = None if one.state == record.LEAVING else one.intent
    step = record.changed(one, operation=operation, intent=intent)
    wait = outcome.retry_after or seen.timing.poll
    next_ = Next(_with(status.of(seen), step, again=wait))
    return remembered(seen, one, next_, until=seen.now + wait, count=0, misses=0)


def later(seen: Seen, one: Record, outcome: Denied | Unsent) -> Next:
    """Make the same call later: surely nothing was done."""
    pause = seen.pause(one)
    stated = outcome.retry_after if isinstance(outcome, Unsent) else None
    wait = pacing.unsent(pause.count, stated)
    decision = status.waiting(seen, outcome.problem, again=wait)
    return remembered(seen, one, Next(decision), until=seen.now + wait, count=pause.count + 1)


def busy(seen: Seen, one: Record, problem: str) -> Next:
    """Wait for another operation on the instance; nothing was done, so nothing is undone."""
    decision = status.waiting(seen, problem, again=pacing.BUSY)
    return remembered(seen, one, Next(decision), until=seen.now + pacing.BUSY)


def busy_at_unbind(seen: Seen, one: Record, problem: str) -> Next:
    """Ask what keeps a binding from going, then delete it again, each minute."""
    wait = min(seen.timing.poll, pacing.BUSY)
    next_ = Next(status.waiting(seen, problem, again=wait))
    return remembered(seen, one, next_, until=seen.now + wait, misses=1)


def unbind_now(seen: Seen, one: Record, *, waits: bool) -> Next:
    """Delete a binding again, after it was asked what keeps it from going."""
    wait = pacing.BUSY if waits else SOON
    return remembered(seen, one, Next(Decision(again=wait)), until=seen.now + wait, misses=0)


def repeated(seen: Seen, one: Record, problem: str) -> Next:
    """Make the same call again, so often; the record counts, because a restart must not forget."""
    intent = one.intent
    assert intent is not None
    wait = pacing.unknown(intent.tries)
    step = record.changed(one, intent=replace(intent, tries=intent.tries + 1))
    next_ = Next(_with(status.waiting(seen, problem), step, again=wait))
    return remembered(seen, one, next_, until=seen.now + wait)


def refused(seen: Seen, one: Record, problem: str) -> Next:
    """Have a record say that this is not asked for again, until something is another than now."""
    if credentials.is_named(seen.binding, one):
        return settled(seen, one)
    assert one.intent is not None
    intent = replace(one.intent, closed=record.REFUSED, catalog=circumstances(seen, record.REFUSED))
    step = record.changed(one, intent=intent)
    decision = status.trouble(seen.after(replace(one, intent=intent)), causes.BIND_REFUSED, problem)
    note = Note("BindRefused" if seen.current is None else "RotationRefused", problem, "Warning")
    next_ = Next(replace(_with(decision, step), notes=(note,)))
    return remembered(seen, one, next_, until=None, count=0, misses=0)


def mitigated(seen: Seen, one: Record, cause: Cause, problem: str) -> Next:
    """Have a binding undone of which nobody knows whether it is whole, unless the Secret has it."""
    if credentials.is_named(seen.binding, one):
        return settled(seen, one)
    if credentials.may_hold(seen.binding, one):
        return Next(status.of(seen, again=CLOSED))  # the Secret has to be read first
    step = _left(seen, one)
    decision = status.trouble(
        seen, cause, f"{problem}; it is deleted at the broker before another try"
    )
    note = Note("BindFailed" if seen.current is None else "RotationFailed", problem, "Warning")
    next_ = Next(replace(_with(decision, step, again=SOON), notes=(note,)))
    return replace(next_, pauses={one.id: replace(NO_PAUSE, checked=seen.pause(one).checked)})


def _left(seen: Seen, one: Record) -> Step | None:
    """Have a record leave: at once where it is its turn at the broker, else when that is free.

    What the broker does for it meanwhile can still be asked for.
    """
    if one.operation is not None:
        return record.changed(one, state=record.LEAVING)
    target = one.sent or Sent(one.plan)
    waits = Intent("Unbind", seen.now, target, closed=record.PAUSED)
    intent = None if one.is_open else waits
    return record.changed(one, state=record.LEAVING, intent=intent)


def vanished(seen: Seen, current: Record) -> Next:
    """Let go what the broker does not know any more: new credentials take its place."""
    message = f"the broker does not know binding {current.id} any more"
    decision = status.of(seen, false=[(causes.SECRET_LOST, message)], again=SOON)
    note = Note("Missing", message, type="Warning")
    next_ = Next(replace(_with(decision, _left(seen, current)), notes=(note,)))
    return remembered(seen, current, next_, until=None, count=0, misses=0)


def failed(seen: Seen, one: Record, problem: str) -> Next:
    """Return what follows from an operation that failed, or took longer than it may."""
    if one.state == record.LEAVING:
        return unbind_again(seen, one, problem)
    if one.state == record.ORPHANED:
        return soon(record.changed(one, operation=None))
    return mitigated(seen, one, causes.BIND_RETRIES, problem)


def unbind_again(seen: Seen, one: Record, problem: str) -> Next:
    """Unbind again and again, ever slower: a claim goes only after a confirmed deletion.

    In a long pause, others of the instance may go on: what expires meanwhile must be rotated.
    """
    pause = seen.pause(one)
    wait = pacing.deletion(pause.count)
    until = seen.now + wait
    intent = None
    if wait > _AT_ONCE:
        target = one.sent or Sent(one.plan)
        intent = Intent("Unbind", until, target, pause.count, closed=record.PAUSED)
    step = record.changed(one, operation=None, intent=intent)
    decision = status.of(seen)
    if seen.binding.live is not None and is_deleting(seen.binding.live):
        decision = status.of(seen, false=[(causes.NOT_DELETED, problem)])
    next_ = Next(_with(decision, step, again=wait))
    return remembered(seen, one, next_, until=until, count=pause.count + 1)


def gone(seen: Seen, one: Record, *, ends: bool) -> Next:
    """Forget what is confirmed to be gone. `ends`: nothing of the claim's binding is to stay.

    A number that failed is followed by the next one, whose record comes first: numbers only grow.
    """
    remove, live = record.deleted(one), seen.binding.live
    rest = [other for other in seen.binding.records if other.id != one.id]
    note = Note("Unbound", f"binding {one.id} is gone at the broker")
    if live is None or (ends and rest):
        return Next(Decision(tasks=(Task((remove,)),), notes=(note,), again=SOON))
    if ends:
        return finished(seen, (remove,), (note,))
    is_last = all(other.number < one.number for other in rest)
    if not is_last or seen.broker is None:
        decision = replace(status.of(seen), tasks=(Task((remove,)),), notes=(note,), again=SOON)
        return Next(decision)
    new = numbers.further(seen, one)
    made = record.created(new, seen.broker.spec.namespace)
    decision = _after_failure(seen, new)
    return Next(replace(decision, tasks=(Task((made, remove)),), again=SOON))


def _after_failure(seen: Seen, new: Record) -> Decision:
    """Return the status before the next try, or after the last one."""
    intent = new.intent
    assert intent is not None
    if intent.closed == record.FAILED and seen.current is None:
        message = (
            f"{new.number} bindings failed and were deleted again, the last one as said before"
        )
        said = conditions.said(seen.claim, causes.BOUND)
        if said is not None and said.reason == causes.BIND_RETRIES.reason:
            return status.of(seen, false=[(causes.BIND_FAILED, f"{message}: {said.message}")])
    return status.of(seen)


def finished(seen: Seen, steps: tuple[Step, ...], notes: tuple[Note, ...]) -> Next:
    """Delete the Secret, then the last record, and let the claim go if it is being deleted.

    After a crash in between, what is left still leads here.
    """
    if seen.binding.secret is None:
        return Next(status.of(seen, again=CLOSED))
    lift = unheld_claim(seen)
    every = (credentials.removed(seen.binding), *steps, lift)
    tasks = (Task(tuple(step for step in every if step is not None)),)
    after = replace(seen, numbers=Numbers())
    message = f"{seen.view.kind.kind} {seen.view.name} is being deleted, and its bindings with it"
    said = [] if is_deleting(seen.claim) else [(causes.INSTANCE_DELETED, message)]
    again = SOON if tasks[0].steps else None
    decision = replace(status.of(after, false=said, again=again), notes=notes)
    return Next(replace(decision, tasks=tasks if tasks[0].steps else ()))


def unheld_claim(seen: Seen) -> Step | None:
    """Return the step that lets a claim go which is being deleted."""
    if not is_deleting(seen.claim):
        return None
    return unheld(seen.binding.cluster, seen.binding.kind.kind, seen.claim, keys.OSB)


def polled(
    seen: Seen, one: Record, outcome: Outcome, problem: str = "", *, misses: int = 0
) -> Next:
    """Ask again later how far an operation is. `problem`: why that is not known."""
    pause = seen.pause(one)
    stated = outcome.retry_after if isinstance(outcome, Progress) else None
    wait = pacing.poll(seen.timing.poll, pause.count + 1, stated)
    if one.operation is not None and one.operation.deadline > seen.now:
        wait = min(wait, one.operation.deadline - seen.now)
    decision = status.of(seen, again=wait)
    if one.is_late(seen.now):
        decision = status.trouble(seen, causes.BINDING, causes.overdue(problem), again=wait)
    next_ = Next(decision)
    return remembered(seen, one, next_, until=seen.now + wait, count=pause.count + 1, misses=misses)


def missed(seen: Seen, one: Record, *, misses: int) -> Next:
    """Read a binding again later: what came was no credentials."""
    wait = pacing.unknown(misses - 1)
    until: datetime = seen.now + wait
    return remembered(seen, one, Next(Decision(again=wait)), until=until, misses=misses)


def _with(decision: Decision, step: Step | None, again: timedelta | None = None) -> Decision:
    """Return a decision that writes a record first."""
    tasks = () if step is None else (Task((step,)),)
    wait = decision.again if again is None else again
    return replace(decision, tasks=(*tasks, *decision.tasks), again=wait)

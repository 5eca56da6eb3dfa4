"""What an instance becomes after a call: there, at work, refused, tried again, or gone.

Each is the record's next state and the claim's status, in one decision.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from bind.osb.decisions import causes, instance_status, pacing, record
from bind.osb.decisions import instance_wants as wants
from bind.osb.decisions.record import Intent, Operation, Record, Sent
from bind.osb.decisions.view import NO_PAUSE, SOON, InstanceView, Next, Pause
from reconciler.api.osb import Timing
from reconciler.blueprints.offering import outcomes
from reconciler.core import conditions, keys
from reconciler.core.conditions import Cause
from reconciler.core.decision import Decision, Note, Step, Task, unheld
from reconciler.core.manifest import is_deleting, uid_of


def later(
    view: InstanceView, current: Record, outcome: outcomes.Denied | outcomes.Unsent, now: datetime
) -> Next:
    """Make the same call later: surely nothing was done."""
    pause = view.pause(current)
    stated = outcome.retry_after if isinstance(outcome, outcomes.Unsent) else None
    wait = pacing.unsent(pause.count, stated)
    decision = instance_status.waiting(view, current, outcome.problem)
    return paused(view, current, replace(decision, again=wait), now + wait)


def repeated(view: InstanceView, current: Record, problem: str, now: datetime) -> Next:
    """Make the same call again, so often; the record counts, because a restart must not forget."""
    intent = current.intent
    assert intent is not None
    wait = pacing.unknown(intent.tries)
    step = record.changed(current, intent=replace(intent, tries=intent.tries + 1))
    decision = with_step(instance_status.waiting(view, current, problem), step, again=wait)
    return paused(view, current, decision, now + wait)


def reread(view: InstanceView, current: Record, problem: str, now: datetime) -> Next:
    """Make the same call once more after the catalogue was read, as the record notes."""
    assert current.intent is not None
    noted = replace(current.intent, catalog=wants.catalogue(view))
    next_ = repeated(view, replace(current, intent=noted), problem, now)
    return replace(next_, reads_catalogue=True)


def paused(view: InstanceView, current: Record, decision: Decision, until: datetime) -> Next:
    """Remember when an id may be asked about again."""
    pause = view.pause(current)
    return Next(decision, pauses={current.id: replace(pause, until=until, count=pause.count + 1)})


def present(
    view: InstanceView,
    current: Record,
    sent: Sent,
    dashboard: str,
    now: datetime,
    *,
    unread: bool = False,
) -> Next:
    """Have a record say that the instance is there, made with this."""
    fields = {"state": record.PRESENT, "sent": sent, "plan": sent.plan, "operation": None}
    step = record.changed(current, **fields, intent=None, made_at=now)
    after = replace(current, state=record.PRESENT, sent=sent, plan=sent.plan, operation=None)
    decision = instance_status.of(
        view, after, true=[causes.PROVISIONED, *(() if unread else (causes.UP_TO_DATE,))]
    )
    note = Note("Provisioned", f"the instance {current.instance} is there")
    decision = replace(decision, notes=(note,))
    decision = with_step(with_dashboard(decision, dashboard), step, again=SOON)
    return Next(decision, pauses={current.id: Pause(checked=None if unread else now)})


def accepted(view: InstanceView, current: Record, outcome: outcomes.Outcome, now: datetime) -> Next:
    """Have a record hold the operation that has begun, or is seen to go on."""
    if not isinstance(outcome, outcomes.Accepted):
        stated = outcome.retry_after if isinstance(outcome, outcomes.Progress) else None
        outcome = outcomes.Accepted(retry_after=stated)
    plan_id = current.intent.target.plan if current.intent is not None else current.plan
    plan = None if view.broker is None else view.broker.plan(view.kind, plan_id)
    waits = timing(view)
    longest = plan.maximum_polling_duration if plan is not None else None
    before = current.plan if current.sent is None else current.sent.plan
    operation = Operation(outcome.operation, before, now, now + (longest or waits.max_polling))
    step = record.changed(current, operation=operation)
    after = replace(current, operation=operation)
    decision = with_dashboard(instance_status.in_progress(view, after), outcome.dashboard_url)
    wait = outcome.retry_after or waits.poll
    checked = view.pause(current).checked
    pauses = {current.id: Pause(until=now + wait, checked=checked)}
    return Next(with_step(decision, step, again=wait), pauses=pauses)


def questioned(view: InstanceView, current: Record) -> Next:
    """Have the broker asked what it has, in place of a PUT that it answers with 409."""
    pause = view.pause(current)
    return Next(
        Decision(again=SOON), pauses={current.id: replace(pause, questions=pause.questions + 1)}
    )


def mitigated(view: InstanceView, current: Record, problem: str) -> Next:
    """Have an instance deleted of which nobody knows whether it is whole.

    But not one that may have data: it was there once, or its record is not of this life.
    """
    if current.made_at is not None or current.term != view.term:
        return stopped(view, current, f"{problem}; its data may be there")
    step = record.changed(current, state=record.LEAVING, operation=None, intent=None)
    message = f"{problem}; it is deleted at the broker before another try"
    decision = instance_status.of(
        view, current, phase="Provisioning", false=[(causes.RETRYING, message)]
    )
    note = Note("ProvisionFailed", problem, type="Warning")
    return Next(
        replace(with_step(decision, step, again=SOON), notes=(note,)), pauses={current.id: NO_PAUSE}
    )


def stopped(view: InstanceView, current: Record, problem: str) -> Next:
    """Keep an instance that may be there for long: it is deleted with its claim only."""
    assert current.intent is not None
    intent = replace(
        current.intent,
        tries=max(current.intent.tries, 1),
        closed=record.FAILED,
        catalog=wants.catalogue(view),
    )
    made_at = current.made_at or intent.since
    step = record.changed(current, intent=intent, operation=None, made_at=made_at)
    message = (
        f"{problem}, so it is not deleted at the broker. It is asked for again once the claim "
        f"changes, or its annotation {keys.OSB_RETRY}"
    )
    after = replace(current, intent=intent, operation=None)
    decision = instance_status.of(view, after, phase="Failed", false=[(causes.FAILED, message)])
    note = Note("ProvisionFailed", message, type="Warning")
    return Next(replace(with_step(decision, step), notes=(note,)), pauses={current.id: NO_PAUSE})


def unknown_operation(view: InstanceView, current: Record, now: datetime) -> Next:
    """Return what follows where a broker knows nothing of an operation, again and again.

    It may have ended long ago: "a backup with its record was restored". So a PUT is made again,
    which the broker answers by what it has, and nothing is deleted, whatever it answers.
    """
    problem = "the broker knows no such operation"
    if current.state != record.INTENDED:
        return failed(view, current, problem, now=now)
    intent = current.intent
    assert intent is not None
    if intent.tries >= pacing.MOST_TRIES:
        return stopped(view, current, f"{problem}, though it was asked {intent.tries + 1} times")
    wait = pacing.unknown(intent.tries)
    again = replace(intent, tries=intent.tries + 1)
    made_at = current.made_at or intent.since
    step = record.changed(current, intent=again, operation=None, made_at=made_at)
    decision = with_step(instance_status.waiting(view, current, problem), step, again=wait)
    pause = view.pause(current)
    return Next(decision, pauses={current.id: Pause(until=now + wait, checked=pause.checked)})


def refused(view: InstanceView, current: Record, problem: str, cause: Cause) -> Next:
    """Have a record say that this is not asked for again, until something is another than now."""
    assert current.intent is not None
    intent = replace(current.intent, closed=record.REFUSED, catalog=wants.catalogue(view))
    step = record.changed(current, intent=intent)
    is_new = current.state == record.INTENDED
    decision = instance_status.of(
        view, current, phase="Failed" if is_new else "Ready", false=[(cause, problem)]
    )
    note = Note(f"{current.intent.verb}Refused", problem, type="Warning")
    return Next(replace(with_step(decision, step), notes=(note,)), pauses={current.id: NO_PAUSE})


def busy(view: InstanceView, current: Record, problem: str, now: datetime) -> Next:
    """Wait for another operation on the instance; nothing was done, so nothing is undone."""
    decision = instance_status.waiting(view, current, problem)
    is_going = current.state == record.LEAVING
    wait = pacing.BUSY if is_going else min(timing(view).poll, pacing.BUSY)
    return paused(view, current, replace(decision, again=wait), now + wait)


def now_as_wanted(view: InstanceView, current: Record, target: Sent, dashboard: str) -> Next:
    """Have a record say that the broker has what is asked for."""
    step = record.changed(current, sent=target, plan=target.plan, intent=None, operation=None)
    after = replace(current, sent=target, plan=target.plan, intent=None, operation=None)
    healed = (causes.IN_SYNC,) if conditions.said(view.live, causes.IN_SYNC) else ()
    decision = instance_status.of(
        view, after, true=[causes.PROVISIONED, causes.UP_TO_DATE, *healed]
    )
    decision = replace(decision, notes=(Note("Updated", f"{current.instance} was updated"),))
    decision = with_step(with_dashboard(decision, dashboard), step, again=SOON)
    return Next(decision, pauses={current.id: Pause(checked=view.pause(current).checked)})


def update_failed(
    view: InstanceView, current: Record, outcome: outcomes.Outcome, problem: str, now: datetime
) -> Next:
    """Try an update again, as the broker says; what it left unusable is Provisioned no more."""
    intent = current.intent
    assert intent is not None
    said = outcome if isinstance(outcome, outcomes.Progress) else outcomes.Progress("failed")
    tries = intent.tries + 1
    is_last = said.update_repeatable is False or tries >= pacing.MOST_TRIES
    closed = replace(intent, tries=tries, closed=record.FAILED if is_last else "")
    step = record.changed(current, intent=closed, operation=None)
    stated = [(causes.UPDATE_FAILED, problem)]
    if said.instance_usable is False:
        stated.append((causes.NOT_USABLE, problem))
    after = replace(current, intent=closed, operation=None)
    decision = instance_status.of(
        view, after, phase="Failed" if said.instance_usable is False else "Ready", false=stated
    )
    note = Note("UpdateFailed", problem, type="Warning")
    wait = pacing.unknown(tries - 1)
    decision = replace(with_step(decision, step, again=wait), notes=(note,))
    return paused(view, current, decision, now + wait)


def delete_again(view: InstanceView, current: Record, problem: str, now: datetime) -> Next:
    """Delete again and again, ever slower: a claim goes only after a confirmed deletion."""
    count = view.pause(current).count
    wait = pacing.deletion(count)
    step = None if current.operation is None else record.changed(current, operation=None)
    decision = instance_status.leaving(view, current)
    if view.live is not None and is_deleting(view.live):
        decision = instance_status.trouble(decision, conditions.false(causes.NOT_DELETED, problem))
    note = Note("DeprovisionFailed", problem, type="Warning")
    decision = replace(decision, notes=() if count else (note,))
    return paused(view, current, with_step(decision, step, again=wait), now + wait)


def gone(view: InstanceView, gone: Record, now: datetime) -> Next:
    """Forget what is confirmed to be gone; a failed try is followed by the next number."""
    live = view.live
    remove = record.deleted(gone)
    if live is None or view.broker is None:
        return Next(Decision(tasks=(Task((remove,)),), again=SOON))
    if is_deleting(live):
        rest = [one for one in view.records if one.id != gone.id]
        lift = None if rest else unheld(view.cluster, view.kind.kind, live, keys.OSB)
        steps: tuple[Step, ...] = (remove,) if lift is None else (remove, lift)
        note = Note("Deprovisioned", f"the instance {gone.instance} is gone")
        return Next(Decision(tasks=(Task(steps),), notes=(note,), again=SOON))
    if gone is not view.current or gone.claim.uid != uid_of(live):
        return Next(Decision(tasks=(Task((remove,)),), again=SOON))
    new = wants.further(view, gone, now)
    made = record.created(new, view.broker.spec.namespace)
    decision = instance_status.again_later(view, new)
    return Next(replace(decision, tasks=(Task((made, remove)),), again=SOON))


def missing(view: InstanceView, current: Record, now: datetime) -> Next:
    """Say that an instance is gone. It is not made anew by itself: it would be empty."""
    target = current.sent or Sent(current.plan)
    intent = Intent("Provision", now, target, closed=record.MISSING)
    is_known = current.intent is not None and current.intent.closed == record.MISSING
    step = None if is_known else record.changed(current, intent=intent, operation=None)
    message = (
        "the broker does not know it any more; its data is lost. "
        f"Annotation {keys.OSB_RETRY} with another text makes it anew, empty"
    )
    decision = instance_status.of(view, current, phase="Failed", false=[(causes.MISSING, message)])
    notes = () if is_known else (Note("Missing", message, type="Warning"),)
    decision = replace(with_step(decision, step, again=timing(view).resync), notes=notes)
    return Next(decision, pauses={current.id: Pause(checked=now)})


def words(view: InstanceView, outcome: outcomes.Outcome) -> str:
    """Return what an outcome says to people."""
    version = view.broker.spec.api_version if view.broker is not None else ""
    match outcome:
        case outcomes.Unsupported(problem):
            return f"{problem} (spoken is version {version} of the API, spec.apiVersion)"
        case outcomes.Absent():
            return "HTTP 404"
        case outcomes.Gone():
            return "HTTP 410"
        case outcomes.Progress(state, ""):
            return f"it is {state or 'in a state that is none'}"
        case outcomes.Done() | outcomes.Accepted():
            return "an answer that is none to this call"
    return outcome.problem


def timing(view: InstanceView) -> Timing:
    """Return how long the broker is waited for."""
    return view.broker.spec.timing if view.broker is not None else Timing()


def tasks(step: Step | None) -> tuple[Task, ...]:
    """Return a step as the tasks of a decision."""
    return () if step is None else (Task((step,)),)


def with_dashboard(decision: Decision, url: str) -> Decision:
    """Return a status that says where the dashboard is, if that is known."""
    if not url or not decision.fields:
        return decision
    return replace(decision, fields={**decision.fields, "dashboardURL": url})


def with_step(decision: Decision, step: Step | None, again: timedelta | None = None) -> Decision:
    """Return a decision that writes a record first."""
    return replace(decision, tasks=(*tasks(step), *decision.tasks), again=again)


def failed(view: InstanceView, current: Record, problem: str, *, now: datetime) -> Next:
    """Return what follows from an operation that failed, or took longer than it may.

    Past its deadline, a provisioning may have succeeded long ago, and what failed be an update:
    some brokers ignore the key.
    """
    if current.state == record.LEAVING:
        return delete_again(view, current, problem, now)
    if current.state == record.INTENDED:
        if current.is_late(now):
            return stopped(view, current, f"{problem}; its data may be there")
        return mitigated(view, current, problem)
    return update_failed(view, current, outcomes.Progress("failed"), problem, now)

"""What follows from a broker's answer about an instance: table 5 of the design, row by row.

First the record says what is known, then the status. An outcome that nobody knows is asked for
again before anything is undone.
"""

from dataclasses import replace
from datetime import datetime

from bind.osb.decisions import causes, instance_status, pacing, record
from bind.osb.decisions import instance_outcomes as become
from bind.osb.decisions import instance_wants as wants
from bind.osb.decisions.record import Intent, Record, Sent
from bind.osb.decisions.view import NO_PAUSE, SOON, Ask, InstanceView, Next, Pause, soon
from reconciler.blueprints.offering import messages, outcomes
from reconciler.core.decision import Decision


def answered(  # noqa: C901, PLR0911 - a row each
    view: InstanceView, ask: Ask, outcome: outcomes.Outcome, *, now: datetime
) -> Next:
    """Return what follows from the answer to a call."""
    current = next((one for one in (*view.records, *view.others) if one.id == ask.record), None)
    if current is None:
        return Next()
    if isinstance(outcome, outcomes.Denied | outcomes.Unsent):
        return become.later(view, current, outcome, now)
    if _is_over(current, ask.call):
        return Next(Decision(again=SOON))
    match ask.call:
        case messages.Provision():
            return _provisioned(view, current, outcome, now)
        case messages.Update():
            return _updated(view, current, outcome, now)
        case messages.Deprovision():
            return _deprovisioned(view, current, outcome, now)
        case messages.FetchInstance() | messages.LastOperation() if view.pause(current).questions:
            return _found_out(view, current, outcome, now)
        case messages.LastOperation() if current.operation is None:
            return _looked_up(view, current, outcome, now)
        case messages.LastOperation():
            return _progressed(view, current, outcome, now)
        case messages.FetchInstance():
            return _fetched(view, current, outcome, now)
    return Next()


def _is_over(current: Record, call: messages.Call) -> bool:
    """Tell whether a record went on without the answer to a call: it was deleted meanwhile, or what
    followed was written already, and that was not known.
    """
    intent, is_waiting = current.intent, current.operation is not None
    match call:
        case messages.Provision() | messages.Update():
            is_new = isinstance(call, messages.Provision)
            of_it = current.state == (record.INTENDED if is_new else record.PRESENT)
            return not of_it or is_waiting or intent is None or bool(intent.closed)
        case messages.Deprovision():
            return current.state != record.LEAVING or is_waiting
        case messages.LastOperation() if not is_waiting:
            return current.state != record.INTENDED or intent is None or bool(intent.closed)
    return False


def _provisioned(  # noqa: PLR0911 - a row each
    view: InstanceView, current: Record, outcome: outcomes.Outcome, now: datetime
) -> Next:
    intent = current.intent
    assert intent is not None
    match outcome:
        case outcomes.Done():
            return become.present(view, current, intent.target, outcome.dashboard_url, now)
        case outcomes.Accepted():
            return become.accepted(view, current, outcome, now)
        case outcomes.Conflict():
            return become.questioned(view, current)
        case outcomes.Unknown(malformed=True):
            return become.mitigated(view, current, outcome.problem)
        case outcomes.Unknown():
            if intent.tries >= pacing.MOST_TRIES:
                return become.mitigated(view, current, outcome.problem)
            return become.repeated(view, current, outcome.problem, now)
        case outcomes.Busy():
            return become.busy(view, current, outcome.problem, now)
        case outcomes.MaintenanceConflict() if not intent.catalog:
            return become.reread(view, current, outcome.problem, now)
    return become.refused(view, current, become.words(view, outcome), causes.REFUSED)


def _updated(  # noqa: PLR0911 - a row each
    view: InstanceView, current: Record, outcome: outcomes.Outcome, now: datetime
) -> Next:
    intent = current.intent
    assert intent is not None
    match outcome:
        case outcomes.Done():
            return become.now_as_wanted(view, current, intent.target, outcome.dashboard_url)
        case outcomes.Accepted():
            return become.accepted(view, current, outcome, now)
        case outcomes.Gone():
            return become.missing(view, current, now)
        case outcomes.Busy():
            return become.busy(view, current, outcome.problem, now)
        case outcomes.Unknown() if intent.tries < pacing.MOST_TRIES:
            return become.repeated(view, current, outcome.problem, now)
        case outcomes.Unknown():
            return become.update_failed(
                view, current, outcomes.Progress("failed", outcome.problem), now
            )
        case outcomes.MaintenanceConflict() if not intent.catalog:
            return become.reread(view, current, outcome.problem, now)
    return become.refused(view, current, become.words(view, outcome), causes.UPDATE_REFUSED)


def _deprovisioned(
    view: InstanceView, current: Record, outcome: outcomes.Outcome, now: datetime
) -> Next:
    match outcome:
        case outcomes.Gone():
            return become.gone(view, current, now)
        case outcomes.Absent(is_json=True) if view.broker is not None and view.broker.is_fresh:
            return become.gone(view, current, now)
        case outcomes.Absent():
            problem = "a 404 proves nothing before the catalogue was read"
            return replace(become.delete_again(view, current, problem, now), reads_catalogue=True)
        case outcomes.Accepted():
            return become.accepted(view, current, outcome, now)
        case outcomes.Busy():
            return become.busy(view, current, outcome.problem, now)
    return become.delete_again(view, current, become.words(view, outcome), now)


def _looked_up(
    view: InstanceView, current: Record, outcome: outcomes.Outcome, now: datetime
) -> Next:
    """Decide what became of a PUT whose claim says something else by now."""
    intent = current.intent
    assert intent is not None
    match outcome:
        case outcomes.Progress(state="succeeded"):
            return become.present(view, current, intent.target, "", now)
        case outcomes.Progress(state="failed"):
            return become.mitigated(view, current, outcome.problem)
        case outcomes.Progress():
            accepted = outcomes.Accepted(None, retry_after=outcome.retry_after)
            return become.accepted(view, current, accepted, now)
        case outcomes.Absent() | outcomes.Gone() | outcomes.Refused() | outcomes.Unsupported():
            # That it may have been made is not forgotten, and a refusal proves no absence.
            tries = (
                min(intent.tries, 1) if isinstance(outcome, outcomes.Absent | outcomes.Gone) else 1
            )
            target = wants.wanted(view, None)
            new = Intent("Provision", now, target, tries, catalog=intent.catalog)
            step = record.changed(current, intent=new, plan=target.plan, asked=wants.asked(view))
            return Next(
                Decision(tasks=become.tasks(step), again=SOON), pauses={current.id: NO_PAUSE}
            )
    return become.later(view, current, outcomes.Unsent(become.words(view, outcome)), now)


def _found_out(  # noqa: PLR0911 - a row each
    view: InstanceView, current: Record, outcome: outcomes.Outcome, now: datetime
) -> Next:
    """Decide what stands behind a 409: it is being made, or is there, or nobody knows.

    After an unknown answer to the same intent it may be half an instance: only what is being made
    is waited for.
    """
    intent, questions = current.intent, view.pause(current).questions
    if current.state != record.INTENDED or intent is None or intent.closed:
        return Next(Decision(again=SOON))
    problem = "the broker has something of this id, and does not say what"
    match outcome:
        case outcomes.Progress(state="in progress"):
            accepted = outcomes.Accepted(None, retry_after=outcome.retry_after)
            return become.accepted(view, current, accepted, now)
        case outcomes.Unknown(status=0):
            return become.later(view, current, outcomes.Unsent(outcome.problem), now)
        case outcomes.Progress(state="failed"):
            return become.mitigated(view, current, outcome.problem)
        case _ if intent.tries:
            return become.mitigated(view, current, problem)
        case outcomes.Progress(state="succeeded"):
            return become.present(view, current, intent.target, "", now)
        case outcomes.Done():
            return become.present(view, current, Sent(intent.target.plan), "", now, unread=True)
        case _ if questions == 1 and wants.is_retrievable(view):
            return become.questioned(view, current)
    return become.stopped(view, current, problem)


def _progressed(  # noqa: PLR0911 - a row each
    view: InstanceView, current: Record, outcome: outcomes.Outcome, now: datetime
) -> Next:
    operation = current.operation
    is_late = operation is not None and operation.deadline <= now
    match outcome:
        case outcomes.Progress(state="succeeded"):
            return _succeeded(view, current, now)
        case outcomes.Progress(state="failed") if current.state == record.PRESENT:
            return become.update_failed(view, current, outcome, now)
        case outcomes.Progress(state="failed"):
            return become.failed(view, current, outcome.problem, now=now)
        case outcomes.Progress(state="in progress") if current.state == record.INTENDED:
            return _poll_later(view, current, outcome, now)
        case outcomes.Progress(state="in progress") if is_late:
            return become.failed(view, current, "it took too long", now=now)
        case outcomes.Gone() if current.state == record.LEAVING:
            return become.gone(view, current, now)
        case outcomes.Absent() if current.state == record.LEAVING:
            step = record.changed(current, operation=None)
            return soon(step)
        case _ if become.is_unknown_operation(outcome, is_late=is_late):
            misses = view.pause(current).misses + 1
            if misses >= pacing.MOST_MISSES:
                return become.unknown_operation(view, current, now)
            return _poll_later(view, current, outcome, now, misses=misses)
    return _poll_later(view, current, outcome, now)


def _succeeded(view: InstanceView, current: Record, now: datetime) -> Next:
    if current.state == record.LEAVING:
        return become.gone(view, current, now)
    assert current.intent is not None
    if current.state == record.INTENDED:
        return become.present(view, current, current.intent.target, "", now)
    return become.now_as_wanted(view, current, current.intent.target, "")


def _poll_later(
    view: InstanceView,
    current: Record,
    outcome: outcomes.Outcome,
    now: datetime,
    *,
    misses: int = 0,
) -> Next:
    pause = view.pause(current)
    description, stated = "", None
    if isinstance(outcome, outcomes.Progress):
        description, stated = outcome.problem, outcome.retry_after
    wait = pacing.poll(become.timing(view).poll, pause.count + 1, stated)
    decision = instance_status.in_progress(view, current, description=description)
    if current.operation is not None and current.operation.deadline > now:
        wait = min(wait, current.operation.deadline - now)
    elif current.state == record.INTENDED:
        decision = instance_status.overdue(view, current, become.words(view, outcome))
    after = replace(pause, until=now + wait, count=pause.count + 1, misses=misses)
    return Next(replace(decision, again=wait), pauses={current.id: after})


def _fetched(view: InstanceView, current: Record, outcome: outcomes.Outcome, now: datetime) -> Next:
    pause = replace(view.pause(current), checked=now)
    match outcome:
        case outcomes.Done():
            return _compared(view, current, outcome, replace(pause, until=None, count=0))
        case outcomes.Gone():
            return become.missing(view, current, now)
        case outcomes.Absent(is_json=True) if view.broker is not None and view.broker.is_fresh:
            return become.missing(view, current, now)
        case outcomes.Absent():
            wait = pacing.unsent(0, None)
            until = replace(pause, checked=None, until=now + wait)
            again = Decision(again=wait)
            return Next(again, pauses={current.id: until}, reads_catalogue=True)
    # Nothing was learnt: an update goes on without, all else at the next resync.
    tried = current.intent.tries if current.intent is not None else 0
    return Next(Decision(again=SOON), pauses={current.id: replace(pause, tried=tried)})


def _compared(view: InstanceView, current: Record, outcome: outcomes.Done, pause: Pause) -> Next:
    """Compare what the broker has with what it was sent."""
    intent = current.intent
    if intent is not None and intent.closed == record.MISSING:
        step = record.changed(current, intent=None)
        return replace(soon(step), pauses={current.id: pause})
    if intent is not None and not intent.closed:
        if wants.confirms(view, current.sent, intent.target, outcome):
            return become.now_as_wanted(view, current, intent.target, outcome.dashboard_url)
        tried = replace(pause, tried=intent.tries)
        return Next(Decision(again=SOON), pauses={current.id: tried})
    if current.sent is not None and not current.sent.digest:
        target = wants.wanted(view, current.sent)
        if wants.confirms(view, None, target, outcome):
            next_ = become.now_as_wanted(view, current, target, outcome.dashboard_url)
            return replace(next_, pauses={current.id: pause})
        return Next(Decision(again=SOON), pauses={current.id: pause})
    differing = wants.differences(view, current.sent, outcome) if current.sent else ()
    decision = instance_status.synced(view, current, differing)
    decision = become.with_dashboard(decision, outcome.dashboard_url)
    return Next(replace(decision, again=become.timing(view).resync), pauses={current.id: pause})

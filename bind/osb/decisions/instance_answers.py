"""What follows from a broker's answer about an instance: the moves of the table, as a record says.

First the record says what is known, then the status.
"""

from dataclasses import replace
from datetime import datetime

from bind.osb import engine
from bind.osb.decisions import causes, instance_status, pacing, record
from bind.osb.decisions import instance_outcomes as become
from bind.osb.decisions import instance_wants as wants
from bind.osb.decisions.record import Intent, Record, Sent
from bind.osb.decisions.view import NO_PAUSE, SOON, Ask, InstanceView, Next, soon
from bind.osb.engine import Move, Standing
from reconciler.blueprints.offering import messages, outcomes
from reconciler.core.decision import Decision


def answered(view: InstanceView, ask: Ask, outcome: outcomes.Outcome, *, now: datetime) -> Next:
    """Return what follows from the answer to a call."""
    current = next((one for one in (*view.records, *view.others) if one.id == ask.record), None)
    if current is None:
        return Next()
    if isinstance(outcome, outcomes.Denied | outcomes.Unsent):
        return become.later(view, current, outcome, now)
    row = _row(view, current, ask.call, now)
    if not row:
        return Next(Decision(again=SOON))
    intent, pause = current.intent, view.pause(current)
    at = Standing(
        0 if intent is None or row == "reading" else intent.tries,
        pause.misses,
        view.broker is not None and view.broker.is_fresh,
        intent is not None and bool(intent.catalog),
    )
    return _moved(view, current, outcome, engine.move(row, outcome, at), now)


def _row(  # noqa: PLR0911 - a row each
    view: InstanceView, current: Record, call: messages.Call, now: datetime
) -> str:
    """Return the row of the table that an answer is of.

    "" where a record went on without it: it was deleted meanwhile, or what followed was written
    already, and that was not known.
    """
    intent, operation, questions = current.intent, current.operation, view.pause(current).questions
    is_open = operation is None and intent is not None and not intent.closed
    is_new = current.state == record.INTENDED
    match call:
        case messages.Provision():
            return "Provision" if is_new and is_open else ""
        case messages.Update():
            return "Update" if current.state == record.PRESENT and is_open else ""
        case messages.Deprovision():
            return "Deprovision" if current.state == record.LEAVING and operation is None else ""
        case messages.FetchInstance() if not (is_new or questions):
            return "reading"
        case messages.LastOperation() if operation is not None:
            polls = {record.INTENDED: "making", record.LEAVING: "leaving"}
            late = " late" if operation.deadline <= now else ""
            return polls.get(current.state, "changing") + late
    if intent is None or not (is_new and is_open):
        return ""
    if questions:
        return "asking again" if intent.tries else "asking"
    return "edited"


def _moved(  # noqa: C901, PLR0911, PLR0912 - a move each
    view: InstanceView, current: Record, outcome: outcomes.Outcome, move: Move, now: datetime
) -> Next:
    problem, intent = _why(view, current, outcome), current.intent
    questions = view.pause(current).questions
    match move:
        case Move.DONE if current.state == record.PRESENT and intent is not None:
            return become.now_as_wanted(view, current, intent.target, _dashboard(outcome))
        case Move.DONE if intent is not None:
            return become.present(view, current, intent.target, _dashboard(outcome), now)
        case Move.UNREAD if intent is not None:
            return become.present(view, current, Sent(intent.target.plan), "", now, unread=True)
        case Move.ACCEPT:
            return become.accepted(view, current, outcome, now)
        case Move.POLL:
            return _poll_later(view, current, outcome, now)
        case Move.MISS:
            misses = view.pause(current).misses + 1
            return _poll_later(view, current, outcome, now, misses=misses)
        case Move.FORGET:
            return become.unknown_operation(view, current, now)
        case Move.LATER:
            return become.later(view, current, outcomes.Unsent(problem), now)
        case Move.REPEAT:
            return become.repeated(view, current, problem, now)
        case Move.REREAD:
            return become.reread(view, current, problem, now)
        case Move.BUSY:
            return become.busy(view, current, problem, now)
        case Move.ASK if not questions or (questions == 1 and wants.is_retrievable(view)):
            return become.questioned(view, current)
        case Move.ANEW:
            return _anew(view, current, outcome, now)
        case Move.REFUSE:
            is_new = current.state == record.INTENDED
            cause = causes.REFUSED if is_new else causes.UPDATE_REFUSED
            return become.refused(view, current, problem, cause)
        case Move.FAIL:
            return become.update_failed(view, current, outcome, problem, now)
        case Move.MITIGATE:
            return become.mitigated(view, current, problem)
        case Move.STOP | Move.ASK:
            return become.stopped(view, current, f"{problem}; its data may be there")
        case Move.GONE:
            return become.gone(view, current, now)
        case Move.AGAIN:
            return become.delete_again(view, current, problem, now)
        case Move.UNPROVED if current.state == record.LEAVING:
            problem = "a 404 proves nothing before the catalogue was read"
            return replace(become.delete_again(view, current, problem, now), reads_catalogue=True)
        case Move.DELETE:
            return soon(record.changed(current, operation=None))
        case Move.MISSING:
            return become.missing(view, current, now)
        case Move.READ if isinstance(outcome, outcomes.Done):
            return _compared(view, current, outcome, now)
    return _unlearnt(view, current, now, rereads=move is Move.UNPROVED)


def _why(view: InstanceView, current: Record, outcome: outcomes.Outcome) -> str:
    if view.pause(current).questions:
        return "the broker has something of this id, and does not say what"
    match outcome:
        case outcomes.Progress(state="in progress"):
            return "it took too long"
        case outcomes.Absent() if current.operation is not None:
            return "the broker knows no such operation"
    return become.words(view, outcome)


def _dashboard(outcome: outcomes.Outcome) -> str:
    return outcome.dashboard_url if isinstance(outcome, outcomes.Done) else ""


def _anew(view: InstanceView, current: Record, outcome: outcomes.Outcome, now: datetime) -> Next:
    # That it may have been made is not forgotten, and a refusal proves no absence.
    intent = current.intent
    assert intent is not None
    is_absent = isinstance(outcome, outcomes.Absent | outcomes.Gone)
    tries = min(intent.tries, 1) if is_absent else 1
    target = wants.wanted(view, None)
    new = Intent("Provision", now, target, tries, catalog=intent.catalog)
    step = record.changed(current, intent=new, plan=target.plan, asked=wants.asked(view))
    return Next(Decision(tasks=become.tasks(step), again=SOON), pauses={current.id: NO_PAUSE})


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


def _unlearnt(view: InstanceView, current: Record, now: datetime, *, rereads: bool) -> Next:
    """Return what follows where a reading showed nothing: an update goes on without."""
    pause = replace(view.pause(current), checked=now)
    if rereads:
        wait = pacing.unsent(0, None)
        until = replace(pause, checked=None, until=now + wait)
        return Next(Decision(again=wait), pauses={current.id: until}, reads_catalogue=True)
    tried = current.intent.tries if current.intent is not None else 0
    return Next(Decision(again=SOON), pauses={current.id: replace(pause, tried=tried)})


def _compared(view: InstanceView, current: Record, outcome: outcomes.Done, now: datetime) -> Next:
    """Compare what the broker has with what it was sent."""
    pause = replace(view.pause(current), checked=now, until=None, count=0)
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

"""What follows from a broker's answer about a binding: the moves of the table, as a record says."""

from dataclasses import replace
from typing import Final

from bind.osb import engine
from bind.osb.decisions import causes, pacing, record
from bind.osb.decisions import instance_outcomes as of_instances
from bind.osb.decisions.bindings import outcomes as become
from bind.osb.decisions.bindings.seen import Seen, is_held, is_still_bound
from bind.osb.decisions.bindings.unbinding import ends
from bind.osb.decisions.record import Record
from bind.osb.decisions.view import SOON, Next, soon
from bind.osb.engine import Move, Standing
from reconciler.blueprints.offering import messages, outcomes
from reconciler.core.decision import Decision

_ENDED: Final = ("succeeded", "failed")


def answered(seen: Seen, asked: Record, call: messages.Call, outcome: outcomes.Outcome) -> Next:
    """Return what follows from the answer to a call about a record."""
    is_poll = isinstance(call, messages.LastOperation)
    if asked.state == record.ORPHANED and is_poll:
        return _waited(seen, asked, outcome)
    is_going = seen.binding.live is None or ends(seen.view, seen.binding)
    is_unwanted = (
        is_going and asked.state != record.LEAVING and not isinstance(outcome, outcomes.Accepted)
    )
    row = "" if is_unwanted else _row(seen, asked, call)
    if not row:
        return Next(Decision(again=SOON))  # it is unbound next, or an orphan
    if isinstance(outcome, outcomes.Denied | outcomes.Unsent):
        return become.later(seen, asked, outcome)
    is_busy = asked.operation is None or bool(seen.pause(asked).misses)
    if is_poll and asked.state == record.LEAVING and (is_busy or is_still_bound(asked)):
        return _ends_bind(seen, asked, outcome, is_busy=is_busy)
    tries = asked.intent.tries if asked.intent is not None else 0
    is_fresh = seen.broker is not None and seen.broker.is_fresh
    move = engine.move(row, outcome, Standing(tries, seen.pause(asked).misses, is_fresh))
    return _moved(seen, asked, outcome, move)


def _row(seen: Seen, asked: Record, call: messages.Call) -> str:
    """Return the row of the table that an answer is of, "" where the record went on without it."""
    operation, is_going = asked.operation, asked.state == record.LEAVING
    match call:
        case messages.Bind() if asked.state == record.INTENDED and asked.intent is not None:
            return "" if asked.intent.closed or operation is not None else "Bind"
        case messages.Unbind() if is_going and asked.is_open:
            return "Unbind" if operation is None or is_still_bound(asked) else ""
        case messages.LastOperation() if operation is not None:
            late = " late" if operation.deadline <= seen.now else ""
            return ("leaving" if is_going else "binding") + late
        case messages.LastOperation() if is_going and asked.is_open:
            return "leaving"
        case messages.FetchBinding() if asked.state == record.PRESENT:
            return "fetching"
    return ""


def _moved(  # noqa: C901, PLR0911, PLR0912 - a move each
    seen: Seen, asked: Record, outcome: outcomes.Outcome, move: Move
) -> Next:
    problem, misses = _why(seen, asked, outcome), seen.pause(asked).misses + 1
    match move:
        case Move.DONE if isinstance(outcome, outcomes.Done) and outcome.credentials is not None:
            return become.bound(seen, asked, outcome)
        case Move.DONE if asked.state == record.PRESENT:
            return become.missed(seen, asked, misses=pacing.MOST_READS)
        case Move.DONE | Move.UNREAD:
            return become.unread(seen, asked)
        case Move.ACCEPT if isinstance(outcome, outcomes.Accepted):
            return become.accepted(seen, asked, outcome)
        case Move.POLL:
            return become.polled(seen, asked, outcome, problem)
        case Move.MISS:
            return become.polled(seen, asked, outcome, problem, misses=misses)
        case Move.REPEAT:
            return become.repeated(seen, asked, problem)
        case Move.BUSY if asked.state == record.LEAVING:
            return become.busy_at_unbind(seen, asked, problem)
        case Move.BUSY:
            return become.busy(seen, asked, problem)
        case Move.REFUSE:
            return become.refused(seen, asked, problem)
        case Move.MITIGATE:
            return become.mitigated(seen, asked, causes.BIND_RETRIES, problem)
        case Move.GONE:
            return become.gone(seen, asked, ends=ends(seen.view, seen.binding))
        case Move.AGAIN:
            return become.unbind_again(seen, asked, problem)
        case Move.UNPROVED if asked.state == record.LEAVING:
            problem = "a 404 proves nothing before the catalogue was read"
            return replace(become.unbind_again(seen, asked, problem), reads_catalogue=True)
        case Move.DELETE:
            return soon(record.changed(asked, operation=None))
        case Move.MISSING if is_held(asked):
            return become.vanished(seen, asked)
    rereads = move in (Move.UNPROVED, Move.MISSING)
    return replace(become.missed(seen, asked, misses=misses), reads_catalogue=rereads)


def _why(seen: Seen, asked: Record, outcome: outcomes.Outcome) -> str:
    match outcome:
        case outcomes.Progress(state="in progress") if asked.is_late(seen.now):
            return "it took too long"
        case outcomes.Absent() if asked.operation is not None and not asked.is_late(seen.now):
            return "the broker knows no such operation"
        case outcomes.Done() | outcomes.Conflict():
            return "what an earlier try with an unknown outcome made may be no whole binding"
    return of_instances.words(seen.view, outcome)


def _is_over(outcome: outcomes.Outcome) -> bool:
    if isinstance(outcome, outcomes.Progress):
        return outcome.state in _ENDED
    return isinstance(outcome, outcomes.Gone | outcomes.Absent)


def _waited(seen: Seen, orphan: Record, outcome: outcomes.Outcome) -> Next:
    """Wait for what the broker does for an orphan: until then others of the instance wait too."""
    if _is_over(outcome):
        return soon(record.changed(orphan, operation=None))
    return become.polled(seen, orphan, outcome)


def _ends_bind(seen: Seen, asked: Record, outcome: outcomes.Outcome, *, is_busy: bool) -> Next:
    """Wait for what keeps a binding from going: its own bind, or another operation."""
    if is_busy:
        return become.unbind_now(seen, asked, waits=not _is_over(outcome))
    if _is_over(outcome):
        return soon(record.changed(asked, operation=None, intent=None))
    return become.polled(seen, asked, outcome)

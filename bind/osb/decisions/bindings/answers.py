"""What follows from a broker's answer about a binding: table 5 of the design, row by row."""

from dataclasses import replace
from typing import Final

from bind.osb.decisions import causes, pacing, record
from bind.osb.decisions import instance_outcomes as of_instances
from bind.osb.decisions.bindings import outcomes as become
from bind.osb.decisions.bindings.seen import Seen, is_held, is_still_bound
from bind.osb.decisions.bindings.unbinding import ends
from bind.osb.decisions.record import Record
from bind.osb.decisions.view import SOON, Next, soon
from reconciler.blueprints.offering import messages, outcomes
from reconciler.core.decision import Decision

_ENDED: Final = ("succeeded", "failed")


def answered(  # noqa: PLR0911 - a row each
    seen: Seen, asked: Record, call: messages.Call, outcome: outcomes.Outcome
) -> Next:
    """Return what follows from the answer to a call about a record."""
    is_going = seen.binding.live is None or ends(seen.view, seen.binding)
    if asked.state == record.ORPHANED and isinstance(call, messages.LastOperation):
        return _waited(seen, asked, outcome)
    is_unwanted = (
        is_going and asked.state != record.LEAVING and not isinstance(outcome, outcomes.Accepted)
    )
    if is_unwanted or not _is_waited_for(asked, call):
        return Next(Decision(again=SOON))  # it is unbound next, or an orphan
    if isinstance(outcome, outcomes.Denied | outcomes.Unsent):
        return become.later(seen, asked, outcome)
    match call:
        case messages.Bind():
            return _bound(seen, asked, outcome)
        case messages.Unbind():
            return _unbound(seen, asked, outcome)
        case messages.LastOperation() if asked.state == record.LEAVING:
            return _unbind_progressed(seen, asked, outcome)
        case messages.LastOperation():
            return _bind_progressed(seen, asked, outcome)
    return _fetched(seen, asked, outcome)


def _is_waited_for(asked: Record, call: messages.Call) -> bool:
    """Tell whether a record still waits for this answer: it may have gone on without."""
    is_working, is_going = asked.operation is not None, asked.state == record.LEAVING
    match call:
        case messages.Bind():
            is_open = asked.intent is not None and not asked.intent.closed
            return asked.state == record.INTENDED and is_open and not is_working
        case messages.Unbind():
            return is_going and asked.is_open and (not is_working or is_still_bound(asked))
        case messages.LastOperation():
            return is_working or (is_going and asked.is_open)
        case messages.FetchBinding():
            return asked.state == record.PRESENT
    return False


def _bound(  # noqa: PLR0911 - a row each
    seen: Seen, asked: Record, outcome: outcomes.Outcome
) -> Next:
    intent = asked.intent
    assert intent is not None
    match outcome:
        case outcomes.Done(created=False) | outcomes.Conflict() if intent.tries:
            problem = "what an earlier try with an unknown outcome made may be no whole binding"
            return become.mitigated(seen, asked, causes.BIND_RETRIES, problem)
        case outcomes.Done(credentials=None) | outcomes.Conflict():
            return become.unread(seen, asked)
        case outcomes.Done():
            return become.bound(seen, asked, outcome)
        case outcomes.Accepted():
            return become.accepted(seen, asked, outcome)
        case outcomes.Busy():
            return become.busy(seen, asked, outcome.problem)
        case outcomes.Unknown(malformed=False) if intent.tries < pacing.MOST_TRIES:
            return become.repeated(seen, asked, outcome.problem)
        case outcomes.Unknown():
            return become.mitigated(seen, asked, causes.BIND_RETRIES, outcome.problem)
    return become.refused(seen, asked, of_instances.words(seen.view, outcome))


def _unbound(seen: Seen, asked: Record, outcome: outcomes.Outcome) -> Next:
    match outcome:
        case outcomes.Gone() | outcomes.Absent() if _is_gone(seen, outcome):
            return become.gone(seen, asked, ends=ends(seen.view, seen.binding))
        case outcomes.Absent():
            problem = "a 404 proves nothing before the catalogue was read"
            return replace(become.unbind_again(seen, asked, problem), reads_catalogue=True)
        case outcomes.Accepted():
            return become.accepted(seen, asked, outcome)
        case outcomes.Busy():
            return become.busy_at_unbind(seen, asked, outcome.problem)
    return become.unbind_again(seen, asked, of_instances.words(seen.view, outcome))


def _is_over(outcome: outcomes.Outcome) -> bool:
    if isinstance(outcome, outcomes.Progress):
        return outcome.state in _ENDED
    return isinstance(outcome, outcomes.Gone | outcomes.Absent)


def _waited(seen: Seen, orphan: Record, outcome: outcomes.Outcome) -> Next:
    """Wait for what the broker does for an orphan: until then others of the instance wait too."""
    if _is_over(outcome):
        return soon(record.changed(orphan, operation=None))
    return become.polled(seen, orphan, None)


def _unbind_progressed(  # noqa: PLR0911 - a row each
    seen: Seen, asked: Record, outcome: outcomes.Outcome
) -> Next:
    is_busy = seen.pause(asked).misses
    if asked.operation is None or (is_still_bound(asked) and is_busy):
        return become.unbind_now(seen, asked, waits=not _is_over(outcome))
    if is_still_bound(asked) and _is_over(outcome):
        return soon(record.changed(asked, operation=None, intent=None))
    match outcome:
        case outcomes.Gone() | outcomes.Progress(state="succeeded"):
            return become.gone(seen, asked, ends=ends(seen.view, seen.binding))
        case outcomes.Progress(state="failed"):
            return become.unbind_again(seen, asked, outcome.problem)
        case outcomes.Absent():
            return soon(record.changed(asked, operation=None))
        case outcomes.Progress():
            return become.polled(seen, asked, outcome.retry_after)
    return become.polled(seen, asked, None)


def _bind_progressed(seen: Seen, asked: Record, outcome: outcomes.Outcome) -> Next:
    is_late, problem = asked.is_late(seen.now), of_instances.words(seen.view, outcome)
    match outcome:
        case outcomes.Progress(state="succeeded"):
            return become.unread(seen, asked)
        case outcomes.Progress(state="failed"):
            return become.failed(seen, asked, outcome.problem)
        case outcomes.Progress(state="in progress") if is_late:
            return become.failed(seen, asked, "it took too long")
        case _ if of_instances.is_unknown_operation(outcome, is_late=is_late):
            misses = seen.pause(asked).misses + 1
            if misses >= pacing.MOST_MISSES:
                return become.failed(seen, asked, "the broker knows no such operation")
            return become.polled(seen, asked, None, problem, misses=misses)
    stated = outcome.retry_after if isinstance(outcome, outcomes.Progress) else None
    return become.polled(seen, asked, stated, problem)


def _fetched(seen: Seen, asked: Record, outcome: outcomes.Outcome) -> Next:
    """Take credentials that were read; what comes without any is read so often, and no more."""
    misses = seen.pause(asked).misses + 1
    match outcome:
        case outcomes.Done(credentials=None):
            return become.missed(seen, asked, misses=pacing.MOST_READS)
        case outcomes.Done():
            return become.bound(seen, asked, outcome)
        case outcomes.Gone() | outcomes.Absent() if _is_gone(seen, outcome) and is_held(asked):
            return become.vanished(seen, asked)
        case outcomes.Absent(is_json=True):
            return replace(become.missed(seen, asked, misses=misses), reads_catalogue=True)
        case outcomes.Busy():
            return become.busy(seen, asked, outcome.problem)
    return become.missed(seen, asked, misses=misses)


def _is_gone(seen: Seen, outcome: outcomes.Gone | outcomes.Absent) -> bool:
    """Tell whether an answer proves that something is not at the broker: a gateway's does not."""
    if isinstance(outcome, outcomes.Gone):
        return True
    return outcome.is_json and seen.broker is not None and seen.broker.is_fresh

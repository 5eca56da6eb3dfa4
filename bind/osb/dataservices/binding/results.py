"""What follows from a broker's answer about a ServiceBinding: the moves of the engine's table."""

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from bind.osb import engine
from bind.osb.dataservices import connection, managed, rules
from bind.osb.dataservices.binding import decide
from bind.osb.dataservices.binding.decide import Ledger, Operation, Seen, Step
from bind.osb.dataservices.managed import AVAILABLE, CREATING, DELETING, MISSING, SUCCESS
from bind.osb.dataservices.rules import in_progress, refusal, unusable
from bind.osb.engine import Move, Standing
from reconciler.blueprints.offering import outcomes as answers
from reconciler.blueprints.offering.messages import Bind, Call, FetchBinding, LastOperation, Unbind
from reconciler.core import keys
from reconciler.core.decision import Decision, Note, Task
from reconciler.core.secret import Secret
from reconciler.core.times import format_time

if TYPE_CHECKING:
    from reconciler.core.manifest import JSON

OVERLAP: Final = timedelta(hours=1)  # for which replaced credentials stay
_NOW: Final = timedelta()
_GOES_ON: Final = (Move.POLL, Move.MISS)


def answered(seen: Seen, call: Call, outcome: answers.Outcome) -> Step:
    """Return what follows from an answer: it may be another call."""
    row = _row(seen, call)
    is_counted = row == "Bind" and isinstance(outcome, answers.Unknown)
    if not is_counted and (common := unusable(seen, outcome)) is not None:
        return common
    if not row:
        return seen.failed(refusal(outcome), again=seen.pause())
    is_lost = seen.confirmed and seen.pause() >= rules.UNKNOWN
    misses = engine.MOST_MISSES if is_lost else 0
    at = Standing(seen.ledger.tries if row == "Bind" else 0, misses, seen.confirmed)
    return _moved(seen, call, row, outcome, engine.move(row, outcome, at))


def _row(seen: Seen, call: Call) -> str:
    """Return the row of the table that an answer is of, "" where nothing waits for it."""
    operation = seen.operation
    match call:
        case Bind():
            return "Bind"
        case Unbind():
            return "Unbind"
        case FetchBinding():
            return "fetching"
        case LastOperation() if operation is not None:
            late = rules.is_overdue(seen.now, operation.since, seen.plan)
            return "leaving" if operation.is_unbind else "binding late" if late else "binding"
    return ""


def _moved(  # noqa: C901, PLR0911, PLR0912 - a move each
    seen: Seen, call: Call, row: str, outcome: answers.Outcome, move: Move
) -> Step:
    problem, ledger, operation = _why(outcome, row), seen.ledger, seen.operation
    binding = getattr(call, "binding", "")
    counts = row == "fetching" and seen.is_created and binding == seen.id(ledger.number)
    if seen.is_deleting and row.startswith("binding") and move not in _GOES_ON:
        return _soon(seen, ledger)
    match move:
        case Move.DONE if counts and not seen.is_lost:
            return decide.steady(seen)
        case Move.DONE if isinstance(outcome, answers.Done) and outcome.credentials is not None:
            return _present(seen, outcome.credentials)
        case Move.DONE if counts:
            return decide.steady(seen)
        case Move.DONE | Move.UNREAD if row != "fetching" and seen.is_retrievable:
            return decide.fetch(seen, seen.target)
        case Move.DONE:
            return _without_credentials(seen)
        case Move.UNREAD if row.startswith("binding"):
            return decide.bind(seen, seen.target)  # the same PUT shows it once more
        case Move.ACCEPT if isinstance(outcome, answers.Accepted):
            is_unbind = row == "Unbind"
            begun = Operation(binding, is_unbind, format_time(seen.now), outcome.operation)
            return _accepted(seen, begun, outcome)
        case Move.POLL | Move.MISS if operation is not None:
            return in_progress(seen, outcome, operation.since)
        case Move.REPEAT:
            step = seen.noted(replace(ledger, tries=ledger.tries + 1), None)
            return seen.failed(problem, again=seen.pause(), step=step)
        case Move.REFUSE:
            return _refused(seen, ledger, problem)
        case Move.GONE:
            return _gone(seen, operation.binding if operation is not None else binding)
        case Move.AGAIN | Move.UNPROVED if row != "fetching":
            again = max(seen.pause(), rules.POLL)
            step = seen.noted(ledger, None)
            return seen.failed(problem, *_leaves(seen), again=again, step=step)
        case Move.DELETE:
            return _soon(seen, ledger)
        case Move.MISSING if counts:
            return _lost(seen)
        case Move.MITIGATE | Move.MISSING | Move.UNREAD:
            return _given_up(seen, problem)
    # That it cannot be read says nothing about what is there.
    return seen.failed(problem, again=max(seen.pause(), rules.BUSY))


def _why(outcome: answers.Outcome, row: str) -> str:
    match outcome:
        case answers.Unknown():
            return outcome.problem
        case answers.Progress(state="failed"):
            return outcome.problem or "The broker could not do it"
        case answers.Progress(state="in progress"):
            return "The broker takes too long to make the binding"
        case answers.Absent() if row.startswith("binding"):
            return "The broker does not know what it accepted"
        case answers.Done():
            return "What an earlier try with an unknown outcome made may be no whole binding"
    return refusal(outcome)


def _accepted(seen: Seen, operation: Operation, outcome: answers.Accepted) -> Decision:
    conditions = (SUCCESS,) if seen.is_created else (CREATING, SUCCESS)
    if seen.is_deleting:
        conditions = (DELETING, SUCCESS)
    again = rules.poll_pause(seen.now, operation.since, outcome.retry_after)
    return seen.said({}, *conditions, again=again, step=seen.noted(seen.ledger, operation))


def _soon(seen: Seen, ledger: Ledger) -> Decision:
    """Return the decision to note which bindings there are, and to go on."""
    step = seen.noted(ledger, None)
    tasks = () if step is None else (Task((step,), managed.WRITE_FAILED),)
    return Decision(tasks=tasks, again=rules.SOON, sums_up=False)


def _present(seen: Seen, credentials: Secret) -> Decision:
    """Hand the credentials out, and then say that they were."""
    texts = connection.flattened(credentials)
    ledger, binding = seen.ledger, seen.id(seen.target)
    same = bool(ledger.coming) and texts == connection.texts_of(seen.secret)
    if ledger.coming:
        overlap = _NOW if seen.is_lost else OVERLAP
        ledger = decide.leaving(seen, ledger, seen.id(ledger.number), overlap)
        ledger = replace(ledger, number=ledger.coming, coming=0)
    ledger = replace(ledger, rotate=seen.rotation, refused="", tries=0)
    at: dict[str, JSON] = {"state": "Created", "planID": seen.plan_id}
    at |= decide.reached(seen, connection.details(texts, decide.instance_type(seen)))
    write = connection.written(seen, seen.secret, texts, binding)
    note = Note("Bound", "The broker gave credentials")
    if same:
        note = Note("SameCredentials", "The broker gave the credentials again", "Warning")
    step = seen.noted(ledger, None, created=True)
    # In one task: credentials that were not written were not handed out.
    steps = tuple(one for one in (write, step) if one is not None)
    tasks = (Task(steps, managed.WRITE_FAILED),) if steps else ()
    said = seen.said(at, AVAILABLE, SUCCESS, again=decide.lasts(seen, ledger), note=note)
    return replace(said, tasks=tasks)


def _without_credentials(seen: Seen) -> Decision:
    """Delete a binding whose credentials nobody can have, and make no more of that kind."""
    problem = "NoCredentials: the broker made a binding and shows no credentials of it"
    return _refused(seen, _forsaken(seen), problem)


def _forsaken(seen: Seen) -> Ledger:
    """Return the ledger in which what is being made leaves, and another takes its place."""
    tried = replace(seen.ledger, tries=0)
    ledger = decide.leaving(seen, tried, seen.id(seen.target), _NOW)
    if seen.is_created:
        return replace(ledger, coming=ledger.coming + 1)
    return replace(ledger, number=ledger.number + 1)


def _given_up(seen: Seen, problem: str) -> Decision:
    """Delete what could not be made, and try once more, later."""
    conditions = () if seen.is_created else (CREATING,)
    note, again = Note("BindingFailed", problem, "Warning"), max(seen.pause(), rules.POLL)
    step = seen.noted(_forsaken(seen), None)
    return seen.failed(problem, *conditions, again=again, note=note, step=step)


def _refused(seen: Seen, ledger: Ledger, problem: str) -> Decision:
    """Stop until a user asks for something else; credentials that were handed out stay."""
    conditions = () if seen.is_created else (replace(managed.UNAVAILABLE, message=problem),)
    note, again = Note("BindingRefused", problem, "Warning"), rules.SOON if ledger.old else None
    step = seen.noted(replace(ledger, refused=seen.asked), None)
    return seen.failed(problem, *conditions, again=again, note=note, step=step)


def _lost(seen: Seen) -> Decision:
    problem = (
        "The broker does not know the binding any more; the annotation "
        f"{keys.OSB_ROTATE} has another one made"
    )
    return seen.failed(problem, replace(MISSING, message=problem), again=rules.RESYNC)


def _leaves(seen: Seen) -> tuple[managed.Condition, ...]:
    return (DELETING,) if seen.is_deleting else ()


def _gone(seen: Seen, binding: str) -> Decision:
    ledger = seen.ledger.without(binding)
    if seen.is_deleting and ledger.coming and binding == seen.id(ledger.coming):
        ledger = replace(ledger, coming=0)
    elif seen.is_deleting and binding == seen.id(ledger.number) and not ledger.old:
        return decide.left(seen)
    return _soon(seen, ledger)

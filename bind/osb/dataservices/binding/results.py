"""Decides what follows from a broker's answer about a ServiceBinding."""

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from bind.osb.dataservices import connection, managed, rules
from bind.osb.dataservices.answering import in_progress, refusal, unusable
from bind.osb.dataservices.binding import decide
from bind.osb.dataservices.binding.decide import Step
from bind.osb.dataservices.binding.facts import Ledger, Operation, Seen
from bind.osb.dataservices.managed import AVAILABLE, CREATING, DELETING, MISSING, SUCCESS
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


def answered(seen: Seen, call: Call, outcome: answers.Outcome) -> Step:
    """Return what follows from an answer: it may be another call."""
    if (common := unusable(seen, outcome)) is not None:
        return common
    match call:
        case Bind():
            return _bound(seen, call, outcome)
        case FetchBinding():
            return _fetched(seen, call, outcome)
        case Unbind():
            return _unbound(seen, call.binding, outcome)
        case LastOperation() if seen.operation is not None:
            return _polled(seen, seen.operation, outcome)
        case _:
            return seen.failed(refusal(outcome), again=seen.pause())


def _bound(seen: Seen, call: Bind, outcome: answers.Outcome) -> Step:
    match outcome:
        case answers.Done(credentials=Secret() as credentials):
            return _present(seen, credentials)
        case answers.Done() | answers.Conflict():
            if seen.is_retrievable:
                return decide.fetch(seen, seen.target)
            if isinstance(outcome, answers.Done):
                return _without_credentials(seen)
            return _given_up(seen, refusal(outcome))
        case answers.Accepted():
            operation = Operation(
                call.binding, is_unbind=False, since=format_time(seen.now), key=outcome.operation
            )
            return _accepted(seen, operation, outcome)
    return _refused(seen, seen.ledger, refusal(outcome))


def _accepted(seen: Seen, operation: Operation, outcome: answers.Accepted) -> Decision:
    conditions = (SUCCESS,) if seen.is_created else (CREATING, SUCCESS)
    if seen.is_deleting:
        conditions = (DELETING, SUCCESS)
    said = _with(seen.said({}, *conditions), seen, seen.ledger, operation)
    return replace(said, again=rules.poll_pause(seen.now, operation.since, outcome.retry_after))


def _with(
    decision: Decision,
    seen: Seen,
    ledger: Ledger,
    operation: Operation | None = None,
    *,
    created: bool = False,
) -> Decision:
    """Return the decision with what the annotations say, written before the status."""
    step = seen.noted(ledger, operation, created=created)
    if step is None:
        return decision
    return replace(decision, tasks=(*decision.tasks, Task((step,), managed.WRITE_FAILED)))


def _present(seen: Seen, credentials: Secret) -> Decision:
    """Hand the credentials out, and then say that they were."""
    texts = connection.flattened(credentials)
    ledger, binding = seen.ledger, seen.id(seen.target)
    same = bool(ledger.coming) and texts == connection.texts_of(seen.secret)
    if ledger.coming:
        overlap = _NOW if seen.is_lost else OVERLAP
        ledger = decide.leaving(seen, ledger, seen.id(ledger.number), overlap)
        ledger = replace(ledger, number=ledger.coming, coming=0)
    ledger = replace(ledger, rotate=seen.rotation, refused="")
    at: dict[str, JSON] = {"state": "Created", "planID": seen.plan_id}
    at |= decide.reached(seen, connection.details(texts, decide.instance_type(seen)))
    said = replace(seen.said(at, AVAILABLE, SUCCESS), again=decide.lasts(seen, ledger))
    write = connection.written(seen, seen.secret, texts, binding)
    note = Note("Bound", "The broker gave credentials")
    if same:
        note = Note("SameCredentials", "The broker gave the credentials again", "Warning")
    step = seen.noted(ledger, None, created=True)
    # In one task: credentials that were not written were not handed out.
    steps = tuple(one for one in (write, step) if one is not None)
    tasks = (Task(steps, managed.WRITE_FAILED),) if steps else ()
    return replace(said, tasks=tasks, notes=(note,))


def _without_credentials(seen: Seen) -> Decision:
    """Delete a binding whose credentials nobody can have, and make no more of that kind."""
    problem = "NoCredentials: the broker made a binding and shows no credentials of it"
    return _refused(seen, _forsaken(seen), problem)


def _forsaken(seen: Seen) -> Ledger:
    """Return the ledger in which what is being made leaves, and another takes its place."""
    ledger = decide.leaving(seen, seen.ledger, seen.id(seen.target), _NOW)
    if seen.is_created:
        return replace(ledger, coming=ledger.coming + 1)
    return replace(ledger, number=ledger.number + 1)


def _given_up(seen: Seen, problem: str) -> Decision:
    """Delete what could not be made, and try once more, later."""
    conditions = () if seen.is_created else (CREATING,)
    said = seen.failed(problem, *conditions, again=max(seen.pause(), rules.POLL))
    note = Note("BindingFailed", problem, "Warning")
    return _with(replace(said, notes=(note,)), seen, _forsaken(seen))


def _refused(seen: Seen, ledger: Ledger, problem: str) -> Decision:
    """Stop until a user asks for something else; credentials that were handed out stay."""
    conditions = () if seen.is_created else (replace(managed.UNAVAILABLE, message=problem),)
    said = seen.failed(problem, *conditions, again=rules.SOON if ledger.old else None)
    note = Note("BindingRefused", problem, "Warning")
    return _with(replace(said, notes=(note,)), seen, replace(ledger, refused=seen.asked))


def _fetched(seen: Seen, call: FetchBinding, outcome: answers.Outcome) -> Decision:
    counts = seen.is_created and call.binding == seen.id(seen.ledger.number)
    match outcome:
        case answers.Done(credentials=Secret() as credentials) if not counts or seen.is_lost:
            return _present(seen, credentials)
        case answers.Done():
            return decide.steady(seen) if counts else _without_credentials(seen)
        case answers.Absent(is_json=False):
            return seen.failed(refusal(outcome), again=max(seen.pause(), rules.BUSY))
        case answers.Absent() | answers.Gone():
            return _lost(seen) if counts else _given_up(seen, refusal(outcome))
    # That it cannot be read says nothing about what is there.
    return seen.failed(refusal(outcome), again=max(seen.pause(), rules.BUSY))


def _lost(seen: Seen) -> Decision:
    problem = (
        "The broker does not know the binding any more; the annotation "
        f"{keys.OSB_ROTATE} has another one made"
    )
    said = seen.said({}, replace(MISSING, message=problem), managed.error(problem))
    return replace(said, again=rules.RESYNC)


def _polled(seen: Seen, operation: Operation, outcome: answers.Outcome) -> Step:
    if operation.is_unbind:
        return _unbind_polled(seen, operation, outcome)
    match outcome:
        case answers.Progress(state="succeeded"):
            # Without a way to read it, the same PUT shows it once more.
            target = seen.target
            return decide.fetch(seen, target) if seen.is_retrievable else decide.bind(seen, target)
        case answers.Progress(state="failed"):
            return _given_up(seen, outcome.problem or "The broker could not make the binding")
        case answers.Absent(is_json=True) if seen.confirmed and seen.pause() >= rules.UNKNOWN:
            return _given_up(seen, "The broker does not know what it accepted")
    if rules.is_overdue(seen.now, operation.since, seen.plan):
        return _given_up(seen, "The broker takes too long to make the binding")
    return in_progress(seen, outcome, operation.since)


def _unbound(seen: Seen, binding: str, outcome: answers.Outcome) -> Decision:
    match outcome:
        case answers.Done() | answers.Gone():
            return _gone(seen, binding)
        case answers.Absent(is_json=True) if seen.confirmed:
            return _gone(seen, binding)
        case answers.Accepted():
            operation = Operation(
                binding, is_unbind=True, since=format_time(seen.now), key=outcome.operation
            )
            return _accepted(seen, operation, outcome)
    return seen.failed(refusal(outcome), *_leaves(seen), again=max(seen.pause(), rules.POLL))


def _leaves(seen: Seen) -> tuple[managed.Condition, ...]:
    return (DELETING,) if seen.is_deleting else ()


def _unbind_polled(seen: Seen, operation: Operation, outcome: answers.Outcome) -> Decision:
    match outcome:
        case answers.Progress(state="succeeded") | answers.Gone():
            return _gone(seen, operation.binding)
        case answers.Progress(state="failed"):
            problem = outcome.problem or "The broker could not delete the binding"
            again = max(seen.pause(), rules.POLL)
            return _with(seen.failed(problem, *_leaves(seen), again=again), seen, seen.ledger)
        case answers.Absent():
            # It may be gone: the next DELETE says so.
            return _with(Decision(again=rules.SOON, sums_up=False), seen, seen.ledger)
    return in_progress(seen, outcome, operation.since)


def _gone(seen: Seen, binding: str) -> Decision:
    ledger = seen.ledger.without(binding)
    if seen.is_deleting and ledger.coming and binding == seen.id(ledger.coming):
        ledger = replace(ledger, coming=0)
    elif seen.is_deleting and binding == seen.id(ledger.number) and not ledger.old:
        return decide.left(seen)
    return _with(Decision(again=rules.SOON, sums_up=False), seen, ledger)

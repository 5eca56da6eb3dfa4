"""Decides what follows from answers that say nothing about what was asked, whatever that was."""

from dataclasses import replace

from bind.osb.dataservices import managed, rules
from reconciler.blueprints.offering import outcomes as answers
from reconciler.core.decision import Decision


def unusable(seen: managed.Seen, outcome: answers.Outcome) -> Decision | None:
    """Return what follows from an answer that says nothing about what was asked."""
    match outcome:
        case answers.Unsent(problem, retry_after):
            return seen.failed(problem, again=retry_after or seen.pause())
        case answers.Unknown():
            return seen.failed(outcome.problem, again=seen.pause())
        case answers.Denied():
            message = f"The broker does not let us in: {outcome.problem}"
            return seen.failed(message, again=rules.DENIED)
        case answers.Unsupported(problem):
            message = f"The broker does not speak this version of its API: {problem}"
            return seen.failed(message, again=rules.RESYNC)
        case answers.Busy():
            return Decision(again=rules.BUSY, sums_up=False)
    return None


def in_progress(
    seen: managed.Seen, outcome: answers.Outcome, since: str, *ready: managed.Condition
) -> Decision:
    """Return the decision to ask again how far an operation is that began at a time."""
    asked = outcome.retry_after if isinstance(outcome, answers.Progress) else None
    again = rules.poll_pause(seen.now, since, asked)
    if isinstance(outcome, answers.Progress):
        return replace(seen.said({}, *ready, managed.SUCCESS), again=again)
    return seen.failed(refusal(outcome), again=again)


def refusal(outcome: answers.Outcome) -> str:
    """Return the broker's words, or ours where it has none."""
    match outcome:
        case answers.Refused() | answers.Conflict() | answers.MaintenanceConflict():
            return outcome.problem or "The broker refuses without a word"
        case answers.Gone():
            return "The broker says that it is gone"
        case answers.Absent():
            return "The broker does not know it"
    return "The broker answers something else than was asked"

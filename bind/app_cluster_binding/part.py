"""One step's share of a decision, and how the shares of all steps become one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from reconciler.core import conditions, reasons
from reconciler.core.conditions import ERROR, WARNING, Cause, Condition
from reconciler.core.decision import Decision, Note, Task
from reconciler.core.manifest import Manifest, get_list

Problem: TypeAlias = tuple[Cause, str]  # what is wrong, and a sentence

# These two are always said, as the original does; the others only from the first trouble on.
_ALWAYS: Final = (reasons.SECRET_VALID, reasons.KONNECTOR_DEPLOYED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one step wants done, what is wrong with it, and when to look again at the latest."""

    tasks: tuple[Task, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[Note, ...] = ()
    again: timedelta | None = None


def joined(parts: Iterable[Part]) -> Part:
    """Return all parts as one."""
    every = tuple(parts)
    return Part(
        tasks=tuple(task for part in every for task in part.tasks),
        problems=tuple(problem for part in every for problem in part.problems),
        notes=tuple(note for part in every for note in part.notes),
        again=min((part.again for part in every if part.again is not None), default=None),
    )


def decision(
    live: Manifest, part: Part, *, judged: Sequence[str], beside: Sequence[Condition] = ()
) -> Decision:
    """Return the decision. `judged` are the types of conditions that the steps have looked into.

    A type without a problem is True where it is always said, or where `live` holds it. `beside`
    goes with it as it is.
    """
    held = conditions.parse(get_list(live, "status", "conditions"))
    said = (*beside, *_conditions(part.problems, judged, {each.type for each in held}))
    return Decision(part.tasks, said, notes=part.notes, again=part.again)


def _conditions(
    problems: Sequence[Problem], judged: Sequence[str], held: set[str]
) -> Iterator[Condition]:
    for condition_type in judged:
        found = [one for one in problems if one[0].type == condition_type]
        if found:
            cause = min((cause for cause, _ in found), key=_urgency)
            messages = dict.fromkeys(message for each, message in found if each == cause)
            yield conditions.false(cause, " ".join(messages))
        elif condition_type in _ALWAYS or condition_type in held:
            yield conditions.true(condition_type)


def _urgency(cause: Cause) -> tuple[int, str]:
    return {ERROR: 0, WARNING: 1}.get(cause.severity, 2), cause.reason

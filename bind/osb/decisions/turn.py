"""Decides which claim of an instance may call the broker next.

An operation in progress comes first, then unbinds, then the instance itself, then binds and
rotations. One call at a time. An operation beyond its deadline delays no other.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from bind.osb.decisions import binding as bindings
from bind.osb.decisions import causes, instance
from bind.osb.decisions import instance_moves as moves
from bind.osb.decisions.view import Ask, BindingView, InstanceView, Next
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.core.conditions import Cause

_BEGUN, _UNBINDS, _INSTANCE = range(3)


@dataclass(frozen=True, slots=True)
class Part:
    """The decision for one claim of an instance; `binding` is None for the instance itself."""

    binding: BindingView | None
    next: Next


def look(view: InstanceView, *, calling: bool, now: datetime) -> list[Part]:
    """Return what follows for an instance and its bindings; one part at most has a call.

    `calling`: a call of this instance is on its way already.
    """
    is_free = not _has_begun(view, now)
    parts = []
    for _, binding, decide in sorted(_candidates(view, now), key=lambda each: each[0]):
        found = decide(is_free)
        is_free = is_free and not found.begins
        if calling and found.ask is not None:
            found = replace(found, ask=None, decision=replace(found.decision, again=None))
        calling = calling or found.ask is not None
        parts.append(Part(binding, found))
    return parts


def is_held(parts: Iterable[Part]) -> bool:
    """Return whether a claim goes on only once somebody does something."""
    stated = (condition for part in parts for condition in part.next.decision.conditions)
    return any(
        Cause(condition.type, condition.severity, condition.reason) in causes.HELD
        for condition in stated
    )


def answered(view: InstanceView, ask: Ask, outcome: Outcome, *, now: datetime) -> Part:
    """Return what follows from the answer to a call."""
    for binding in view.bindings:
        if any(record.id == ask.record for record in binding.records):
            return Part(binding, bindings.answered(view, binding, ask, outcome, now=now))
    return Part(None, moves.answered(view, ask, outcome, now=now))


def _has_begun(view: InstanceView, now: datetime) -> bool:
    records = [*view.records, *(each for binding in view.bindings for each in binding.records)]
    return any(record.holds_turn(now) for record in records)


def _candidates(
    view: InstanceView, now: datetime
) -> Iterator[tuple[float, BindingView | None, Callable[[bool], Next]]]:
    begun = any(record.is_open for record in view.records)

    def of_instance(free: bool) -> Next:
        return instance.look(view, free=free, now=now)

    yield (_BEGUN if begun else _INSTANCE), None, of_instance
    for one in view.bindings:
        urgency = bindings.urgency(view, one, now=now)
        # The instance comes before what is not urgent.
        order = urgency if urgency < _INSTANCE else _INSTANCE + 0.5

        def of_binding(free: bool, one: BindingView = one) -> Next:
            return bindings.look(view, one, free=free, now=now)

        yield order, one, of_binding

"""Decides which claim of an instance may call the broker next.

An operation in progress comes first, then unbinds, then the instance itself, then binds and
rotations. One call at a time. An operation beyond its deadline delays no other.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from bind.osb.decisions import binding as bindings
from bind.osb.decisions import binding_moves, binding_state, causes, instance
from bind.osb.decisions.instance_moves import InstanceMoves
from bind.osb.decisions.view import Ask, BindingView, InstanceView, Next
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.core.conditions import Cause


@dataclass(frozen=True, slots=True)
class Part:
    """The decision for one claim of an instance; `binding` is None for the instance itself."""

    binding: BindingView | None
    next: Next


def look(view: InstanceView, asked: Ask | None = None) -> list[Part]:
    """Return the decisions for an instance and its bindings; one part at most has a call.

    Nothing is decided about a record that is `asked` about: its answer is to what was sent.
    """
    records = [*view.records, *(each for binding in view.bindings for each in binding.records)]
    view = replace(view, free=not any(record.blocks(view.now) for record in records))
    parts, is_calling = [], asked is not None
    for _, binding, decide in sorted(_candidates(view), key=lambda each: each[0]):
        mine = (*view.records, *view.others) if binding is None else binding.records
        if asked and asked.record in [one.id for one in mine]:
            continue
        found = decide(view)
        view = replace(view, free=view.free and not found.begins)
        if is_calling and found.ask is not None:
            found = replace(found, ask=None, decision=replace(found.decision, again=None))
        is_calling = is_calling or found.ask is not None
        parts.append(Part(binding, found))
    return parts


def is_blocked(parts: Iterable[Part]) -> bool:
    """Return whether a claim goes on only once somebody does something."""
    stated = (condition for part in parts for condition in part.next.decision.conditions)
    return any(
        Cause(condition.type, condition.severity, condition.reason) in causes.BLOCKED
        for condition in stated
    )


def answered(view: InstanceView, ask: Ask, outcome: Outcome) -> Part:
    """Decide from the answer to a call."""
    for binding in view.bindings:
        for one in (each for each in binding.records if each.id == ask.record):
            moves = binding_moves.of(binding_state.seen(view, binding), one)
            return Part(binding, moves.answered(ask.call, outcome))
    for one in (each for each in (*view.records, *view.others) if each.id == ask.record):
        return Part(None, InstanceMoves(view, one).answered(ask.call, outcome))
    return Part(None, Next())


def _candidates(
    view: InstanceView,
) -> Iterator[tuple[float, BindingView | None, Callable[[InstanceView], Next]]]:
    begun = any(record.is_open for record in view.records)
    yield (bindings.GOING if begun else bindings.OTHER), None, instance.look
    for one in view.bindings:
        urgency = bindings.urgency(view, one)
        # The instance comes before bindings that are not urgent.
        order = urgency + 0.5 if urgency == bindings.OTHER else urgency
        yield order, one, partial(bindings.look, binding=one)

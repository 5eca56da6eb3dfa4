"""Stores the life cycle of compositions in their own objects, as records.

A managed resource has no BrokerRecord: its ids and states are in `status.atProvider` and in
annotations, as provider-anynines keeps them. They are read as records, and changes of a record are
written back to these fields. State without such a field, such as the time of the next try, is in
this process's memory only, until the object changes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Generic, TypeVar

from bind.osb.dataservices import managed, rules
from bind.osb.decisions import causes, record
from bind.osb.decisions import turn as turns
from bind.osb.decisions.record import Record
from bind.osb.decisions.view import SOON, Ask, InstanceView, Next, Pause
from reconciler.api.osb import BROKER_RECORD
from reconciler.blueprints.offering import outcomes
from reconciler.blueprints.offering.messages import Call
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.core import conditions, keys, manifest
from reconciler.core import decision as decisions
from reconciler.core.conditions import Cause, Condition
from reconciler.core.manifest import JSON, Manifest

S = TypeVar("S", bound=rules.OfBroker)
_DOWN: Final = (managed.UNAVAILABLE.reason, managed.MISSING.reason)
_ERROR: Final = managed.error("").reason
_STANDS: Final = (conditions.FALSE, True)
_MOST_STEPS: Final = 8  # without a write or a call
_UNAVAILABLE: Final = (
    *(causes.REFUSED.reason, causes.FAILED.reason, causes.RETRYING.reason),
    *(causes.NOT_USABLE.reason, causes.NO_CREDENTIALS.reason),
)


@dataclass(frozen=True, slots=True)
class Stated:
    """The records of an object: fields of `status.atProvider`, and annotations.

    `pending` is the key of an operation, None without.
    """

    at: Mapping[str, JSON] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pending: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """This process's memory of an object. Its records count while the object has `stated`."""

    records: tuple[Record, ...] = ()
    stated: Stated | None = None
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """The decision, and the memory of it. Where `ask` is there, nothing is decided before it."""

    kept: Any
    decision: decisions.Decision
    ask: Any = None
    reads_catalogue: bool = False


class Store(ABC, Generic[S]):
    """The records in objects of a kind, and the decisions about them."""

    failed: ClassVar[Cause]  # for which Ready is False
    stopped: ClassVar[Cause]  # for which Synced alone is

    @abstractmethod
    def present(self, seen: S) -> Stated:
        """Return the stored form of an object's records."""

    @abstractmethod
    def records(self, seen: S) -> tuple[Record, ...]:
        """Return the records in that form."""

    @abstractmethod
    def stated(self, seen: S, records: tuple[Record, ...]) -> Stated:
        """Return the form in which an object is to store these records."""

    @abstractmethod
    def hindrance(self, seen: S) -> decisions.Decision | None:
        """Return the decision where nothing can be decided now; None where it can."""

    @abstractmethod
    def view(self, seen: S, kept: Kept) -> InstanceView:
        """Return the instance and its bindings, as they are decided about."""

    @abstractmethod
    def look(self, seen: S, kept: Kept) -> Next:
        """Decide from the present state."""

    @abstractmethod
    def call(self, seen: S, call: Call) -> Call:
        """Return a call as objects of this kind have it made."""

    def facts(self, seen: S, kept: Kept, outcome: Outcome | None) -> dict[str, JSON]:
        """Return the fields of `status.atProvider` beside records."""
        return {}

    def turn(self, seen: S, kept: Kept) -> Turn:
        """Decide from the present state."""
        framed = managed.framed(seen) or self.hindrance(seen)
        if framed is not None:
            return Turn(kept, framed)
        kept, made = self.recalled(seen, kept), decisions.NOTHING
        for _ in range(_MOST_STEPS):
            next_ = self.look(seen, kept)
            kept, made = self._after(seen, kept, next_, made)
            writes = self._writes(seen, kept, made)
            if next_.ask is not None and not writes:
                ask = replace(next_.ask, call=self.call(seen, next_.ask.call))
                return self._unsaid(seen, kept, ask)
            if writes or made.again != SOON:
                break
        return self._ends(seen, kept, made, None)

    def recalled(self, seen: S, kept: Kept) -> Kept:
        """Return the remembered records, with those that the object stores."""
        if kept.stated == self.present(seen):
            return kept
        known = kept.conditions or self.conditions(seen.live)
        return Kept(self.records(seen), None, kept.pauses, known)

    def conditions(self, live: Manifest) -> tuple[Condition, ...]:
        """Return those of a claim that those of an object stand for, where they are False."""
        ready, synced = (conditions.get(live, one) for one in (managed.READY, managed.SYNCED))
        stands = ((ready, self.failed, _DOWN), (synced, self.stopped, (_ERROR,)))
        return tuple(
            conditions.false(cause, one.message)
            for one, cause, reasons in stands
            if one is not None and one.reason in reasons
        )

    def answered(self, seen: S, kept: Kept, ask: Ask, outcome: Outcome) -> Turn:
        """Decide from the answer to a call."""
        kept = self.recalled(seen, kept)
        next_ = turns.answered(self.view(seen, kept), ask, outcome).next
        kept, made = self._after(seen, kept, next_, decisions.NOTHING)
        is_step = made.again == SOON and not self._writes(seen, kept, made)
        turn = self._unsaid(seen, kept) if is_step else self._ends(seen, kept, made, outcome)
        return replace(turn, reads_catalogue=next_.reads_catalogue)

    def _unsaid(self, seen: S, kept: Kept, ask: Ask | None = None) -> Turn:
        """Return a turn of memory alone: a call, or a step that leads to one at once."""
        again = SOON if ask is None else None
        decision = decisions.Decision(again=again, sums_up=False)
        return Turn(replace(kept, stated=self.present(seen)), decision, ask)

    def _writes(self, seen: S, kept: Kept, made: decisions.Decision) -> bool:
        return bool(made.tasks) or self.stated(seen, kept.records) != self.present(seen)

    def _after(
        self, seen: S, kept: Kept, next_: Next, made: decisions.Decision
    ) -> tuple[Kept, decisions.Decision]:
        """Return the memory and the decision so far, after records were changed."""
        records = {one.id: one for one in kept.records}
        rest = [one for one in next_.decision.steps if not _is_written(records, one, seen)]
        stated = kept.conditions
        for one in next_.decision.conditions:
            stated = conditions.set_condition(stated, one, now=seen.now)
        kept = Kept(tuple(records.values()), kept.stated, {**kept.pauses, **next_.pauses}, stated)
        more = next_.decision if next_.ask is None else replace(next_.decision, again=SOON)
        return kept, _joined(made, more, rest)

    def _ends(self, seen: S, kept: Kept, made: decisions.Decision, outcome: Outcome | None) -> Turn:
        if any(_is_lift(seen, one) for one in made.steps):
            return Turn(Kept(), _released(seen, made))
        before, after = self.present(seen), self.stated(seen, kept.records)
        at = _differing(before.at, after.at) | self.facts(seen, kept, outcome)
        others: dict[str, JSON] = {"pendingOperation": after.pending}
        stated = conditions_of(seen, made, kept.conditions, outcome)
        if not (stated or managed.has_finalizer(seen.live)):
            stated = [managed.CREATING]
        status = seen.report(at, *stated, again=made.again, others=others)
        marks = _differing(before.annotations, after.annotations)
        step = managed.marked(seen, marks, finalizer=bool(kept.records) and not seen.is_deleting)
        tasks = decisions.writes(*made.steps, step, failure=managed.WRITE_FAILED).tasks
        return Turn(replace(kept, stated=after), replace(status, tasks=tasks, notes=made.notes))


def _differing(before: Mapping[str, JSON], after: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the patch from one to the other; None removes a key."""
    names = {**before, **after}
    return {one: after.get(one) for one in names if before.get(one) != after.get(one)}


def _is_written(records: dict[str, Record], step: decisions.Step, seen: rules.OfBroker) -> bool:
    """Write a record among these; return whether a step is about one."""
    match step:
        case decisions.Create(kind, body) if kind == BROKER_RECORD:
            one = record.read(body, seen.cluster)
        case decisions.Patch(ref, body) if ref.kind == BROKER_RECORD:
            live = records[ref.name].live or {}
            spec = _merged(manifest.get_map(live, "spec"), manifest.get_map(body, "spec"))
            one = record.read({**live, "spec": spec}, seen.cluster)
        case decisions.Delete(ref) if ref.kind == BROKER_RECORD:
            records.pop(ref.name, None)
            return True
        case _:
            return False
    records[one.id] = one
    return True


def _merged(before: Manifest, patch: Manifest) -> dict[str, JSON]:
    """Return an object after a merge patch (RFC 7386)."""
    after = dict(before)
    for key, value in patch.items():
        after[key] = value
        if isinstance(value, Mapping):
            after[key] = _merged(manifest.get_map(before, key), value)
    return {key: value for key, value in after.items() if value is not None}


def _joined(
    made: decisions.Decision, more: decisions.Decision, rest: list[decisions.Step]
) -> decisions.Decision:
    """Return two decisions as one, of which the later counts; `rest` are its writes."""
    kept = (one for one in made.conditions if one.type not in {o.type for o in more.conditions})
    return decisions.Decision(
        tasks=(*made.tasks, *decisions.writes(*rest).tasks),
        conditions=(*kept, *more.conditions),
        fields={**made.fields, **more.fields},
        notes=(*made.notes, *more.notes),
        again=more.again,
    )


def _is_lift(seen: rules.OfBroker, step: decisions.Step) -> bool:
    return isinstance(step, decisions.Patch) and step.ref.kind == seen.kind


def _released(seen: rules.OfBroker, made: decisions.Decision) -> decisions.Decision:
    """Release an object, after the objects that go before it."""
    lift = decisions.unfinalized(seen.cluster, seen.kind, seen.live, keys.MANAGED_RESOURCE)
    steps = [one for one in made.steps if not _is_lift(seen, one)]
    decision = decisions.writes(*steps, lift, failure=managed.WRITE_FAILED)
    return replace(decision, notes=made.notes, sums_up=False)


def conditions_of(
    seen: rules.OfBroker,
    made: decisions.Decision,
    every: Iterable[Condition],
    outcome: Outcome | None,
) -> list[Condition]:
    """Return Ready and Synced, as far as they follow.

    `made` are the conditions that a claim would get now, `every` are all that it would have.
    """
    problem = ""
    match outcome:
        case outcomes.Unsent() | outcomes.Unknown() | outcomes.Denied():
            problem = outcome.problem
        case outcomes.Refused(word="unsupported"):
            problem = outcome.problem
    ready = None
    for one in sorted(made.conditions, key=lambda each: each.type == causes.VALID):
        if one.type in (causes.PROVISIONED, causes.BOUND):
            words = manifest.get_text(made.fields, "operation", "description")
            ready = managed.AVAILABLE if one.status == conditions.TRUE else _unready(one, words)
        if one.type == causes.VALID and one.status == conditions.FALSE:
            ready = replace(managed.MISSING, message=one.message)
    if seen.is_deleting:
        ready = managed.DELETING
    found = [] if ready is None else [ready]
    lasting = (one for one in every if (one.status, one.severity != conditions.INFO) == _STANDS)
    problem = problem or next((one.message for one in lasting), "")
    if problem:
        return [*found, managed.error(problem)]
    is_well = any(one.status == conditions.TRUE for one in made.conditions)
    # A condition that only waits does not show the result of the last call.
    return [*found, managed.SUCCESS] if is_well or outcome is not None else found


def _unready(one: Condition, words: str) -> Condition:
    if one.reason == causes.MISSING.reason:
        return replace(managed.MISSING, message=one.message)
    if one.reason in _UNAVAILABLE:
        return replace(managed.UNAVAILABLE, message=one.message)
    return replace(managed.CREATING, message=words or one.message)

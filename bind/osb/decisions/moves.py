"""Common moves of the engine for one id at a broker.

Each is what its record holds next, and the claim's status, in one decision.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

from bind.osb import engine
from bind.osb.decisions import record
from bind.osb.decisions.record import Intent, Operation, Record
from bind.osb.decisions.view import CLOSED, SOON, Ask, InstanceView, Next, Pause, soon
from bind.osb.engine import Move, Standing
from reconciler.api.osb import Timing
from reconciler.blueprints.offering import messages, outcomes
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.core import keys
from reconciler.core.decision import NOTHING, Decision, Note, Step, writes


@dataclass(frozen=True, slots=True)
class Moves(ABC):
    """An id in one look."""

    view: InstanceView
    one: Record

    counts_all: ClassVar[bool] = True  # each pause makes the next one longer

    # Defined by each kind

    @property
    def pause(self) -> Pause:
        return self.view.pause(self.one)

    @abstractmethod
    def _at_work(self, after: Record, description: str | None = None) -> Decision:
        """Return the status while the broker works."""

    @abstractmethod
    def _overdue(self, problem: str) -> Decision:
        """Return the status while the broker does not report the end of a late operation."""

    @abstractmethod
    def _waiting(self, problem: str) -> Decision:
        """Return the status while a call waits."""

    @abstractmethod
    def _row(self, call: messages.Call) -> str:
        """Return the row of the table that an answer is of.

        "" where a record went on without it: it was deleted meanwhile, or what followed was written
        already, and that was not known.
        """

    @abstractmethod
    def busy(self, problem: str) -> Next:
        """Wait for another operation on the instance; nothing was done, so nothing is undone."""

    @abstractmethod
    def _refused(self, problem: str) -> Next:
        """Have a record state that this is not asked for again, until something changes."""

    @abstractmethod
    def mitigated(self, problem: str) -> Next:
        """Have deleted at the broker of which nobody knows whether it is whole."""

    @abstractmethod
    def _again(self, problem: str) -> Next:
        """Delete again and again, ever slower: a claim goes only after a confirmed deletion."""

    @abstractmethod
    def gone(self) -> Next:
        """Forget a thing that is confirmed to be gone; a failed try has a next number."""

    @abstractmethod
    def _otherwise(self, move: Move, outcome: Outcome) -> Next:
        """Return the decision from a move that only this kind has."""

    # Shared by both kinds

    @property
    def timing(self) -> Timing:
        """The waits for the broker."""
        return self.view.broker.spec.timing if self.view.broker is not None else Timing()

    @property
    def now(self) -> datetime:
        return self.view.now

    @property
    def intent(self) -> Intent:
        """The open intent."""
        assert self.one.intent is not None
        return self.one.intent

    def refused(self, catalog: str) -> Intent:
        """Return the intent as it is closed by a refusal.

        That proves nothing of a call that a former process may have made of the same intent.
        """
        tries = self.intent.tries if self.one.id in self.view.pauses else max(self.intent.tries, 1)
        return replace(self.intent, tries=tries, closed=record.REFUSED, catalog=catalog)

    @property
    def is_leaving(self) -> bool:
        return self.one.state == record.LEAVING

    def _why(self, outcome: Outcome) -> str:
        """Return the message of an answer, for people."""
        match outcome:
            case outcomes.Progress(state="in progress"):
                return "it took too long"
            case outcomes.Absent() if self.one.operation is not None:
                return "the broker knows no such operation"
        return self.words(outcome)

    def words(self, outcome: Outcome) -> str:
        """Return the message of an outcome, for people, whatever was asked."""
        version = self.view.broker.spec.api_version if self.view.broker is not None else ""
        match outcome:
            case outcomes.Refused(problem, "unsupported"):
                return f"{problem} (spoken is version {version} of the API, spec.apiVersion)"
            case outcomes.Absent():
                return "HTTP 404"
            case outcomes.Gone():
                return "HTTP 410"
            case outcomes.Progress(state, ""):
                return f"it is {state or 'in a state that is none'}"
            case outcomes.Done() | outcomes.Accepted():
                return "an answer that is none to this call"
        return outcome.problem

    def next(
        self,
        decision: Decision,
        step: Step | None = None,
        *,
        again: timedelta | None = None,
        note: Note | None = None,
        pause: Pause | None = None,
    ) -> Next:
        """Return the next decision: a record is written first, then the status."""
        decision = replace(
            decision,
            tasks=(*writes(step).tasks, *decision.tasks),
            notes=decision.notes if note is None else (note,),
            again=decision.again if again is None else again,
        )
        return Next(decision, pauses={} if pause is None else {self.one.id: pause})

    def rests(
        self,
        wait: timedelta,
        decision: Decision,
        step: Step | None = None,
        *,
        note: Note | None = None,
        **fields: object,
    ) -> Next:
        """Return the same after a pause, which is remembered with these fields."""
        counted = {"count": self.pause.count + 1} if self.counts_all else {}
        pause = replace(self.pause, until=self.now + wait, **{**counted, **fields})  # type: ignore[arg-type]
        return self.next(decision, step, again=wait, note=note, pause=pause)

    def wait(self, since: datetime | None = None) -> timedelta | None:
        """Return how long a call waits, None where it is due."""
        if since is not None and since > self.now:
            return since - self.now
        pause, broker = self.pause, self.view.broker
        if not pause.is_over(self.now):
            assert pause.until is not None
            return pause.until - self.now
        return CLOSED if broker is None or broker.closed else None

    def asks(self, decision: Decision, call: messages.Call, since: datetime | None = None) -> Next:
        """Return a call once it is due, and the status until then."""
        wait = self.wait(since)
        if wait is not None:
            return Next(replace(decision, again=wait))
        return Next(decision, Ask(self.one.id, call))

    def last_operation(self, plan: str, operation: Operation | None) -> messages.LastOperation:
        """Return the call that asks how far it is."""
        key, one = operation.key if operation is not None else None, self.one
        binding = one.id if one.kind == record.BINDING else ""
        return messages.LastOperation(one.instance, one.service, plan, key, binding=binding)

    def poll(self) -> Next:
        """Ask how far an operation is, when that is due. One past its deadline is decided without.

        But nothing that is made is, because its record may be old: "a backup was restored, and the
        instance was used for days since" looks the same. It is asked about for as long as it takes.
        """
        operation = self.one.operation
        assert operation is not None
        call = self.last_operation(operation.plan, operation)
        is_late = operation.deadline <= self.now
        if is_late and self.one.state != record.INTENDED:
            late = outcomes.Progress("in progress")
            return self.moved(engine.move(self._row(call), late, Standing()), late)
        asked = self.asks(NOTHING if is_late else self._at_work(self.one), call)
        return asked if is_late else asked.within(operation.deadline - self.now)

    def answered(self, call: messages.Call, outcome: Outcome) -> Next:
        if isinstance(outcome, outcomes.Denied | outcomes.Unsent):
            stated = outcome.retry_after if isinstance(outcome, outcomes.Unsent) else None
            return self.later(outcome.problem, stated)
        row = self._row(call)
        if not row:
            return Next(Decision(again=SOON))
        intent, broker = self.one.intent, self.view.broker
        at = Standing(
            0 if intent is None or row == "reading" else intent.tries,
            self.pause.misses,
            broker is not None and broker.is_fresh,
            intent is not None and bool(intent.catalog),
        )
        return self.moved(engine.move(row, outcome, at), outcome)

    def moved(self, move: Move, outcome: Outcome) -> Next:  # noqa: C901, PLR0911 - a move each
        problem = self._why(outcome)
        match move:
            case Move.ACCEPT:
                return self.accepted(outcome)
            case Move.POLL:
                return self.polled(outcome)
            case Move.MISS:
                return self.polled(outcome, misses=self.pause.misses + 1)
            case Move.LATER:
                return self.later(problem)
            case Move.REPEAT:
                return self.repeated(problem)
            case Move.BUSY:
                return self.busy(problem)
            case Move.REFUSE:
                return self._refused(problem)
            case Move.MITIGATE:
                return self.mitigated(problem)
            case Move.GONE:
                return self.gone()
            case Move.AGAIN:
                return self._again(problem)
            case Move.UNPROVED if self.is_leaving:
                next_ = self._again("a 404 proves nothing before the catalogue was read")
                return replace(next_, reads_catalogue=True)
            case Move.DELETE:
                return soon(record.changed(self.one, operation=None))
        return self._otherwise(move, outcome)

    def later(self, problem: str, stated: timedelta | None = None) -> Next:
        """Make the same call later: surely nothing was done."""
        count = self.pause.count
        return self.rests(engine.unsent(count, stated), self._waiting(problem), count=count + 1)

    def repeated(self, problem: str, **fields: str) -> Next:
        """Make the same call again, so often; the record counts, because a restart must not forget.

        `fields` are those of its intent that are to be others.
        """
        tries = self.intent.tries
        again = replace(self.intent, tries=tries + 1, **fields)  # type: ignore[arg-type]
        step = record.changed(self.one, intent=again)
        return self.rests(engine.unknown(tries), self._waiting(problem), step)

    def accepted(self, outcome: Outcome) -> Next:
        """Have a record hold the operation that has begun, or is seen to go on."""
        key, stated = None, None
        if isinstance(outcome, outcomes.Accepted):
            key = outcome.operation
        if isinstance(outcome, outcomes.Accepted | outcomes.Progress):
            stated = outcome.retry_after
        one = self.one
        plan = self.view.plan(one.plan if one.intent is None else one.intent.target.plan)
        longest = plan.maximum_polling_duration if plan is not None else None
        before = one.plan if one.sent is None else one.sent.plan
        deadline = self.now + (longest or self.timing.max_polling)
        after = replace(one, operation=Operation(key, before, self.now, deadline))
        intent = None if self.is_leaving else one.intent
        step = record.changed(one, operation=after.operation, intent=intent)
        wait = stated or self.timing.poll
        pause = Pause(until=self.now + wait, checked=self.pause.checked)
        return self.next(self._at_work(after), step, again=wait, pause=pause)

    def polled(self, outcome: Outcome, *, misses: int = 0) -> Next:
        """Ask again later how far an operation is; `misses` answers knew nothing of it."""
        last = outcome if isinstance(outcome, outcomes.Progress) else outcomes.Progress("")
        words = last.problem if last is outcome else f"progress unknown: {self.words(outcome)}"
        one, count = self.one, self.pause.count + 1
        wait = engine.poll(self.timing.poll, count, last.retry_after)
        decision = self._at_work(one, words)
        if one.operation is not None and one.operation.deadline > self.now:
            wait = min(wait, one.operation.deadline - self.now)
        elif one.state == record.INTENDED:
            decision = self._overdue(self.words(outcome))
        return self.rests(wait, decision, count=count, misses=misses)


def orphaned(one: Record, **fields: Intent | None) -> Next:
    """Have a record state that its claim is absent: people decide about its content (law 1)."""
    thing, wishes = one.id, "Adopt, Deprovision or Forget"
    if one.kind == record.BINDING:
        thing, wishes = f"binding {one.id}", "Deprovision or Forget"
    message = (
        f"{one.claim.kind} {one.claim.namespace}/{one.claim.name} is gone without its deletion; "
        f"{thing} stays at the broker until annotation {keys.OSB_ORPHAN} is {wishes}"
    )
    step = record.changed(one, state=record.ORPHANED, **fields)
    return soon(step, Note("Orphaned", message, type="Warning"))

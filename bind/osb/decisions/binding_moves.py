"""Moves of the engine for bindings: those of their own, and the common ones.

The Secret comes first: what it holds is always of a binding that is not undone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, Final

from bind.osb import engine
from bind.osb.decisions import binding_numbers as numbers
from bind.osb.decisions import binding_state as state
from bind.osb.decisions import causes, credentials, record
from bind.osb.decisions.binding_state import Seen, ends, is_bound, is_still_bound
from bind.osb.decisions.moves import Moves
from bind.osb.decisions.record import Intent, Record, Sent
from bind.osb.decisions.view import CLOSED, SOON, Next, Pause, soon
from bind.osb.engine import Move
from reconciler.blueprints.offering import messages, outcomes
from reconciler.blueprints.offering.outcomes import Done, Outcome
from reconciler.core import conditions, keys
from reconciler.core.conditions import Cause
from reconciler.core.decision import Decision, Note, Step, unfinalized, writes
from reconciler.core.manifest import is_deleting

_AT_ONCE: Final = timedelta(minutes=1)  # a longer pause of an unbind lets others go on


def of(seen: Seen, one: Record) -> "BindingMoves":
    return BindingMoves(seen.view, one, seen)


@dataclass(frozen=True, slots=True)
class BindingMoves(Moves):
    """A number of a binding."""

    seen: Seen

    counts_all: ClassVar[bool] = False

    @property
    def _cleared(self) -> Pause:
        return Pause(checked=self.pause.checked)

    def _at_work(self, after: Record, description: str | None = None) -> Decision:
        return state.of(self.seen)

    def _overdue(self, problem: str) -> Decision:
        return state.trouble(self.seen, causes.BINDING, causes.overdue(problem))

    def _waiting(self, problem: str) -> Decision:
        return state.waiting(self.seen, problem)

    def _row(self, call: messages.Call) -> str:
        """Return the row of the table that an answer is of, "" where nothing waits for it."""
        one, operation = self.one, self.one.operation
        match call:
            case messages.Bind() if one.state == record.INTENDED and one.intent is not None:
                return "" if one.intent.closed or operation is not None else "Bind"
            case messages.Unbind() if self.is_leaving and one.is_open:
                return "Unbind" if operation is None or is_still_bound(one) else ""
            case messages.LastOperation() if operation is not None:
                late = " late" if operation.deadline <= self.now else ""
                return ("leaving" if self.is_leaving else "binding") + late
            case messages.LastOperation() if self.is_leaving and one.is_open:
                return "leaving"
            case messages.FetchBinding() if one.state == record.PRESENT:
                return "fetching"
        return ""

    def _why(self, outcome: Outcome) -> str:
        match outcome:
            case outcomes.Done() | outcomes.Refused(word="conflict"):
                return "an earlier try with an unknown outcome may have made an incomplete binding"
        return Moves._why(self, outcome)

    def answered(self, call: messages.Call, outcome: Outcome) -> Next:
        one, live = self.one, self.seen.binding.live
        if isinstance(call, messages.LastOperation):
            if one.state == record.ORPHANED:
                return self._waited(outcome)
            is_unsent = isinstance(outcome, outcomes.Denied | outcomes.Unsent)
            if self.is_leaving and self._row(call) and not is_unsent:
                if one.operation is None or self.pause.misses:
                    # The call asked for the reason why the binding stays.
                    wait = SOON if _is_over(outcome) else engine.BUSY
                    return self.rests(wait, Decision(), misses=0)
                if is_still_bound(one):
                    return self._waited(outcome, intent=None)
        is_going = live is None or ends(self.view, self.seen.binding)
        is_unwanted = not (self.is_leaving or isinstance(outcome, outcomes.Accepted))
        if (is_going and is_unwanted) or not self._row(call):
            return Next(Decision(again=SOON))  # it is unbound next, or an orphan
        return Moves.answered(self, call, outcome)

    def _waited(self, outcome: Outcome, **fields: None) -> Next:
        """Wait for the broker's operation on a binding that goes, or has no claim any more."""
        if _is_over(outcome):
            return soon(record.changed(self.one, operation=None, **fields))
        return self.polled(outcome)

    def _otherwise(self, move: Move, outcome: Outcome) -> Next:
        match move:
            case Move.DONE if isinstance(outcome, Done) and outcome.credentials is not None:
                return self.bound(outcome)
            case Move.DONE if self.one.state == record.PRESENT:
                return self._missed(engine.MOST_READS)
            case Move.DONE | Move.UNREAD:
                return self._unread()
            case Move.MISSING if is_bound(self.one):
                return self._vanished()
        rereads = move in (Move.UNPROVED, Move.MISSING)
        return replace(self._missed(self.pause.misses + 1), reads_catalogue=rereads)

    def poll(self) -> Next:
        """Ask how far an operation is; for one without claim, no longer than it may take."""
        operation = self.one.operation
        if self.one.state == record.ORPHANED and operation and operation.deadline <= self.now:
            return soon(record.changed(self.one, operation=None))
        return Moves.poll(self)

    def bound(self, done: Done) -> Next:
        """Store the broker's credentials in Secret and record; the replaced binding leaves."""
        seen, binding = self.seen, self.seen.binding
        assert done.credentials is not None
        wanted = credentials.secret_of(binding, self.one, done.credentials)
        if wanted is None:
            return self.mitigated("its credentials fit into no Secret", causes.NO_CREDENTIALS)
        new = self._made(credentials.digest(seen.claim, wanted), done)
        if binding.secret is None and not credentials.are_same(self.one, new):
            return Next(state.of(seen, again=CLOSED))  # the Secret has to be read first
        is_taken = credentials.state(binding, seen.current) == credentials.TAKEN
        is_left = is_taken or binding.secret is None
        next_ = self._present(new, None if is_left else credentials.written(binding, wanted))
        stated = [*next_.decision.conditions, *state.projected(seen, done)]
        if is_taken:
            stated = [each for each in stated if each.type != causes.BOUND]
            stated.append(conditions.false(*numbers.taken(seen)))
        fields = {**next_.decision.fields, "endpoints": list(done.endpoints) or None}
        decision = replace(next_.decision, conditions=tuple(stated), fields=fields)
        return replace(next_, decision=decision)

    def _made(self, digest: str, done: Done) -> Record:
        """Return a record with credentials; one that was read again keeps its age."""
        one = self.one
        target = one.sent or (one.intent.target if one.intent is not None else Sent(one.plan))
        is_anew = not is_bound(one)
        return replace(
            one,
            state=record.PRESENT,
            sent=replace(target, secret=digest),
            intent=None,
            operation=None,
            made_at=self.now if is_anew else one.made_at,
            expires_at=done.expires_at or (None if is_anew else one.expires_at),
            renew_before=done.renew_before or (None if is_anew else one.renew_before),
        )

    def _settled(self) -> Next:
        """Have a record hold the part of the Secret that is its own already.

        Its credentials were written, and the answer after that was none: undoing it would leave the
        Secret with credentials that are refused.
        """
        secret = self.seen.binding.secret
        assert secret is not None
        assert secret.live is not None
        new = self._made(credentials.digest(self.seen.claim, secret.live), Done())
        return self._present(new, None)

    def _present(self, new: Record, secret: Step | None) -> Next:
        seen, current = self.seen, self.seen.current
        steps = [secret, record.changed(new), *self._replaced(new)]
        is_rotated = current is not None and current.id != self.one.id
        is_same = is_rotated and credentials.are_same(current, new)
        true = [causes.BOUND, *((causes.ROTATED,) if is_rotated and not is_same else ())]
        failure = causes.SECRET_NOT_WRITTEN
        if current is not None:
            failure = causes.of_rotation(failure)
        note = self._note(is_rotated=is_rotated, is_same=is_same)
        decision = replace(
            state.of(seen.after(new), true=true, again=SOON),
            tasks=writes(*steps, failure=failure).tasks,
            notes=(note,) if secret is not None or not is_bound(self.one) else (),
        )
        return self.next(decision, pause=self._cleared)

    def _replaced(self, new: Record) -> Iterator[Step | None]:
        """Yield the steps after which the replaced binding leaves in time.

        Equal credentials do not: at many brokers the same user stands behind both bindings, so that
        undoing the old one would end what the Secret holds. They stay until others replaced them.
        """
        seen = self.seen
        secret = credentials.state(seen.binding, seen.current)
        lost = secret in (credentials.ABSENT, credentials.EDITED)
        is_lost = lost and not credentials.is_named(seen.binding, new)
        for old in (*seen.older, seen.current):
            if (
                old is None
                or old.id == new.id
                or old.leave_at is not None
                or credentials.are_same(old, new)
            ):
                continue
            is_at_once = is_lost and old is seen.current
            leave_at = self.now if is_at_once else credentials.leaves_at(seen.claim, old, self.now)
            yield record.changed(old, leave_at=leave_at)

    def _note(self, *, is_rotated: bool, is_same: bool) -> Note:
        one = self.one.id
        if is_same:
            message = (
                f"binding {one} has the credentials of the one before it, which is kept: "
                "undoing that might end them"
            )
            return Note("SameCredentials", message, type="Warning")
        if is_rotated:
            return Note("Rotated", f"the Secret has the credentials of binding {one} now")
        if is_bound(self.one):
            return Note("SecretRestored", f"credentials of binding {one} were read again")
        return Note("Bound", f"the Secret has the credentials of binding {one}")

    def _unread(self) -> Next:
        """Have a record state that the binding is there, with unknown credentials."""
        one = self.one
        target = one.intent.target if one.intent is not None else Sent(one.plan)
        step = record.changed(one, state=record.PRESENT, sent=target, intent=None, operation=None)
        return self.next(state.of(self.seen), step, again=SOON, pause=self._cleared)

    def _missed(self, misses: int) -> Next:
        """Read a binding again later: the answer had no credentials."""
        return self.rests(engine.unknown(misses - 1), Decision(), misses=misses)

    def busy(self, problem: str) -> Next:
        """Wait for another operation on the instance; before an unbind, ask for it each minute."""
        if not self.is_leaving:
            return self.rests(engine.BUSY, self._waiting(problem))
        return self.rests(min(self.timing.poll, engine.BUSY), self._waiting(problem), misses=1)

    def _refused(self, problem: str) -> Next:
        seen, one = self.seen, self.one
        if credentials.is_named(seen.binding, one):
            return self._settled()
        intent = self.refused(state.circumstances(seen, record.REFUSED))
        step = record.changed(one, intent=intent)
        after = seen.after(replace(one, intent=intent))
        decision = state.trouble(after, causes.BIND_REFUSED, problem)
        return self.next(
            decision, step, note=self._warning("Refused", problem), pause=self._cleared
        )

    def _warning(self, ending: str, problem: str) -> Note:
        verb = "Bind" if self.seen.current is None else "Rotation"
        return Note(f"{verb}{ending}", problem, "Warning")

    def mitigated(self, problem: str, cause: Cause = causes.BIND_RETRIES) -> Next:
        """Have a binding undone of which nobody knows whether it is whole, unless it is in use."""
        seen, one = self.seen, self.one
        if credentials.is_named(seen.binding, one):
            return self._settled()
        if credentials.may_contain(seen.binding, one):
            return Next(state.of(seen, again=CLOSED))  # the Secret has to be read first
        message = f"{problem}; it is deleted at the broker before another try"
        decision, note = state.trouble(seen, cause, message), self._warning("Failed", problem)
        return self.next(decision, self._left(), again=SOON, note=note, pause=self._cleared)

    def _left(self) -> Step | None:
        """Have a record leave: at once where it is its turn at the broker, else when that is free.

        What the broker does for it meanwhile can still be asked for.
        """
        one = self.one
        if one.operation is not None:
            return record.changed(one, state=record.LEAVING)
        waits = Intent("Unbind", self.now, Sent(one.plan), closed=record.PAUSED)
        return record.changed(one, state=record.LEAVING, intent=None if one.is_open else waits)

    def _vanished(self) -> Next:
        """End a binding that the broker does not know any more: new credentials take its place."""
        message = f"the broker does not know binding {self.one.id} any more"
        decision = state.of(self.seen, false=[(causes.SECRET_LOST, message)])
        note = Note("Missing", message, type="Warning")
        return self.next(decision, self._left(), again=SOON, note=note, pause=self._cleared)

    def _again(self, problem: str) -> Next:
        """Unbind again and again, ever slower: a claim goes only after a confirmed deletion.

        In a long pause, others of the instance may go on: what expires meanwhile must be rotated.
        """
        one, count, live = self.one, self.pause.count, self.seen.binding.live
        wait, intent = engine.deletion(count), None
        if wait > _AT_ONCE:
            intent = Intent("Unbind", self.now + wait, Sent(one.plan), count, closed=record.PAUSED)
        step = record.changed(one, operation=None, intent=intent)
        if live is not None and is_deleting(live):
            decision = state.of(self.seen, false=[(causes.NOT_DELETED, problem)])
        else:
            decision = state.undeleted(self.seen, one, problem)
        return self.rests(wait, decision, step, count=count + 1)

    def gone(self) -> Next:
        """Forget a binding that is confirmed to be gone.

        A number that failed is followed by the next, whose record comes first: numbers only grow.
        """
        seen, one, broker = self.seen, self.one, self.view.broker
        remove, is_over = record.deleted(one), ends(self.view, seen.binding)
        rest = [other for other in seen.binding.records if other.id != one.id]
        note = Note("Unbound", f"binding {one.id} is gone at the broker")
        if seen.binding.live is None or (is_over and rest):
            return soon(remove, note)
        if is_over:
            return finished(seen, (remove,), (note,))
        if broker is None or any(other.number > one.number for other in rest):
            return self.next(state.of(seen), remove, again=SOON, note=note)
        new = numbers.further(seen, one)
        tasks = writes(record.created(new, broker.spec.namespace), remove).tasks
        return Next(replace(state.after_failure(seen, new), tasks=tasks, again=SOON))


def finished(seen: Seen, steps: tuple[Step, ...], notes: tuple[Note, ...]) -> Next:
    """Delete the Secret, then the last record, and let the claim go if it is being deleted.

    After a crash in between, what is left still leads here.
    """
    if seen.binding.secret is None:
        return Next(state.of(seen, again=CLOSED))
    claim, kind, is_going = seen.claim, seen.binding.kind.kind, is_deleting(seen.claim)
    lift = unfinalized(seen.binding.cluster, kind, claim, keys.OSB) if is_going else None
    tasks = writes(credentials.removed(seen.binding), *steps, lift).tasks
    message = f"{seen.view.kind.kind} {seen.view.name} is being deleted, and its bindings with it"
    problems = [] if is_going else [(causes.INSTANCE_DELETED, message)]
    after = replace(seen, current=None, candidate=None, older=())
    decision = state.of(after, false=problems, again=SOON if tasks else None)
    return Next(replace(decision, notes=notes, tasks=tasks))


def _is_over(outcome: Outcome) -> bool:
    if isinstance(outcome, outcomes.Progress):
        return outcome.state in ("succeeded", "failed")
    return isinstance(outcome, outcomes.Gone | outcomes.Absent)

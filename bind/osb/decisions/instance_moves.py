"""Moves and calls of the engine for instances: their own, and the common ones."""

from dataclasses import dataclass, replace

from bind.osb import engine
from bind.osb.decisions import causes, record
from bind.osb.decisions import instance_state as state
from bind.osb.decisions import view as views
from bind.osb.decisions.moves import Moves
from bind.osb.decisions.record import Intent, Record, Sent
from bind.osb.engine import Move
from reconciler.blueprints.offering import messages, outcomes
from reconciler.blueprints.offering.outcomes import Done, Outcome
from reconciler.core import conditions, keys
from reconciler.core.decision import Decision, Note, Step, unfinalized, writes
from reconciler.core.manifest import is_deleting, uid_of


@dataclass(frozen=True, slots=True)
class InstanceMoves(Moves):
    """An instance at a broker."""

    def busy(self, problem: str) -> views.Next:
        wait = engine.BUSY if self.is_leaving else min(self.timing.poll, engine.BUSY)
        return self.rests(wait, self._waiting(problem))

    def _at_work(self, after: Record, description: str | None = None) -> Decision:
        return state.in_progress(self.view, after, description=description)

    def _overdue(self, problem: str) -> Decision:
        return state.overdue(self.view, self.one, problem)

    def _waiting(self, problem: str) -> Decision:
        return state.waiting(self.view, self.one, problem)

    def _row(self, call: messages.Call) -> str:  # noqa: PLR0911 - a row each
        """Return the row of the table that an answer is of, "" where nothing waits for it.

        A question is asked for a claim, so its answer ends with that.
        """
        one, questions = self.one, self.pause.questions
        intent, operation, is_new = one.intent, one.operation, one.state == record.INTENDED
        is_claimed = self.view.live is not None and one.claim.uid == uid_of(self.view.live)
        is_open = operation is None and intent is not None and not intent.closed
        match call:
            case messages.Provision():
                return "Provision" if is_new and is_open else ""
            case messages.Update():
                return "Update" if one.state == record.PRESENT and is_open else ""
            case messages.Deprovision():
                return "Deprovision" if self.is_leaving and operation is None else ""
            case messages.FetchInstance() if is_claimed and not (is_new or questions):
                return "reading"
            case messages.LastOperation() if operation is not None:
                polls = {record.INTENDED: "making", record.LEAVING: "leaving"}
                late = " late" if operation.deadline <= self.now else ""
                return polls.get(one.state, "changing") + late
        if intent is None or not (is_new and is_open and is_claimed):
            return ""
        return ("asking again" if intent.tries else "asking") if questions else "edited"

    def _why(self, outcome: Outcome) -> str:
        if self.pause.questions:
            return "the broker has an object with this id, and does not describe it"
        return Moves._why(self, outcome)

    def _otherwise(self, move: Move, outcome: Outcome) -> views.Next:  # noqa: C901, PLR0911 - a move each
        problem, intent, questions = self._why(outcome), self.one.intent, self.pause.questions
        match move:
            case Move.DONE if intent is not None:
                return self.now_as_wanted(intent.target)
            case Move.UNREAD if intent is not None:
                return self.now_as_wanted(Sent(intent.target.plan), unread=True)
            case Move.FORGET:
                return self._forgotten()
            case Move.REREAD:
                # The record notes that the catalogue was read for this.
                next_ = self.repeated(problem, catalog=state.catalogue(self.view))
                return replace(next_, reads_catalogue=True)
            case Move.ASK if not questions or (questions == 1 and state.is_retrievable(self.view)):
                asked = replace(self.pause, questions=questions + 1)
                return self.next(Decision(again=views.SOON), pause=asked)
            case Move.ANEW:
                return self._anew(outcome)
            case Move.FAIL:
                return self._update_failed(outcome, problem)
            case Move.STOP | Move.ASK:
                return self._stopped(f"{problem}; its data may be there")
            case Move.MISSING:
                return self._missing()
            case Move.READ if isinstance(outcome, Done):
                return self._compared(outcome)
        return self._unlearnt(problem, rereads=move is Move.UNPROVED)

    def answered(self, call: messages.Call, outcome: Outcome) -> views.Next:
        """Decide from an answer; the address of the dashboard in it is shown."""
        next_ = Moves.answered(self, call, outcome)
        url = outcome.dashboard_url if isinstance(outcome, Done | outcomes.Accepted) else ""
        if not (url and next_.decision.fields):
            return next_
        fields = {**next_.decision.fields, "dashboardURL": url}
        return replace(next_, decision=replace(next_.decision, fields=fields))

    def now_as_wanted(self, target: Sent, *, unread: bool = False) -> views.Next:
        """Have a record state that the broker has the target; `unread`: of which its plan is known.

        One that was made with it was read by that.
        """
        one, checked = self.one, self.pause.checked
        fields = {"sent": target, "plan": target.plan, "intent": None, "operation": None}
        note = Note("Updated", f"{one.instance} was updated")
        if one.state != record.PRESENT:
            fields |= {"state": record.PRESENT, "made_at": self.now}
            note = Note("Provisioned", f"the instance {one.instance} is there")
            checked = None if unread else self.now
        true = [causes.PROVISIONED, *(() if unread else (causes.UP_TO_DATE,))]
        if not unread and conditions.get(self.view.live, causes.IN_SYNC):
            true.append(causes.IN_SYNC)
        decision = state.of(self.view, replace(one, **fields), true=true)  # type: ignore[arg-type]
        step, pause = record.changed(one, **fields), views.Pause(checked=checked)
        return self.next(decision, step, again=views.SOON, note=note, pause=pause)

    def mitigated(self, problem: str) -> views.Next:
        """Have an instance deleted of which nobody knows whether it is whole.

        But not one that may have data: it was there once, or its record is not of this life.
        """
        if self.one.made_at is not None or self.one.term != self.view.term:
            return self._stopped(f"{problem}; its data may be there")
        step = record.changed(self.one, state=record.LEAVING, operation=None, intent=None)
        message = f"{problem}; it is deleted at the broker before another try"
        decision = state.of(self.view, self.one, false=[(causes.RETRYING, message)])
        note = Note("ProvisionFailed", problem, type="Warning")
        return self.next(decision, step, again=views.SOON, note=note, pause=views.NO_PAUSE)

    def _stopped(self, problem: str) -> views.Next:
        """Keep an instance that may be there for long: it is deleted with its claim only."""
        one, intent = self.one, self.intent
        closed = replace(
            intent,
            tries=max(intent.tries, 1),
            closed=record.FAILED,
            catalog=state.catalogue(self.view),
        )
        made_at = one.made_at or intent.since
        step = record.changed(one, intent=closed, operation=None, made_at=made_at)
        message = (
            f"{problem}, so it is not deleted at the broker. It is asked for again once the claim "
            f"changes, or its annotation {keys.OSB_RETRY}"
        )
        after, stated = replace(one, intent=closed, operation=None), [(causes.FAILED, message)]
        decision = state.of(self.view, after, false=stated)
        note = Note("ProvisionFailed", message, type="Warning")
        return self.next(decision, step, note=note, pause=views.NO_PAUSE)

    def _forgotten(self) -> views.Next:
        """Return the decision where a broker knows nothing of an operation, again and again.

        It may have ended long ago: "a backup with its record was restored". So a PUT is made again,
        which the broker answers by what it has, and nothing is deleted, whatever it answers.
        """
        problem, one, intent = "the broker knows no such operation", self.one, self.intent
        if intent.tries >= engine.MOST_TRIES:
            return self._stopped(f"{problem}, though it was asked {intent.tries + 1} times")
        again = replace(intent, tries=intent.tries + 1)
        made_at = one.made_at or intent.since
        step = record.changed(one, intent=again, operation=None, made_at=made_at)
        wait = engine.unknown(intent.tries)
        pause = views.Pause(until=self.now + wait, checked=self.pause.checked)
        return self.next(self._waiting(problem), step, again=wait, pause=pause)

    def _anew(self, outcome: Outcome) -> views.Next:
        """Ask for the claim's present spec. That it may have been made is not forgotten."""
        intent = self.intent
        is_absent = isinstance(outcome, outcomes.Absent | outcomes.Gone)  # a refusal proves nothing
        target, tries = state.wanted(self.view, None), min(intent.tries, 1) if is_absent else 1
        new = Intent("Provision", self.now, target, tries, catalog=intent.catalog)
        step = record.changed(self.one, intent=new, plan=target.plan, asked=state.asked(self.view))
        return self.next(Decision(again=views.SOON), step, pause=views.NO_PAUSE)

    def _refused(self, problem: str) -> views.Next:
        intent, is_new = self.intent, self.one.state == record.INTENDED
        step = record.changed(self.one, intent=self.refused(state.catalogue(self.view)))
        cause = causes.REFUSED if is_new else causes.UPDATE_REFUSED
        decision = state.of(self.view, self.one, false=[(cause, problem)])
        note = Note(f"{intent.verb}Refused", problem, type="Warning")
        return self.next(decision, step, note=note, pause=views.NO_PAUSE)

    def _update_failed(self, outcome: Outcome, problem: str) -> views.Next:
        """Try an update again, as the broker allows; an unusable instance is not Provisioned."""
        one, intent = self.one, self.intent
        last = outcome if isinstance(outcome, outcomes.Progress) else outcomes.Progress("failed")
        tries = intent.tries + 1
        is_last = last.update_repeatable is False or tries >= engine.MOST_TRIES
        closed = replace(intent, tries=tries, closed=record.FAILED if is_last else "")
        step = record.changed(one, intent=closed, operation=None)
        stated = [(causes.UPDATE_FAILED, problem)]
        if last.instance_usable is False:
            stated.append((causes.NOT_USABLE, problem))
        decision = state.of(self.view, replace(one, intent=closed, operation=None), false=stated)
        note = Note("UpdateFailed", problem, type="Warning")
        return self.rests(engine.unknown(tries - 1), decision, step, note=note)

    def _again(self, problem: str) -> views.Next:
        one, count, live = self.one, self.pause.count, self.view.live
        step = None if one.operation is None else record.changed(one, operation=None)
        decision = state.leaving(self.view, one)
        if live is not None:
            failed = causes.undeleted(causes.RETRYING, live, problem)
            stated = (causes.NOT_DELETED, problem) if is_deleting(live) else failed
            decision = state.trouble(decision, conditions.false(*stated))
        note = None if count else Note("DeprovisionFailed", problem, type="Warning")
        return self.rests(engine.deletion(count), decision, step, note=note)

    def gone(self) -> views.Next:
        """Forget an instance that is confirmed to be gone; a failed try has a next number."""
        view, gone, live = self.view, self.one, self.view.live
        steps: tuple[Step, ...] = (record.deleted(gone),)
        decision = Decision(again=views.SOON)
        if live is not None and view.broker is not None:
            if is_deleting(live):
                rest = [one for one in view.records if one.id != gone.id]
                lift = None if rest else unfinalized(view.cluster, view.kind.kind, live, keys.OSB)
                steps = steps if lift is None else (*steps, lift)
                note = Note("Deprovisioned", f"the instance {gone.instance} is gone")
                decision = replace(decision, notes=(note,))
            elif gone is view.current and gone.claim.uid == uid_of(live):
                new = state.further(view, gone)
                steps = (record.created(new, view.broker.spec.namespace), *steps)
                decision = replace(state.again_later(view, new), again=views.SOON)
        return views.Next(replace(decision, tasks=writes(*steps).tasks))

    def _missing(self) -> views.Next:
        """Report that an instance is gone. It is not made again by itself: it would be empty."""
        one = self.one
        intent = Intent("Provision", self.now, one.sent or Sent(one.plan), closed=record.MISSING)
        is_known = one.intent is not None and one.intent.closed == record.MISSING
        step = None if is_known else record.changed(one, intent=intent, operation=None)
        message = (
            "the broker does not know it any more; its data is lost. "
            f"Annotation {keys.OSB_RETRY} with another text makes a new, empty one"
        )
        decision = state.of(self.view, one, false=[(causes.MISSING, message)])
        note = None if is_known else Note("Missing", message, type="Warning")
        again = self.timing.resync
        return self.next(
            decision, step, again=again, note=note, pause=views.Pause(checked=self.now)
        )

    def _unlearnt(self, problem: str, *, rereads: bool) -> views.Next:
        """Return the decision where a reading showed nothing: an update goes on without."""
        if rereads:
            next_ = self.rests(engine.unsent(0, None), Decision(), checked=None)
            return replace(next_, reads_catalogue=True)
        tried = self.one.intent.tries if self.one.intent is not None else 0
        pause = replace(self.pause, checked=self.now, tried=tried)
        return self.next(state.unread(self.view, problem), again=views.SOON, pause=pause)

    def _compared(self, outcome: Done) -> views.Next:
        view, one, intent = self.view, self.one, self.one.intent
        pause = replace(self.pause, checked=self.now, until=None, count=0)
        if intent is not None and intent.closed == record.MISSING:
            return replace(views.soon(record.changed(one, intent=None)), pauses={one.id: pause})
        if intent is not None and not intent.closed:
            if state.confirms(view, one.sent, intent.target, outcome):
                return self.now_as_wanted(intent.target)
            return self.next(Decision(again=views.SOON), pause=replace(pause, tried=intent.tries))
        if one.sent is not None and not one.sent.digest:
            target = state.wanted(view, one.sent)
            if state.confirms(view, None, target, outcome):
                return replace(self.now_as_wanted(target), pauses={one.id: pause})
            return self.next(Decision(again=views.SOON), pause=pause)
        differing = state.differences(view, one.sent, outcome) if one.sent else ()
        return self.next(state.synced(view, one, differing), again=self.timing.resync, pause=pause)

    def send(self, intent: Intent) -> views.Next:
        """Send an intent, again where its outcome is not known."""
        view, one, target = self.view, self.one, state.wanted(self.view, self.one.sent)
        decision, asked = state.begun(view, one, intent), state.asked(view)
        is_other, is_update = not state.is_as_wanted(intent.target, target), intent.verb == "Update"
        if intent.since > self.now and is_other:
            # It was never sent: send the claim's present spec instead, at once.
            changed = replace(intent, since=self.now, target=target)
            return views.soon(record.changed(one, intent=changed, plan=target.plan, asked=asked))
        if is_update and is_other:
            # The earlier request may have been sent, so this one is sent whole.
            unknown = Sent(one.plan if one.sent is None else one.sent.plan)
            changed = replace(intent, target=target)
            return views.soon(record.changed(one, intent=changed, sent=unknown, asked=asked))
        if self.wait(intent.since) is None and (wait := self._invalid(intent, target)) is not None:
            return wait
        ids = (one.instance, one.service, one.plan)
        call: messages.Call
        if is_update:
            call = self._update(intent, target)
        elif self.pause.questions > 1:
            call = messages.FetchInstance(*ids)
        elif self.pause.questions or is_other:
            call = messages.LastOperation(*ids)
        else:
            call = self._provision(intent)
        return self.asks(decision, call, intent.since)

    def _invalid(self, intent: Intent, target: Sent) -> views.Next | None:
        """Keep back an intent that the plan refuses, unless it may have been sent already."""
        if intent.tries:
            return None
        sent, cause = None, causes.INVALID
        if intent.verb == "Update":
            sent, cause = self.one.sent, causes.UPDATE_INVALID
        if not (problem := state.invalid(self.view, target, sent)):
            return None
        return views.Next(state.of(self.view, self.one, false=[(cause, problem)]))

    def remove(self) -> views.Next:
        """Have an instance deleted at the broker, until that is confirmed."""
        one = self.one
        if one.operation is not None:
            return self.poll()
        call = messages.Deprovision(one.instance, one.service, one.plan)
        return self.asks(state.leaving(self.view, one), call)

    def _provision(self, intent: Intent) -> messages.Provision:
        one, live, place = self.one, self.view.live, self.view.place
        assert live is not None
        assert place is not None
        return messages.Provision(
            instance=one.instance,
            service=one.service,
            plan=intent.target.plan,
            organization=place.cluster,
            space=place.space,
            context=place.context(self.view.name),
            parameters=views.parameters_of(live) or None,
            maintenance=intent.target.maintenance,
        )

    def _update(self, intent: Intent, target: Sent) -> messages.Update | messages.FetchInstance:
        """Return the update; where an earlier one may have been done, the read of the instance."""
        view, one, place = self.view, self.one, self.view.place
        if intent.tries and self.pause.tried != intent.tries and state.is_retrievable(view):
            return messages.FetchInstance(one.instance, one.service, one.plan)
        assert place is not None
        sent = one.sent or Sent(one.plan)
        whole = not sent.digest or state.drifts(view)
        differs = whole or target.digest != sent.digest
        is_newer = whole or target.maintenance != sent.maintenance
        return messages.Update(
            instance=one.instance,
            service=one.service,
            plan=target.plan,
            parameters=state.changeable(view, target.plan) if differs else None,
            context=place.context(view.name),
            maintenance=target.maintenance if is_newer else "",
            previous=messages.Previous(sent.plan, place.cluster, place.space, sent.maintenance),
        )

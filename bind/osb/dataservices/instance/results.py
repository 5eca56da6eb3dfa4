"""Decides what follows from a broker's answer about a ServiceInstance."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from bind.osb.dataservices import managed, rules
from bind.osb.dataservices.answering import in_progress, refusal, unusable
from bind.osb.dataservices.instance.facts import PROVISIONED, Seen
from bind.osb.dataservices.managed import AVAILABLE, CREATING, DELETING, MISSING, UNAVAILABLE
from bind.osb.dataservices.rules import Sent
from reconciler.blueprints.offering import outcomes as answers
from reconciler.blueprints.offering.messages import (
    Call,
    Deprovision,
    FetchInstance,
    Provision,
    Update,
)
from reconciler.core import keys, manifest
from reconciler.core.decision import Decision, Note, Task
from reconciler.core.manifest import JSON
from reconciler.core.times import format_time

_PAUSES: Final = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30))


def answered(seen: Seen, call: Call, outcome: answers.Outcome) -> Decision:
    """Return what follows from an answer."""
    if (common := unusable(seen, outcome)) is not None:
        return common
    match call:
        case Provision():
            return _provisioned(seen, call, outcome)
        case Update():
            return _updated(seen, call, outcome)
        case Deprovision():
            return _deprovisioned(seen, outcome)
        case FetchInstance():
            return _fetched(seen, outcome)
        case _:
            return _polled(seen, outcome)


def _polled(seen: Seen, outcome: answers.Outcome) -> Decision:
    if seen.is_deleting or seen.state == "deleting":
        return _deletion_polled(seen, outcome)
    if seen.state in PROVISIONED:
        return _update_polled(seen, outcome)
    return _creation_polled(seen, outcome)


def _now(seen: Seen) -> str:
    return format_time(seen.now)


def _with(decision: Decision, seen: Seen, annotation: Sent) -> Decision:
    """Return the decision with what was sent, written before the status."""
    step = managed.annotated(seen, {keys.OSB_SENT: annotation.text()})
    return replace(decision, tasks=(Task((step,), managed.WRITE_FAILED), *decision.tasks))


def _asked(seen: Seen, plan: str, *, refused: bool = False) -> Sent:
    parameters = manifest.get_map(seen.wanted, "parameters")
    return Sent(plan, parameters, seen.retry, refused)


def _done(seen: Seen, what: Sent, note: Note) -> Decision:
    """Say that the instance is there as it was asked for."""
    at = seen.at_provider
    now = _now(seen)
    after: dict[str, JSON] = {
        "state": "provisioned",
        "planId": what.plan,
        "parameters": what.parameters,
        "createdAt": manifest.get_text(at, "createdAt") or now,
        "provisionedAt": manifest.get_text(at, "provisionedAt") or now,
        "updatedAt": now,
        "instanceId": seen.id,
    }
    said = seen.said(after, AVAILABLE, managed.SUCCESS, pendingOperation=None)
    decision = replace(said, notes=(note,), again=rules.SOON)
    return _with(decision, seen, what) if seen.asks_again else decision


def _provisioned(seen: Seen, call: Provision, outcome: answers.Outcome) -> Decision:
    what = _asked(seen, call.plan)
    match outcome:
        case answers.Done():
            return _done(seen, what, Note("Provisioned", "The broker made the instance"))
        case answers.Conflict():
            # It is ours by its id, and not as it is wanted now: an update says so.
            unknown = replace(what, parameters={})
            return _done(seen, unknown, Note("Provisioned", "The broker has the instance"))
        case answers.Accepted():
            at: dict[str, JSON] = {"state": "deploying", "createdAt": _now(seen)}
            note = Note("Provisioning", "The broker makes the instance")
            return _accepted(seen, at, outcome, what, note)
    problem = refusal(outcome)
    said = seen.failed(problem, UNAVAILABLE, again=None)
    note = Note("ProvisioningRefused", problem, "Warning")
    return _with(replace(said, notes=(note,)), seen, replace(what, refused=True))


def _accepted(
    seen: Seen, at: Mapping[str, JSON], outcome: answers.Accepted, what: Sent, note: Note
) -> Decision:
    key = "" if outcome.operation is None else outcome.operation.reveal()
    ready = CREATING if at.get("state") == "deploying" else AVAILABLE
    said = seen.said(at, ready, managed.SUCCESS, pendingOperation=key)
    again = rules.poll_pause(seen.now, _now(seen), outcome.retry_after)
    return _with(replace(said, notes=(note,), again=again), seen, what)


def _creation_polled(seen: Seen, outcome: answers.Outcome) -> Decision:
    since = manifest.get_text(seen.at_provider, "createdAt")
    match outcome:
        case answers.Progress(state="succeeded"):
            plan = seen.plan_id
            what = seen.sent or _asked(seen, plan)
            return _done(seen, what, Note("Provisioned", "The broker made the instance"))
        case answers.Progress(state="failed"):
            return _broken(seen, outcome.problem or "The broker could not make the instance")
        case answers.Absent(is_json=True) if seen.confirmed:
            if seen.pause() >= rules.UNKNOWN:
                return _broken(seen, "The broker does not know what it accepted")
            return seen.failed(refusal(outcome), again=rules.POLL)
    if rules.is_overdue(seen.now, since, seen.plan):
        return _broken(seen, "The broker takes too long to make the instance")
    words = outcome.problem if isinstance(outcome, answers.Progress) else ""
    return in_progress(seen, outcome, since, replace(CREATING, message=words))


def _broken(seen: Seen, problem: str) -> Decision:
    """Say that nothing came of making it; what there is of it is deleted next."""
    said = seen.said(
        {"state": "failed"},
        replace(UNAVAILABLE, message=problem),
        managed.error(problem),
        pendingOperation=None,
    )
    note = Note("ProvisioningFailed", problem, "Warning")
    decision = replace(said, notes=(note,), again=rules.SOON)
    if seen.sent is not None:
        return decision
    return _with(decision, seen, _asked(seen, seen.plan_id))


def _updated(seen: Seen, call: Update, outcome: answers.Outcome) -> Decision:
    what = _asked(seen, call.plan or call.previous.plan)
    match outcome:
        case answers.Done():
            return _done(seen, what, Note("Updated", "The broker changed the instance"))
        case answers.Accepted():
            at: dict[str, JSON] = {"updatedAt": _now(seen)}
            note = Note("Updating", "The broker changes the instance")
            return _accepted(seen, at, outcome, what, note)
        case answers.Gone():
            return _lost(seen)
    usable = outcome.instance_usable if isinstance(outcome, answers.Refused) else None
    return _update_failed(seen, what, refusal(outcome), usable=usable, repeatable=False)


def _update_failed(
    seen: Seen, what: Sent, problem: str, *, usable: bool | None, repeatable: bool
) -> Decision:
    ready = AVAILABLE if usable is not False else replace(UNAVAILABLE, message=problem)
    said = seen.said({}, ready, managed.error(problem), pendingOperation=None)
    note = Note("UpdateFailed", problem, "Warning")
    again = max(seen.pause(), rules.POLL) if repeatable else None
    decision = replace(said, notes=(note,), again=again)
    return _with(decision, seen, replace(what, refused=not repeatable))


def _update_polled(seen: Seen, outcome: answers.Outcome) -> Decision:
    since = manifest.get_text(seen.at_provider, "updatedAt")
    what = seen.sent or _asked(seen, seen.plan_id)
    match outcome:
        case answers.Progress(state="succeeded"):
            return _done(seen, what, Note("Updated", "The broker changed the instance"))
        case answers.Progress(state="failed"):
            problem = outcome.problem or "The broker could not change the instance"
            usable, repeatable = outcome.instance_usable, outcome.update_repeatable is not False
            return _update_failed(seen, what, problem, usable=usable, repeatable=repeatable)
    if rules.is_overdue(seen.now, since, seen.plan):
        problem = "The broker takes too long to change the instance"
        return _update_failed(seen, what, problem, usable=None, repeatable=False)
    return in_progress(seen, outcome, since, AVAILABLE)


def _deprovisioned(seen: Seen, outcome: answers.Outcome) -> Decision:
    match outcome:
        case answers.Done() | answers.Gone():
            return _gone(seen)
        case answers.Absent(is_json=True) if seen.confirmed:
            return _gone(seen)
        case answers.Accepted():
            key = "" if outcome.operation is None else outcome.operation.reveal()
            at: dict[str, JSON] = {"state": "deleting"}
            said = seen.said(at, DELETING, managed.SUCCESS, pendingOperation=key)
            again = rules.poll_pause(seen.now, _now(seen), outcome.retry_after)
            return replace(said, again=again)
    return seen.failed(refusal(outcome), DELETING, again=max(seen.pause(), rules.POLL))


def _deletion_polled(seen: Seen, outcome: answers.Outcome) -> Decision:
    match outcome:
        case answers.Progress(state="succeeded") | answers.Gone():
            return _gone(seen)
        case answers.Progress(state="failed"):
            problem = outcome.problem or "The broker could not delete the instance"
        case answers.Absent():
            problem = ""  # it may be gone: the next DELETE says so
        case _:
            since = manifest.get_text(seen.live, "metadata", "deletionTimestamp")
            return in_progress(seen, outcome, since, DELETING)
    conditions = (DELETING, managed.error(problem)) if problem else (DELETING,)
    said = seen.said({}, *conditions, pendingOperation=None)
    return replace(said, again=max(seen.pause(), rules.POLL) if problem else rules.SOON)


def _gone(seen: Seen) -> Decision:
    """Let the object go; or, where it was made in vain, make another, thrice and not more."""
    at: dict[str, JSON] = {"state": "deleted", "deletedAt": _now(seen)}
    if seen.is_deleting:
        said = seen.said(at, DELETING, managed.SUCCESS, pendingOperation=None)
        left = managed.released(seen, "Deprovisioned", "The broker deleted the instance")
        return replace(left, fields=said.fields, sums_up=False)
    tried = seen.number % (len(_PAUSES) + 1)
    ready = seen.condition(managed.READY)
    problem = manifest.get_text(ready, "message") or "The broker could not make the instance"
    unavailable = replace(UNAVAILABLE, message=problem)
    if tried < len(_PAUSES):
        at = {"state": "deleted", "instanceId": seen.next_id}
        said = seen.said(at, unavailable, pendingOperation=None)
        return replace(said, again=_PAUSES[tried])
    said = seen.said({"state": "failed"}, unavailable, pendingOperation=None)
    last = seen.sent or _asked(seen, seen.plan_id)
    return _with(said, seen, replace(last, refused=True))


def _lost(seen: Seen) -> Decision:
    problem = "The broker does not know the instance any more; nothing is made in its place"
    at: dict[str, JSON] = {"state": "deleted"}
    said = seen.said(at, replace(MISSING, message=problem), managed.error(problem))
    note = Note("Missing", problem, "Warning")
    notes = () if seen.state == "deleted" else (note,)
    return replace(said, notes=notes, again=rules.RESYNC)


def _fetched(seen: Seen, outcome: answers.Outcome) -> Decision:
    match outcome:
        case answers.Done():
            return _compared(seen, outcome)
        case answers.Gone():
            return _lost(seen)
        case answers.Absent(is_json=True) if seen.confirmed:
            return _lost(seen)
    # That it cannot be read says nothing about what is there.
    return seen.failed(refusal(outcome), again=max(seen.pause(), rules.BUSY))


def _compared(seen: Seen, found: answers.Done) -> Decision:
    """Say what differs by its names; what the broker leaves out does not."""
    at = seen.at_provider
    held = manifest.get_map(at, "parameters")
    shown = found.parameters or {}
    differ = sorted(
        key for key in held if key in shown and not rules.are_alike(held[key], shown[key])
    )
    if found.plan and found.plan != seen.plan_id:
        differ = ["plan", *differ]
    conditions = (AVAILABLE, managed.SUCCESS)
    if differ:
        names = ", ".join(differ)
        problem = f"The broker has another {names}; the annotation {keys.OSB_RETRY} changes it back"
        conditions = (AVAILABLE, managed.error(problem))
    return replace(seen.said({"state": "provisioned"}, *conditions), again=rules.RESYNC)

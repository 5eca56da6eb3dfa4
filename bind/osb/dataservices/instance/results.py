"""What follows from a broker's answer about a ServiceInstance: the moves of the engine's table."""

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from bind.osb import engine
from bind.osb.dataservices import managed, rules
from bind.osb.dataservices.instance import decide
from bind.osb.dataservices.instance.decide import PROVISIONED, Seen
from bind.osb.dataservices.managed import AVAILABLE, CREATING, DELETING, MISSING, UNAVAILABLE
from bind.osb.dataservices.rules import Sent, in_progress, refusal, unusable
from bind.osb.engine import Move, Standing
from reconciler.blueprints.offering import outcomes as answers
from reconciler.blueprints.offering.messages import (
    Call,
    Deprovision,
    FetchInstance,
    Provision,
    Update,
)
from reconciler.core import keys, manifest
from reconciler.core.decision import Decision, Note, Patch
from reconciler.core.times import format_time

if TYPE_CHECKING:
    from bind.osb.dataservices.instance.decide import Step
    from reconciler.core.manifest import JSON

_PAUSES: Final = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30))
_SINCE: Final = {"making": "createdAt", "changing": "updatedAt"}


def answered(seen: Seen, call: Call, outcome: answers.Outcome) -> "Step":
    """Return what follows from an answer: it may be a question."""
    row, last = _row(seen, call), seen.sent
    if (common := unusable(seen, outcome)) is not None and not _is_counted(row, outcome):
        return common
    is_lost = seen.confirmed and seen.pause() >= rules.UNKNOWN
    is_counted = row == "Provision" or row.startswith("asking")
    at = Standing(
        last.tries if last is not None and is_counted else 0,
        engine.MOST_MISSES if is_lost else 0,
        seen.confirmed,
        has_reread=True,
    )
    return _moved(seen, call, row, outcome, engine.move(row, outcome, at))


def _is_counted(row: str, outcome: answers.Outcome) -> bool:
    return isinstance(outcome, answers.Unknown) and row in ("Provision", "asking", "asking again")


def _row(seen: Seen, call: Call) -> str:  # noqa: PLR0911 - a row each
    """Return the row of the table that an answer is of."""
    match call:
        case Provision():
            return "Provision"
        case Update():
            return "Update"
        case Deprovision():
            return "Deprovision"
        case FetchInstance() if seen.state in (*PROVISIONED, "deleted"):
            return "reading"
        case FetchInstance():
            return _asking(seen)
    if seen.state == "deleting":
        return "leaving"
    polled = "changing" if seen.state in PROVISIONED else "making"
    if not decide.is_polled(seen):
        return _asking(seen)
    since = manifest.get_text(seen.at_provider, _SINCE[polled])
    return f"{polled} late" if rules.is_overdue(seen.now, since, seen.plan) else polled


def _asking(seen: Seen) -> str:
    return "asking again" if seen.sent is not None and seen.sent.tries else "asking"


def _moved(  # noqa: C901, PLR0911, PLR0912 - a move each
    seen: Seen, call: Call, row: str, outcome: answers.Outcome, move: Move
) -> "Step":
    problem, plan = _why(outcome, row), getattr(call, "plan", "") or seen.plan_id
    is_there = seen.state in PROVISIONED
    is_call = isinstance(call, Provision | Update)
    what = _asked(seen, plan) if is_call or seen.sent is None else seen.sent
    match move:
        case Move.DONE if is_there:
            return _done(seen, what, Note("Updated", "The broker changed the instance"))
        case Move.DONE:
            return _done(seen, what, Note("Provisioned", "The broker made the instance"))
        case Move.UNREAD:
            # It is ours by its id; whether it is as it is wanted, an update says.
            unknown = replace(_asked(seen, plan), parameters={})
            return _done(seen, unknown, Note("Provisioned", "The broker has the instance"))
        case Move.ACCEPT:
            return _accepted(seen, outcome, what, row)
        case Move.POLL | Move.MISS:
            words = outcome.problem if isinstance(outcome, answers.Progress) else ""
            ready = replace(CREATING, message=words) if row.startswith("making") else AVAILABLE
            return in_progress(seen, outcome, _since(seen, row), _ready(seen, ready))
        case Move.FORGET if what.tries < engine.MOST_TRIES:
            step = _noted(seen, replace(what, tries=what.tries + 1))
            at: dict[str, JSON] = {"state": ""}
            return seen.said(at, CREATING, again=rules.SOON, step=step, pendingOperation=None)
        case Move.REPEAT if row == "Provision":
            tries = seen.sent.tries + 1 if seen.sent is not None else 1
            step = _noted(seen, replace(what, tries=tries))
            return seen.failed(problem, again=seen.pause(), step=step)
        case Move.ASK if isinstance(call, Provision):
            return decide.last_operation(seen)
        case Move.ASK if not isinstance(call, FetchInstance) and decide.is_retrievable(seen):
            return decide.fetch(seen)
        case Move.REFUSE if row == "Provision":
            return _refused(seen, problem, what)
        case Move.REFUSE | Move.FAIL:
            return _update_failed(seen, what, problem, outcome)
        case Move.MITIGATE if not seen.was_there:
            return _broken(seen, problem)
        case Move.FORGET | Move.STOP | Move.ASK | Move.MITIGATE:
            problem = f"{problem}; its data may be there, so it is not deleted. {keys.OSB_RETRY}"
            return _refused(seen, f"{problem} asks for it again", replace(what, tries=1))
        case Move.GONE:
            return _gone(seen)
        case Move.DELETE:
            return seen.said({}, DELETING, again=rules.SOON, pendingOperation=None)
        case Move.AGAIN | Move.UNPROVED if row != "reading":
            stated, again = managed.error(problem), max(seen.pause(), rules.POLL)
            return seen.said({}, DELETING, stated, again=again, pendingOperation=None)
        case Move.LATER:
            return seen.failed(problem, again=seen.pause())
        case Move.MISSING:
            return _lost(seen)
        case Move.READ if isinstance(outcome, answers.Done):
            return _compared(seen, outcome)
    # That it cannot be read says nothing about what is there.
    return seen.failed(problem, again=max(seen.pause(), rules.BUSY))


def _ready(seen: Seen, ready: managed.Condition) -> managed.Condition:
    return DELETING if seen.is_deleting else ready


def _since(seen: Seen, row: str) -> str:
    if row == "leaving":
        return manifest.get_text(seen.live, "metadata", "deletionTimestamp")
    return manifest.get_text(seen.at_provider, _SINCE[row.removesuffix(" late")])


def _why(outcome: answers.Outcome, row: str) -> str:
    match outcome:
        case answers.Unknown() | answers.Unsent():
            return outcome.problem
        case answers.Progress(state="failed"):
            return outcome.problem or "The broker could not do it"
        case answers.Progress(state="in progress"):
            return "The broker takes too long"
        case _ if row.startswith("asking"):
            return "The broker has something of this id, and does not say what"
        case answers.Absent() if row.startswith(("making", "changing")):
            return "The broker does not know what it accepted"
    return refusal(outcome)


def _now(seen: Seen) -> str:
    return format_time(seen.now)


def _noted(seen: Seen, what: Sent) -> Patch:
    """Return the write of what was sent."""
    return managed.annotated(seen, {keys.OSB_SENT: what.text()})


def _asked(seen: Seen, plan: str, *, refused: bool = False) -> Sent:
    parameters, last = manifest.get_map(seen.wanted, "parameters"), seen.sent
    term = seen.term if last is None else last.term  # another life's answer stays that
    return Sent(plan, parameters, seen.retry, refused, term=term)


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
    step, well = _noted(seen, what) if seen.asks_again else None, (AVAILABLE, managed.SUCCESS)
    return seen.said(after, *well, again=rules.SOON, note=note, step=step, pendingOperation=None)


def _refused(seen: Seen, problem: str, what: Sent) -> Decision:
    """Stop until a user asks for something else; what may be there keeps its id."""
    at: dict[str, JSON] = {"state": ""} if seen.state else {}
    stated = (replace(UNAVAILABLE, message=problem), managed.error(problem))
    note = Note("ProvisioningRefused", problem, "Warning")
    step = _noted(seen, replace(what, refused=True))
    return seen.said(at, *stated, note=note, step=step, pendingOperation=None)


def _accepted(seen: Seen, outcome: answers.Outcome, what: Sent, row: str) -> Decision:
    """Say which operation goes on: one that was accepted, or is seen to go on."""
    operation = outcome.operation if isinstance(outcome, answers.Accepted) else None
    key = "" if operation is None else operation.reveal()
    at: dict[str, JSON] = {"state": "deploying", "createdAt": _now(seen)}
    ready, note = CREATING, None
    if row != "Deprovision":
        note = Note("Provisioning", "The broker makes the instance")
    if row == "Update":
        at, ready = {"updatedAt": _now(seen)}, AVAILABLE
        note = Note("Updating", "The broker changes the instance")
    elif row == "Deprovision":
        at, ready = {"state": "deleting"}, DELETING
    again = rules.poll_pause(seen.now, _now(seen), getattr(outcome, "retry_after", None))
    step, well = None if note is None else _noted(seen, what), (ready, managed.SUCCESS)
    return seen.said(at, *well, again=again, note=note, step=step, pendingOperation=key)


def _broken(seen: Seen, problem: str) -> Decision:
    """Say that nothing came of making it; what there is of it is deleted next."""
    stated = (replace(UNAVAILABLE, message=problem), managed.error(problem))
    note = Note("ProvisioningFailed", problem, "Warning")
    step = _noted(seen, _asked(seen, seen.plan_id)) if seen.sent is None else None
    at: dict[str, JSON] = {"state": "failed"}
    return seen.said(at, *stated, again=rules.SOON, note=note, step=step, pendingOperation=None)


def _update_failed(seen: Seen, what: Sent, problem: str, outcome: answers.Outcome) -> Decision:
    usable, repeatable = None, False
    if isinstance(outcome, answers.Progress | answers.Refused):
        usable = outcome.instance_usable
    if isinstance(outcome, answers.Progress) and outcome.state == "failed":
        repeatable = outcome.update_repeatable is not False
    ready = AVAILABLE if usable is not False else replace(UNAVAILABLE, message=problem)
    note, stated = Note("UpdateFailed", problem, "Warning"), (ready, managed.error(problem))
    again = max(seen.pause(), rules.POLL) if repeatable else None
    step = _noted(seen, replace(what, refused=not repeatable))
    return seen.said({}, *stated, again=again, note=note, step=step, pendingOperation=None)


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
        return seen.said(at, unavailable, again=_PAUSES[tried], pendingOperation=None)
    last = seen.sent or _asked(seen, seen.plan_id)
    step = _noted(seen, replace(last, refused=True))
    return seen.said({"state": "failed"}, unavailable, step=step, pendingOperation=None)


def _lost(seen: Seen) -> Decision:
    problem = "The broker does not know the instance any more; nothing is made in its place"
    at: dict[str, JSON] = {"state": "deleted"}
    stated = (replace(MISSING, message=problem), managed.error(problem))
    note = None if seen.state == "deleted" else Note("Missing", problem, "Warning")
    return seen.said(at, *stated, again=rules.RESYNC, note=note)


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
    return seen.said({"state": "provisioned"}, *conditions, again=rules.RESYNC)

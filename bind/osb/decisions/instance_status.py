"""Computes the status of an instance: phase, conditions, plan, operation, maintenance."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from bind.osb.decisions import causes, record
from bind.osb.decisions.record import Intent, Record
from bind.osb.decisions.view import InstanceView
from reconciler.core import conditions, keys
from reconciler.core.conditions import Cause, Condition
from reconciler.core.decision import NOTHING, Decision
from reconciler.core.manifest import JSON, is_deleting, uid_of
from reconciler.core.times import format_time

READY: Final = "Ready"
PENDING: Final = "Pending"
FAILED: Final = "Failed"
DELETING: Final = "Deleting"

_DOING: Final = {"Provision": "Provisioning", "Update": "Updating", "Deprovision": DELETING}


def of(
    view: InstanceView,
    current: Record | None,
    *,
    phase: str = READY,
    true: Iterable[str] = (),
    false: Iterable[tuple[Cause, str]] = (),
    again: timedelta | None = None,
) -> Decision:
    """Return what a claim's status is to say; conditions that are not named stay."""
    if view.live is None:
        return replace(NOTHING, again=again)
    if current is not None and current.claim.uid != uid_of(view.live):
        current = None  # a predecessor's
    stated = [conditions.true(each) for each in true]
    stated += [conditions.false(cause, message) for cause, message in false]
    phase = DELETING if is_deleting(view.live) else phase
    return Decision(
        conditions=tuple(stated),
        fields={"phase": phase, **_facts(view, current)},
        again=again,
    )


def kept(view: InstanceView, current: Record) -> Decision:
    """Return the status of an instance that is there: what is well; else it stays as it was."""
    closed = current.intent
    if closed is None:
        repaired = [causes.PROVISIONED, causes.UP_TO_DATE]
        return of(view, current, true=repaired)
    if closed.closed == record.MISSING:
        return of(view, current, phase=FAILED)
    return of(view, current)


def begun(view: InstanceView, current: Record, intent: Intent) -> Decision:
    """Return the status while a call is on its way."""
    if intent.verb == "Update":
        return of(view, current, phase="Updating", false=[(causes.UPDATING, "it is being updated")])
    said = conditions.said(view.live, causes.PROVISIONED)
    if said is not None and said.reason in (causes.RETRYING.reason, causes.PROVISIONING.reason):
        return of(view, current, phase="Provisioning")
    message = "the broker is asked for it"
    return of(view, current, phase="Provisioning", false=[(causes.PROVISIONING, message)])


def in_progress(view: InstanceView, current: Record, *, description: str = "") -> Decision:
    """Return the status while the broker works."""
    if current.state == record.LEAVING:
        return _with_operation(leaving(view, current), current, "Deprovision", description)
    verb = "Provision" if current.state == record.INTENDED else "Update"
    cause = causes.PROVISIONING if verb == "Provision" else causes.UPDATING
    message = "the broker is at work"
    decision = of(view, current, phase=_DOING[verb], false=[(cause, message)])
    return _with_operation(decision, current, verb, description)


def overdue(view: InstanceView, current: Record, problem: str) -> Decision:
    """Return the status where a broker does not say how a provisioning past its deadline ended."""
    stated = conditions.false(causes.PROVISIONING, causes.overdue(problem))
    decision = in_progress(view, current)
    return decision if view.live is None else trouble(decision, stated)


def leaving(view: InstanceView, current: Record) -> Decision:
    """Return the status while an instance is deleted: the claim's, or a failed try."""
    if view.live is None:
        return NOTHING
    if not is_deleting(view.live):
        return of(view, current, phase="Provisioning")
    said = conditions.said(view.live, conditions.DELETES_ALLOWED)
    has_failed = said is not None and said.reason == causes.NOT_DELETED.reason
    return of(view, current, true=() if has_failed else (conditions.DELETES_ALLOWED,))


def trouble(decision: Decision, *stated: Condition) -> Decision:
    """Return a status with further conditions, in place of those of their types."""
    types = {each.type for each in stated}
    rest = (each for each in decision.conditions if each.type not in types)
    return replace(decision, conditions=(*rest, *stated))


def _with_operation(decision: Decision, current: Record, verb: str, description: str) -> Decision:
    if current.operation is None or not decision.fields:
        return decision
    operation: dict[str, JSON] = {
        "verb": verb,
        "description": description or None,
        "since": format_time(current.operation.since),
    }
    return replace(decision, fields={**decision.fields, "operation": operation})


def _facts(view: InstanceView, current: Record | None) -> dict[str, JSON]:
    """Return what is known of an instance; None takes a field away."""
    if current is None:
        return {"operation": None}
    plans = {plan_id: name for name, plan_id in view.kind.plans.items()}
    sent = current.sent
    facts: dict[str, JSON] = {"instanceID": current.instance, "operation": None}
    if sent is not None:
        facts["plan"] = plans.get(sent.plan, sent.plan)
        facts["maintenance"] = _maintenance(view, current, sent.maintenance)
    return facts


def _maintenance(view: InstanceView, current: Record, installed: str) -> JSON:
    plan = None if view.broker is None else view.broker.plan(view.kind, current.plan)
    available = None if plan is None else plan.maintenance
    if not installed and available is None:
        return None
    newer = available is not None and available.version != installed
    return {
        "installed": installed or None,
        "available": available.version if available is not None and newer else None,
        "description": (available.description or None) if available is not None and newer else None,
    }


def waiting(view: InstanceView, current: Record, problem: str) -> Decision:
    """Return the status while a call waits for its broker. One that is down changes no Ready."""
    if view.live is None:
        return NOTHING
    if is_deleting(view.live):
        decision = of(view, current, phase=DELETING)
        return trouble(decision, conditions.false(causes.NOT_DELETED, problem))
    if current.state == record.PRESENT:
        stated = [(causes.UPDATING, problem)] if current.is_open else []
        return of(view, current, phase="Updating" if stated else READY, false=stated)
    return of(view, current, phase="Provisioning", false=[(causes.PROVISIONING, problem)])


def again_later(view: InstanceView, new: Record) -> Decision:
    """Return the status before the next try, or after the last one."""
    intent = new.intent
    assert intent is not None
    said = conditions.said(view.live, causes.PROVISIONED)
    words = f": {said.message}" if said is not None and said.reason == "Retrying" else ""
    if intent.closed:
        message = (
            f"{new.number} instances failed and were deleted again. klutch-osb tries again once "
            f"the claim changes, or its annotation {keys.OSB_RETRY}. The last one{words}"
        )
        return of(view, new, phase=FAILED, false=[(causes.FAILED, message)])
    message = f"the next try comes at {format_time(intent.since)}. The last one{words}"
    return of(view, new, phase="Provisioning", false=[(causes.RETRYING, message)])


def synced(view: InstanceView, current: Record, differing: Sequence[str]) -> Decision:
    """Return the status after the instance was read at the broker."""
    decision = kept(view, current)
    if differing:
        message = (
            f"the broker has other values of {', '.join(differing)}; annotation {keys.OSB_RETRY} "
            "with another text sends what the claim says"
        )
        return trouble(decision, conditions.false(causes.DRIFTED, message))
    said = conditions.said(view.live, causes.IN_SYNC)
    return decision if said is None else trouble(decision, conditions.true(causes.IN_SYNC))

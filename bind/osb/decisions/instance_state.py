"""Compares the wanted instance with the one at its broker, and computes its status."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from bind.osb import engine
from bind.osb.decisions import causes, record
from bind.osb.decisions.record import Intent, Record, Sent
from bind.osb.decisions.view import InstanceView, parameters_of, plan_name
from reconciler.blueprints.offering import validation
from reconciler.blueprints.offering.outcomes import Done
from reconciler.core import conditions, keys
from reconciler.core.conditions import Cause, Condition
from reconciler.core.decision import NOTHING, Decision
from reconciler.core.manifest import JSON, annotations_of, get_text, is_deleting, uid_of
from reconciler.core.times import format_time


def wanted(view: InstanceView, sent: Sent | None) -> Sent:
    """Return the target that the claim asks for. `sent` is that of the broker.

    Of a version of maintenance that is not stated, an instance gets that of the catalogue once.
    """
    assert view.live is not None
    plan_id = view.kind.plans.get(plan_name(view.live), "")
    parameters, salt = parameters_of(view.live), uid_of(view.live)
    version = get_text(view.live, "spec", "maintenanceVersion")
    if not version and sent is not None and sent.plan == plan_id:
        version = sent.maintenance
    elif not version:
        plan = view.plan(plan_id)
        version = plan.maintenance.version if plan is not None and plan.maintenance else ""
    return Sent(
        plan_id, record.digest_of(salt, parameters), version, record.digests_of(salt, parameters)
    )


def invalid(view: InstanceView, target: Sent, sent: Sent | None) -> str:
    """Return the reason why the plan refuses the claim's spec, or "": then it is not sent.

    `sent` is what the broker has, None where there is no instance yet.
    """
    plan = view.plan(target.plan)
    if plan is None or view.live is None:
        return ""
    parameters = parameters_of(view.live)
    if sent is None:
        return validation.of_new(plan, plan.schemas.create, parameters)
    changed = target.changed(sent) if sent.digest else set[str]()
    return validation.of_update(plan, parameters, changed)


def changeable(view: InstanceView, plan_id: str) -> dict[str, JSON]:
    """Return the parameters of an update: those of the claim that the plan lets be changed."""
    plan = view.plan(plan_id)
    named = None if plan is None else validation.changeable(plan.schemas)
    stated = parameters_of(view.live or {})
    return {name: one for name, one in stated.items() if named is None or name in named}


def is_as_wanted(sent: Sent | None, target: Sent) -> bool:
    return sent is not None and (sent.plan, sent.digest, sent.maintenance) == (
        target.plan,
        target.digest,
        target.maintenance,
    )


def asked(view: InstanceView) -> str:
    """Return the wish to try again that the claim states."""
    return "" if view.live is None else annotations_of(view.live).get(keys.OSB_RETRY, "")


def further(view: InstanceView, gone: Record) -> Record:
    """Return the record of the next number, after an instance failed and is gone.

    It is provisioned after a pause; after some in a row, only after a change of the claim.
    """
    number, target = gone.number + 1, wanted(view, None)
    pause = engine.further(number)
    since, closed = (view.now, record.FAILED) if pause is None else (view.now + pause, "")
    intent = Intent("Provision", since, target, closed=closed)
    instance = record.identifier(gone.claim.uid, number)
    return record.further(gone, intent, instance=instance, plan=target.plan, asked=asked(view))


def catalogue(view: InstanceView) -> str:
    """Return the digest of the catalogue, "" where none was read."""
    known = view.broker.catalogue if view.broker is not None else None
    return "" if known is None else known.digest


def is_news(view: InstanceView, current: Record, target: Sent) -> bool:
    """Return whether a closed intent is worth another try."""
    intent = current.intent
    if intent is None or asked(view) != current.asked:
        return True
    if intent.closed == record.MISSING:
        return False
    if not is_as_wanted(intent.target, target):
        return True
    digest = catalogue(view)
    return intent.closed == record.REFUSED and bool(digest) and digest != intent.catalog


def drifts(view: InstanceView) -> bool:
    """Return whether the broker was seen to have something else than was sent."""
    return conditions.get(view.live, causes.IN_SYNC, conditions.FALSE) is not None


def is_retrievable(view: InstanceView) -> bool:
    """Return whether instances of this offering can be read at the broker."""
    return view.offering is not None and view.offering.instances_retrievable


def differences(view: InstanceView, sent: Sent, outcome: Done) -> tuple[str, ...]:
    """Return the names of fields that the broker has otherwise than they were sent.

    A key that it leaves out is no difference: many do not tell parameters.
    """
    found = []
    if outcome.plan and outcome.plan != sent.plan:
        found.append("plan")
    if outcome.maintenance and sent.maintenance and outcome.maintenance != sent.maintenance:
        found.append("maintenanceVersion")
    salt = "" if view.live is None else uid_of(view.live)
    echo = outcome.parameters or {}
    known = {name: record.digest_of(salt, echo[name]) for name in sent.parameters if name in echo}
    found += [f"parameters.{name}" for name, has in known.items() if sent.parameters[name] != has]
    return tuple(sorted(found))


def confirms(view: InstanceView, sent: Sent | None, target: Sent, outcome: Done) -> bool:
    """Return whether the broker's answer proves that an update to `target` was done.

    `sent` is what it had before, without a digest or None where that is not known.
    """
    if differences(view, target, outcome):
        return False
    before = sent if sent is not None and sent.digest else Sent("")
    shown = outcome.parameters or {}
    return (
        (bool(outcome.plan) or target.plan == before.plan)
        and (bool(outcome.maintenance) or target.maintenance == before.maintenance)
        and all((name in shown) == (name in target.parameters) for name in target.changed(before))
    )


READY: Final = "Ready"
PENDING: Final = "Pending"
FAILED: Final = "Failed"
DELETING: Final = "Deleting"
PROVISIONING: Final = "Provisioning"
_PHASES: Final = {  # of causes that say more than the record
    **dict.fromkeys((causes.PROVISIONING, causes.RETRYING), PROVISIONING),
    **dict.fromkeys((causes.REFUSED, causes.FAILED, causes.MISSING, causes.NOT_USABLE), FAILED),
    causes.UPDATING: "Updating",
}


_CLOSED: Final = {  # whether the instance is there, and why its intent is closed
    (False, record.REFUSED): causes.REFUSED,
    (False, record.FAILED): causes.FAILED,
    (True, record.REFUSED): causes.UPDATE_REFUSED,
    (True, record.FAILED): causes.UPDATE_FAILED,
}
LOST: Final = f"the broker's words were lost; another text in {keys.OSB_RETRY} asks it again"
_ENDS: Final = {causes.NOT_USABLE.reason, *(one.reason for one in _CLOSED.values())}


def of(
    view: InstanceView,
    current: Record | None,
    *,
    true: Iterable[str] = (),
    false: Sequence[tuple[Cause, str]] = (),
    again: timedelta | None = None,
) -> Decision:
    """Return the status of a claim; conditions that are not named stay."""
    if view.live is None:
        return replace(NOTHING, again=again)
    if current is not None and current.claim.uid != uid_of(view.live):
        current = None  # a predecessor's
    stated = [conditions.true(each) for each in true]
    stated += [conditions.false(cause, message) for cause, message in false]
    phase = _phase(current, [cause for cause, _ in false])
    fields = {"phase": DELETING if is_deleting(view.live) else phase, **_facts(view, current)}
    return Decision(conditions=tuple(stated), fields=fields, again=again)


def _phase(current: Record | None, stated: Sequence[Cause]) -> str:
    """Return the phase of a claim that stays: by the causes that are stated, else by its record."""
    for cause in stated:
        if cause in _PHASES or cause.type == causes.PROVISIONED:
            return _PHASES.get(cause, PENDING)
    closed = "" if current is None or current.intent is None else current.intent.closed
    if current is None:
        return PENDING
    if current.state == record.PRESENT:
        return FAILED if closed == record.MISSING else READY
    return FAILED if closed else PROVISIONING


def kept(view: InstanceView, current: Record) -> Decision:
    """Return the status of an instance at rest: what its record states; the rest stays as it was.

    A process may have ended between the record and the status.
    """
    closed = "" if current.intent is None else current.intent.closed
    is_there = current.state == record.PRESENT and closed != record.MISSING
    failed = {one.type: one.reason for one in conditions.of(view.live) if one.status == "False"}
    true = [causes.PROVISIONED, causes.UP_TO_DATE] if current.intent is None else []
    if not true and is_there and failed.get(causes.PROVISIONED) != causes.NOT_USABLE.reason:
        true = [causes.PROVISIONED]
    cause = _CLOSED.get((is_there, closed))
    false = [] if cause is None or failed.get(cause.type) in _ENDS else [(cause, LOST)]
    return of(view, current, true=true, false=false)


def begun(view: InstanceView, current: Record, intent: Intent) -> Decision:
    """Return the status while a call is on its way."""
    if intent.verb == "Update":
        return of(view, current, false=[(causes.UPDATING, "it is being updated")])
    last = conditions.get(view.live, causes.PROVISIONED)
    if last is not None and last.reason in (causes.RETRYING.reason, causes.PROVISIONING.reason):
        return of(view, current)
    return of(view, current, false=[(causes.PROVISIONING, "the broker is asked for it")])


def in_progress(view: InstanceView, current: Record, *, description: str | None = None) -> Decision:
    """Return the status while the broker works; without a description, the last one stays."""
    before = get_text(view.live or {}, "status", "operation", "description")
    description = before if description is None else description
    message, verb = description or "the broker is at work", "Update"
    if current.state == record.LEAVING:
        verb, decision = "Deprovision", leaving(view, current)
    elif current.state == record.INTENDED:
        verb, decision = "Provision", of(view, current, false=[(causes.PROVISIONING, message)])
    else:
        decision = of(view, current, false=[(causes.UPDATING, message)])
    if current.operation is None or not decision.fields:
        return decision
    since = format_time(current.operation.since)
    operation = {"verb": verb, "description": description or None, "since": since}
    return replace(decision, fields={**decision.fields, "operation": operation})


def overdue(view: InstanceView, current: Record, problem: str) -> Decision:
    """Return the status while a broker does not report the end of a late provisioning."""
    stated = conditions.false(causes.PROVISIONING, causes.overdue(problem))
    decision = in_progress(view, current)
    return decision if view.live is None else trouble(decision, stated)


def leaving(view: InstanceView, current: Record) -> Decision:
    """Return the status while an instance is deleted: the claim's, or a failed try."""
    if view.live is None:
        return NOTHING
    if not is_deleting(view.live):
        return of(view, current)
    last = conditions.get(view.live, conditions.DELETES_ALLOWED)
    has_failed = last is not None and last.reason == causes.NOT_DELETED.reason
    return of(view, current, true=() if has_failed else (conditions.DELETES_ALLOWED,))


def trouble(decision: Decision, *stated: Condition) -> Decision:
    """Return a status with further conditions, in place of those of their types."""
    types = {each.type for each in stated}
    rest = (each for each in decision.conditions if each.type not in types)
    return replace(decision, conditions=(*rest, *stated))


def unread(view: InstanceView, problem: str) -> Decision:
    """Return the status where the broker does not show an instance: that proves no loss of it."""
    message = f"the broker does not show it: {problem}. If it is gone there, make another claim"
    stated = Condition(causes.IN_SYNC, conditions.UNKNOWN, "", "NotRead", message)
    return NOTHING if drifts(view) else Decision(conditions=(stated,))


def _facts(view: InstanceView, current: Record | None) -> dict[str, JSON]:
    """Return the facts of an instance; None takes a field away."""
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
    plan = view.plan(current.plan)
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
        return of(view, current, false=[(causes.NOT_DELETED, problem)])
    if current.state == record.PRESENT:
        return of(view, current, false=[(causes.UPDATING, problem)] if current.is_open else [])
    return of(view, current, false=[(causes.PROVISIONING, problem)])


def again_later(view: InstanceView, new: Record) -> Decision:
    """Return the status before the next try, or after the last one."""
    intent = new.intent
    assert intent is not None
    last = conditions.get(view.live, causes.PROVISIONED)
    words = f": {last.message}" if last is not None and last.reason == "Retrying" else ""
    if intent.closed:
        message = (
            f"{new.number} instances failed and were deleted again. klutch-osb tries again once "
            f"the claim changes, or its annotation {keys.OSB_RETRY}. The last one{words}"
        )
        return of(view, new, false=[(causes.FAILED, message)])
    message = f"the next try comes at {format_time(intent.since)}. The last one{words}"
    return of(view, new, false=[(causes.RETRYING, message)])


def synced(view: InstanceView, current: Record, differing: Sequence[str]) -> Decision:
    """Return the status after the instance was read at the broker."""
    decision = kept(view, current)
    if differing:
        message = (
            f"the broker has other values of {', '.join(differing)}; annotation {keys.OSB_RETRY} "
            "with another text sends the claim's values"
        )
        return trouble(decision, conditions.false(causes.DRIFTED, message))
    last = conditions.get(view.live, causes.IN_SYNC)
    return decision if last is None else trouble(decision, conditions.true(causes.IN_SYNC))

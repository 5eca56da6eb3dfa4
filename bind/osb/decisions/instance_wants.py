"""Compares the wanted instance with the one at its broker."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from bind.osb import engine
from bind.osb.decisions import causes, record
from bind.osb.decisions.record import Intent, Record, Sent
from bind.osb.decisions.view import InstanceView, parameters_of, plan_name
from reconciler.blueprints.offering import validation
from reconciler.blueprints.offering.outcomes import Done
from reconciler.core import conditions, keys
from reconciler.core.manifest import JSON, annotations_of, get_map, get_text, uid_of

# Keywords of a schema that may allow further names.
_FURTHER: Final = frozenset(("$ref", "allOf", "anyOf", "oneOf", "patternProperties"))


def wanted(view: InstanceView, sent: Sent | None) -> Sent:
    """Return what the claim asks for. `sent` is what the broker has.

    Of a version of maintenance that is not stated, an instance gets that of the catalogue once.
    """
    assert view.live is not None
    plan_id = view.kind.plans.get(plan_name(view.live), "")
    parameters, salt = parameters_of(view.live), uid_of(view.live)
    version = get_text(view.live, "spec", "maintenanceVersion")
    if not version and sent is not None and sent.plan == plan_id:
        version = sent.maintenance
    elif not version and view.broker is not None:
        plan = view.broker.plan(view.kind, plan_id)
        version = plan.maintenance.version if plan is not None and plan.maintenance else ""
    return Sent(
        plan_id,
        record.digest_of(salt, parameters),
        version,
        record.digests_of(salt, parameters),
    )


def invalid(view: InstanceView, target: Sent, sent: Sent | None) -> str:
    """Return why the plan refuses what the claim says, "" where it may not: then it is not sent.

    `sent` is what the broker has, None where there is no instance yet.
    """
    plan = None if view.broker is None else view.broker.plan(view.kind, target.plan)
    if plan is None or view.live is None:
        return ""
    parameters = parameters_of(view.live)
    if sent is None:
        return validation.of_create(plan, parameters)
    before, after = (each.parameters if sent.digest else {} for each in (sent, target))
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return validation.of_update(plan, parameters, changed)


def changeable(view: InstanceView, plan_id: str) -> dict[str, JSON]:
    """Return the parameters of an update: of those of the claim, what the plan's schema names.

    All of them without a schema, or where the names in it are not all that it allows.
    """
    plan = None if view.broker is None else view.broker.plan(view.kind, plan_id)
    stated = parameters_of(view.live or {})
    schema = plan.schemas.update if plan is not None else None
    named = get_map(schema, "properties")
    if not isinstance(schema, Mapping) or not named or schema.keys() & _FURTHER:
        return stated
    return {name: value for name, value in stated.items() if name in named}


def is_as_wanted(sent: Sent | None, target: Sent) -> bool:
    return sent is not None and (sent.plan, sent.digest, sent.maintenance) == (
        target.plan,
        target.digest,
        target.maintenance,
    )


def asked(view: InstanceView) -> str:
    """Return the wish to try again that the claim states."""
    return "" if view.live is None else annotations_of(view.live).get(keys.OSB_RETRY, "")


def further(view: InstanceView, gone: Record, now: datetime) -> Record:
    """Return the record of the next number, after an instance failed and is gone.

    It is provisioned after a pause; after some in a row, only once the claim or its annotation
    changes.
    """
    number, target = gone.number + 1, wanted(view, None)
    pause = engine.further(number)
    since, closed = (now, record.FAILED) if pause is None else (now + pause, "")
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
    return conditions.said(view.live, causes.IN_SYNC, conditions.FALSE) is not None


def heals(view: InstanceView, current: Record) -> bool:
    """Return whether a drift is to be undone: the claim was given another wish since."""
    return drifts(view) and asked(view) != current.asked


def is_retrievable(view: InstanceView) -> bool:
    """Return whether instances of this offering can be read at the broker."""
    offering = None if view.broker is None else view.broker.offering(view.kind)
    return offering is not None and offering.instances_retrievable


def differences(view: InstanceView, sent: Sent, outcome: Done) -> tuple[str, ...]:
    """Return the names of what the broker has otherwise than it was sent.

    A key that it leaves out is no difference: many do not tell parameters.
    """
    found = []
    if outcome.plan and outcome.plan != sent.plan:
        found.append("plan")
    if outcome.maintenance and sent.maintenance and outcome.maintenance != sent.maintenance:
        found.append("maintenanceVersion")
    salt = "" if view.live is None else uid_of(view.live)
    said = outcome.parameters or {}
    known = {name: record.digest_of(salt, said[name]) for name in sent.parameters if name in said}
    found += [f"parameters.{name}" for name, has in known.items() if sent.parameters[name] != has]
    return tuple(sorted(found))


def confirms(view: InstanceView, sent: Sent | None, target: Sent, outcome: Done) -> bool:
    """Return whether what the broker shows proves that an update to `target` was done.

    `sent` is what it had before, without a digest or None where that is not known.
    """
    if differences(view, target, outcome):
        return False
    before = sent if sent is not None and sent.digest else Sent("")
    names = {*before.parameters, *target.parameters}
    changed = {name for name in names if before.parameters.get(name) != target.parameters.get(name)}
    shown = outcome.parameters or {}
    return (
        (bool(outcome.plan) or target.plan == before.plan)
        and (bool(outcome.maintenance) or target.maintenance == before.maintenance)
        and all((name in shown) == (name in target.parameters) for name in changed)
    )

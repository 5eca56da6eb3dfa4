"""Conditions of claims and brokers, the causes of False ones, and the status of a ServiceBroker."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from bind.osb.decisions import record
from bind.osb.decisions.record import Record
from bind.osb.decisions.view import CLOSED, BindingView, InstanceView
from reconciler.api.osb import BrokerSpec, GeneratedKind
from reconciler.blueprints.offering.catalogue import Catalogue
from reconciler.core import conditions, keys
from reconciler.core.conditions import DELETES_ALLOWED, ERROR, INFO, WARNING, Cause, Condition
from reconciler.core.decision import Decision
from reconciler.core.manifest import Manifest, get_text, name_of
from reconciler.core.times import is_confirmed, moment

# Of instances.
PROVISIONED: Final = "Provisioned"
UP_TO_DATE: Final = "UpToDate"
IN_SYNC: Final = "InSync"

NO_BROKER: Final = Cause(PROVISIONED, WARNING, "NoServiceBroker")
NOT_OFFERED: Final = Cause(PROVISIONED, ERROR, "NotOffered")
INVALID: Final = Cause(PROVISIONED, ERROR, "InvalidParameters")
PREDECESSOR: Final = Cause(PROVISIONED, ERROR, "PredecessorThere")
PENDING: Final = Cause(PROVISIONED, INFO, "Pending")
PROVISIONING: Final = Cause(PROVISIONED, INFO, "Provisioning")
RETRYING: Final = Cause(PROVISIONED, WARNING, "Retrying")
REFUSED: Final = Cause(PROVISIONED, ERROR, "Refused")
FAILED: Final = Cause(PROVISIONED, ERROR, "Failed")
MISSING: Final = Cause(PROVISIONED, ERROR, "Missing")
NOT_USABLE: Final = Cause(PROVISIONED, ERROR, "NotUsable")

UPDATING: Final = Cause(UP_TO_DATE, INFO, "Updating")
MOVED: Final = Cause(UP_TO_DATE, ERROR, "BrokerMoved")
PROVISION_MOVED: Final = Cause(PROVISIONED, ERROR, "BrokerMoved")
MOVED_TO_DELETE: Final = Cause(DELETES_ALLOWED, ERROR, "BrokerMoved")
UPDATE_WAITS: Final = Cause(UP_TO_DATE, INFO, "Pending")
UPDATE_NOT_OFFERED: Final = Cause(UP_TO_DATE, WARNING, "NotOffered")
UPDATE_INVALID: Final = Cause(UP_TO_DATE, WARNING, "InvalidParameters")
UPDATE_REFUSED: Final = Cause(UP_TO_DATE, WARNING, "Refused")
UPDATE_FAILED: Final = Cause(UP_TO_DATE, WARNING, "Failed")

DRIFTED: Final = Cause(IN_SYNC, WARNING, "Drifted")

STILL_BOUND: Final = Cause(DELETES_ALLOWED, WARNING, "StillBound")
MASS_DELETION: Final = Cause(DELETES_ALLOWED, ERROR, "MassDeletion")
CRDS_UNREAD: Final = Cause(DELETES_ALLOWED, WARNING, "CrdsNotRead")
NOT_DELETED: Final = Cause(DELETES_ALLOWED, WARNING, "NotDeleted")
NO_BROKER_TO_DELETE: Final = Cause(DELETES_ALLOWED, ERROR, "NoServiceBroker")

# Causes that only a person's action ends.
BLOCKED: Final = frozenset(
    {
        *(NO_BROKER, NOT_OFFERED, INVALID, UPDATE_INVALID, PREDECESSOR),
        *(STILL_BOUND, MASS_DELETION, NO_BROKER_TO_DELETE),
        *(MOVED, PROVISION_MOVED, MOVED_TO_DELETE),
    }
)

# Of brokers.
REACHABLE: Final = "Reachable"
CATALOG_IN_SYNC: Final = "CatalogInSync"
NO_ORPHANS: Final = "NoOrphans"
KINDS_SERVED: Final = "KindsServed"

UNREACHABLE: Final = Cause(REACHABLE, ERROR, "Unreachable")
CATALOG_UNREAD: Final = Cause(CATALOG_IN_SYNC, WARNING, "NotRead")
CATALOG_DIFFERS: Final = Cause(CATALOG_IN_SYNC, WARNING, "Differs")
ORPHANS: Final = Cause(NO_ORPHANS, WARNING, "Orphans")
CLAIMS_UNREAD: Final = Cause(KINDS_SERVED, ERROR, "ClaimsNotRead")

# Of bindings; DELETES_ALLOWED as of instances.
BOUND: Final = "Bound"
VALID: Final = "Valid"
ROTATED: Final = "Rotated"
PROJECTED: Final = "Projected"

BIND_WAITS: Final = Cause(BOUND, INFO, "Pending")
BINDING: Final = Cause(BOUND, INFO, "Binding")
NO_BROKER_TO_BIND: Final = Cause(BOUND, WARNING, "NoServiceBroker")
NOT_BINDABLE: Final = Cause(BOUND, ERROR, "NotBindable")
BIND_INVALID: Final = Cause(BOUND, ERROR, "InvalidParameters")
BIND_RETRIES: Final = Cause(BOUND, WARNING, "Retrying")
BIND_REFUSED: Final = Cause(BOUND, ERROR, "Refused")
BIND_FAILED: Final = Cause(BOUND, ERROR, "Failed")
NO_CREDENTIALS: Final = Cause(BOUND, ERROR, "NoCredentials")
SECRET_TAKEN: Final = Cause(BOUND, ERROR, "SecretTaken")
SECRET_LOST: Final = Cause(BOUND, WARNING, "SecretLost")
SECRET_NOT_WRITTEN: Final = Cause(BOUND, WARNING, "SecretNotWritten")
INSTANCE_DELETED: Final = Cause(BOUND, INFO, "InstanceDeleted")

EXPIRED: Final = Cause(VALID, ERROR, "Expired")
INSTANCE_LOST: Final = Cause(VALID, ERROR, "InstanceMissing")
SAME_CREDENTIALS: Final = Cause(ROTATED, WARNING, "SameCredentials")


def undeleted(cause: Cause, live: Manifest, problem: str) -> tuple[Cause, str]:
    """Return the condition of a failed try that the broker does not delete: why it failed, too."""
    condition = conditions.get(live, cause.type)
    words = "" if condition is None else condition.message.partition(_FAILS)[0]
    return cause, f"{words}{_FAILS}{problem}"


def overdue(problem: str) -> str:
    """Return the message about an operation past its deadline, with no end from the broker."""
    return (
        f"it takes longer than it may, and the broker does not say how it ended: {problem}. "
        "It is kept until the broker does, or its claim is deleted"
    )


_FAILS: Final = ", which fails: "


def of_rotation(cause: Cause) -> Cause:
    """Return the cause of a missing rotation; the old credentials stay as they are."""
    return Cause(ROTATED, WARNING, cause.reason)


def mass_deletion(
    view: InstanceView, kind: GeneratedKind, *, crd_is_deleting: bool, undo: str = "delete"
) -> tuple[Cause, str] | None:
    """Return why claims of a kind are held; None where they are not, or that is confirmed."""
    if view.broker is not None and is_confirmed(moment(view.broker.mass_delete), view.now):
        return None
    resource = kind.kind.resource
    if crd_is_deleting:
        return MASS_DELETION, going(resource, f"ServiceBroker {kind.broker}", undo)
    if view.unsure:
        message = f"it cannot be seen whether CRD {resource} is being deleted: {view.unsure}"
        return CRDS_UNREAD, message
    return None


def going(resource: str, config: str, undo: str) -> str:
    """Return why objects of a kind are held, and how that ends for an hour."""
    do = f'annotate {config} with {keys.CONFIRM_MASS_DELETE}="$(date -u +%FT%TZ)"'
    return f"CRD {resource} is being deleted; to {undo} all within an hour: {do}"


def delete_blocker(
    view: InstanceView, of: InstanceView | BindingView, *, undo: str = "delete"
) -> tuple[Cause, str] | None:
    """Return why nothing is deleted at a broker for a claim; None where it may be."""
    if view.broker is None:
        return NO_BROKER_TO_DELETE, no_broker(of.records, of.kind.broker)
    if view.broker.moved:
        return MOVED_TO_DELETE, view.broker.moved
    return mass_deletion(view, of.kind, crd_is_deleting=of.crd_is_deleting, undo=undo)


def no_broker(records: Iterable[Record], kind_broker: str) -> str:
    """Return the message for claims without their ServiceBroker, with the way to free them."""
    one = next(iter(records), None)
    if one is None:
        return f"there is no ServiceBroker {kind_broker}"
    return (
        f"there is no ServiceBroker {one.broker}; apply it again, or have a deleted claim go "
        f"without it: annotate BrokerRecord {one.id} with {keys.OSB_ORPHAN}: {keys.ORPHAN_FORGET}"
    )


def looked_at_again(cause: Cause) -> timedelta | None:
    """Return after how long a hold is looked at again; None where a change leads there."""
    return CLOSED if cause == CRDS_UNREAD else None


_NAMED: Final = 5  # things that a message names


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A ServiceBroker, and the state of its broker.

    `fault` says why its calls wait, `problem` why its catalogue could not be read the last time;
    `catalogue` is the last good one. `troubles` say why claims of its kinds cannot be read.
    """

    spec: BrokerSpec
    fault: str = ""
    problem: str = ""
    catalogue: Catalogue | None = None
    kinds: tuple[GeneratedKind, ...] = ()
    troubles: tuple[str, ...] = ()
    records: tuple[Manifest, ...] = ()


def decide(state: BrokerState) -> Decision:
    return Decision(conditions=tuple(state_of(state) for state_of in _CONDITIONS))


def _reachable(state: BrokerState) -> Condition:
    problem = state.fault or (state.problem if state.catalogue is None else "")
    return conditions.false(UNREACHABLE, problem) if problem else conditions.true(REACHABLE)


def _in_sync(state: BrokerState) -> Condition:
    """Report differences between the files and the live catalogue, both ways."""
    if state.catalogue is None or state.problem:
        message = state.problem or "it was not read yet"
        return conditions.false(CATALOG_UNREAD, f"{message}; the last good one is used")
    missing = sorted(name for kind in state.kinds for name in _missing(kind, state.catalogue))
    known = {kind.offering for kind in state.kinds}
    new = sorted(each.name for each in state.catalogue.offerings if each.id not in known)
    chosen = {choice.name for choice in state.spec.offerings}
    new = [name for name in new if not chosen or name in chosen]
    if not missing and not new:
        return conditions.true(CATALOG_IN_SYNC)
    words = []
    if missing:
        words.append(f"gone from the catalogue: {', '.join(missing[:_NAMED])}")
    if new:
        words.append(f"not generated yet: {', '.join(new[:_NAMED])}")
    message = f"{'; '.join(words)}; run `klutchctl catalog` again"
    return conditions.false(CATALOG_DIFFERS, message)


def _missing(kind: GeneratedKind, catalogue: Catalogue) -> list[str]:
    if kind.is_binding:
        return []
    offering = catalogue.offering(kind.offering)
    if offering is None:
        return [f"offering {kind.offering} of {kind.kind.kind}"]
    return [
        f"plan {name} of {offering.name}"
        for name, plan_id in kind.plans.items()
        if offering.plan(plan_id) is None
    ]


def _kinds_served(state: BrokerState) -> Condition:
    """Report the kinds without service, because nobody knows their claims."""
    if state.troubles:
        return conditions.false(CLAIMS_UNREAD, "; ".join(state.troubles[:_NAMED]))
    return conditions.true(KINDS_SERVED)


def _no_orphans(state: BrokerState) -> Condition:
    orphans = sorted(
        name_of(each)
        for each in state.records
        if get_text(each, "spec", "state") == record.ORPHANED
    )
    if not orphans:
        return conditions.true(NO_ORPHANS)
    message = (
        f"{len(orphans)} records have no claim: {', '.join(orphans[:_NAMED])}; set annotation "
        f"{keys.OSB_ORPHAN} on each to Adopt, Deprovision or Forget"
    )
    return conditions.false(ORPHANS, message)


_CONDITIONS: Final = (_reachable, _in_sync, _kinds_served, _no_orphans)

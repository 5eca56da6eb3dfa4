"""Builds, merges and orders Klutch's conditions, and derives Ready from them.

These are Cluster-API style conditions with a severity, not metav1.Condition. It decides how a
list of conditions changes (protocol-konnector.md 0, protocol-bind.md A.9) and does not know
when a cause applies, with what message, and where conditions are stored.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Final

from reconciler.core.manifest import JSON, Manifest, get_int, get_list, get_maps, get_text
from reconciler.core.times import format_time

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

ERROR: Final = "Error"
WARNING: Final = "Warning"
INFO: Final = "Info"

READY: Final = "Ready"

_NAMES: Final = ("type", "status", "severity", "reason", "message")
_TEXTS: Final = {**{one: one for one in _NAMES}, "lastTransitionTime": "last_transition_time"}
_CONTENT: Final = attrgetter("status", "severity", "reason", "message")
_LINK: Final = re.compile(r" \((https?://[^\s()]+/reasons/[^\s()/]+/)\)\Z")


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a False condition: type, severity and reason, without the message."""

    type: str
    severity: str
    reason: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition. "" stands for an absent text.

    `last_transition_time` is RFC 3339 text as it is on the wire, where the address `page` ends the
    message; `extra` holds unknown fields, so that writing a list back loses nothing.
    """

    type: str
    status: str
    severity: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    page: str = ""
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def agrees_with(self, other: "Condition") -> bool:
        """Return whether status, severity, reason and message agree."""
        return bool(_CONTENT(self) == _CONTENT(other))


Conditions = tuple[Condition, ...]


def true(condition_type: str) -> Condition:
    """Return a True condition: it carries no reason, severity or message."""
    return Condition(condition_type, TRUE)


def false(cause: Cause, message: str) -> Condition:
    return Condition(cause.type, FALSE, cause.severity, cause.reason, message)


def find(conditions: Iterable[Condition], condition_type: str) -> Condition | None:
    """Return the condition of that type, or None."""
    return next((each for each in conditions if each.type == condition_type), None)


def set_condition(conditions: Iterable[Condition], new: Condition, *, now: datetime) -> Conditions:
    """Return the conditions, in their stored order, with `new` in place of those of its type.

    The time stays where it says the same as before, and is `now` otherwise.
    """
    present = tuple(conditions)
    if new.status == TRUE:
        new = Condition(new.type, TRUE, message=new.message)
    old = find(present, new.type)
    if old is not None and old.last_transition_time and old.agrees_with(new):
        new = replace(old, page=new.page)
    else:
        new = replace(new, last_transition_time=format_time(now))
    return ordered((*(each for each in present if each.type != new.type), new))


def copy_conditions(conditions: Iterable[Condition], copied: Iterable[Condition]) -> Conditions:
    """Return the conditions, in their stored order, with `copied` verbatim over their types.

    For conditions that someone else decided: their times and reasons are theirs.
    """
    theirs = {each.type: each for each in copied}
    kept = (each for each in conditions if each.type not in theirs)
    return ordered((*kept, *theirs.values()))


def summarize(conditions: Iterable[Condition], *, now: datetime) -> Conditions:
    """Return the conditions with Ready set to their summary; untouched where there is none."""
    present = tuple(conditions)
    ready = summary(present)
    return present if ready is None else set_condition(present, ready, now=now)


def summary(conditions: Iterable[Condition]) -> Condition | None:
    """Return the condition Ready, without a time, as the others sum it up; None without any other.

    The most urgent (status, severity) decides: False/Error, False/Warning, False/Info, True,
    Unknown; in it the alphabetically first type speaks. So any Info makes Ready False, and
    Unknown never spoils it while anything is True.
    """
    others = sorted(
        (each for each in conditions if each.type != READY),
        key=lambda each: (_urgency(each), each.type),
    )
    if not others:
        return None
    first = others[0]
    if first.status == TRUE:
        return true(READY)
    if first.status != FALSE:
        return Condition(READY, UNKNOWN, "", first.reason, first.message, page=first.page)
    # A False without a known severity is nobody's promise: it counts as an error.
    severity = first.severity if first.severity in (WARNING, INFO) else ERROR
    return Condition(READY, FALSE, severity, first.reason, first.message, page=first.page)


def _urgency(condition: Condition) -> int:
    if condition.status == FALSE:
        return {WARNING: 1, INFO: 2}.get(condition.severity, 0)
    return 3 if condition.status == TRUE else 4


def ordered(conditions: Iterable[Condition]) -> Conditions:
    """Return the conditions as they are stored: Ready first, the others by type."""
    return tuple(sorted(conditions, key=lambda each: (each.type != READY, each.type)))


def of(live: Manifest | None) -> Conditions:
    """Return the conditions in the status of an object, in its order."""
    return parse(get_list(live, "status", "conditions"))


def get(live: Manifest | None, condition_type: str, status: str = "") -> Condition | None:
    """Return a condition of an object, of this status where one is given, or None."""
    for item in get_maps(live, "status", "conditions"):
        if item.get("type") == condition_type:
            return _parse(item) if status in ("", item.get("status")) else None
    return None


def mended(live: Manifest | None, condition_type: str) -> Conditions:
    """Return that a condition of ours holds, where the object ever had it: originals have none."""
    return () if get(live, condition_type) is None else (true(condition_type),)


def guards(cluster_binding: Manifest | None) -> Iterator[Condition]:
    """Yield the tripped guards, for which an operator decides, the gravest first."""
    return filter(None, (get(cluster_binding, one, FALSE) for one in _GUARDS))


def current(live: Manifest | None, condition_type: str, status: str = "") -> Condition | None:
    """Return a condition of another controller's object, unless it is of an older generation.

    Its own observedGeneration counts, else that of the whole status. Without both it is current.
    """
    found = get(live, condition_type, status)
    if found is None or live is None:
        return None
    observed = get_int(found.extra, "observedGeneration")
    if observed is None:
        observed = get_int(live, "status", "observedGeneration")
    return found if observed in (None, get_int(live, "metadata", "generation")) else None


def parse(items: Sequence[JSON]) -> Conditions:
    """Read `status.conditions` in its order. Items that are no condition (no type) are left out."""
    return tuple(
        _parse(item) for item in items if isinstance(item, Mapping) and get_text(item, "type")
    )


def _parse(item: Manifest) -> Condition:
    texts = {name: get_text(item, key) for key, name in _TEXTS.items()}
    message, *page = _LINK.split(texts.pop("message"))
    extra = {key: value for key, value in item.items() if key not in _TEXTS}
    return Condition(**texts, message=message, page="".join(page), extra=extra)


def dump(conditions: Iterable[Condition]) -> list[dict[str, JSON]]:
    """Write conditions for `status.conditions`, in the given order, without empty texts."""
    return [_dump(each) for each in conditions]


def _dump(condition: Condition) -> dict[str, JSON]:
    known = {key: text for key, name in _TEXTS.items() if (text := getattr(condition, name))}
    if condition.page:
        known["message"] = f"{condition.message} ({condition.page})"
    return {**condition.extra, **known}


# The vocabulary of more than one subject: types, and causes for which they are False. Wire facts
# (protocol-bind.md A.10, protocol-konnector.md B, C), so that a reason never appears with another
# severity; what is marked as ours the originals do not know. A type that is ours is set from its
# first trouble on.

HEALTHY: Final = "Healthy"
SECRET_VALID: Final = "SecretValid"
VALID_VERSION: Final = "ValidVersion"
PROVIDER_IN_SYNC: Final = "ProviderInSync"
CONNECTED: Final = "Connected"
CONSUMER_IN_SYNC: Final = "ConsumerInSync"
EXPORTS_READY: Final = "ExportsReady"
INFORMERS_SYNCED: Final = "InformersSynced"
HEARTBEATING: Final = "Heartbeating"
SCHEMA_IN_SYNC: Final = "SchemaInSync"
KONNECTOR_DEPLOYED: Final = "KonnectorDeployed"
# Ours: a space's rights, its bounds, and room for its app namespaces (on ClusterBinding); whether a
# template still offers what is exported (on APIServiceExport).
PERMISSIONS_GRANTED: Final = "PermissionsGranted"
SPACE_BOUNDED: Final = "SpaceBounded"
SERVICE_NAMESPACES_READY: Final = "ServiceNamespacesReady"
OFFERED: Final = "Offered"
# Ours, on APIServiceBinding: whether accepted claims are served, whether each instance is, and
# whether nothing is lost between the versions of one kind.
PERMISSION_CLAIMS_IN_SYNC: Final = "PermissionClaimsInSync"
INSTANCES_IN_SYNC: Final = "InstancesInSync"
VERSIONS_COMPATIBLE: Final = "VersionsCompatible"
# Ours, on ClusterBinding: whether guards let a konnector delete, and make lost copies again. There
# InstancesInSync tells of the orphans of all kinds.
DELETES_ALLOWED: Final = "DeletesAllowed"
RECREATION_ALLOWED: Final = "RecreationAllowed"
KONNECTOR_ACTIVE: Final = "KonnectorActive"  # ours, too: its message names the process
DELETIONS_COUNTED: Final = "DeletionsCounted"  # ours, too: its message counts the last ones
WRITES_ACCEPTED: Final = "WritesAccepted"  # ours, too: whether bindings can be served and report
_GUARDS: Final = (
    *(KONNECTOR_ACTIVE, RECREATION_ALLOWED, DELETES_ALLOWED),
    *(INSTANCES_IN_SYNC, SERVICE_NAMESPACES_READY),
)
TYPES: Final = frozenset(
    {READY, HEALTHY, SECRET_VALID, VALID_VERSION, PROVIDER_IN_SYNC, CONNECTED, CONSUMER_IN_SYNC}
    | {EXPORTS_READY, INFORMERS_SYNCED, HEARTBEATING, SCHEMA_IN_SYNC, KONNECTOR_DEPLOYED, OFFERED}
    | {PERMISSIONS_GRANTED, SPACE_BOUNDED, SERVICE_NAMESPACES_READY, PERMISSION_CLAIMS_IN_SYNC}
    | {INSTANCES_IN_SYNC, VERSIONS_COMPATIBLE, DELETES_ALLOWED, RECREATION_ALLOWED}
    | {KONNECTOR_ACTIVE, DELETIONS_COUNTED, WRITES_ACCEPTED}
)

# ClusterBinding
FIRST_HEARTBEAT_PENDING: Final = Cause(HEALTHY, INFO, "FirstHeartbeatPending")
HEARTBEAT_INTERVAL_MISSING: Final = Cause(HEALTHY, INFO, "HeartbeatIntervalMissing")
HEARTBEAT_TIMEOUT: Final = Cause(HEALTHY, ERROR, "HeartbeatTimeout")
HEARTBEAT_TIME_DRIFT: Final = Cause(HEALTHY, WARNING, "HeartbeatTimeDrift")
PROVIDER_SECRET_NOT_FOUND: Final = Cause(SECRET_VALID, WARNING, "ProviderSecretNotFound")
PROVIDER_SECRET_INVALID: Final = Cause(SECRET_VALID, WARNING, "ProviderSecretInvalid")
VERSION_PARSE_ERROR: Final = Cause(VALID_VERSION, WARNING, "ParseError")
# Ours: RBAC could not be written; its name belongs to somebody else (protocol-bind.md F6); what
# bounds a space could not be written; the name of a service namespace belongs to somebody else; an
# app namespace's name makes too long a one.
PERMISSIONS_UPDATE_FAILED: Final = Cause(PERMISSIONS_GRANTED, ERROR, "PermissionsUpdateFailed")
PERMISSIONS_FOREIGN: Final = Cause(PERMISSIONS_GRANTED, ERROR, "ForeignPermissions")
BOUNDS_UPDATE_FAILED: Final = Cause(SPACE_BOUNDED, WARNING, "BoundsUpdateFailed")
NAMESPACE_COLLISION: Final = Cause(SERVICE_NAMESPACES_READY, ERROR, "NamespaceCollision")
NAMESPACE_OF_FORMER_SPACE: Final = Cause(SERVICE_NAMESPACES_READY, ERROR, "NamespaceOfFormerSpace")
# Ours (H4): a cluster or space is not the one that was recorded; nobody knows which one it is;
# most of a kind is being deleted at once; a claim is a part of a service, which would lose it;
# copies of bound claims are gone.
APP_CLUSTER_CHANGED: Final = Cause(DELETES_ALLOWED, ERROR, "AppClusterChanged")
APP_CLUSTER_UNKNOWN: Final = Cause(DELETES_ALLOWED, ERROR, "AppClusterUnknown")
MASS_DELETION: Final = Cause(DELETES_ALLOWED, ERROR, "MassDeletion")
PART_OF_SERVICE: Final = Cause(DELETES_ALLOWED, WARNING, "PartOfService")
TWO_KONNECTORS: Final = Cause(KONNECTOR_ACTIVE, ERROR, "TwoKonnectors")
SPACE_CHANGED: Final = Cause(RECREATION_ALLOWED, ERROR, "SpaceChanged")
SPACE_UNKNOWN: Final = Cause(RECREATION_ALLOWED, ERROR, "SpaceUnknown")
RECREATION_HELD: Final = Cause(RECREATION_ALLOWED, ERROR, "RecreationHeld")
# Ours: a report in the app cluster cannot be written, so it is made here.
BINDING_NOT_WRITTEN: Final = Cause(WRITES_ACCEPTED, ERROR, "BindingNotWritten")

# APIServiceExport
PROVIDER_CRD_INVALID: Final = Cause(PROVIDER_IN_SYNC, ERROR, "CustomResourceDefinitionUpdateFailed")
# Ours: the provider's CRD is away, for now or for good (C.3); the export could not be written; no
# template offers it any more (F22).
PROVIDER_CRD_NOT_FOUND: Final = Cause(PROVIDER_IN_SYNC, ERROR, "CustomResourceDefinitionNotFound")
EXPORT_UPDATE_FAILED: Final = Cause(PROVIDER_IN_SYNC, ERROR, "APIServiceExportUpdateFailed")
OFFER_WITHDRAWN: Final = Cause(OFFERED, WARNING, "TemplateNotFound")
BINDING_NOT_FOUND: Final = Cause(CONNECTED, INFO, "APIServiceBindingNotFound")
CONSUMER_SYNC_NOT_APPLICABLE: Final = Cause(CONSUMER_IN_SYNC, INFO, "NA")
CONSUMER_SYNC_UNKNOWN: Final = Cause(CONSUMER_IN_SYNC, INFO, "Unknown")

# APIServiceExportRequest
CRD_NOT_FOUND: Final = Cause(EXPORTS_READY, ERROR, "CRDNotFound")
CRD_INVALID: Final = Cause(EXPORTS_READY, ERROR, "CRDInvalid")
# Ours (F24): the space's AppClusterBinding does not list it; nothing offers the resource; this
# backend cannot export its scope; the API server refused the export, or could not be asked.
NOT_LISTED: Final = Cause(EXPORTS_READY, ERROR, "NotListed")
TEMPLATE_NOT_FOUND: Final = Cause(EXPORTS_READY, ERROR, "TemplateNotFound")
SCOPE_NOT_SUPPORTED: Final = Cause(EXPORTS_READY, ERROR, "ScopeNotSupported")
TOO_MANY: Final = Cause(EXPORTS_READY, ERROR, "TooManyResources")
EXPORT_CREATE_FAILED: Final = Cause(EXPORTS_READY, ERROR, "APIServiceExportCreateFailed")

# APIServiceBinding; the two of the Secret also on AppClusterBinding
KUBECONFIG_SECRET_NOT_FOUND: Final = Cause(SECRET_VALID, ERROR, "KubeconfigSecretNotFound")
KUBECONFIG_SECRET_INVALID: Final = Cause(SECRET_VALID, ERROR, "KubeconfigSecretInvalid")
INFORMER_SYNC_TIMEOUT: Final = Cause(INFORMERS_SYNCED, ERROR, "InformerSyncTimeout")
CLUSTER_BINDING_UPDATE_FAILED: Final = Cause(HEARTBEATING, WARNING, "ClusterBindingUpdateFailed")
# Ours: the way to the control plane is cut; it does not take the token any more.
CONTROL_PLANE_UNREACHABLE: Final = Cause(CONNECTED, WARNING, "ControlPlaneUnreachable")
CONTROL_PLANE_REFUSES: Final = Cause(CONNECTED, WARNING, "Unauthorized")
CUT_OFF: Final = frozenset({CONTROL_PLANE_UNREACHABLE.reason, CONTROL_PLANE_REFUSES.reason})
EXPORT_NOT_FOUND: Final = Cause(CONNECTED, ERROR, "APIServiceExportNotFound")
EXPORT_INVALID: Final = Cause(CONNECTED, ERROR, "APIServiceExportInvalid")
CRD_CREATE_FAILED: Final = Cause(CONNECTED, ERROR, "CustomResourceDefinitionCreateFailed")
CRD_UPDATE_FAILED: Final = Cause(CONNECTED, ERROR, "CustomResourceDefinitionUpdateFailed")
CRD_FOREIGN: Final = Cause(CONNECTED, ERROR, "ForeignCustomResourceDefinition")
PENDING: Final = Cause(READY, INFO, "Pending")
# Ours (H14, H16, H17, H18, H32; their CLI says Pending in Ready alone). The originals know
# SchemaInSync and never set it.
NOT_OF_THIS_SPACE: Final = Cause(CONNECTED, ERROR, "AppClusterChanged")
NOT_YET_CONNECTED: Final = Cause(CONNECTED, INFO, "Pending")
ISOLATION_UNSUPPORTED: Final = Cause(CONNECTED, ERROR, "IsolationUnsupported")
CRD_NOT_ESTABLISHED: Final = Cause(SCHEMA_IN_SYNC, INFO, "CustomResourceDefinitionNotEstablished")
CRD_OUTDATED: Final = Cause(SCHEMA_IN_SYNC, INFO, "CustomResourceDefinitionOutdated")
KIND_REPLACED: Final = Cause(SCHEMA_IN_SYNC, WARNING, "KindReplaced")
STORED_VERSION_REPLACED: Final = Cause(SCHEMA_IN_SYNC, WARNING, "StoredVersionReplaced")
CRD_TERMINATING: Final = Cause(SCHEMA_IN_SYNC, WARNING, "CustomResourceDefinitionTerminating")
CRD_NAMES_NOT_ACCEPTED: Final = Cause(SCHEMA_IN_SYNC, ERROR, "NamesNotAccepted")
CLAIMS_DEGRADED: Final = Cause(PERMISSION_CLAIMS_IN_SYNC, WARNING, "PermissionClaimsDegraded")
INSTANCES_REFUSED: Final = Cause(INSTANCES_IN_SYNC, WARNING, "InstancesRefused")
# Ours, also on ClusterBinding: copies whose origin is absent, which is no deletion.
ANOTHER_NAMESPACE: Final = Cause(INSTANCES_IN_SYNC, WARNING, "AnotherNamespace")
ORPHANED: Final = Cause(INSTANCES_IN_SYNC, WARNING, "Orphaned")
VERSIONS_DIFFER: Final = Cause(VERSIONS_COMPATIBLE, WARNING, "SchemasDiffer")

# AppClusterBinding
KONNECTOR_DEPLOYMENT_FAILED: Final = Cause(KONNECTOR_DEPLOYED, ERROR, "KonnectorDeploymentFailed")

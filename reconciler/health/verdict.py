"""Judge a unit by its live objects: Ready, or the reason, and since when (mapping.md 11).

Pure: the time is passed in. Does not know how facts are read, from a poll or by `observe`, and
what the files want.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from reconciler import api
from reconciler.api.leases import Behind, Stopped, Trouble
from reconciler.core import conditions, keys, times
from reconciler.core.conditions import FALSE, TRUE, Condition
from reconciler.core.manifest import Manifest, annotations_of, get, get_text, is_deleting
from reconciler.core.times import moment
from reconciler.fleet.values import UnitKey

PROGRESSING_FOR: Final = timedelta(minutes=2)

# The original's konnector sets these again, with a new time, at each pass (protocol-konnector.md
# C.2): by that time a unit that will never be Ready would look as if it had just changed.
_RESTLESS: Final = frozenset({conditions.EXPORT_NOT_FOUND.reason, conditions.CRD_FOREIGN.reason})
_TOKEN_REVOKED: Final = "TokenRevoked"
_OLD_ADDRESS: Final = "OldAddress"
_TOO_OLD: Final = "HeartbeatTooOld"
_NOTES: Final = {
    _TOKEN_REVOKED: "token revoked",
    _OLD_ADDRESS: "old address",
    conditions.PROVIDER_SECRET_INVALID.reason: "kubeconfig not mirrored",
    conditions.PROVIDER_SECRET_NOT_FOUND.reason: "kubeconfig not mirrored",
    conditions.INSTANCES_REFUSED.reason: "claims refused",
    conditions.CLAIMS_DEGRADED.reason: "permission claims degraded",
    conditions.ORPHANED.reason: "copies without claims",
    conditions.ANOTHER_NAMESPACE.reason: "new app namespaces held",
    conditions.VERSIONS_DIFFER.reason: "schemas differ",
    conditions.STORED_VERSION_REPLACED.reason: "new version held",
}
_FAILED: Final = "RequestFailed"
# Time alone does not mend these: they are Degraded at once.
_FOR_PEOPLE: Final = {_FAILED} | {
    *(conditions.CONTROL_PLANE_REFUSES.reason, conditions.NOT_OF_THIS_SPACE.reason),
    *(conditions.ISOLATION_UNSUPPORTED.reason, conditions.SCOPE_NOT_SUPPORTED.reason),
    *(conditions.CRD_FOREIGN.reason, conditions.TOO_MANY.reason),
    conditions.BINDING_NOT_WRITTEN.reason,
}
_RESOURCES: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
ESTABLISHED: Final = "Established"
_NAMES_ACCEPTED: Final = "NamesAccepted"  # its message names the clash


class State(StrEnum):
    """The state of a unit; the values are the words that people read."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    UNKNOWN = "Unknown"
    SUSPENDED = "Suspended"
    RELEASED = "Released"


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """The live objects of a unit; None is absent.

    `asked` is its APIServiceExportRequest, or an AppClusterBinding that lists it. `definition` is
    the CRD in the app cluster, which matters only where `awaits_definition`. `secret` is the
    namespace and name of the Secret that the APIServiceBinding has to refer to. `export` may be
    metadata only. `trouble` is that of the konnector, by its Lease; None where it runs, for all we
    know. `exported` are the names of all exports of the space.
    """

    secret: tuple[str, str]
    export: Manifest | None = None
    binding: Manifest | None = None
    asked: Manifest | None = None
    cluster_binding: Manifest | None = None
    definition: Manifest | None = None
    trouble: Trouble | None = None
    exported: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class UnitHealth:
    """The health of a unit.

    `reason` is one CamelCase word, where Ready only of what keeps no unit from it; `message` a
    sentence for people. `since` is when the state began; None where it is unknown. The API does
    not say when something went missing: where not `exact`, the state began at `since` or later. Of
    an Unknown one, `last_known` is what was said before, at `since`.
    """

    unit: UnitKey
    state: State
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    last_known: State | None = None
    exact: bool = True

    @property
    def note(self) -> str:
        """The note beside Ready, where not all is well, as kubectl shows it; else ""."""
        return _NOTES.get(self.reason, "see why") if self.ready and self.reason else ""

    @property
    def ready(self) -> bool:
        return self.state is State.READY


@dataclass(frozen=True, slots=True)
class _Fault:
    """The first fault that keeps a unit from being Ready; `since` is None where it is unknown."""

    reason: str
    message: str
    since: datetime | None = None


def judge(unit: UnitKey, facts: UnitFacts, *, now: datetime) -> UnitHealth:
    """Return how a unit is at `now` (UTC).

    What only the konnector says is not believed once it has stopped, or its heartbeat is too old:
    then the state is Unknown. What we read ourselves, such as a missing export, needs no konnector.
    """
    changed = max(_changes(facts), default=None)
    fault = _seen_fault(unit, facts)
    if fault is not None:
        return _troubled(unit, fault, changed, now)
    beat = api.heartbeat_of(facts.cluster_binding)
    stopped = _stopped(facts)
    if beat is None:
        silent = _Fault("NoHeartbeat", _without_heartbeat(facts), changed)
        return _troubled(unit, stopped or silent, changed, now)
    fault = _reported_fault(unit, facts) or _definition_fault(unit, facts.definition)
    stale = stopped or _stale(facts, beat, now)
    if stale is not None:
        last = State.READY if fault is None else State.DEGRADED
        since = min(stale.since or beat.time, now)
        return UnitHealth(unit, State.UNKNOWN, *_unheard(stale, fault), since, last)
    if fault is not None:
        return _troubled(unit, fault, changed, now)
    notice = _guarded(unit, facts) or _revoked(facts) or _shown(facts) or _outdated(facts)
    reason, message = ("", "") if notice is None else (notice.reason, notice.message)
    return UnitHealth(unit, State.READY, reason, message, since=_not_after(changed, now))


def awaits_definition(unit: UnitKey, facts: UnitFacts) -> bool:
    """Return whether only the CRD in the app cluster can decide the health of a unit."""
    return (
        _seen_fault(unit, facts) is None
        and api.heartbeat_of(facts.cluster_binding) is not None
        and _reported_fault(unit, facts) is None
    )


def _unheard(stale: _Fault, fault: _Fault | None) -> tuple[str, str]:
    """Return the reason why nothing is known of a unit, with its last known reason.

    A konnector that is cut off sends no heartbeat, and says why in the app cluster: that is first.
    """
    if fault is None:
        return stale.reason, stale.message
    if fault.reason in conditions.CUT_OFF and stale.reason == _TOO_OLD:
        return fault.reason, f"{fault.message.removesuffix('.')}; {stale.message}"
    return stale.reason, f"{stale.message}; before: {fault.message}"


def _stopped(facts: UnitFacts) -> _Fault | None:
    if not isinstance(facts.trouble, Stopped):
        return None
    at = times.format_time(facts.trouble.at)
    message = (
        f"the konnector has not renewed its Lease since {at}: check whether it runs, and whether"
        " its cluster takes writes"
    )
    return _Fault("KonnectorStopped", message, facts.trouble.at)


def _stale(facts: UnitFacts, beat: api.Heartbeat, now: datetime) -> _Fault | None:
    time = times.format_time(beat.time)
    by = facts.trouble.by if isinstance(facts.trouble, Behind) else timedelta()
    match api.liveness(beat, now, timeout=beat.timeout, ahead=beat.timeout):
        case api.Liveness.SILENT if by and now - beat.time <= by + beat.timeout:
            return _Fault("ClockBehind", "the konnector runs, and its clock is behind ours")
        case api.Liveness.SILENT:
            message = f"the konnector's last heartbeat was at {time}: check whether it runs"
            return _Fault(_TOO_OLD, message)
        case api.Liveness.AHEAD:
            message = f"the konnector's last heartbeat is from the future, {time}: a clock is wrong"
            return _Fault("HeartbeatInFuture", message)
    return None


def _seen_fault(unit: UnitKey, facts: UnitFacts) -> _Fault | None:
    """Return the fault that our own reads show: an object that is missing or wrong."""
    if facts.export is None:
        return _without_export(unit, facts)
    if is_deleting(facts.export):
        return _doomed("ExportDeleting", facts.export, f"APIServiceExport {unit.name}")
    if facts.binding is None:
        return _Fault("BindingMissing", f"there is no APIServiceBinding {unit.name} yet")
    return _binding_fault(unit, facts.binding, facts)


def _binding_fault(unit: UnitKey, binding: Manifest, facts: UnitFacts) -> _Fault | None:
    if is_deleting(binding):
        return _doomed("BindingDeleting", binding, f"APIServiceBinding {unit.name}")
    named = api.secret_of(binding)
    if named != facts.secret:
        found, wanted = "/".join(named), "/".join(facts.secret)
        refers = f"APIServiceBinding {unit.name} refers to Secret {found}, not {wanted}"
        return _Fault("OtherSecret", refers)
    if facts.cluster_binding is None:
        absent = "there is no ClusterBinding in the binding space; `klutchctl apply` makes it"
        return _Fault("ClusterBindingMissing", absent)
    return None


def _without_export(unit: UnitKey, facts: UnitFacts) -> _Fault:
    """Return the reason for a missing export, by the report of its maker."""
    if facts.asked is None:
        if facts.binding is None:
            return _Fault("NotBound", "it is not bound yet; `klutchctl apply` binds it")
        absent = f"the control plane has no APIServiceExport {unit.name}, and none is asked for"
        return _Fault("ExportMissing", absent)
    if get_text(facts.asked, "status", "phase") == "Failed":
        why = get_text(facts.asked, "status", "terminalMessage") or "it gives no reason"
        return _Fault(_FAILED, f"the export request failed: {why}")
    for one in conditions.of(facts.asked):
        if one.status == FALSE and one.type != conditions.READY:
            return _fault_of(one)
    waiting = f"the backend has not made APIServiceExport {unit.name} yet; see that one runs"
    return _Fault("ExportPending", waiting)


def _without_heartbeat(facts: UnitFacts) -> str:
    """Report a missing konnector; an AppClusterBinding shows whether one is deployed."""
    silent = "no konnector has sent a heartbeat yet"
    if get(facts.asked, "spec", "konnector", "deploy") is False:
        return (
            f"{silent}, and none is deployed for its space: set `konnector.deploy` in the Cluster,"
            " or run one"
        )
    return f"{silent}: see that one runs"


def _reported_fault(unit: UnitKey, facts: UnitFacts) -> _Fault | None:
    """Return the fault that the konnector reports. InformersSynced has no part: mapping.md 11."""
    reported = conditions.of(facts.binding)
    for needed in (conditions.SECRET_VALID, conditions.CONNECTED):
        condition = conditions.find(reported, needed)
        if condition is None:
            silent = f"the konnector has not reported {needed} yet"
            return _Fault(f"{needed}Missing", silent, times.created(facts.binding or {}))
        if condition.status != TRUE:
            return _fault_of(condition)
    beating = conditions.find(reported, conditions.HEARTBEATING)
    if beating is not None and beating.status == FALSE:
        return _fault_of(beating)
    # What an APIServiceBinding says is old where it cannot be written.
    unwritten = conditions.get(facts.cluster_binding, conditions.WRITES_ACCEPTED, FALSE)
    if unwritten is None or _is_of_others(unit, facts, unwritten):
        return None
    return _fault_of(unwritten)


def _guarded(unit: UnitKey, facts: UnitFacts) -> Condition | None:
    """Return the report of a guard that waits for an operator; the rest goes on.

    What a ClusterBinding reports of other kinds of the space is not this unit's.
    """
    orphaned = conditions.get(facts.binding, conditions.INSTANCES_IN_SYNC)
    if orphaned is not None and orphaned.reason == conditions.ORPHANED.reason:
        return orphaned
    guards = conditions.guards(facts.cluster_binding)
    return next((one for one in guards if not _is_of_others(unit, facts, one)), None)


def _is_of_others(unit: UnitKey, facts: UnitFacts, condition: Condition) -> bool:
    others, named = set(facts.exported) - {unit.name}, set(_RESOURCES.findall(condition.message))
    return unit.name not in named and not named.isdisjoint(others)


def _revoked(facts: UnitFacts) -> Condition | None:
    """Return that the token in the app cluster is not that of its source, as both are noted."""
    current, source = _noted(facts.binding), _noted(facts.cluster_binding)
    if current is None or source is None or current.token_digest == source.token_digest:
        return None
    message = (
        f"{_secret(facts)} has a token that is revoked: `klutchctl apply` writes the present one"
    )
    return Condition(conditions.SECRET_VALID, FALSE, "", _TOKEN_REVOKED, message)


def _outdated(facts: UnitFacts) -> Condition | None:
    """Return that the kubeconfig in the app cluster leads elsewhere than its source, as is noted.

    Else why its konnector does not mirror the source, which only apply may read. Until that is
    done, the way of before may work on.
    """
    refused = conditions.get(facts.cluster_binding, conditions.SECRET_VALID, FALSE)
    current, source = _noted(facts.binding), _noted(facts.cluster_binding)
    if current is None or source is None:
        return refused
    if (current.server, current.ca_digest) != (source.server, source.ca_digest):
        why = "`klutchctl apply` has it done" if refused is None else refused.message
        message = f"{_secret(facts)} does not lead to {source.server} yet: {why}"
        return Condition(conditions.SECRET_VALID, FALSE, "", _OLD_ADDRESS, message)
    return refused


def _secret(facts: UnitFacts) -> str:
    return f"Secret {'/'.join(facts.secret)} in the app cluster"


def _noted(carrier: Manifest | None) -> api.KubeconfigFacts | None:
    return api.noted_facts(annotations_of(carrier or {}).get(keys.CREDENTIAL, ""))


def _shown(facts: UnitFacts) -> Condition | None:
    """Return the reason why the binding's own Ready is False, for people with kubectl."""
    reported = conditions.of(facts.binding)
    found = conditions.summary(one for one in reported if one.type != conditions.INFORMERS_SYNCED)
    return found if found is not None and found.status == FALSE else None


def _fault_of(condition: Condition) -> _Fault:
    message = condition.message or f"{condition.type} is {condition.status}"
    since = moment(condition.last_transition_time) if _has_own_time(condition) else None
    return _Fault(condition.reason or f"Not{condition.type}", message, since)


def _doomed(reason: str, live: Manifest, subject: str) -> _Fault:
    since = moment(get_text(live, "metadata", "deletionTimestamp"))
    return _Fault(reason, f"{subject} is being deleted", since)


def _definition_fault(unit: UnitKey, definition: Manifest | None) -> _Fault | None:
    if definition is None:
        return _Fault("CrdMissing", f"the app cluster has no CRD {unit.name}")
    if is_deleting(definition):
        return _doomed("CrdDeleting", definition, f"in the app cluster, CRD {unit.name}")
    established = conditions.get(definition, ESTABLISHED)
    if established is None or established.status != TRUE:
        names = conditions.get(definition, _NAMES_ACCEPTED)
        condition = established if names is None or names.status == TRUE else names
        why = f": {condition.message}" if condition is not None and condition.message else ""
        since = times.created(definition)
        if established is not None:
            since = moment(established.last_transition_time)
        return _Fault("CrdNotEstablished", f"CRD {unit.name} is not served yet{why}", since)
    return None


def _troubled(unit: UnitKey, fault: _Fault, changed: datetime | None, now: datetime) -> UnitHealth:
    turned = changed is not None and now - changed < PROGRESSING_FOR
    fresh = turned and fault.reason not in _FOR_PEOPLE
    state, since = (State.PROGRESSING, changed) if fresh else (State.DEGRADED, fault.since)
    known = _not_after(since or changed, now)
    exact = since is not None or changed is None
    return UnitHealth(unit, state, fault.reason, fault.message, known, exact=exact)


def _changes(facts: UnitFacts) -> Iterator[datetime]:
    # Not the ClusterBinding: it changes with every heartbeat.
    for one in (facts.export, facts.binding, facts.definition, facts.asked):
        for stamp in ("creationTimestamp", "deletionTimestamp"):
            time = moment(get_text(one, "metadata", stamp))
            if time is not None:
                yield time
    for one in (facts.binding, facts.definition, facts.asked):
        for condition in conditions.of(one):
            time = moment(condition.last_transition_time)
            if time is not None and _has_own_time(condition):
                yield time


def _has_own_time(condition: Condition) -> bool:
    """Ready repeats the others, and the restless ones have no time of their own."""
    return condition.type != conditions.READY and not (
        condition.status == FALSE and condition.reason in _RESTLESS
    )


def _not_after(time: datetime | None, now: datetime) -> datetime | None:
    """Clocks differ: nothing happened after now."""
    return None if time is None else min(time, now)

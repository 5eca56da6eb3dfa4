"""How one unit is, out of what is live of it: Ready, or why not, and since when (mapping.md 11).

Pure: the time is passed in. Refuses to know how facts are read, from a poll or by `observe`, and
what the files want.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from reconciler import api
from reconciler.core import conditions, names, times
from reconciler.core.conditions import FALSE, TRUE, Condition
from reconciler.core.manifest import Manifest, get_text, is_deleting, name_of
from reconciler.core.refs import SECRET, GroupResource, Kind
from reconciler.core.times import moment
from reconciler.fleet.values import Mode, UnitKey
from reconciler.planning import placement
from reconciler.planning.site import Site

PROGRESSING_FOR: Final = timedelta(minutes=2)

# The original's konnector sets these anew, with a new time, at each pass (protocol-konnector.md
# C.2): by that time a unit that will never be Ready would look as if it had just changed.
_RESTLESS: Final = frozenset({conditions.EXPORT_NOT_FOUND.reason, conditions.CRD_FOREIGN.reason})
_HELD: Final = (
    conditions.RECREATION_ALLOWED,
    conditions.DELETES_ALLOWED,
    conditions.INSTANCES_IN_SYNC,
)
_ESTABLISHED: Final = "Established"


class State(StrEnum):
    """How a unit is; the values are the words that people read."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    UNKNOWN = "Unknown"
    SUSPENDED = "Suspended"
    RELEASED = "Released"


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """What is live of one unit; None is absent.

    `asked` is its APIServiceExportRequest, or an AppClusterBinding that lists it. `definition` is
    the CRD in the app cluster, which matters only where `awaits_definition`. `secret` is the
    namespace and name of the Secret that the APIServiceBinding has to refer to. `export` may be
    metadata only. `stopped` is when the konnector stopped, by its Lease; None where it runs, for
    all we know.
    """

    secret: tuple[str, str]
    export: Manifest | None = None
    binding: Manifest | None = None
    asked: Manifest | None = None
    cluster_binding: Manifest | None = None
    definition: Manifest | None = None
    stopped: datetime | None = None


@dataclass(frozen=True, slots=True)
class UnitHealth:
    """How one unit is.

    `reason` is one CamelCase word, where Ready only of what is held; `message` a sentence for
    people. `since` is when the state began; None where it is unknown. The API does not say when
    something went missing: where not `exact`, the state began at `since` or later. Of an Unknown
    one, `last_known` is what was said before, at `since`.
    """

    unit: UnitKey
    state: State
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    last_known: State | None = None
    exact: bool = True

    @property
    def ready(self) -> bool:
        """Whether the unit is Ready now."""
        return self.state is State.READY


@dataclass(frozen=True, slots=True)
class _Fault:
    """The first thing that keeps a unit from being Ready; `since` is None where nothing tells."""

    reason: str
    message: str
    since: datetime | None = None


def judge(unit: UnitKey, facts: UnitFacts, *, now: datetime) -> UnitHealth:
    """Return how a unit is at `now` (UTC).

    What only the konnector says is not believed once it has stopped, or its heartbeat is too old:
    then the state is Unknown. What we read ourselves, such as a missing export, needs no konnector.
    """
    changed = _last_change(facts)
    fault = _seen_fault(unit, facts)
    if fault is not None:
        return _troubled(unit, fault, changed, now)
    beat = api.heartbeat_of(facts.cluster_binding)
    stopped = _stopped(facts)
    if beat is None:
        silent = "no konnector has sent a heartbeat yet: see that one runs"
        return _troubled(unit, stopped or _Fault("NoHeartbeat", silent, changed), changed, now)
    fault = _reported_fault(facts) or _definition_fault(unit, facts.definition)
    stale = stopped or _stale(beat, now)
    if stale is not None:
        last = State.READY if fault is None else State.DEGRADED
        said = stale.message if fault is None else f"{stale.message}; before: {fault.message}"
        since = min(stale.since or beat.time, now)
        return UnitHealth(unit, State.UNKNOWN, stale.reason, said, since, last)
    if fault is not None:
        return _troubled(unit, fault, changed, now)
    held = _held(facts)
    reason, message = ("", "") if held is None else (held.reason, held.message)
    return UnitHealth(unit, State.READY, reason, message, since=_not_after(changed, now))


def awaits_definition(unit: UnitKey, facts: UnitFacts) -> bool:
    """Tell whether only the CRD in the app cluster can say more about a unit."""
    return (
        _seen_fault(unit, facts) is None
        and api.heartbeat_of(facts.cluster_binding) is not None
        and _reported_fault(facts) is None
    )


def _stopped(facts: UnitFacts) -> _Fault | None:
    if facts.stopped is None:
        return None
    at = times.format_time(facts.stopped)
    message = f"the konnector has not renewed its Lease since {at}: see whether it runs"
    return _Fault("KonnectorStopped", message, facts.stopped)


def _stale(beat: api.Heartbeat, now: datetime) -> _Fault | None:
    said = times.format_time(beat.time)
    match api.liveness(beat, now, timeout=beat.timeout, ahead=beat.timeout):
        case api.Liveness.SILENT:
            message = f"the konnector's last heartbeat was at {said}: see whether it runs"
            return _Fault("HeartbeatTooOld", message)
        case api.Liveness.AHEAD:
            message = f"the konnector's last heartbeat is from the future, {said}: a clock is wrong"
            return _Fault("HeartbeatInFuture", message)
    return None


def _seen_fault(unit: UnitKey, facts: UnitFacts) -> _Fault | None:
    """Return what our own reads show to be missing or wrong."""
    if facts.export is None:
        return _without_export(unit, facts)
    if is_deleting(facts.export):
        return _doomed("ExportDeleting", facts.export, f"APIServiceExport {unit.name}")
    if facts.binding is None:
        missing = f"there is no APIServiceBinding {unit.name} yet"
        return _Fault("BindingMissing", missing)
    return _binding_fault(unit, facts.binding, facts)


def _binding_fault(unit: UnitKey, binding: Manifest, facts: UnitFacts) -> _Fault | None:
    if is_deleting(binding):
        return _doomed("BindingDeleting", binding, f"APIServiceBinding {unit.name}")
    named = placement.secret_of(binding)
    if named != facts.secret:
        said, wanted = "/".join(named), "/".join(facts.secret)
        refers = f"APIServiceBinding {unit.name} refers to Secret {said}, not {wanted}"
        return _Fault("OtherSecret", refers)
    if facts.cluster_binding is None:
        absent = "there is no ClusterBinding in the binding space; `klutchctl apply` makes it"
        return _Fault("ClusterBindingMissing", absent)
    return None


def _without_export(unit: UnitKey, facts: UnitFacts) -> _Fault:
    """Say why there is no export, as far as whoever has to make it says so."""
    if facts.asked is None:
        if facts.binding is None:
            return _Fault("NotBound", "it is not bound yet; `klutchctl apply` binds it")
        absent = f"the control plane has no APIServiceExport {unit.name}, and none is asked for"
        return _Fault("ExportMissing", absent)
    if get_text(facts.asked, "status", "phase") == "Failed":
        why = get_text(facts.asked, "status", "terminalMessage") or "it does not say why"
        return _Fault("RequestFailed", f"the export request failed: {why}")
    for one in conditions.of(facts.asked):
        if one.status == FALSE and one.type != conditions.READY:
            return _fault_of(one)
    waiting = f"the backend has not made APIServiceExport {unit.name} yet; see that one runs"
    return _Fault("ExportPending", waiting)


def _reported_fault(facts: UnitFacts) -> _Fault | None:
    """Return what the konnector says is wrong. InformersSynced is not asked: see mapping.md 11."""
    reported = conditions.of(facts.binding)
    for needed in (conditions.SECRET_VALID, conditions.CONNECTED):
        condition = conditions.find(reported, needed)
        if condition is None:
            silent = f"the konnector has not reported {needed} yet"
            return _Fault(f"{needed}Missing", silent, times.created(facts.binding or {}))
        if condition.status != TRUE:
            return _fault_of(condition)
    beating = conditions.find(reported, conditions.HEARTBEATING)
    return _fault_of(beating) if beating is not None and beating.status == FALSE else None


def _held(facts: UnitFacts) -> Condition | None:
    """Return what the konnector holds until a person decides; the rest goes on."""
    orphaned = conditions.said(facts.binding, conditions.INSTANCES_IN_SYNC)
    if orphaned is not None and orphaned.reason == conditions.ORPHANED.reason:
        return orphaned
    reported = conditions.of(facts.cluster_binding)
    held = (conditions.find(reported, condition) for condition in _HELD)
    return next((one for one in held if one is not None and one.status == FALSE), None)


def _fault_of(condition: Condition) -> _Fault:
    said = condition.message or f"{condition.type} is {condition.status}"
    since = moment(condition.last_transition_time) if _has_own_time(condition) else None
    return _Fault(condition.reason or f"Not{condition.type}", said, since)


def _doomed(reason: str, live: Manifest, what: str) -> _Fault:
    since = moment(get_text(live, "metadata", "deletionTimestamp"))
    return _Fault(reason, f"{what} is being deleted", since)


def _definition_fault(unit: UnitKey, definition: Manifest | None) -> _Fault | None:
    if definition is None:
        return _Fault("CrdMissing", f"the app cluster has no CRD {unit.name}")
    if is_deleting(definition):
        return _doomed("CrdDeleting", definition, f"in the app cluster, CRD {unit.name}")
    established = conditions.said(definition, _ESTABLISHED)
    if established is None or established.status != TRUE:
        why = f": {established.message}" if established is not None and established.message else ""
        since = times.created(definition)
        if established is not None:
            since = moment(established.last_transition_time)
        return _Fault("CrdNotEstablished", f"CRD {unit.name} is not served yet{why}", since)
    return None


def _troubled(unit: UnitKey, fault: _Fault, changed: datetime | None, now: datetime) -> UnitHealth:
    fresh = changed is not None and now - changed < PROGRESSING_FOR
    state, since = (State.PROGRESSING, changed) if fresh else (State.DEGRADED, fault.since)
    known = _not_after(since or changed, now)
    exact = since is not None or changed is None
    return UnitHealth(unit, state, fault.reason, fault.message, known, exact=exact)


def _last_change(facts: UnitFacts) -> datetime | None:
    """Return when a unit last changed: objects made or doomed, and conditions that turned."""
    return max(_changes(facts), default=None)


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


Inside: TypeAlias = Callable[[Kind, str], Sequence[Manifest]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where the objects of one app cluster's units are.

    `secret` is namespace and name of the Secret that their APIServiceBindings refer to: K in the
    app cluster, or the mirrored one in the space. `kept` holds those of units, by `plural.group`,
    whose binding keeps another that leads to the same space.
    """

    mode: Mode
    space: str
    secret: tuple[str, str]
    kept: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    bindings_cluster_scoped: bool = False
    app_cluster_binding: tuple[str, str] = ("", "")

    @property
    def bindings_namespace(self) -> str:
        """The namespace of its APIServiceBindings; "" where they are cluster-scoped."""
        if self.mode is Mode.APP_CLUSTER_BINDING:
            return self.space
        return "" if self.bindings_cluster_scoped else names.KLUTCH_NAMESPACE


def location_of(site: Site, mode: Mode) -> Location:
    """Return the location at a site, with the Secrets that live bindings rightly keep."""
    own, direct = site.placement, mode is Mode.DIRECT
    secret = (names.KLUTCH_NAMESPACE, own.consumer_secret)
    return Location(
        mode=mode,
        space=own.space,
        secret=secret if direct else (own.space, own.kubeconfig_name),
        kept=_kept(site, secret) if direct else {},
        bindings_cluster_scoped=own.bindings_cluster_scoped,
        app_cluster_binding=own.app_cluster_binding,
    )


def _kept(site: Site, usual: tuple[str, str]) -> Mapping[str, tuple[str, str]]:
    """Return the Secrets that bindings name in place of the usual one, and may keep."""
    own = site.placement
    source = site.control_plane.get(SECRET, own.kubeconfig_namespace, own.kubeconfig_name)
    return {
        name_of(binding): named
        for binding in placement.bindings(site.app)
        if (named := placement.secret_of(binding)) != usual
        and named[0] == names.KLUTCH_NAMESPACE
        and _leads_to_space(site, named, source)
    }


def _leads_to_space(site: Site, named: tuple[str, str], source: Manifest | None) -> bool:
    """Tell whether a binding's own Secret leads to the space, or nobody here may read that."""
    secret = site.app.get(SECRET, *named)
    unread = site.app.blind and secret is None
    return unread or placement.same_way(secret, source, site.placement.space)


class LiveUnits:
    """What is live at one location, for the facts of any of its units.

    `on_plane` and `in_app` give the objects of a kind in a namespace of either cluster.
    """

    def __init__(self, location: Location, *, on_plane: Inside, in_app: Inside) -> None:
        direct = location.mode is Mode.DIRECT
        holder = in_app if direct else on_plane
        self.location = location
        self._exports = _by_name(on_plane(api.API_SERVICE_EXPORT, location.space))
        self._bindings = _by_name(holder(api.API_SERVICE_BINDING, location.bindings_namespace))
        self._requests: Mapping[str, Manifest] = {}
        self._app_cluster_binding: Manifest | None = None
        self._listed: frozenset[GroupResource] = frozenset()
        if direct:
            self._requests = _by_name(on_plane(api.API_SERVICE_EXPORT_REQUEST, location.space))
        else:
            namespace, name = location.app_cluster_binding
            self._app_cluster_binding = _by_name(on_plane(api.APP_CLUSTER_BINDING, namespace)).get(
                name
            )
        if self._app_cluster_binding is not None:
            self._listed = api.listed_resources(self._app_cluster_binding)
        cluster_bindings = _by_name(on_plane(api.CLUSTER_BINDING, location.space))
        self._cluster_binding = cluster_bindings.get(names.CLUSTER_BINDING)

    @property
    def beat(self) -> api.Heartbeat | None:
        """The last heartbeat of their konnector."""
        return api.heartbeat_of(self._cluster_binding)

    def facts(
        self, unit: UnitKey, definition: Manifest | None = None, stopped: datetime | None = None
    ) -> UnitFacts:
        """Return what is live of a unit.

        `definition` is its CRD, where that was read, and `stopped` as in `UnitFacts`.
        """
        listed = GroupResource(unit.group, unit.resource) in self._listed
        return UnitFacts(
            secret=self.location.kept.get(unit.name, self.location.secret),
            export=self._exports.get(unit.name),
            binding=self._bindings.get(unit.name),
            asked=self._app_cluster_binding if listed else self._requests.get(unit.name),
            cluster_binding=self._cluster_binding,
            definition=definition,
            stopped=stopped,
        )


def _by_name(objects: Sequence[Manifest]) -> dict[str, Manifest]:
    return {name_of(manifest): manifest for manifest in objects}

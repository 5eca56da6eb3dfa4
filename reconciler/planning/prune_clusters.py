"""Prunes app clusters that left the files: first units, then access and konnector.

Mapping.md 9, "Cluster leaves". The space, or the AppClusterBinding, stays: it holds the data.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from reconciler import api
from reconciler.core import keys, manifest, names, refs
from reconciler.core.live import ClusterState, Live, Unavailable, control_plane_ref_name
from reconciler.core.manifest import Manifest
from reconciler.fleet.values import DeletionPolicy, Fleet, PruneMode, UnitKey
from reconciler.fleet.wanted import Placement
from reconciler.planning import prune_units, roots
from reconciler.planning.app_cluster_bindings import prunes_of
from reconciler.planning.changes import Action, Change, Step, Verb
from reconciler.planning.objects import BEING_DELETED, before_digest, is_ours
from reconciler.planning.placement import (
    belongs_to_another,
    bindings,
    recorded,
    secret_name,
    unreadable,
)
from reconciler.planning.prune_units import Prune
from reconciler.planning.site import Index, Site

_KONNECTOR: tuple[tuple[refs.Kind, str], ...] = (
    (refs.DEPLOYMENT, names.KONNECTOR),
    (refs.SERVICE_ACCOUNT, names.KONNECTOR),
    (refs.CLUSTER_ROLE_BINDING, names.KONNECTOR_CLUSTER_ROLE),
    (refs.CLUSTER_ROLE, names.KONNECTOR_CLUSTER_ROLE),
)


@dataclass(frozen=True, slots=True)
class ClusterPrune:
    """A cluster that left: the object that still stands for it, and its units.

    `obstacle`: why the cluster that was reached is not the one that left, or "". The way to it
    is an annotation, which others may have written.
    """

    name: str
    kind: refs.Kind  # of `carrier`: Namespace in Direct mode, else AppClusterBinding
    carrier: Manifest
    site: Site
    prunes: tuple[Prune, ...]
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class Carrier:
    """The carrier of an app cluster: a space or an AppClusterBinding, in a Ref of `plane`."""

    plane: str
    plane_uid: str
    kind: refs.Kind
    live: Manifest

    @property
    def stands(self) -> bool:
        return not manifest.annotations_of(self.live).get(keys.RELEASED)


@dataclass(frozen=True, slots=True)
class Known:
    """The known facts of all app clusters of a fleet.

    `carriers` are those of each by its name, and `uids` the identities of the clusters in the
    files, as far as they are known.
    """

    fleet: Fleet
    live: Live
    carriers: Mapping[str, Sequence[Carrier]]
    uids: frozenset[str]


def known_of(fleet: Fleet, live: Live) -> Known:
    """Read the objects of every cluster that left, once.

    Of a cluster in the files that was not read, what stands for it says which it is.
    """
    carriers: dict[str, list[Carrier]] = defaultdict(list)
    for plane, seen in live.control_planes.items():
        if isinstance(seen, ClusterState):
            documents = roots.documents_of(live.control_planes, seen.uid)
            for kind, one in roots.carriers(fleet, documents, seen):
                name = manifest.labels_of(one).get(keys.CLUSTER, "")
                carriers[name].append(Carrier(control_plane_ref_name(plane), seen.uid, kind, one))
    seen_uids = {
        name: one.uid for name, one in _documented(fleet, live) if isinstance(one, ClusterState)
    }
    noted = {
        recorded(one.live)
        for name, found in carriers.items()
        if name not in seen_uids and fleet.has_document(name)
        for one in found
    }
    stated = {one.identity for one in fleet.clusters.values()}
    uids = {*seen_uids.values(), *noted, *stated, *fleet.elsewhere.values()} - {""}
    return Known(fleet, live, carriers, frozenset(uids))


def removed(fleet: Fleet, live: Live) -> dict[str, ClusterState | Unavailable]:
    """Return the clusters that left, by name: those that were looked for, and no document names.

    None with pruning off, and while the fleet is suspended. A snapshot may be older than the files,
    so it may hold others as leaving, or these as clusters. A renamed one has not left.
    """
    if fleet.guards.mode is PruneMode.OFF or fleet.suspended is not None:
        return {}
    found = {
        name: seen
        for name, seen in {**live.clusters, **live.leaving}.items()
        if not fleet.has_document(name)
    }
    known = known_of(fleet, live) if found else None
    return {
        name: seen
        for name, seen in found.items()
        if isinstance(seen, ClusterState) or known is None or not _renamed(known, name)
    }


def cluster_prunes(known: Known, plane: Index, app: Index) -> tuple[ClusterPrune, ...]:
    """Return the prunes of a cluster that no document names, on this control plane."""
    found = [
        _prune(known.fleet, one, plane, app)
        for one in known.carriers.get(app.name, ())
        if one.plane == plane.name and one.stands and recorded(one.live) not in known.uids
    ]
    found.sort(key=lambda one: plane.ref(one.kind, one.carrier))
    return tuple(_checked(one, known) for one in found)


def unread(
    known: Known, planes: Iterable[Index], names: Iterable[str], apps: Iterable[Index]
) -> frozenset[UnitKey]:
    """Return the units that leave where nothing is planned.

    Control planes show those of clusters that are not read; their own bindings those of `apps`.
    """
    bound = {
        prune_units.unit_of(app.name, manifest.name_of(one))
        for app in apps
        for one in bindings(app)
        if is_ours(one, fleet=known.fleet.name, cluster=app.name)
    }
    found = bound | {
        unit.key
        for name, plane in product(names, planes)
        for one in known.carriers.get(name, ())
        if one.plane == plane.name and one.stands
        for unit in _prune(
            known.fleet, one, plane, Index(name, replace(plane.seen, objects={}))
        ).prunes
    }
    return frozenset(found - known.fleet.units.keys())


def change_of(gone: ClusterPrune) -> Change:
    policy = gone.site.fleet.guards.on_cluster_leave
    change = Change(
        cluster=gone.name,
        subject="cluster",
        ref=gone.site.control_plane.ref(gone.kind, gone.carrier),
        action=Action.RELEASE,
        reason="no document names this cluster; its data stays",
        before=before_digest(gone.carrier, {}),
        uid=manifest.uid_of(gone.carrier),
        steps=tuple(_steps(gone)),
    )
    if gone.obstacle:
        return replace(change, action=Action.BLOCKED, reason=gone.obstacle, steps=())
    guests = ", ".join(_guests(gone))
    if guests and policy is DeletionPolicy.DELETE:
        reason = f"no document names this cluster, and its space contains foreign objects: {guests}"
        return replace(change, action=Action.BLOCKED, reason=reason, steps=())
    match policy:
        case DeletionPolicy.RELEASE:
            return change
        case DeletionPolicy.BLOCK:
            reason = "no document names this cluster, and prune.onClusterLeave is Block"
            return replace(change, action=Action.BLOCKED, reason=reason, steps=())
        case DeletionPolicy.DELETE:
            last = Step(Verb.DELETE_EMPTY, change.ref, "once no instance of any kind is left")
            reason = "no document names this cluster, and prune.onClusterLeave is Delete"
            # What is marked as released is not looked at again, so it would stay for ever.
            steps = (*(step for step in change.steps if step.verb is not Verb.RETIRE), last)
            return replace(change, action=Action.DELETE, reason=reason, steps=steps)


def _checked(gone: ClusterPrune, known: Known) -> ClusterPrune:
    """Hold a cluster back unless it is the one that left, and no other name of one in the files."""
    carrier, fleet = gone.carrier, known.fleet
    plane, placed = gone.site.control_plane, gone.site.placement
    obstacle = belongs_to_another(manifest.name_of(carrier), carrier, gone.site.app) or unreadable(
        plane, placed.kubeconfig_namespace, placed.kubeconfig_name
    )
    reason = "" if obstacle is None else obstacle.reason
    if not recorded(carrier):
        reason = f"{manifest.name_of(carrier)} names no cluster"
    elif len(several := _roots(known, gone.name)) > 1:
        reason = f"several are its own: {', '.join(sorted(several))}"
    elif manifest.is_deleting(carrier):
        reason = f"{manifest.name_of(carrier)} {BEING_DELETED}"
    elif maybe := _unread(known, recorded(carrier)):
        reason = f"it may be {maybe} under a former name, which was not read"
    elif moved := fleet.ways_elsewhere.get(manifest.annotations_of(carrier).get(keys.ACCESS, "")):
        reason = (
            f"it may be {moved} under a former name, which another process keeps; say by "
            "`identity` in that Cluster document which one that is"
        )
    return replace(gone, prunes=(), obstacle=reason) if reason else gone


def _roots(known: Known, name: str) -> set[str]:
    """Return the roots of a cluster that left; each once on its control plane."""
    return {
        f"{one.plane_uid}/{manifest.namespace_of(one.live)}/{manifest.name_of(one.live)}"
        for one in known.carriers.get(name, ())
        if one.stands
    }


def _documented(fleet: Fleet, live: Live) -> Iterator[tuple[str, ClusterState | Unavailable]]:
    for name in sorted(fleet.clusters):
        yield name, live.clusters.get(name, Unavailable("it was not read"))


def _unread(known: Known, uid: str) -> str:
    """Return a cluster of the files that may have this identity, for all that is known, or ""."""
    for name, seen in _documented(known.fleet, known.live):
        identity = known.fleet.clusters[name].identity
        if isinstance(seen, Unavailable) and name not in known.carriers and identity in ("", uid):
            return name
    return ""


def _renamed(known: Known, name: str) -> bool:
    """Return whether all that a cluster left has been found again under another name."""
    mine = known.carriers.get(name, ())
    return bool(mine) and all(recorded(one.live) in known.uids for one in mine)


def _prune(fleet: Fleet, carrier: Carrier, plane: Index, app: Index) -> ClusterPrune:
    """Return a cluster with its units, for all of which the rule for clusters decides."""
    kind, one = carrier.kind, carrier.live
    if kind == api.APP_CLUSTER_BINDING:
        space = names.app_cluster_binding_space(*manifest.identity_of(one))
        site = Site(fleet, _placement(space, plane, app), plane, app)
        found = tuple(prunes_of(site, one, api.listed_resources(one)))
    else:
        site = Site(fleet, _placement(manifest.name_of(one), plane, app), plane, app)
        found = prune_units.prunes(site)
    by_rule = tuple(replace(unit, policy=fleet.guards.on_cluster_leave) for unit in found)
    return ClusterPrune(app.name, kind, one, site, by_rule)


def _placement(space: str, plane: Index, app: Index) -> Placement:
    binding = plane.get(api.CLUSTER_BINDING, space, names.CLUSTER_BINDING)
    return Placement(
        space=space,
        kubeconfig_namespace=space,
        kubeconfig_name=secret_name(binding or {}),
        consumer_secret=names.kubeconfig_secret(space),
        identity="",
        bindings_cluster_scoped=app.seen.bindings_cluster_scoped,
        cluster_uid=app.seen.uid,
        address=plane.seen.address,
    )


def _steps(gone: ClusterPrune) -> Iterator[Step]:
    site, ref = gone.site, gone.site.control_plane.ref(gone.kind, gone.carrier)
    if gone.kind == api.APP_CLUSTER_BINDING:
        yield Step(Verb.RETIRE, ref, "apiExports [], konnector.deploy false, annotation released")
        return
    # Bindings that were not adopted may use the same konnector and the same access.
    if not prune_units.unmanaged_bindings(site):
        yield from _konnector_steps(gone)
    if not _guests(gone):
        yield from _access_steps(gone)
    yield Step(Verb.RETIRE, ref, "annotation released; the space and its data stay")


def _konnector_steps(gone: ClusterPrune) -> Iterator[Step]:
    app = gone.site.app
    for kind, name in _KONNECTOR:
        live = app.get(kind, names.KLUTCH_NAMESPACE if kind.namespaced else "", name)
        if live is not None and is_ours(live, fleet=gone.site.fleet.name, cluster=gone.name):
            yield Step(Verb.DELETE, app.ref(kind, live), "the konnector that we deployed")


def _access_steps(gone: ClusterPrune) -> Iterator[Step]:
    app, plane, placement = gone.site.app, gone.site.control_plane, gone.site.placement
    ours = refs.Ref(app.name, refs.SECRET, names.KLUTCH_NAMESPACE, "")
    yield Step(Verb.REVOKE, ours, "the way to the control plane")
    for name in (names.BINDER, placement.kubeconfig_name):
        yield Step(
            Verb.DELETE,
            refs.Ref(plane.name, refs.SECRET, placement.space, name),
            "revokes the access",
        )


def _guests(gone: ClusterPrune) -> tuple[str, ...]:
    """Return the resources that live in the space, or may, and stay when the cluster leaves."""
    site, space = gone.site, gone.site.placement.space
    leave = {prune.key.name for prune in gone.prunes}
    inside = site.control_plane.inside
    stay = {manifest.name_of(one) for one in inside(api.API_SERVICE_EXPORT, space)} - leave
    stay |= {
        manifest.name_of(one)
        for one in inside(api.API_SERVICE_EXPORT_REQUEST, space)
        if not _requested(one) <= leave
    }
    stay |= {
        manifest.name_of(binding)
        for binding in prune_units.unmanaged_bindings(site)
        if api.secret_of(binding) == (names.KLUTCH_NAMESPACE, site.placement.consumer_secret)
    }
    return tuple(sorted(stay))


def _requested(request: Manifest) -> set[str]:
    """Return the services that a request is for, whatever it is called.

    The backend and kubectl bind name theirs by rules of their own.
    """
    resources = manifest.get_maps(request, "spec", "resources")
    return {
        names.resource_name(
            manifest.get_text(resource, "resource"), manifest.get_text(resource, "group")
        )
        for resource in resources
    }

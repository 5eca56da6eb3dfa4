"""Decides which app clusters can be planned, where each one is, and why the others wait.

A refused cluster gets no change at all. Reasons: it is not the cluster that the files mean, it
moved while objects of it exist, or its space is another's or being deleted (mapping.md 2-4).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.live import ClusterState, Live, control_plane_ref_name
from reconciler.core.manifest import Manifest, annotations_of, is_deleting, labels_of, name_of
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from reconciler.fleet.values import AppCluster, Fleet, Mode
from reconciler.planning import app_cluster_bindings, permission_claims, placement, roots
from reconciler.planning.objects import BEING_DELETED
from reconciler.planning.placement import Blocked
from reconciler.planning.site import Index, Site

Preflight: TypeAlias = Site | Blocked


def control_planes(fleet: Fleet, live: Live) -> Mapping[str, Index]:
    """Return the control planes of the files that were read, by name."""
    return {
        name: Index(
            control_plane_ref_name(name),
            permission_claims.counted(fleet.control_planes[name], seen),
        )
        for name, seen in live.control_planes.items()
        if isinstance(seen, ClusterState) and name in fleet.control_planes
    }


def preflights(
    fleet: Fleet, live: Live, planes: Mapping[str, Index], wanted: Iterable[str]
) -> Mapping[str, Preflight]:
    """Return where each of the `wanted` clusters stands, of those that were seen.

    Suspended clusters are left out, and those whose control plane is not among `planes`.
    """
    known = _roots(fleet, planes)
    renamed = _renamed(fleet, live, planes)
    found: dict[str, Preflight] = {}
    for name in wanted:
        cluster, seen = fleet.clusters[name], live.clusters.get(name)
        plane = planes.get(cluster.control_plane)
        if cluster.suspended is not None or not isinstance(seen, ClusterState) or plane is None:
            continue
        found[name] = renamed or _preflight(fleet, cluster, plane, Index(name, seen), known)
    if renamed is None:
        found |= _twins(fleet, live, found)
    return found | _sharing(found)


def _renamed(fleet: Fleet, live: Live, planes: Mapping[str, Index]) -> Blocked | None:
    """Refuse a fleet that is new here by its name, while another owns clusters of its files.

    Most likely it is that fleet under another name, which would bind everything a second time.
    """
    owned: set[tuple[str, str]] = set()
    for plane in planes.values():
        documents = _documents(planes, plane)
        if any(roots.carriers(fleet, documents, plane.seen)):
            return None
        for owner, one in roots.carriers_of_others(fleet, documents, plane.seen):
            cluster = _cluster_of(fleet, live, one)
            root = None if cluster is None else planes.get(cluster.control_plane)
            # Two documents may name one control plane.
            if cluster and root and root.seen.uid == plane.seen.uid:
                owned.add((cluster.name, owner))
    if not owned:
        return None
    name, owner = min(owned)
    cluster = fleet.clusters[name]
    shared = f"add `adopt: {{space: {names.direct_space(fleet.name, name)}}}` to the spec of"
    if fleet.control_planes[cluster.control_plane].mode is not Mode.DIRECT:
        shared = "give another name to"
    reason = (
        f"cluster {name} belongs to fleet {owner}, and of fleet {fleet.name} nothing is here: "
        f"if the Fleet was renamed, name it {owner} again; if both are to bind {name}, {shared} "
        f"its Cluster document here; else release {name} in fleet {owner} first"
    )
    return Blocked("foreign-fleet", reason)


def _cluster_of(fleet: Fleet, live: Live, carrier: Manifest) -> AppCluster | None:
    """Return the cluster of the files that another fleet's binding belongs to, or None.

    The files may say that a cluster gets a space of its own beside it.
    """
    cluster = fleet.clusters.get(labels_of(carrier).get(keys.CLUSTER, ""))
    if cluster is None or keys.RELEASED in annotations_of(carrier) or is_deleting(carrier):
        return None
    seen = live.clusters.get(cluster.name)
    if not isinstance(seen, ClusterState) or placement.recorded(carrier) != seen.uid:
        return None
    return None if cluster.adopt == names.direct_space(fleet.name, cluster.name) else cluster


@dataclass(frozen=True, slots=True)
class _Root:
    """A space or AppClusterBinding with our labels, rightly or not: the root of an app cluster."""

    plane: Index
    ref: Ref
    live: Manifest
    is_known: bool


def _roots(fleet: Fleet, planes: Mapping[str, Index]) -> Mapping[str, Sequence[_Root]]:
    """Return all of them, by the cluster that they name and by the identity that they note."""
    found: dict[str, list[_Root]] = defaultdict(list)
    for plane in planes.values():
        documents, kind = _documents(planes, plane), api.APP_CLUSTER_BINDING
        known = roots.carriers(fleet, documents, plane.seen)
        _, others = roots.by_place(fleet, documents, plane.seen)
        for root in (
            *(_Root(plane, plane.ref(kind, one), one, is_known=True) for kind, one in known),
            *(_Root(plane, plane.ref(kind, one), one, is_known=False) for one in others),
        ):
            cluster = labels_of(root.live).get(keys.CLUSTER, "")
            for key in {cluster, placement.recorded(root.live)} - {""}:
                found[key].append(root)
    return found


def _documents(planes: Mapping[str, Index], plane: Index) -> frozenset[str]:
    return roots.documents_of({name: one.seen for name, one in planes.items()}, plane.seen.uid)


def _preflight(
    fleet: Fleet,
    cluster: AppCluster,
    plane: Index,
    app: Index,
    known: Mapping[str, Sequence[_Root]],
) -> Preflight:
    direct = fleet.control_planes[cluster.control_plane].mode is Mode.DIRECT
    finder = placement.place if direct else app_cluster_bindings.place
    found = placement.wrong_identity(cluster, app) or finder(fleet, cluster, plane, app)
    if isinstance(found, Blocked):
        return found
    site = Site(fleet, found, plane, app)
    return (
        placement.unreadable(plane, found.kubeconfig_namespace, found.kubeconfig_name)
        or _going(site)
        or _foreign(site)
        or _moved(site, (*known.get(app.name, ()), *known.get(app.seen.uid, ())))
        or (_left_behind(site) or _wrong_secret(site) if direct else _mode_changed(site))
        or site
    )


def _is_proved(site: Site) -> bool:
    """Return whether more than its own word proves the identity of a cluster (trust.md T14)."""
    if site.cluster.identity:
        return True
    live = site.live_root
    # A space is given for a proof only, an AppClusterBinding for its name as well.
    return live is not None and (site.is_direct or site.owns(live))


def _going(site: Site) -> Blocked | None:
    """Refuse a cluster with a space or namespace that is being deleted."""
    space = Ref(site.control_plane.name, NAMESPACE, "", site.placement.space)
    bind = Ref(site.app.name, NAMESPACE, "", names.KLUTCH_NAMESPACE)
    for index, ref in (
        (site.control_plane, site.root),
        (site.control_plane, space),
        (site.app, bind),
    ):
        live = index.at(ref)
        if live is not None and is_deleting(live):
            return Blocked("deleting", f"{ref.object} in {ref.cluster} {BEING_DELETED}")
    return None


def _foreign(site: Site) -> Blocked | None:
    carrier, fleet = site.root, site.fleet
    live = site.control_plane.at(carrier)
    labels = {} if live is None else labels_of(live)
    if labels.get(keys.FLEET, fleet.name) != fleet.name:
        reason = f"{carrier.object} belongs to fleet {labels[keys.FLEET]}; release it there first"
        return Blocked("foreign-space", reason)
    owner = labels.get(keys.CLUSTER, site.app.name)
    if owner != site.app.name and fleet.has_document(owner):
        return Blocked("foreign-space", f"{carrier.object} belongs to cluster {owner}")
    return None


def _moved(site: Site, elsewhere: Iterable[_Root]) -> Blocked | None:
    """Refuse a cluster with units elsewhere: data does not move, so release them first."""
    found: list[str] = []
    unproved: list[_Root] = []
    proved = _is_proved(site)
    for root in elsewhere:
        # Two documents may name one control plane.
        same = root.plane.seen.uid == site.control_plane.seen.uid
        here = same and replace(root.ref, cluster=site.control_plane.name) == site.root
        if not here and _is_of_cluster(site, root.live, proved=proved) and _lives(root):
            if root.is_known:
                found.append(f"{root.ref.object} in {root.ref.cluster}")
            else:
                unproved.append(root)
    # Anybody may say so: it stops only what has no root, unless the files say which that is.
    if not found and unproved and site.live_root is None and not site.cluster.adopt:
        return roots.unproved(site.fleet, site.cluster, min(unproved, key=lambda one: one.ref).live)
    if not found:
        return None
    return Blocked("moved", f"units of it live at {min(found)}; release them first")


def _is_of_cluster(site: Site, carrier: Manifest, *, proved: bool) -> bool:
    """Return whether a root is the cluster's, by its name, or by the identity if none is proved."""
    if keys.RELEASED in annotations_of(carrier):
        return False
    if labels_of(carrier).get(keys.CLUSTER) == site.app.name:
        return True
    return not proved and placement.recorded(carrier) == site.app.seen.uid


def _lives(root: _Root) -> bool:
    if root.ref.kind == api.APP_CLUSTER_BINDING:
        return bool(api.listed_resources(root.live))
    kinds = (api.API_SERVICE_EXPORT, api.API_SERVICE_EXPORT_REQUEST)
    return any(root.plane.inside(kind, root.ref.name) for kind in kinds)


def _left_behind(site: Site) -> Blocked | None:
    """Refuse a cluster with bindings to a control plane that no document names any more."""
    there = site.live_root is not None
    spaces: dict[tuple[str, str], str] = {}  # by Secret: most bindings use the same
    for binding in placement.own_bindings(site):
        way = api.secret_of(binding)
        if way not in spaces:
            spaces[way] = placement.leads_to(site.app.get(SECRET, *way)) or site.placement.space
        space = spaces[way]
        if there and space == site.placement.space:
            continue
        reason = (
            f"its binding {name_of(binding)} leads to a binding space {space} that is not the "
            "one here; release it where it leads to, or restore the space"
        )
        return Blocked("moved", reason)
    return None


def _mode_changed(site: Site) -> Blocked | None:
    bound = [name_of(binding) for binding in placement.own_bindings(site)]
    if not bound:
        return None
    listed = ", ".join(sorted(bound))
    return Blocked("moved", f"it is bound in mode Direct to {listed}; release them first")


def _wrong_secret(site: Site) -> Blocked | None:
    """Refuse a cluster with a Secret K that leads elsewhere: it is never overwritten."""
    name, space = site.placement.consumer_secret, site.placement.space
    there = placement.leads_to(site.app.get(SECRET, names.KLUTCH_NAMESPACE, name))
    if there in ("", space):
        return None
    reason = f"Secret {name} in {names.KLUTCH_NAMESPACE} leads to {there}, not {space}"
    return Blocked("foreign-secret", reason)


def _sharing(found: Mapping[str, Preflight]) -> dict[str, Preflight]:
    """Refuse clusters that share a space: two konnectors there delete each other's objects."""
    by_space: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, site in found.items():
        if isinstance(site, Site):
            by_space[site.control_plane.seen.uid, site.placement.space].append(name)
    refused: dict[str, Preflight] = {}
    for (_, space), sharers in by_space.items():
        for name in sharers if len(sharers) > 1 else ():
            others = ", ".join(sorted(set(sharers) - {name}))
            reason = f"binding space {space} is that of {others} as well"
            refused[name] = Blocked("shared-space", reason)
    return refused


def _twins(fleet: Fleet, live: Live, found: Mapping[str, Preflight]) -> dict[str, Preflight]:
    """Hold the clusters that another document leads to as well.

    Those of which more is known than what they report are not held: anybody may report their uid.
    """
    by_uid: dict[str, set[str]] = defaultdict(set)
    for name, identity in fleet.elsewhere.items():
        by_uid[identity].add(name)
    by_uid.pop("", None)
    for name, cluster in fleet.clusters.items():
        seen = live.clusters.get(name)
        uid = seen.uid if isinstance(seen, ClusterState) else cluster.identity
        if uid:
            by_uid[uid].add(name)
    refused: dict[str, Preflight] = {}
    for uid, twins in by_uid.items():
        for name in twins & found.keys() if len(twins) > 1 else ():
            site = found[name]
            if isinstance(site, Blocked) or not _is_proved(site):
                others = ", ".join(sorted(twins - {name}))
                reason = f"{others} leads to the same cluster (kube-system {uid})"
                refused[name] = Blocked("identity", reason)
    return refused

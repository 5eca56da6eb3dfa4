"""AppClusterBinding mode: one object holds all units of a cluster, the backend does the rest.

Where such a cluster stands, what its units come to, and which of them left (mapping.md 8, 9).
"""

from collections.abc import Iterator
from dataclasses import replace

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.blueprints.binding import Resource
from reconciler.core import keys, names
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    get_maps,
    get_text,
    labels_of,
    name_of,
    namespace_of,
)
from reconciler.core.refs import Ref
from reconciler.fleet.compile import unit_objects
from reconciler.fleet.footing import Footing, default_footing
from reconciler.fleet.values import AppCluster, Fleet, Unit, UnitKey
from reconciler.planning import claims as claiming
from reconciler.planning.changes import Action, Change, Step
from reconciler.planning.compare import is_ours
from reconciler.planning.guards import leaving_policy
from reconciler.planning.index import Index
from reconciler.planning.leaving import Departure, all_of
from reconciler.planning.objects import owned_changes
from reconciler.planning.offers import offer_of
from reconciler.planning.placement import Misplaced, belongs_to_another
from reconciler.planning.units import (
    Site,
    UnitPlan,
    blocked,
    claim_problem,
    claims_change,
    draft_of,
    unaccepted,
    widened,
)


def place(
    fleet: Fleet, cluster: AppCluster, control_plane: Index, app: Index
) -> Footing | Misplaced:
    """Find the AppClusterBinding of a cluster, or name a new one."""
    for kind in (APP_CLUSTER_BINDING, API_SERVICE_BINDING):
        if kind in control_plane.seen.unserved:
            reason = f"the control plane has no CRD {kind.resource}; `klutchctl doctor` tells how"
            return Misplaced("missing-crd", reason)
    live = live_of(fleet, cluster, control_plane, app)
    fresh = replace(
        default_footing(fleet, cluster), cluster_uid=app.seen.uid, address=app.seen.address
    )
    if live is None:
        return fresh
    stranger = belongs_to_another(f"AppClusterBinding {name_of(live)}", live, app)
    if stranger is not None:
        return stranger
    listed = resources_of(live)
    wanted = {(one.group, one.resource) for one in fleet.units if one.cluster == cluster.name}
    secret = ("spec", "kubeconfigSecretRef")
    return replace(
        fresh,
        app_cluster_binding=(namespace_of(live), name_of(live)),
        space=names.app_cluster_binding_space(namespace_of(live), name_of(live)),
        kubeconfig_namespace=get_text(live, *secret, "namespace") or fresh.kubeconfig_namespace,
        kubeconfig_name=get_text(live, *secret, "name") or fresh.kubeconfig_name,
        # What left stays listed here: letting it go is a line of its own.
        unmanaged=frozenset(one for one in listed if (one.group, one.plural) not in wanted),
    )


def live_of(fleet: Fleet, cluster: AppCluster, control_plane: Index, app: Index) -> Manifest | None:
    """Return the cluster's AppClusterBinding: by our labels, by its uid, or by its name."""
    everything = control_plane.all(APP_CLUSTER_BINDING)
    for one in everything:
        if is_ours(one, fleet=fleet.name, cluster=cluster.name):
            return one
    for one in everything:
        labels = labels_of(one)
        renamed = labels.get(keys.FLEET) == fleet.name and (
            labels.get(keys.CLUSTER) not in fleet.clusters
        )
        if renamed and annotations_of(one).get(keys.APP_CLUSTER_UID) == app.seen.uid:
            return one
    return control_plane.get(APP_CLUSTER_BINDING, *cluster.app_cluster_binding)


def resources_of(app_cluster_binding: Manifest) -> frozenset[Resource]:
    """Return what an AppClusterBinding lists."""
    return frozenset(
        Resource(get_text(one, "group").strip(), get_text(one, "resource").strip())
        for one in get_maps(app_cluster_binding, "spec", "apiExports")
    )


def plan_unit(site: Site, unit: Unit) -> UnitPlan:
    """Decide about one unit: whether it is listed, and which claims its binding accepts."""
    cp, space = site.control_plane, site.footing.space
    offer = offer_of(cp, space, unit)
    division = claiming.divide(unit.claims, offer.claims)
    (wanted,) = unit_objects(
        site.fleet, unit, site.footing, claims=division.taken, required=division.required
    )
    problem = offer.problem or claim_problem(unit, division)
    if problem:
        return UnitPlan((blocked(unit, wanted.ref, problem),), bodies=offer.bodies)
    live = cp.at(wanted.ref)
    cluster = site.fleet.clusters[unit.key.cluster]
    held = live_of(site.fleet, cluster, cp, site.app)
    listed = held is not None and Resource(unit.key.group, unit.key.resource) in resources_of(held)
    draft = draft_of(unit, wanted, live)
    if listed and live is None:
        reason = "waiting: the backend has not made the binding yet"
        changes: tuple[Change, ...] = (replace(draft, reason=reason),)
    elif live is None:
        reason = "new" if held is None else "new: its claims follow once the backend has made it"
        made = replace(draft, action=Action.CREATE, reason=reason, after=wanted.manifest)
        changes = (made,)
    else:
        changes = owned_changes(draft, live, wanted, fleet=site.fleet.name)
    return UnitPlan(
        changes=changes,
        widened=widened(unit, live, wanted),
        warnings=unaccepted(unit, division),
        bodies=offer.bodies if claims_change(live, wanted) else frozenset(),
        unoffered=division.unoffered,
    )


def departures(site: Site, cluster: AppCluster) -> tuple[Departure, ...]:
    """Return the units that our AppClusterBinding lists and the files do not."""
    live = live_of(site.fleet, cluster, site.control_plane, site.app)
    if live is None or labels_of(live).get(keys.FLEET) != site.fleet.name:
        return ()
    ref = site.control_plane.ref(APP_CLUSTER_BINDING, live)
    annotated = annotations_of(live).get(keys.DELETION_POLICY, "")
    policy = leaving_policy(annotated)
    found = (UnitKey(cluster.name, one.group, one.plural) for one in resources_of(live))
    return tuple(
        Departure(key, key.name, ref, live, policy, tuple(release_steps(site, key, ref)))
        for key in sorted(found)
        if key not in site.fleet.units
    )


def release_steps(site: Site, key: UnitKey, ref: Ref) -> Iterator[Step]:
    """Yield how a unit is let go in this mode (mapping.md 9)."""
    yield Step("apply", ref, "apiExports without it")
    bound = Ref(site.control_plane.name, API_SERVICE_BINDING, site.footing.space, key.name)
    yield Step("wait", bound, "until the backend has deleted it")
    export = Ref(site.control_plane.name, API_SERVICE_EXPORT, site.footing.space, key.name)
    yield Step("wait", export, "until the backend has deleted it")
    yield Step("patch", all_of(key, site.control_plane.name), "copies: unbound and released")
    yield Step("patch", all_of(key, site.app.name), "instances: without our finalizer")

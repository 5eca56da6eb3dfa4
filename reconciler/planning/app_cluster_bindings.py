"""Plans AppClusterBinding mode: one object holds all units of a cluster (mapping.md 8, 9).

Places such a cluster, and prunes the units that left it. The backend does the rest.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from reconciler import api
from reconciler.core import field_set, keys, manifest, names
from reconciler.core.manifest import Manifest
from reconciler.core.refs import NAMESPACE, GroupResource, Ref
from reconciler.fleet.values import AppCluster, DeletionPolicy, Fleet, UnitKey, read_unit_policies
from reconciler.fleet.wanted import Placement, default_placement
from reconciler.planning import prune_units, roots
from reconciler.planning.changes import Step, Verb
from reconciler.planning.objects import is_of, is_ours
from reconciler.planning.placement import (
    Blocked,
    belongs_to_another,
    is_claimed,
    recorded,
    unproved,
)
from reconciler.planning.prune_units import Prune, let_go, unit_of
from reconciler.planning.site import Index, Site

_TAKES_OUT: Final = frozenset({Verb.REMEMBER, Verb.UNLIST})


def place(
    fleet: Fleet, cluster: AppCluster, control_plane: Index, app: Index
) -> Placement | Blocked:
    """Find the AppClusterBinding of a cluster, or name a new one."""
    for kind in (api.APP_CLUSTER_BINDING, api.API_SERVICE_BINDING):
        if kind in control_plane.seen.unserved:
            reason = f"the control plane has no CRD {kind.resource}; see `klutchctl doctor`"
            return Blocked("missing-crd", reason)
    found = _candidates(fleet, cluster, control_plane, app)
    if isinstance(found, Blocked):
        return found
    if len(found) > 1:
        several = ", ".join(
            f"{manifest.namespace_of(one)}/{manifest.name_of(one)}" for one in found
        )
        return Blocked(
            "ambiguous-space",
            f"several AppClusterBindings are its own: {several}; name the right one as "
            "`appClusterBinding` in its Cluster document",
        )
    fresh = replace(
        default_placement(fleet, cluster),
        bindings_cluster_scoped=app.seen.bindings_cluster_scoped,
        cluster_uid=app.seen.uid,
        address=app.seen.address,
    )
    if not found:
        return fresh
    (live,) = found
    foreign = belongs_to_another(f"AppClusterBinding {manifest.name_of(live)}", live, app)
    return foreign or _placed(fleet, cluster, fresh, live)


def _placed(fleet: Fleet, cluster: AppCluster, fresh: Placement, live: Manifest) -> Placement:
    listed = api.listed_resources(live)
    wanted = {(key.group, key.resource) for key in fleet.units if key.cluster == cluster.name}
    unmanaged = frozenset(
        resource for resource in listed if (resource.group, resource.plural) not in wanted
    )
    policies = policies_of(live)
    secret = api.secret_of(live)
    return replace(
        fresh,
        app_cluster_binding=(manifest.namespace_of(live), manifest.name_of(live)),
        space=names.app_cluster_binding_space(manifest.namespace_of(live), manifest.name_of(live)),
        kubeconfig_namespace=secret.namespace or fresh.kubeconfig_namespace,
        kubeconfig_name=secret.name or fresh.kubeconfig_name,
        # What left stays listed here: letting it go is a line of its own.
        unmanaged=unmanaged,
        policies={one.name: policies[one.name] for one in unmanaged if one.name in policies},
    )


def _candidates(
    fleet: Fleet, cluster: AppCluster, control_plane: Index, app: Index
) -> Sequence[Manifest] | Blocked:
    """Return the cluster's own: adopted by the files, else with our labels, else of its name."""
    if cluster.adopt:
        return _adopted(fleet, cluster, control_plane)
    kept, unproved = control_plane.once(
        "by place", lambda index: _by_place(fleet, cluster.control_plane, index)
    )
    uids = {app.seen.uid, cluster.identity} - {""}
    if found := _own(fleet, cluster, control_plane, kept, uids):
        return found
    # It may stand where a document named it, and then it holds the cluster's data.
    for one in (one for key in (cluster.name, *sorted(uids)) for one in unproved.get(key, ())):
        named = is_ours(one, fleet=fleet.name, cluster=cluster.name)
        if named or (is_of(one, fleet, cluster.name) and recorded(one) in uids):
            return roots.unproved(fleet, cluster, one)
    return []


def _by_place(
    fleet: Fleet, document: str, control_plane: Index
) -> tuple[Sequence[Manifest], Mapping[str, Sequence[Manifest]]]:
    """Return those that the fleet keeps, and others by their own marks: a cluster, an identity."""
    kept, others = roots.by_place(fleet, [document], control_plane.seen)
    unproved: dict[str, list[Manifest]] = defaultdict(list)
    for one in others:
        for key in {manifest.labels_of(one).get(keys.CLUSTER, ""), recorded(one)} - {""}:
            unproved[key].append(one)
    return kept, unproved


def _own(
    fleet: Fleet,
    cluster: AppCluster,
    control_plane: Index,
    everything: Sequence[Manifest],
    uids: Collection[str],
) -> Sequence[Manifest] | Blocked:
    """Return the cluster's own among those at the places of the files."""
    labelled = [o for o in everything if is_ours(o, fleet=fleet.name, cluster=cluster.name)]
    current = [
        binding for binding in labelled if keys.RELEASED not in manifest.annotations_of(binding)
    ]
    if current:
        return sorted(current, key=manifest.identity_of)
    named = control_plane.get(api.APP_CLUSTER_BINDING, *cluster.app_cluster_binding)
    former = labelled or [
        binding
        for binding in everything
        if is_of(binding, fleet, cluster.name) and (binding is named or recorded(binding) in uids)
    ]
    former.sort(key=manifest.identity_of)
    given = [binding for binding in former if is_claimed(cluster, binding, _space(binding))]
    if former and not given:
        return unproved(cluster, former[0], _space(former[0]))
    return given or ([] if named is None else [named])


def _adopted(
    fleet: Fleet, cluster: AppCluster, control_plane: Index
) -> Sequence[Manifest] | Blocked:
    known = control_plane.once(
        "places",
        lambda index: roots.places(
            fleet,
            [cluster.control_plane],
            index.all(NAMESPACE),
            index.all(api.APP_CLUSTER_BINDING),
        ),
    )
    found = known.adopted[cluster.name]
    if found or cluster.adopt == names.app_cluster_binding_space(*cluster.app_cluster_binding):
        return sorted(found, key=manifest.identity_of)
    reason = f"no AppClusterBinding has the space {cluster.adopt}, which spec.adopt names"
    return Blocked("unknown-space", reason)


def _space(app_cluster_binding: Manifest) -> str:
    return names.app_cluster_binding_space(*manifest.identity_of(app_cluster_binding))


def policies_of(app_cluster_binding: Manifest) -> Mapping[str, DeletionPolicy]:
    """Return the deletion policies of listed units by their Bindings; a missing one is Release."""
    return read_unit_policies(
        manifest.annotations_of(app_cluster_binding).get(keys.UNIT_POLICIES, "")
    )


def prunes(site: Site) -> tuple[Prune, ...]:
    """Return the units that our AppClusterBinding lists and the files do not."""
    live = site.live_root
    if live is None or not site.owns(live):
        return ()
    listed = api.listed_resources(live) if _listed_by_us(live) else frozenset()
    return tuple(
        prune for prune in prunes_of(site, live, listed) if prune.key not in site.fleet.units
    )


def prunes_of(site: Site, live: Manifest, listed: Collection[GroupResource]) -> Iterator[Prune]:
    """Yield the prunes of the `listed` units of an AppClusterBinding, with their policies.

    Sorted by their keys.
    """
    ref = site.control_plane.ref(api.APP_CLUSTER_BINDING, live)
    letting_go = prune_units.remembered(live)
    policies, cluster = policies_of(live), site.app.name
    for key in sorted(
        {
            *(UnitKey(cluster, resource.group, resource.plural) for resource in listed),
            *(unit_of(cluster, name) for name in letting_go),
        }
    ):
        policy = letting_go.get(key.name) or policies.get(key.name, DeletionPolicy.RELEASE)
        steps = tuple(_release_steps(site, key, ref))
        yield Prune(key, key.name, ref, live, policy, steps, policy, ref)


def interrupted(site: Site) -> tuple[Prune, ...]:
    """Return the units that the files want again, and whose release has not come to its end."""
    live = site.live_root
    if live is None or not site.owns(live):
        return ()
    listed = {resource.name for resource in api.listed_resources(live)}
    return tuple(
        replace(prune, release=steps if prune.key.name not in listed else steps[-1:])
        for prune in prunes_of(site, live, ())
        if prune.key in site.fleet.units
        for steps in (tuple(step for step in prune.release if step.verb not in _TAKES_OUT),)
    )


def unmanaged_warning(site: Site) -> set[str]:
    """Return a sentence with the resources of an adopted AppClusterBinding beside the files."""
    live = site.live_root
    if live is None or _listed_by_us(live):
        return set()
    listed = (
        UnitKey(site.app.name, resource.group, resource.plural)
        for resource in api.listed_resources(live)
    )
    return prune_units.left_alone(site, (key.name for key in listed if key not in site.fleet.units))


def _listed_by_us(app_cluster_binding: Manifest) -> bool:
    """Return whether we wrote the list of units: an adoption writes none, and releases none."""
    written = field_set.owned(app_cluster_binding, keys.MANAGER_CLI)
    return field_set.has(written, field_set.place_of("spec", "apiExports"))


def _release_steps(site: Site, key: UnitKey, ref: Ref) -> Iterator[Step]:
    """Yield how a unit is let go in this mode (mapping.md 9)."""
    yield Step(Verb.REMEMBER, ref, "that it is being released")
    yield Step(Verb.UNLIST, ref, "apiExports without it")
    bound = Ref(site.control_plane.name, api.API_SERVICE_BINDING, site.placement.space, key.name)
    yield Step(Verb.AWAIT_GONE, bound, "until the backend has deleted it")
    export = Ref(site.control_plane.name, api.API_SERVICE_EXPORT, site.placement.space, key.name)
    yield Step(Verb.AWAIT_GONE, export, "until the backend has deleted it")
    yield from let_go(site, key)
    yield Step(Verb.FORGET, ref)

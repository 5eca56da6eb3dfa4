"""The objects of AppClusterBinding mode (mapping.md 8): the backend makes the binding space.

Its order: 1 Namespace, 2 ServiceAccount with its rights and token in the app cluster; on the
control plane 3 the AppClusterBinding's Namespace, 4 the app cluster's kubeconfig, 5 the space,
6 the APIServiceBindings in it, 7 the AppClusterBinding. With the bindings there before it, the
backend finds them and keeps their claims.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from reconciler.api import API_SERVICE_BINDING, APP_CLUSTER_BINDING
from reconciler.blueprints import konnector, objects, rbac
from reconciler.blueprints.objects import Marks
from reconciler.core import keys, names, refs
from reconciler.core.live import control_plane_ref_name
from reconciler.core.manifest import Manifest, get
from reconciler.fleet import common_manifests
from reconciler.fleet.values import AppCluster, Claim, DeletionPolicy, Fleet, Unit
from reconciler.fleet.wanted import Placement, Rule, Step, Wanted

_ACCOUNT: Final = names.AGENTLESS_SERVICE_ACCOUNT


def cluster_objects(
    fleet: Fleet, cluster: AppCluster, placement: Placement, *, units: Sequence[Unit]
) -> tuple[Wanted, ...]:
    """Return what a cluster needs once; the AppClusterBinding holds all its units."""
    place = control_plane_ref_name(cluster.control_plane)
    new = Rule.CREATE_ONLY
    # Many clusters share it.
    shared = objects.namespace(
        placement.app_cluster_binding[0], marks=Marks({keys.FLEET: fleet.name})
    )
    token = refs.Ref(cluster.name, refs.SECRET, names.KLUTCH_NAMESPACE, _ACCOUNT)
    source = common_manifests.kubeconfig_source(cluster, placement, token)
    kubeconfig = common_manifests.kubeconfig_secret(
        (placement.kubeconfig_namespace, placement.kubeconfig_name),
        source,
        placement,
        common_manifests.ownership(fleet, cluster.name),
    )
    whole = _app_cluster_binding(fleet, cluster, placement, units)
    return (
        *_account(fleet, cluster, units),
        Step(3, place, new).want(cluster, refs.NAMESPACE, shared),
        Step(4, place, Rule.KUBECONFIG).want(cluster, refs.SECRET, kubeconfig, kubeconfig=source),
        # As the backend makes it, which would not keep a label of ours.
        Step(5, place, new).want(cluster, refs.NAMESPACE, objects.namespace(placement.space)),
        Step(7, place).want(cluster, APP_CLUSTER_BINDING, whole),
    )


def unit_objects(
    fleet: Fleet,
    unit: Unit,
    placement: Placement,
    *,
    claims: Sequence[Claim],
    required: Collection[Claim],
) -> tuple[Wanted, ...]:
    """Return the APIServiceBinding in the space. Of one that is there, only the claims are ours.

    It has no annotation `deletion-policy`: klutchctl cannot know whether the backend is one that
    waits for what the konnector does at it (mapping.md 9).
    """
    bound = objects.service_binding(
        unit.key.service,
        namespace=placement.space,
        secret=(placement.space, placement.kubeconfig_name),
        claims=common_manifests.wire_claims(claims, required),
        marks=Marks(keys.app_cluster_binding_labels(*placement.app_cluster_binding)),
    )
    control_plane = fleet.clusters[unit.key.cluster].control_plane
    step = Step(6, control_plane_ref_name(control_plane))
    return (step.want(unit, API_SERVICE_BINDING, bound, compared=_claims_of(bound)),)


def _claims_of(bound: Manifest) -> Manifest:
    metadata = {key: get(bound, "metadata", key) for key in ("name", "namespace")}
    claims = {"permissionClaims": get(bound, "spec", "permissionClaims")}
    return {**bound, "metadata": metadata, "spec": claims}


def _account(fleet: Fleet, cluster: AppCluster, units: Sequence[Unit]) -> Iterator[Wanted]:
    """Yield what the konnector, wherever it runs, is in the app cluster."""
    marks = common_manifests.ownership(fleet, cluster.name)
    namespace = objects.namespace(names.KLUTCH_NAMESPACE, marks=marks)
    yield Step(1, cluster.name, Rule.CREATE_ONLY).want(cluster, refs.NAMESPACE, namespace)
    step = Step(2, cluster.name)
    account = objects.service_account(names.KLUTCH_NAMESPACE, _ACCOUNT, marks=marks)
    yield step.want(cluster, refs.SERVICE_ACCOUNT, account)
    rules = common_manifests.konnector_rules(cluster, units) or rbac.FULL
    role = rbac.cluster_role(_ACCOUNT, rules, marks=marks)
    yield step.want(cluster, refs.CLUSTER_ROLE, role)
    given = rbac.cluster_role_binding(_ACCOUNT, _ACCOUNT, marks=marks)
    yield step.want(cluster, refs.CLUSTER_ROLE_BINDING, given)
    token = objects.token_secret(names.KLUTCH_NAMESPACE, _ACCOUNT, marks=marks)
    yield step.want(cluster, refs.SECRET, token)


def _app_cluster_binding(
    fleet: Fleet, cluster: AppCluster, placement: Placement, units: Sequence[Unit]
) -> Manifest:
    spec = cluster.konnector
    listed = {*(unit.key.service for unit in units), *placement.unmanaged}
    release = DeletionPolicy.RELEASE
    policies = {
        resource.name: placement.policies.get(resource.name, release)
        for resource in placement.unmanaged
    }
    policies |= {unit.key.name: unit.deletion_policy for unit in units}
    annotations = {
        **common_manifests.provenance(cluster, placement),
        **common_manifests.deletion_policy(_whole(fleet, policies.values())),
        **common_manifests.policies_of_units(policies),
    }
    if placement.accepts_all_offered:
        annotations[keys.ACCEPT_CLAIMS] = keys.ACCEPT_CLAIMS_TEMPLATE
    return objects.app_cluster_binding(
        placement.app_cluster_binding,
        secret=(placement.kubeconfig_namespace, placement.kubeconfig_name),
        resources=listed,
        konnector=konnector.app_cluster_binding_konnector(
            deploy=spec.deploy, image=spec.image, overrides=spec.overrides
        ),
        marks=common_manifests.ownership(fleet, cluster.name, annotations=annotations),
    )


def _whole(fleet: Fleet, policies: Iterable[DeletionPolicy]) -> DeletionPolicy:
    """Deleting the AppClusterBinding deletes the data of all that it lists: each must agree."""
    agreed = {fleet.guards.on_cluster_leave, *policies}
    return agreed.pop() if len(agreed) == 1 else DeletionPolicy.RELEASE

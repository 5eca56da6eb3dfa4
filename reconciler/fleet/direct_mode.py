"""The objects of Direct mode, in the order of mapping.md 3: klutchctl makes the binding space."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT_REQUEST, CLUSTER_BINDING
from reconciler.blueprints import konnector, objects, rbac
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, names, refs
from reconciler.core.live import control_plane_ref_name
from reconciler.core.manifest import get_text
from reconciler.fleet import common_manifests
from reconciler.fleet.values import AppCluster, Claim, Fleet, Unit
from reconciler.fleet.wanted import Placement, Rule, Step, Wanted

_ROLE: Final = names.KONNECTOR_CLUSTER_ROLE


def cluster_objects(
    fleet: Fleet, cluster: AppCluster, placement: Placement, *, units: Sequence[Unit]
) -> tuple[Wanted, ...]:
    """Return rows 1 to 7: what a cluster needs once."""
    marks = common_manifests.ownership(fleet, cluster.name)
    klutch_namespace = objects.namespace(names.KLUTCH_NAMESPACE, marks=marks)
    app = Step(1, cluster.name, Rule.CREATE_ONLY)
    return (
        app.want(cluster, refs.NAMESPACE, klutch_namespace),
        *_space(fleet, cluster, placement),
        *_kubeconfigs(fleet, cluster, placement),
        # Never labelled: konnectors PUT over it (mapping.md 0).
        Step(6, cluster.name, Rule.CREATE_ONLY).want(
            cluster, refs.CRD, build(refs.CRD, API_SERVICE_BINDING.resource)
        ),
        *(_konnector(fleet, cluster, placement, units) if cluster.konnector.deploy else ()),
    )


def unit_objects(
    fleet: Fleet,
    unit: Unit,
    placement: Placement,
    *,
    claims: Sequence[Claim],
    required: Collection[Claim],
) -> tuple[Wanted, ...]:
    """Return rows 8 and 9: request and binding."""
    control_plane = control_plane_ref_name(fleet.clusters[unit.key.cluster].control_plane)
    resource = unit.key.service
    marks = common_manifests.ownership(fleet, unit.key.cluster, binding=unit.binding)
    request = objects.export_request(
        placement.space, resource, parameters=unit.parameters, marks=marks
    )
    annotations = common_manifests.deletion_policy(unit.deletion_policy)
    if unit.parameters:
        annotations[keys.PARAMETERS] = objects.parameters_digest(unit.parameters)
    bound = objects.service_binding(
        resource,
        namespace="" if placement.bindings_cluster_scoped else names.KLUTCH_NAMESPACE,
        secret=(names.KLUTCH_NAMESPACE, placement.consumer_secret),
        claims=common_manifests.wire_claims(claims, required),
        marks=Marks(marks.labels, annotations),
    )
    return (
        Step(8, control_plane, Rule.REQUEST).want(unit, API_SERVICE_EXPORT_REQUEST, request),
        Step(9, unit.key.cluster).want(unit, API_SERVICE_BINDING, bound),
    )


def _space(fleet: Fleet, cluster: AppCluster, placement: Placement) -> Iterator[Wanted]:
    control_plane = fleet.control_planes[cluster.control_plane]
    place = control_plane_ref_name(control_plane.name)
    annotations = common_manifests.provenance(cluster, placement)
    if placement.identity:
        annotations[keys.IDENTITY] = placement.identity
    marks = common_manifests.ownership(fleet, cluster.name)
    namespace = objects.namespace(
        placement.space,
        marks=common_manifests.ownership(fleet, cluster.name, annotations=annotations),
    )
    yield Step(2, place).want(cluster, refs.NAMESPACE, namespace)
    account = objects.service_account(placement.space, names.BINDER, marks=marks)
    yield Step(3, place).want(cluster, refs.SERVICE_ACCOUNT, account)
    token = objects.token_secret(placement.space, names.BINDER, marks=marks)
    yield Step(3, place).want(cluster, refs.SECRET, token)
    live_name = get_text(placement.cluster_binding, "providerPrettyName")
    cluster_binding = objects.cluster_binding(
        placement.space,
        kubeconfig_name=placement.kubeconfig_name,
        # The field must not be empty.
        spec={"providerPrettyName": control_plane.pretty_name or live_name or control_plane.name},
        marks=marks,
    )
    yield Step(3, place).want(cluster, CLUSTER_BINDING, cluster_binding)


def _kubeconfigs(fleet: Fleet, cluster: AppCluster, placement: Placement) -> Iterator[Wanted]:
    """The konnector mirrors the first over the second, so only the first is ever changed."""
    place = control_plane_ref_name(cluster.control_plane)
    plane = fleet.control_planes[cluster.control_plane]
    token = refs.Ref(place, refs.SECRET, placement.space, names.BINDER)
    source = common_manifests.kubeconfig_source(plane, placement, token)
    marks = common_manifests.ownership(fleet, cluster.name)
    for step, secret_place in (
        (
            Step(4, place, Rule.KUBECONFIG),
            (placement.kubeconfig_namespace, placement.kubeconfig_name),
        ),
        (
            Step(5, cluster.name, Rule.CREATE_ONLY),
            (names.KLUTCH_NAMESPACE, placement.consumer_secret),
        ),
    ):
        secret = common_manifests.kubeconfig_secret(secret_place, source, placement, marks)
        yield step.want(cluster, refs.SECRET, secret, kubeconfig=source)


def _konnector(
    fleet: Fleet, cluster: AppCluster, placement: Placement, units: Sequence[Unit]
) -> Iterator[Wanted]:
    step, spec = Step(7, cluster.name), cluster.konnector
    marks = common_manifests.ownership(fleet, cluster.name)
    minimal = common_manifests.konnector_rules(cluster, units)
    rules = rbac.FULL
    if minimal is not None:
        rules = (*minimal, *rbac.minimal_inside(placement.consumer_secret))
    account = objects.service_account(names.KLUTCH_NAMESPACE, names.KONNECTOR, marks=marks)
    yield step.want(cluster, refs.SERVICE_ACCOUNT, account)
    yield step.want(cluster, refs.CLUSTER_ROLE, rbac.cluster_role(_ROLE, rules, marks=marks))
    given = rbac.cluster_role_binding(_ROLE, names.KONNECTOR, marks=marks)
    yield step.want(cluster, refs.CLUSTER_ROLE_BINDING, given)
    # The original's needs all rights, so what can do with less is ours.
    confined = minimal is not None
    yield step.want(
        cluster,
        refs.DEPLOYMENT,
        konnector.deployment(spec.image, spec.overrides, marks=marks, confined=confined),
        compared=konnector.image_and_overrides(spec.image, spec.overrides, marks=marks),
    )

"""Compiles a fleet to the objects that it wants in its clusters (mapping.md 3 and 8).

Decides which objects, in which order, by which rule, and where each comes from in the files.
Does not know what is live beyond the placement that it is given.

The content of the CRD `apiservicebindings` is in the files that klutchctl brings along
(`kube.crds`): its manifest here only names it, and the code that writes or prints it puts the rest
in. A manifest may hold the payload of a Secret. No repr shows it, and whatever shows or stores a
manifest passes it through `core.secret.redact`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from reconciler import api
from reconciler.blueprints import konnector, objects, rbac
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, names, refs
from reconciler.core.live import control_plane_ref_name
from reconciler.core.manifest import Manifest, get, get_text, grouped, name_of
from reconciler.fleet import wanted
from reconciler.fleet.values import AppCluster, Claim, DeletionPolicy, Fleet, Mode, Unit
from reconciler.fleet.wanted import (
    KubeconfigSource,
    Placement,
    Rule,
    Step,
    Wanted,
    default_placement,
)


def cluster_objects(
    fleet: Fleet, cluster: AppCluster, placement: Placement, *, units: Sequence[Unit]
) -> tuple[Wanted, ...]:
    """Return the objects that a cluster needs once, in order. `units` are all its units.

    They decide the rights of a konnector, and all that an AppClusterBinding lists.
    """
    make = _direct_cluster_objects if _is_direct(fleet, cluster) else _backend_cluster_objects
    return make(fleet, cluster, placement, units)


def unit_objects(
    fleet: Fleet,
    unit: Unit,
    placement: Placement,
    *,
    claims: Sequence[Claim],
    required: Collection[Claim] = (),
) -> tuple[Wanted, ...]:
    """Return the objects of one unit, in order: in Direct mode its request and its binding.

    `claims` are those of its Binding that the provider offers for its resource, `required` those
    among them that the provider calls so.
    """
    direct = _is_direct(fleet, fleet.clusters[unit.key.cluster])
    make = _direct_unit_objects if direct else _backend_unit_objects
    return make(fleet, unit, placement, claims=wanted.wire_claims(claims, required))


def desired(fleet: Fleet, *, clusters: Collection[str] | None = None) -> tuple[Wanted, ...]:
    """Return the objects of a first apply, for all or some app clusters: by name, then in order.

    What several of them share comes once. Which claims a provider offers is not known here, so
    each unit has all of its Binding's.
    """
    units = units_by_cluster(fleet)
    listed = [
        item
        for name in sorted(fleet.clusters if clusters is None else clusters)
        for item in _of_cluster(fleet, fleet.clusters[name], units.get(name, ()))
    ]
    first = {item.ref: item for item in reversed(listed)}
    return tuple(item for item in listed if first[item.ref] is item)


def units_by_cluster(fleet: Fleet) -> Mapping[str, Sequence[Unit]]:
    """Return the units of each cluster that has any, in the order of their keys."""
    ordered = sorted(fleet.units.values(), key=lambda one: one.key)
    return dict(grouped(ordered, lambda one: one.key.cluster))


def _of_cluster(fleet: Fleet, cluster: AppCluster, units: Sequence[Unit]) -> list[Wanted]:
    placement = default_placement(fleet, cluster)
    items = [*cluster_objects(fleet, cluster, placement, units=units)]
    for unit in units:
        items += unit_objects(fleet, unit, placement, claims=unit.claims)
    return sorted(items, key=lambda item: item.step)


def _account(
    step: Step, cluster: AppCluster, name: str, role: Manifest, marks: Marks
) -> Iterator[Wanted]:
    """Yield a ServiceAccount in namespace klutch-bind with a ClusterRole."""
    account = objects.service_account(names.KLUTCH_NAMESPACE, name, marks=marks)
    yield step.want(cluster, refs.SERVICE_ACCOUNT, account)
    yield step.want(cluster, refs.CLUSTER_ROLE, role)
    given = rbac.cluster_role_binding(name_of(role), name, marks=marks)
    yield step.want(cluster, refs.CLUSTER_ROLE_BINDING, given)


def _is_direct(fleet: Fleet, cluster: AppCluster) -> bool:
    return fleet.control_planes[cluster.control_plane].mode is Mode.DIRECT


def _direct_cluster_objects(
    fleet: Fleet, cluster: AppCluster, placement: Placement, units: Sequence[Unit]
) -> tuple[Wanted, ...]:
    """Return rows 1 to 7 of mapping.md 3: klutchctl makes the binding space."""
    marks = wanted.ownership(fleet, cluster.name)
    klutch_namespace = objects.namespace(names.KLUTCH_NAMESPACE, marks=marks)
    app = Step(1, cluster.name, Rule.CREATE_ONLY)
    return (
        app.want(cluster, refs.NAMESPACE, klutch_namespace),
        *_direct_space(fleet, cluster, placement),
        *_kubeconfigs(fleet, cluster, placement),
        # Never labelled: konnectors PUT over it (mapping.md 0).
        Step(6, cluster.name, Rule.CREATE_ONLY).want(
            cluster, refs.CRD, build(refs.CRD, api.API_SERVICE_BINDING.resource)
        ),
        *(_konnector(fleet, cluster, placement, units) if cluster.konnector.deploy else ()),
    )


def _direct_unit_objects(
    fleet: Fleet, unit: Unit, placement: Placement, *, claims: Sequence[Manifest]
) -> tuple[Wanted, ...]:
    """Return rows 8 and 9: request and binding."""
    control_plane = control_plane_ref_name(fleet.clusters[unit.key.cluster].control_plane)
    resource = unit.key.service
    marks = wanted.ownership(fleet, unit.key.cluster, binding=unit.binding)
    request = objects.export_request(
        placement.space, resource, parameters=unit.parameters, marks=marks
    )
    annotations = wanted.deletion_policy(unit.deletion_policy)
    if unit.parameters:
        annotations[keys.PARAMETERS] = objects.parameters_digest(unit.parameters)
    bound = objects.service_binding(
        resource,
        namespace="" if placement.bindings_cluster_scoped else names.KLUTCH_NAMESPACE,
        secret=(names.KLUTCH_NAMESPACE, placement.consumer_secret),
        claims=claims,
        marks=Marks(marks.labels, annotations),
    )
    return (
        Step(8, control_plane, Rule.REQUEST).want(unit, api.API_SERVICE_EXPORT_REQUEST, request),
        Step(9, unit.key.cluster).want(unit, api.API_SERVICE_BINDING, bound),
    )


def _direct_space(fleet: Fleet, cluster: AppCluster, placement: Placement) -> Iterator[Wanted]:
    control_plane = fleet.control_planes[cluster.control_plane]
    place = control_plane_ref_name(control_plane.name)
    annotations = wanted.provenance(cluster, placement)
    if placement.identity:
        annotations[keys.IDENTITY] = placement.identity
    marks = wanted.ownership(fleet, cluster.name)
    namespace = objects.namespace(
        placement.space,
        marks=wanted.ownership(fleet, cluster.name, annotations=annotations),
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
    yield Step(3, place).want(cluster, api.CLUSTER_BINDING, cluster_binding)


def _kubeconfigs(fleet: Fleet, cluster: AppCluster, placement: Placement) -> Iterator[Wanted]:
    """The konnector mirrors the first over the second, so only the first is ever changed."""
    place = control_plane_ref_name(cluster.control_plane)
    plane = fleet.control_planes[cluster.control_plane]
    token = refs.Ref(place, refs.SECRET, placement.space, names.BINDER)
    source = KubeconfigSource(token, plane.endpoint, plane.ca, placement.address)
    marks = wanted.ownership(fleet, cluster.name)
    theirs = (placement.kubeconfig_namespace, placement.kubeconfig_name)
    ours = (names.KLUTCH_NAMESPACE, placement.consumer_secret)
    for step, secret_place in (
        (Step(4, place, Rule.KUBECONFIG), theirs),
        (Step(5, cluster.name, Rule.CREATE_ONLY), ours),
    ):
        secret = wanted.kubeconfig_secret(secret_place, source, placement, marks)
        yield step.want(cluster, refs.SECRET, secret, kubeconfig=source)


def _konnector(
    fleet: Fleet, cluster: AppCluster, placement: Placement, units: Sequence[Unit]
) -> Iterator[Wanted]:
    step, spec = Step(7, cluster.name), cluster.konnector
    marks = wanted.ownership(fleet, cluster.name)
    minimal = wanted.konnector_rules(cluster, units)
    rules = rbac.FULL
    if minimal is not None:
        rules = (*minimal, *rbac.minimal_inside(placement.consumer_secret))
    role = rbac.cluster_role(names.KONNECTOR_CLUSTER_ROLE, rules, marks=marks)
    yield from _account(step, cluster, names.KONNECTOR, role, marks)
    # The original's needs all rights, so what can do with less is ours.
    confined = minimal is not None
    yield step.want(
        cluster,
        refs.DEPLOYMENT,
        konnector.deployment(spec.image, spec.overrides, marks=marks, confined=confined),
        compared=konnector.image_and_overrides(spec.image, spec.overrides, marks=marks),
    )


# AppClusterBinding mode (mapping.md 8): the backend makes the binding space. The order is 1
# Namespace, 2 ServiceAccount with its rights and token in the app cluster; on the control plane 3
# the AppClusterBinding's Namespace, 4 the app cluster's kubeconfig, 5 the space, 6 the
# APIServiceBindings in it, 7 the AppClusterBinding. With the bindings there before it, the backend
# finds them and keeps their claims.
_ACCOUNT: Final = names.AGENTLESS_SERVICE_ACCOUNT


def _backend_cluster_objects(
    fleet: Fleet, cluster: AppCluster, placement: Placement, units: Sequence[Unit]
) -> tuple[Wanted, ...]:
    """Return the objects that a cluster needs once; the AppClusterBinding holds all its units."""
    place = control_plane_ref_name(cluster.control_plane)
    new = Rule.CREATE_ONLY
    # Many clusters share it.
    shared = objects.namespace(
        placement.app_cluster_binding[0], marks=Marks({keys.FLEET: fleet.name})
    )
    token = refs.Ref(cluster.name, refs.SECRET, names.KLUTCH_NAMESPACE, _ACCOUNT)
    source = KubeconfigSource(token, cluster.endpoint, cluster.ca, placement.address)
    kubeconfig = wanted.kubeconfig_secret(
        (placement.kubeconfig_namespace, placement.kubeconfig_name),
        source,
        placement,
        wanted.ownership(fleet, cluster.name),
    )
    whole = _app_cluster_binding(fleet, cluster, placement, units)
    return (
        *_agent(fleet, cluster, units),
        Step(3, place, new).want(cluster, refs.NAMESPACE, shared),
        Step(4, place, Rule.KUBECONFIG).want(cluster, refs.SECRET, kubeconfig, kubeconfig=source),
        # As the backend makes it, which would not keep a label of ours.
        Step(5, place, new).want(cluster, refs.NAMESPACE, objects.namespace(placement.space)),
        Step(7, place).want(cluster, api.APP_CLUSTER_BINDING, whole),
    )


def _backend_unit_objects(
    fleet: Fleet, unit: Unit, placement: Placement, *, claims: Sequence[Manifest]
) -> tuple[Wanted, ...]:
    """Return the APIServiceBinding in the space. Of one that is there, only the claims are ours.

    It has no annotation `deletion-policy`: klutchctl cannot know whether the backend is one that
    waits for what the konnector does at it (mapping.md 9).
    """
    bound = objects.service_binding(
        unit.key.service,
        namespace=placement.space,
        secret=(placement.space, placement.kubeconfig_name),
        claims=claims,
        marks=Marks(keys.app_cluster_binding_labels(*placement.app_cluster_binding)),
    )
    step = Step(6, control_plane_ref_name(fleet.clusters[unit.key.cluster].control_plane))
    return (step.want(unit, api.API_SERVICE_BINDING, bound, compared=_claims_of(bound)),)


def _claims_of(bound: Manifest) -> Manifest:
    metadata = {key: get(bound, "metadata", key) for key in ("name", "namespace")}
    claims = {"permissionClaims": get(bound, "spec", "permissionClaims")}
    return {**bound, "metadata": metadata, "spec": claims}


def _agent(fleet: Fleet, cluster: AppCluster, units: Sequence[Unit]) -> Iterator[Wanted]:
    """Yield the objects of the konnector in the app cluster, wherever it runs."""
    marks = wanted.ownership(fleet, cluster.name)
    namespace = objects.namespace(names.KLUTCH_NAMESPACE, marks=marks)
    yield Step(1, cluster.name, Rule.CREATE_ONLY).want(cluster, refs.NAMESPACE, namespace)
    step = Step(2, cluster.name)
    rules = wanted.konnector_rules(cluster, units) or rbac.FULL
    role = rbac.cluster_role(_ACCOUNT, rules, marks=marks)
    yield from _account(step, cluster, _ACCOUNT, role, marks)
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
        **wanted.provenance(cluster, placement),
        **wanted.deletion_policy(_whole(fleet, policies.values())),
        **wanted.policies_of_units(policies),
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
        marks=wanted.ownership(fleet, cluster.name, annotations=annotations),
    )


def _whole(fleet: Fleet, policies: Iterable[DeletionPolicy]) -> DeletionPolicy:
    """Deleting the AppClusterBinding deletes the data of all that it lists: each must agree."""
    agreed = {fleet.guards.on_cluster_leave, *policies}
    return agreed.pop() if len(agreed) == 1 else DeletionPolicy.RELEASE

"""Reads a control plane or an app cluster as a plan needs it (mapping.md 12), and no more.

All are lists and gets of what klutchctl or its peers write; nothing here follows the contents
of a cluster beyond that. Secrets are read for an apply alone: who may plan holds no credential of
anybody (trust.md T2).
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from reconciler import api
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, names, refs
from reconciler.core import manifest as m
from reconciler.core.errors import NotServed
from reconciler.core.live import ClusterState
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from reconciler.fleet.values import Fleet, Mode
from reconciler.observe import objects
from reconciler.observe.reading import Reading, together
from reconciler.observe.visits import Visit

_WHOLE: Final = (
    api.CLUSTER_BINDING,
    api.API_SERVICE_EXPORT_REQUEST,
    api.API_SERVICE_EXPORT_TEMPLATE,
    api.APP_CLUSTER_BINDING,
    api.API_SERVICE_BINDING,
)
_METADATA: Final = (api.API_SERVICE_EXPORT, refs.CRD)
_SECRETS: Final = (names.KUBECONFIG, names.BINDER)


async def control_plane(
    visit: Visit, fleet: Fleet, name: str, *, credentials: bool
) -> ClusterState:
    """Read all of a control plane; `credentials`: also the Secrets with kubeconfigs."""
    reading = _reading(visit)
    # The first read also shows whether the cluster answers at all.
    await reading.list(refs.NAMESPACE, metadata_only=True)
    async with visit.turn.slot():
        await together(
            *(reading.list(kind, metadata_only=True) for kind in _METADATA),
            *(reading.list(kind) for kind in _WHOLE),
            reading.list(refs.SERVICE_ACCOUNT, name=names.BINDER),
        )
        if credentials:
            await _secrets_of_control_plane(reading, fleet, name)
    return reading.seen(visit.reached.address, silent=_silent_spaces(reading))


async def shared_part(visit: Visit, fleet: Fleet) -> ClusterState:
    """Read what a control plane holds for all clusters of a fleet, and what tells their spaces.

    As with `spaces`, the rights to read all are enough.
    """
    reading = _reading(visit)
    await reading.list(refs.NAMESPACE, name=names.KUBE_SYSTEM, metadata_only=True)
    ours = f"{keys.FLEET}={fleet.name}"
    async with visit.turn.slot():
        await together(
            reading.list(refs.NAMESPACE, labels=ours, metadata_only=True),
            reading.list(api.APP_CLUSTER_BINDING, labels=ours),
            reading.list(refs.CRD, metadata_only=True),
            reading.list(api.API_SERVICE_EXPORT_TEMPLATE),
            # Whichever of them may own a CRD in an app cluster.
            reading.list(api.API_SERVICE_BINDING),
        )
    return reading.seen(visit.reached.address)


async def spaces(
    visit: Visit, shared: ClusterState, spaces: Iterable[str], *, credentials: bool
) -> ClusterState:
    """Read what is in some binding spaces, beside the part that was read already."""
    reading = _reading(visit)
    reading.take(shared)
    ordered = sorted(spaces)
    async with visit.turn.slot():
        await together(*(_space(reading, space) for space in ordered))
        if credentials:
            await together(*(_secrets_of_space(reading, space) for space in ordered))
    return reading.seen(visit.reached.address, silent=_silent_spaces(reading))


async def app_cluster(visit: Visit, fleet: Fleet, name: str, *, credentials: bool) -> ClusterState:
    """Read an app cluster; `credentials`: also kubeconfigs of konnectors and tokens beside them."""
    reading = _reading(visit)
    bind = names.KLUTCH_NAMESPACE
    await reading.get(refs.NAMESPACE, names.KUBE_SYSTEM)
    async with visit.turn.slot():
        await together(
            reading.get(refs.NAMESPACE, bind),
            # The path of all namespaces is also that of cluster-scoped bindings (Klutch <= 1.5.0).
            reading.list(api.API_SERVICE_BINDING),
            reading.get(refs.DEPLOYMENT, names.KONNECTOR, namespace=bind),
            reading.list(refs.CRD, metadata_only=True),
            *(
                reading.get(kind, object_name, namespace=bind if kind.namespaced else "")
                for kind, object_name in _konnector_objects(fleet, name)
            ),
        )
        if credentials:
            await reading.list(refs.SECRET, namespace=bind)
        cluster_scoped = await _binds_cluster_scoped(reading)
    return reading.seen(visit.reached.address, bindings_cluster_scoped=cluster_scoped)


async def answers(
    visit: Visit, seen: ClusterState, questions: Collection[Kind | Ref]
) -> ClusterState:
    """Read what planning asked of a cluster: how many objects of a kind, and whole exports."""
    kinds = sorted(question for question in questions if isinstance(question, Kind))
    refs = sorted(question for question in questions if isinstance(question, Ref))
    reading = _reading(visit)
    async with visit.turn.slot():
        counts = await together(*(_count(reading, kind) for kind in kinds))
        bodies = await together(*(_export_body(reading, ref) for ref in refs))
    return replace(
        seen,
        in_use={**seen.in_use, **dict(zip(kinds, counts, strict=True))},
        bodies={**seen.bodies, **dict(zip(refs, bodies, strict=True))},
    )


def _reading(visit: Visit) -> Reading:
    return Reading(visit.reached.cluster, width=visit.width, waiting=visit.waiting)


async def _secrets_of_control_plane(reading: Reading, fleet: Fleet, name: str) -> None:
    """Read the kubeconfigs of binding spaces and of our app clusters. Raises Incomplete."""
    spaces = {
        m.namespace_of(binding) for binding in reading.of(api.CLUSTER_BINDING)
    } | _spaces_begun(reading)
    await together(*(reading.list(refs.SECRET, name=secret, within=spaces) for secret in _SECRETS))
    known = {("", secret) for secret in _SECRETS}
    referenced = {
        *_by_cluster_bindings(reading.of(api.CLUSTER_BINDING)),
        *_by_app_cluster_bindings(reading.of(api.APP_CLUSTER_BINDING), fleet, name),
    }
    further = sorted(referenced - known)
    await together(
        *(
            reading.list(refs.SECRET, namespace=ns, name=secret, within=None if ns else spaces)
            for ns, secret in further
        )
    )


async def _space(reading: Reading, space: str) -> None:
    await together(
        # It may be there without our labels.
        reading.list(refs.NAMESPACE, name=space, metadata_only=True),
        reading.list(api.CLUSTER_BINDING, namespace=space),
        reading.list(api.API_SERVICE_EXPORT_REQUEST, namespace=space),
        reading.list(api.API_SERVICE_EXPORT, namespace=space, metadata_only=True),
        reading.list(refs.SERVICE_ACCOUNT, namespace=space, name=names.BINDER),
    )


async def _secrets_of_space(reading: Reading, space: str) -> None:
    bindings = [
        binding for binding in reading.of(api.CLUSTER_BINDING) if m.namespace_of(binding) == space
    ]
    is_ours = bool(bindings) or space in _spaces_begun(reading)
    named = {*_SECRETS, *(name for _, name in _by_cluster_bindings(bindings))} if is_ours else ()
    # That they were asked for has to be known also where none is.
    await together(
        reading.list(refs.SECRET, namespace=space, name=names.KUBECONFIG, within=()),
        *(reading.list(refs.SECRET, namespace=space, name=name) for name in sorted(named)),
    )


def _spaces_begun(reading: Reading) -> set[str]:
    """Return the spaces that we made: an apply that died there made its Secrets first."""
    return {
        m.name_of(namespace)
        for namespace in reading.of(refs.NAMESPACE)
        if keys.FLEET in m.labels_of(namespace)
    }


def _silent_spaces(reading: Reading) -> frozenset[str]:
    """Return the spaces whose konnector is not to be counted on now."""
    now = SystemClock().now()
    return frozenset(
        m.namespace_of(binding)
        for binding in reading.of(api.CLUSTER_BINDING)
        if api.liveness(api.heartbeat_of(binding), now, timeout=api.SILENCE)
        is not api.Liveness.ALIVE
    )


async def _binds_cluster_scoped(reading: Reading) -> bool:
    """Tell whether `apiservicebindings` are cluster-scoped. Only the CRD knows where none is."""
    bindings = reading.of(api.API_SERVICE_BINDING)
    if bindings or not reading.serves(api.API_SERVICE_BINDING):
        return any(not m.namespace_of(binding) for binding in bindings)
    crd = await _definition(reading, api.API_SERVICE_BINDING)
    return m.get_text(crd, "spec", "scope") == "Cluster"


async def _definition(reading: Reading, kind: Kind) -> Manifest | None:
    """Return the whole CRD of a kind, or None where there is none."""
    ref = Ref(reading.cluster.name, refs.CRD, "", kind.resource)
    return await reading.one(ref, lambda: reading.cluster.get(ref))


async def _count(reading: Reading, kind: Kind) -> int:
    """Count the objects of a kind, in whichever version the cluster serves.

    A CRD that is there and not served may still have objects: that is an error, never 0.
    """
    cluster = reading.cluster
    crd = await _definition(reading, kind)
    if crd is None:
        return 0
    kind = Kind(kind.group, api.preferred_version(api.served_versions(crd)), kind.kind, kind.plural)
    ref = Ref(cluster.name, kind, "", "")
    if not kind.version:
        raise NotServed("the CRD serves no version", ref=ref, verb="list")
    return await reading.one(ref, lambda: cluster.count(kind))


async def _export_body(reading: Reading, ref: Ref) -> Manifest | None:
    """Return an export as `ClusterState.bodies` has it, or None where it is absent."""
    found = await reading.one(ref, lambda: reading.cluster.get(ref))
    return None if found is None else objects.export_body(ref.kind, found)


def _konnector_objects(fleet: Fleet, cluster: str) -> tuple[tuple[Kind, str], ...]:
    """Return what a konnector's rights are made of where klutchctl writes them (mapping.md 3, 8).

    A cluster that no document names may have them from before.
    """
    known = fleet.clusters.get(cluster)
    deployed = _rights(names.KONNECTOR, names.KONNECTOR_CLUSTER_ROLE)
    agentless = _rights(names.AGENTLESS_SERVICE_ACCOUNT, names.AGENTLESS_SERVICE_ACCOUNT)
    if known is None:
        return (*deployed, *agentless)
    if fleet.control_planes[known.control_plane].mode is Mode.APP_CLUSTER_BINDING:
        return agentless
    return deployed if known.konnector.deploy else ()


def _rights(account: str, role: str) -> tuple[tuple[Kind, str], ...]:
    return (
        (refs.SERVICE_ACCOUNT, account),
        (refs.CLUSTER_ROLE, role),
        (refs.CLUSTER_ROLE_BINDING, role),
    )


def _by_cluster_bindings(bindings: Iterable[Manifest]) -> Iterator[tuple[str, str]]:
    """Yield (namespace, name) of Secrets to list; by name alone, as there are many spaces.

    In the space of an AppClusterBinding it is the kubeconfig of an app cluster, whatever its
    name: no plan needs that, and no role for klutchctl reads it.
    """
    for binding in bindings:
        if keys.APP_CLUSTER_BINDING_NAME in m.labels_of(binding):
            continue
        if name := m.get_text(binding, "spec", "kubeconfigSecretRef", "name"):
            yield "", name


def _by_app_cluster_bindings(
    bindings: Iterable[Manifest], fleet: Fleet, control_plane: str
) -> Iterator[tuple[str, str]]:
    """Yield (namespace, name) of the app clusters' kubeconfigs: live ones of ours, and planned.

    An AppClusterBinding that is none of ours may refer to what we have no right to read.
    """
    ours = {
        cluster.app_cluster_binding: names.app_cluster_kubeconfig_secret(cluster.name)
        for cluster in fleet.clusters.values()
        if cluster.control_plane == control_plane
        and fleet.control_planes[control_plane].mode is Mode.APP_CLUSTER_BINDING
    }
    yield from ((namespace, secret) for (namespace, _), secret in ours.items())
    for binding in bindings:
        identity = m.namespace_of(binding), m.name_of(binding)
        if identity in ours or m.labels_of(binding).get(keys.FLEET) == fleet.name:
            secret = m.get_text(binding, "spec", "kubeconfigSecretRef", "name")
            namespace = m.get_text(binding, "spec", "kubeconfigSecretRef", "namespace")
            if secret and namespace:
                yield namespace, secret

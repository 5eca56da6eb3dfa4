"""Runs the konnector as one asynchronous process: informers, providers, leadership, probes.

In default mode it brings one CRD along: that of its bindings (A.2.3, A.9).
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.binding import controller as binding_controller
from konnector.binding.controller import Bindings
from konnector.binding.release import Leftovers
from konnector.context import AgentContext
from konnector.kubeconfig import app_cluster
from konnector.kubeconfig.app_cluster import AppKubeconfig, InUse
from konnector.kubeconfig.connections import Connect, RotatingCluster
from konnector.mass_loss.waves import NAMESPACE_INDEXES
from konnector.metrics import SyncMetrics
from konnector.provider.registry import AnyProviders, OneProvider, Providers
from konnector.settings import ControlPlaneMode, Settings
from reconciler.api import API_SERVICE_BINDING, is_established
from reconciler.controller import health_server, program, tracing
from reconciler.controller.controller import Controller
from reconciler.controller.fence import WriteFence
from reconciler.controller.lease import Again
from reconciler.controller.manager import Bodies
from reconciler.controller.program import Runtime, Term
from reconciler.controller.tasks import Clock, SystemClock, Worker, unless
from reconciler.core import keys
from reconciler.core.errors import AlreadyExists, NotServed
from reconciler.core.manifest import Manifest, covers, get, get_text, ref_of
from reconciler.core.refs import CRD, NAMESPACE, Kind, Ref
from reconciler.kube import crds, kubeconfig
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import Informer
from reconciler.kube.limits import Limits, of_app_cluster
from reconciler.kube.networks import Networks
from reconciler.kube.turns import SharedReads

log = logging.getLogger(__name__)

_AGENT: Final = "konnector"
_IN_FLIGHT: Final = 512  # calls to one cluster; a slow kind must not delay another one
_FIRST_PAUSE: Final = 0.1  # seconds between two looks for the CRD of bindings
_LONGEST_PAUSE: Final = 5.0


async def serve(
    settings: Settings, environ: Mapping[str, str], home: Path, *, stop: asyncio.Event
) -> None:
    """Serve the app cluster until `stop` is set.

    Raises ConfigError, HostError, the ClusterErrors of a cluster that was never reached, and
    LeaseLost where a write could not be waited for.
    """
    program.start_log(settings)
    mode = settings.control_plane_mode
    name = APP_CLUSTER if mode is None else CONTROL_PLANE
    connected = program.connected(
        settings, environ, home, name=name, agent=_AGENT, concurrency=_IN_FLIGHT
    )
    async with connected as (_, own_cluster, leases), AsyncExitStack() as opened:
        opened.enter_context(tracing.exported(environ, _AGENT))
        clock = SystemClock()
        found = await unless(stop, _found(mode, own_cluster, _connect(settings), opened, clock))
        if found is None:
            return
        make = partial(
            wired,
            settings,
            own_cluster,
            found.app or own_cluster,
            leases=leases,
            kind=found.kind,
            clock=clock,
            in_use=found.in_use,
            again=leases.again,
        )
        await program.serve(settings, make, stop=stop, healthz=health_server.leader_election)


def _connect(settings: Settings) -> Connect:
    limits = Limits(qps=settings.qps, burst=settings.burst, concurrency=_IN_FLIGHT)
    return partial(connect, limits=limits, networks=settings.networks)


@dataclass(frozen=True, slots=True)
class _Found:
    """The preconditions of a start: bindings, and the way to the app cluster.

    Without a way of its own, it is the cluster of the bindings.
    """

    kind: Kind
    app: Cluster | None = None
    in_use: InUse | None = None


async def _found(
    mode: ControlPlaneMode | None,
    cluster: KubeCluster,
    reach: Connect,
    opened: AsyncExitStack,
    clock: Clock,
) -> _Found:
    """Wait for it; resources that are opened for it, `opened` closes. Raises as `serve`."""
    if mode is None:
        return _Found(await served_bindings(cluster, clock))
    there, in_use = await app_cluster.working(cluster, mode, reach, clock)
    app = await opened.enter_async_context(RotatingCluster(there))
    return _Found(await discovered_bindings(cluster, clock), app, in_use)


async def served_bindings(cluster: Cluster, clock: Clock) -> Kind:
    """Wait until the cluster serves APIServiceBindings, and return them as it does.

    The CRD is made where there is none, and the versions of a namespaced one are brought up to
    ours. Klutch up to 1.5.0 serves them cluster-scoped, which cannot be changed, and is left as it
    is. Raises ClusterErrors that time does not mend.
    """
    pause = _FIRST_PAUSE
    while True:
        live = await cluster.get(Ref(cluster.name, CRD, "", API_SERVICE_BINDING.resource))
        if live is None or not _is_ours(live):
            await _install(cluster, live)
        elif is_established(live):
            namespaced = get_text(live, "spec", "scope") != "Cluster"
            return replace(API_SERVICE_BINDING, namespaced=namespaced)
        await clock.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def discovered_bindings(cluster: Cluster, clock: Clock) -> Kind:
    """Wait until the cluster serves APIServiceBindings that somebody else brings along.

    A konnector of the control plane has no right to read CRDs there (A.8). Raises ClusterErrors
    that time does not mend.
    """
    one, pause = API_SERVICE_BINDING, _FIRST_PAUSE
    while True:
        try:
            return await cluster.kind(one.group, one.version, one.plural)
        except NotServed:
            await clock.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _is_ours(live: Manifest) -> bool:
    (wanted,) = crds.load(API_SERVICE_BINDING.resource)
    scoped_otherwise = get(live, "spec", "scope") != get(wanted, "spec", "scope")
    return scoped_otherwise or covers(live.get("spec"), wanted.get("spec"))


async def _install(cluster: Cluster, live: Manifest | None) -> None:
    (wanted,) = crds.load(API_SERVICE_BINDING.resource)
    manager = keys.MANAGER_KONNECTOR
    fence = WriteFence()  # it waits for sent writes, even if the process has to end
    try:
        if live is None:
            await fence.write(lambda: cluster.create(wanted, CRD, manager=manager))
            return
    except AlreadyExists:
        return
    metadata = {"uid": get(live, "metadata", "uid")}
    patch: Manifest = {"metadata": metadata, "spec": {"versions": get(wanted, "spec", "versions")}}
    ref = ref_of(cluster.name, CRD, live)
    await fence.write(lambda: cluster.merge_patch(ref, patch, manager=manager))


def connect(content: bytes, name: str, *, limits: Limits, networks: Networks) -> Cluster:
    """Return a cluster over the kubeconfig from a Secret. Raises ConfigError."""
    way = kubeconfig.from_secret(content, name=name, environ={}, networks=networks)
    bounds = of_app_cluster(limits) if name == APP_CLUSTER else limits
    return KubeCluster(way, limits=bounds, agent=_AGENT)


def wired(  # noqa: PLR0913 - tests exchange each of them
    settings: Settings,
    cluster: Cluster,
    app: Cluster,
    *,
    leases: Cluster,
    kind: Kind,
    clock: Clock,
    in_use: InUse | None = None,
    again: Again | None = None,
) -> Term:
    """Return a konnector whose bindings, of this kind, are in `cluster`.

    That is the app cluster, or, in control-plane mode, the control plane; then `in_use` says how
    the app cluster is reached. `leases` is a connection of its own, for the lease.
    `again` as in `Lease`.
    """
    mode = settings.control_plane_mode
    runtime = Runtime(
        app,
        manager=keys.MANAGER_KONNECTOR,
        reporter=f"{keys.OWN_PREFIX}{_AGENT}",
        holder=settings.lease_identity,
        clock=clock,
        docs=settings.docs,
    )
    namespaces = Informer(app, NAMESPACE, metadata_only=True, indexes=NAMESPACE_INDEXES)
    crds = Informer(app, CRD, metadata_only=True)
    view = _bindings(cluster, kind, settings)
    context = AgentContext(
        app=app,
        looks=SharedReads(app),
        namespaces=namespaces.store,
        crds=crds.store,
        bodies=Bodies(app, crds.store),
        connect=_connect(settings),
        runtime=runtime,
        syncs=SyncMetrics(runtime.metrics.registry),
        workers=settings.workers,
        control_plane_mode=mode is not None,
        own_namespace=settings.namespace if mode is None else "",
        mark=f"{settings.lease_identity} {secrets.token_hex(4)}",
        orphan_grace=settings.orphan_grace,
    )
    leadership = runtime.leadership(
        leases, settings.lease_namespace, settings.lease_name, again=again
    )
    return runtime.term(
        (namespaces, crds, view),
        _workers(context, cluster, view, mode, in_use),
        leadership=leadership,
        elects=settings.leader_election,
    )


def _bindings(cluster: Cluster, kind: Kind, settings: Settings) -> Informer:
    mode = settings.control_plane_mode
    confined = settings.binding_namespace if kind.namespaced else ""
    return Informer(
        cluster,
        kind,
        namespace=confined if mode is None else mode.space,
        indexes=binding_controller.INDEXES,
    )


def _workers(
    context: AgentContext,
    cluster: Cluster,
    view: Informer,
    mode: ControlPlaneMode | None,
    in_use: InUse | None,
) -> list[Worker]:
    """Return the workers that serve the bindings, each after those that it calls."""
    bindings = Bindings(context, cluster, view)
    providers: AnyProviders
    if mode is None or in_use is None:
        providers = Providers(context, bindings)
        workers: list[Worker] = [bindings.secrets]
    else:
        providers = OneProvider(context, cluster, mode.space, bindings)
        app_kubeconfig = AppKubeconfig(
            context, cluster, mode, in_use, on_fault=providers.note_fault
        )
        workers = [bindings.secrets, app_kubeconfig]
    bindings.serve_with(providers)
    controller = Controller(
        "servicebinding",
        bindings.reconcile,
        clock=context.clock,
        metrics=context.metrics,
        workers=context.workers,
        depends_on=(cluster.connectivity, context.app.connectivity),
    )
    bindings.subscribe(controller)
    context.namespaces.subscribe_keys(lambda key: _namespace_changed(providers, key.name))
    leftovers = Leftovers(
        context, cluster, view.store, providers, space="" if mode is None else mode.space
    )
    return [*workers, providers, controller, leftovers]


def _namespace_changed(providers: AnyProviders, app_namespace: str) -> None:
    for provider in providers.all():
        provider.look_at_namespace(app_namespace)

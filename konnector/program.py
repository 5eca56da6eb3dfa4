"""The konnector as one asynchronous process: views, providers, leadership, probes."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from konnector import crd_bootstrap
from konnector.binding import controller as binding_controller
from konnector.binding.controller import Bindings
from konnector.binding.leftovers import Leftovers
from konnector.context import Connect, Tools
from konnector.kubeconfig import app_cluster
from konnector.kubeconfig.app_cluster import AppKubeconfig, InUse
from konnector.kubeconfig.rotating_cluster import RotatingCluster
from konnector.provider.registry import OneProvider, Providers, one_provider
from konnector.settings import ControlPlaneMode, Settings
from konnector.sides import APP_CLUSTER, CONTROL_PLANE
from konnector.views.single_object import NamedViews
from reconciler.controller import health_server, log_lines
from reconciler.controller.clock import Clock, SystemClock
from reconciler.controller.controller import Controller
from reconciler.controller.elections import Elections
from reconciler.controller.events import EventRecorder, Source
from reconciler.controller.fence import WriteFence
from reconciler.controller.leadership import Leadership
from reconciler.controller.lease import Again, Lease, Times
from reconciler.controller.manager import Manager, Worker
from reconciler.controller.metrics import Metrics
from reconciler.controller.process import Liveness
from reconciler.controller.tasks import unless
from reconciler.core import keys
from reconciler.core.manifest import name_of
from reconciler.core.refs import CRD, LEASE, NAMESPACE, SECRET, Kind, Ref
from reconciler.kube import kubeconfig
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cache.whole_objects import Bodies
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from reconciler.kube.kubeconfig.in_cluster import in_cluster
from reconciler.kube.limits import Limits, of_app_cluster
from reconciler.kube.networks import Networks

log = logging.getLogger(__name__)

_AGENT: Final = "konnector"
_DEBUG: Final = 4  # the verbosity from which on decisions are logged
_IN_FLIGHT: Final = 512  # calls to one cluster; what waits for one kind must not hold up another


def connection(settings: Settings, environ: Mapping[str, str], home: Path) -> Connection:
    """Return the way to the cluster of the bindings: a kubeconfig, else that of the pod.

    Raises ConfigError.
    """
    name = APP_CLUSTER if settings.control_plane_mode is None else CONTROL_PLANE
    paths = kubeconfig.search_paths(settings.kubeconfig, environ=environ, home=home)
    in_pod = "KUBERNETES_SERVICE_HOST" in environ
    if settings.kubeconfig is None and in_pod and not any(path.exists() for path in paths):
        return in_cluster(environ=environ, name=name)
    return kubeconfig.load(paths, environ=environ, name=name)


async def serve(
    settings: Settings, environ: Mapping[str, str], home: Path, *, stop: asyncio.Event
) -> None:
    """Serve the app cluster until `stop` is set.

    Raises ConfigError, HostError, the ClusterErrors of a cluster that was never reached, and
    LeaseLost where a write could not be waited for.
    """
    log_lines.to_stderr(settings.log_format, debug=settings.verbosity >= _DEBUG)
    if settings.unserved:
        log.warning("flags without effect here", extra={"flags": ", ".join(settings.unserved)})
    way = connection(settings, environ, home)
    limits = Limits(qps=settings.qps, burst=settings.burst, concurrency=_IN_FLIGHT)
    async with (
        KubeCluster(way, limits=limits, agent=_AGENT) as home_cluster,
        KubeCluster(way, agent=_AGENT) as leases,
        AsyncExitStack() as opened,
    ):
        clock, fence = SystemClock(), WriteFence()
        reach = partial(connect, limits=limits, networks=settings.networks)
        finding = _found(settings.control_plane_mode, home_cluster, reach, opened, fence, clock)
        found = await unless(stop, finding)
        if found is None:
            return

        def term() -> Konnector:
            return wired(
                settings,
                home_cluster,
                found.app or home_cluster,
                leases=leases,
                kind=found.kind,
                clock=clock,
                fence=WriteFence(),
                in_use=found.in_use,
                again=leases.again,
            )

        elections = Elections(term)
        with elections.served(
            probes=settings.probes, metrics=settings.metrics, healthz=health_server.leader_election
        ):
            await elections.run(stop)


@dataclass(frozen=True, slots=True)
class _Found:
    """What has to be there before anything: what bindings are, and the way to the app cluster.

    Without a way of its own, it is the cluster of the bindings.
    """

    kind: Kind
    app: Cluster | None = None
    in_use: InUse | None = None


async def _found(
    mode: ControlPlaneMode | None,
    home: KubeCluster,
    reach: Connect,
    opened: AsyncExitStack,
    fence: WriteFence,
    clock: Clock,
) -> _Found:
    """Wait for it; what is opened for it, `opened` closes. Raises as `serve`."""
    if mode is None:
        return _Found(await crd_bootstrap.served(home, fence, clock))
    there, in_use = await app_cluster.working(home, mode, reach, clock)
    app = await opened.enter_async_context(RotatingCluster(there))
    return _Found(await crd_bootstrap.discovered(home, clock), app, in_use)


def connect(content: bytes, name: str, *, limits: Limits, networks: Networks) -> Cluster:
    """Return a cluster over the kubeconfig from a Secret. Raises ConfigError."""
    way = kubeconfig.from_secret(content, name=name, environ={}, networks=networks)
    bounds = of_app_cluster(limits) if name == APP_CLUSTER else limits
    return KubeCluster(way, limits=bounds, agent=_AGENT)


@dataclass(frozen=True, slots=True)
class Konnector:
    """A konnector that is wired and does not run yet."""

    manager: Manager
    liveness: Liveness
    metrics: Metrics


def wired(  # noqa: PLR0913 - tests exchange each of them
    settings: Settings,
    home: Cluster,
    app: Cluster,
    *,
    leases: Cluster,
    kind: Kind,
    clock: Clock,
    fence: WriteFence,
    in_use: InUse | None = None,
    again: Again | None = None,
) -> Konnector:
    """Return a konnector whose bindings, of this kind, are in `home`.

    That is the app cluster, or, in control-plane mode, the control plane; then `in_use` says how
    the app cluster is reached. `leases` is a second way home, for the lease. A lease that waits
    behind thousands of calls would be lost. `again` as in `Lease`.
    """
    metrics = Metrics()
    mode = settings.control_plane_mode
    limits = Limits(qps=settings.qps, burst=settings.burst, concurrency=_IN_FLIGHT)
    namespaces = _view(app, NAMESPACE)
    crds = _view(app, CRD)
    view = _bindings(home, kind, settings)
    source = Source(f"{keys.OWN_PREFIX}{_AGENT}", settings.lease_identity)
    recorder = EventRecorder(
        app, fence, source=source, manager=keys.MANAGER_KONNECTOR, clock=clock, metrics=metrics
    )
    tools = Tools(
        app=app,
        namespaces=namespaces.store,
        crds=crds.store,
        bodies=Bodies(app, crds.store),
        connect=partial(connect, limits=limits, networks=settings.networks),
        fence=fence,
        recorder=recorder,
        clock=clock,
        metrics=metrics,
        workers=settings.workers,
        control_plane_mode=mode is not None,
        own_namespace=settings.namespace if mode is None else "",
        orphan_grace=settings.orphan_grace,
    )
    workers = _workers(tools, home, view, mode, in_use)
    lease = _lease(settings, leases, clock, again)
    leadership = Leadership(lease, fence, clock=clock, metrics=metrics)
    manager = Manager(
        views=(namespaces, crds, view),
        workers=(*workers, recorder),
        metrics=metrics,
        leadership=leadership if settings.leader_election else None,
    )
    return Konnector(manager, Liveness(clock, leadership.ailment), metrics)


def _bindings(home: Cluster, kind: Kind, settings: Settings) -> Informer:
    mode = settings.control_plane_mode
    confined = settings.binding_namespace if kind.namespaced else ""
    return Informer(
        home,
        kind,
        namespace=confined if mode is None else mode.space,
        indexes={binding_controller.NAME: lambda live: (name_of(live),)},
    )


def _lease(settings: Settings, leases: Cluster, clock: Clock, again: Again | None) -> Lease:
    return Lease(
        leases,
        Ref(leases.name, LEASE, settings.lease_namespace, settings.lease_name),
        holder=settings.lease_identity,
        manager=keys.MANAGER_KONNECTOR,
        clock=clock,
        times=Times(),
        again=again,
    )


def _workers(
    tools: Tools,
    home: Cluster,
    view: Informer,
    mode: ControlPlaneMode | None,
    in_use: InUse | None,
) -> list[Worker]:
    """Return what serves the bindings; they and their providers tell each other of news."""
    secrets = NamedViews(
        home, SECRET, tools.metrics, on_change=lambda place: made.secret_changed(place)
    )
    providers: Providers | OneProvider
    workers: list[Worker] = [secrets]
    if mode is None or in_use is None:
        providers = Providers(
            tools,
            secrets=secrets,
            binding=lambda among, name: made.find(among, name),
            changed=lambda among, name: made.changed(among, name),
        )
    else:
        kubeconfig_there = AppKubeconfig(
            tools, home, mode, in_use, changed=lambda: one.look_again()
        )
        providers = one = one_provider(
            tools,
            home,
            mode.space,
            fault=lambda: kubeconfig_there.fault,
            binding=lambda among, name: made.find(among, name),
            changed=lambda among, name: made.changed(among, name),
        )
        workers.append(kubeconfig_there)
    made = Bindings(tools, home, view, secrets, providers)
    controller = Controller(
        "servicebinding",
        made.reconcile,
        clock=tools.clock,
        metrics=tools.metrics,
        workers=tools.workers,
        depends_on=(home.connectivity, tools.app.connectivity),
    )
    made.subscribe(controller)
    tools.namespaces.subscribe_keys(lambda key: _tell(providers, key.name))
    leftovers = Leftovers(
        tools, home, view.store, providers, space="" if mode is None else mode.space
    )
    return [*workers, providers, controller, leftovers]


def _tell(providers: Providers | OneProvider, app_namespace: str) -> None:
    for provider in providers.all():
        provider.look_at_namespace(app_namespace)


def _view(cluster: Cluster, kind: Kind) -> Informer:
    return Informer(cluster, kind, metadata_only=True)

"""The backend as one asynchronous process: views, controllers, leadership, probes."""

import asyncio
import logging
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bind.app_cluster_binding import decide as app_cluster_binding_decide
from bind.app_cluster_binding.controller import AppClusterBindings
from bind.binder_role import BinderRole
from bind.cluster_binding.controller import ClusterBindings
from bind.export.controller import Exports
from bind.export_request.controller import ExportRequests
from bind.informers import World
from bind.service_namespace.controller import ServiceNamespaces
from bind.settings import Settings
from reconciler.blueprints.export import Terms
from reconciler.controller import log_lines
from reconciler.controller.clock import Clock, SystemClock
from reconciler.controller.controller import Controller
from reconciler.controller.elections import Elections
from reconciler.controller.events import EventRecorder, Source
from reconciler.controller.executor import Executor
from reconciler.controller.fence import WriteFence
from reconciler.controller.leadership import Leadership
from reconciler.controller.lease import Again, Lease, Times, holder_here
from reconciler.controller.manager import Manager
from reconciler.controller.metrics import Metrics
from reconciler.controller.process import Liveness
from reconciler.controller.reconciler import ObjectReconciler
from reconciler.core import keys, names
from reconciler.core.errors import NotServed
from reconciler.core.refs import DEPLOYMENT, LEASE, ObjectKey, Ref
from reconciler.kube import kubeconfig
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from reconciler.kube.kubeconfig.in_cluster import in_cluster
from reconciler.kube.limits import Limits

log = logging.getLogger(__name__)

CONTROL_PLANE: Final = "control-plane"
_AGENT: Final = "klutch-bind"
ADVICE: Final = (
    "Where a right or a kind is missing, apply bind/deploy and schemas/crds of this version again"
)
_DEBUG: Final = 4  # the verbosity from which on decisions are logged
_WIDE: Final = (
    "--consumer-scope=Cluster gives every app cluster all exported and claimed kinds of the whole "
    "control plane, Secrets among them; it is meant for workspaces with one tenant only"
)


def connection(settings: Settings, environ: Mapping[str, str], home: Path) -> Connection:
    """Return the way to the control plane: a kubeconfig, else that of the pod.

    Raises ConfigError.
    """
    paths = kubeconfig.search_paths(settings.kubeconfig, environ=environ, home=home)
    in_pod = "KUBERNETES_SERVICE_HOST" in environ
    if settings.kubeconfig is None and in_pod and not any(path.exists() for path in paths):
        return in_cluster(environ=environ, name=CONTROL_PLANE)
    return kubeconfig.load(paths, environ=environ, context=settings.context, name=CONTROL_PLANE)


async def serves_deployments(cluster: Cluster) -> bool:
    """Tell whether the control plane has apps/v1; workspaces of kcp have not.

    Raises ClusterErrors.
    """
    try:
        await cluster.first_page(DEPLOYMENT, limit=1, metadata_only=True)
    except NotServed:
        return False
    return True


async def serve(
    settings: Settings, environ: Mapping[str, str], home: Path, *, stop: asyncio.Event
) -> None:
    """Serve the control plane until `stop` is set.

    Raises ConfigError, HostError, the ClusterErrors of a control plane that was never reached,
    and LeaseLost where a write could not be waited for.
    """
    log_lines.to_stderr(settings.log_format, debug=settings.verbosity >= _DEBUG)
    if settings.unserved:
        log.warning("flags without effect here", extra={"flags": ", ".join(settings.unserved)})
    if settings.consumer_scope == "Cluster":
        log.warning(_WIDE)
    way = connection(settings, environ, home)
    limits = Limits(qps=settings.qps, burst=settings.burst)
    async with (
        KubeCluster(way, limits=limits, agent=_AGENT) as cluster,
        KubeCluster(way, agent=_AGENT) as leases,
    ):
        served = not settings.control_plane_mode or await serves_deployments(cluster)
        namespace = settings.lease_namespace or way.namespace or names.KLUTCH_NAMESPACE

        holder = holder_here()

        def term() -> Backend:
            return wired(
                settings,
                cluster,
                leases=leases,
                deployments_served=served,
                lease_namespace=namespace,
                clock=SystemClock(),
                again=leases.again,
                holder=holder,
            )

        elections = Elections(term)
        with elections.served(probes=settings.probes, metrics=settings.metrics):
            await elections.run(stop)


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend that is wired and does not run yet."""

    manager: Manager
    liveness: Liveness
    metrics: Metrics


def wired(  # noqa: PLR0913 - tests exchange each of them
    settings: Settings,
    cluster: Cluster,
    *,
    leases: Cluster,
    deployments_served: bool,
    lease_namespace: str,
    clock: Clock,
    again: Again | None = None,
    holder: str = "",
) -> Backend:
    """Return a backend on this control plane. `leases` is a second way there, for the lease.

    A lease that waits behind thousands of calls would be lost. `again` and
    `holder` as in `Lease`.
    """
    fence, metrics = WriteFence(), Metrics()
    holder = holder or holder_here()
    recorder = EventRecorder(
        cluster,
        fence,
        source=Source(f"{keys.OWN_PREFIX}{_AGENT}", holder),
        manager=keys.MANAGER_BACKEND,
        clock=clock,
        metrics=metrics,
    )
    world = World(
        cluster,
        control_plane_mode=settings.control_plane_mode,
        deployments_served=deployments_served,
        quotas=settings.bounds.has_quotas,
        template_namespace=settings.template_namespace,
    )
    executor = Executor(
        {cluster.name: cluster},
        fence,
        manager=keys.MANAGER_BACKEND,
        recorder=recorder,
        now=clock.now,
    )
    lease = Lease(
        leases,
        Ref(leases.name, LEASE, lease_namespace, names.BACKEND_LEASE),
        holder=holder,
        manager=keys.MANAGER_BACKEND,
        clock=clock,
        times=Times(),
        again=again,
    )
    leadership = Leadership(lease, fence, clock=clock, metrics=metrics)
    manager = Manager(
        views=world.informers,
        workers=(*_controllers(settings, world, executor, clock, metrics), recorder),
        metrics=metrics,
        leadership=leadership if settings.leader_election else None,
        advice=ADVICE,
    )
    return Backend(manager, Liveness(clock, leadership.ailment), metrics)


def _controllers(
    settings: Settings, world: World, executor: Executor, clock: Clock, metrics: Metrics
) -> Iterator[Controller[Any]]:
    for name, reconciler in _reconcilers(settings, world, executor).items():
        controller: Controller[Any] = Controller(
            name,
            reconciler.reconcile,
            clock=clock,
            metrics=metrics,
            workers=settings.workers,
            depends_on=(world.cluster.connectivity,),
            party=_space_of,
        )
        reconciler.subscribe(controller)
        yield controller


def _space_of(key: Hashable) -> Hashable:
    """Return the namespace of a key: what many objects in one of them want waits for itself."""
    return key.namespace if isinstance(key, ObjectKey) else key


def _reconcilers(
    settings: Settings, world: World, executor: Executor
) -> dict[str, ObjectReconciler[Any, Any]]:
    scope, isolation = settings.consumer_scope, settings.isolation
    bounds, hashing = settings.bounds, settings.hashed_names
    reconcilers: dict[str, ObjectReconciler[Any, Any]] = {
        "binderrole": BinderRole(world, executor),
        "clusterbinding": ClusterBindings(
            world, executor, scope=scope, limits=bounds, hashing=hashing
        ),
        "serviceexportrequest": ExportRequests(world, executor, terms=Terms(scope, isolation)),
        "serviceexport": Exports(world, executor, isolation=isolation, grace=settings.export_grace),
        "servicenamespace": ServiceNamespaces(
            world, executor, scope=scope, bounds=bounds, hashing=hashing
        ),
    }
    if settings.control_plane_mode:
        terms = app_cluster_binding_decide.Terms(
            control_plane=world.cluster.name,
            konnector_image=settings.konnector_image,
            allow_cross_namespace_secrets=settings.allow_cross_namespace_secrets,
            all_overrides=settings.all_overrides,
            drain_deadline=settings.drain_deadline,
        )
        reconcilers["appclusterbinding"] = AppClusterBindings(world, executor, terms=terms)
    return reconcilers

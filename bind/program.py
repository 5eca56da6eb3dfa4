"""Runs the backend as one asynchronous process: informers, controllers, leadership, door."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Gauge

from bind.app_cluster_binding import facts
from bind.app_cluster_binding.controller import AppClusterBindings
from bind.cluster_binding.controller import BinderRole, ClusterBindings
from bind.cluster_binding.decide import STATES
from bind.export.controller import ExportRequests, Exports
from bind.informers import Informers, party_of_binding
from bind.service_namespace.controller import ServiceNamespaces
from bind.settings import Settings
from reconciler.blueprints.export import Terms
from reconciler.controller import program
from reconciler.controller.controller import Controller, ObjectReconciler
from reconciler.controller.executor import Executor
from reconciler.controller.lease import Again, holder_here
from reconciler.controller.metrics import StateCounts
from reconciler.controller.program import Runtime, Term
from reconciler.controller.tasks import Clock, SystemClock
from reconciler.core import keys, names
from reconciler.core.errors import NotServed
from reconciler.core.refs import DEPLOYMENT, ObjectKey
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from reconciler.kube.limits import Limits
from reconciler.kube.turns import Party

if TYPE_CHECKING:
    from bind.door.door import Door


def spaces(registry: CollectorRegistry) -> StateCounts:
    """Return a counter of binding spaces, by the states of their konnectors."""
    gauge = Gauge("klutch_spaces", "Binding spaces, by heartbeat.", ["state"], registry=registry)
    return StateCounts(gauge, states=STATES)


log = logging.getLogger(__name__)

CONTROL_PLANE: Final = "control-plane"
_AGENT: Final = "klutch-bind"
_APP_CLUSTER_BINDINGS: Final = "appclusterbinding"
# Of the rate of the controllers: a bind takes 5 short reads, a first one 30, and 20 people a second
# would wait for each other.
_DOOR: Final = 4
ADVICE: Final = (
    "Where a right or a kind is missing, apply bind/deploy and schemas/crds of this version again"
)
_WIDE: Final = (
    "with --consumer-scope=Cluster, every app cluster reaches all objects of exported and claimed "
    "kinds in the control plane, including Secrets: use it only for a workspace with one tenant"
)


async def serves_deployments(cluster: Cluster) -> bool:
    """Return whether the control plane has apps/v1; workspaces of kcp have not.

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
    program.start_log(settings)
    if settings.consumer_scope == "Cluster":
        log.warning(_WIDE)
    connected = program.connected(settings, environ, home, name=CONTROL_PLANE, agent=_AGENT)
    async with connected as (way, cluster, leases):
        served = not settings.control_plane_mode or await serves_deployments(cluster)
        home_namespace = settings.lease_namespace or way.namespace or names.KLUTCH_NAMESPACE
        async with _opened(settings, way, home_namespace) as door:
            make = partial(
                wired,
                settings,
                cluster,
                leases=leases,
                deployments_served=served,
                lease_namespace=home_namespace,
                clock=SystemClock(),
                again=leases.again,
                holder=holder_here(),
                door=door,
            )
            unready = str if door is None else door.unready
            await program.serve(settings, make, stop=stop, unready=unready)


@asynccontextmanager
async def _opened(
    settings: Settings, way: Connection, namespace: str
) -> AsyncIterator["Door | None"]:
    """Serve the front door, where there is one, for as long as the block lasts.

    It has a way of its own to the control plane: nobody who binds waits for the controllers.
    """
    if settings.door is None:
        yield None
        return
    from bind.door.door import Door  # and nothing of it where there is none: 15 MiB

    limits = Limits(qps=_DOOR * settings.qps, burst=_DOOR * settings.burst)
    async with KubeCluster(way, limits=limits, agent=_AGENT) as cluster:
        door = Door(
            settings.door,
            cluster,
            way,
            namespace=namespace,
            scope=settings.consumer_scope,
            restricted=settings.bounds.restricted,
            clock=SystemClock(),
        )
        async with door.served():
            yield door


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
    door: "Door | None" = None,
) -> Term:
    """Return a backend on this control plane. `leases` is a second way there, for the lease.

    `again` and `holder` as in `Lease`. A `door` reads what this term does.
    """
    runtime = Runtime(
        cluster,
        manager=keys.MANAGER_BACKEND,
        reporter=f"{keys.OWN_PREFIX}{_AGENT}",
        holder=holder or holder_here(),
        clock=clock,
        docs=settings.docs,
    )
    informers = Informers(
        cluster,
        control_plane_mode=settings.control_plane_mode,
        deployments_served=deployments_served,
        quotas=bool(settings.bounds.in_space or settings.bounds.in_service_namespace),
        template_namespace=settings.template_namespace,
        door=door is not None,
    )
    if door is not None:
        door.look(informers)
        for counter in door.counters:
            runtime.metrics.registry.register(counter)
    leadership = runtime.leadership(leases, lease_namespace, names.BACKEND_LEASE, again=again)
    executor = runtime.executor(informers.cluster)
    service_namespaces = ServiceNamespaces(
        informers,
        executor,
        scope=settings.consumer_scope,
        bounds=settings.bounds,
        hashing=settings.hashed_names,
    )
    reconcilers = _reconcilers(settings, informers, runtime, executor)
    reconcilers["servicenamespace"] = service_namespaces
    return runtime.term(
        informers.informers,
        list(_controllers(reconcilers, settings, informers, runtime)),
        leadership=leadership,
        elects=settings.leader_election,
        first=service_namespaces.revoke,
        advice=ADVICE,
    )


def _controllers(
    reconcilers: Mapping[str, ObjectReconciler[Any, Any]],
    settings: Settings,
    informers: Informers,
    runtime: Runtime,
) -> Iterator[Controller[Any]]:
    for name, reconciler in reconcilers.items():
        controller: Controller[Any] = runtime.controller(
            name,
            reconciler.reconcile,
            workers=settings.workers,
            party=partial(_party_of, informers, name, reconciler),
        )
        reconciler.subscribe(controller)
        yield controller


def _party_of(
    informers: Informers, controller: str, reconciler: ObjectReconciler[Any, Any], key: Any
) -> Party:
    """Return the party of a key: the spaces of one owner wait for each other only."""
    place = key if isinstance(key, ObjectKey) else ObjectKey(key, names.CLUSTER_BINDING)
    is_author = controller == _APP_CLUSTER_BINDINGS
    party = party_of_binding(key) if is_author else informers.party(place.namespace)
    return party._replace(wide=any(one.view.store.is_wide(place) for one in reconciler.recents))


def _reconcilers(
    settings: Settings, informers: Informers, runtime: Runtime, executor: Executor
) -> dict[str, ObjectReconciler[Any, Any]]:
    scope, isolation = settings.consumer_scope, settings.isolation
    bounds, hashing = settings.bounds, settings.hashed_names
    reconcilers: dict[str, ObjectReconciler[Any, Any]] = {
        "binderrole": BinderRole(informers, executor),
        "clusterbinding": ClusterBindings(
            informers,
            executor,
            scope=scope,
            limits=bounds,
            hashing=hashing,
            spaces=spaces(runtime.metrics.registry),
        ),
        "serviceexportrequest": ExportRequests(
            informers, executor, terms=Terms(scope, isolation), open_door=settings.open_door
        ),
        "serviceexport": Exports(
            informers, executor, isolation=isolation, grace=settings.export_grace
        ),
    }
    if settings.control_plane_mode:
        terms = facts.Terms(
            control_plane=informers.cluster.name,
            konnector_image=settings.konnector_image,
            konnector_image_prefixes=settings.konnector_image_prefixes,
            allow_cross_namespace_secrets=settings.allow_cross_namespace_secrets,
            all_overrides=settings.all_overrides,
            networks=settings.networks,
            drain_deadline=settings.drain_deadline,
        )
        reconcilers[_APP_CLUSTER_BINDINGS] = AppClusterBindings(informers, executor, terms=terms)
    return reconcilers

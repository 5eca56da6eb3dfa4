"""Runs a long-running program: connection, log, probes, and one leader's term after another.

A lost Lease ends all work and drops all cached state, because another process may have changed
the cluster since. The process and its probes continue. It ends only if it cannot wait for the
result of its last write.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.controller import health_server, process
from reconciler.controller.controller import Controller, K, Reconcile
from reconciler.controller.events import EventRecorder, Source
from reconciler.controller.executor import Executor
from reconciler.controller.fence import WriteFence
from reconciler.controller.flags import Address, Operation
from reconciler.controller.health_server import SettledProbe, Written, plain
from reconciler.controller.leadership import Leadership, LeaseLost
from reconciler.controller.lease import Again, Lease, Times
from reconciler.controller.manager import Manager
from reconciler.controller.metrics import Metrics
from reconciler.controller.process import Liveness
from reconciler.controller.tasks import Clock, Worker
from reconciler.core.refs import LEASE, Ref
from reconciler.kube import kubeconfig
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from reconciler.kube.informer import Informer
from reconciler.kube.kubeconfig.files import in_cluster
from reconciler.kube.limits import Limits
from reconciler.kube.turns import Party, nobody
from reconciler.web.requests import Response

log = logging.getLogger(__name__)

_DEBUG: Final = 4  # the verbosity from which on decisions are logged


def start_log(settings: Operation) -> None:
    """Write the log to stderr from now on, and warn of flags without effect."""
    process.to_stderr(settings.log_format, debug=settings.verbosity >= _DEBUG)
    if settings.unserved:
        log.warning("some flags have no effect", extra={"flags": ", ".join(settings.unserved)})


def connection(
    file: str | None,
    *,
    environ: Mapping[str, str],
    home: Path,
    name: str,
    context: str | None = None,
) -> Connection:
    """Return the way to a cluster, called `name`: a kubeconfig, else that of the pod.

    Raises ConfigError.
    """
    paths = kubeconfig.search_paths(file, environ=environ, home=home)
    in_pod = "KUBERNETES_SERVICE_HOST" in environ
    if file is None and in_pod and not any(path.exists() for path in paths):
        return in_cluster(environ=environ, name=name)
    return kubeconfig.load(paths, environ=environ, context=context, name=name)


@asynccontextmanager
async def connected(
    settings: Operation,
    environ: Mapping[str, str],
    home: Path,
    *,
    name: str,
    agent: str,
    **limits: int,
) -> AsyncIterator[tuple[Connection, KubeCluster, KubeCluster]]:
    """Open the way to a cluster twice: for all work, within limits, and for the lease alone.

    Raises ConfigError.
    """
    way = connection(
        settings.kubeconfig, environ=environ, home=home, name=name, context=settings.context
    )
    bounds = Limits(qps=settings.qps, burst=settings.burst, **limits)
    async with (
        KubeCluster(way, limits=bounds, agent=agent) as cluster,
        KubeCluster(way, agent=agent) as leases,
    ):
        yield way, cluster, leases


@dataclass(frozen=True, slots=True)
class Term:
    """Everything that works from an election on; runs once."""

    manager: Manager
    liveness: Liveness
    metrics: Metrics


class Elections:
    """The terms, one after another, each made by `make`."""

    def __init__(self, make: Callable[[], Term], unready: Callable[[], str] = str) -> None:
        self._make, self._unready = make, unready
        self._now = make()
        self._lost = ""

    def ailment(self) -> str:
        """Return why the process is not healthy, "" if it is. May be asked from any thread."""
        return self._now.liveness.ailment()

    def unready(self) -> str:
        """Return why it cannot do its work, "" if it can. May be asked from any thread."""
        why = self._now.manager.unready() or self._unready()
        return f"{self._lost}; {why}" if self._lost and why else why

    async def settled(self, written: Written, within: float) -> str:
        """Return as `Manager.settled` of the present term."""
        return await self._now.manager.settled(written, within=within)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set.

        Raises LeaseLost where a write could not be waited for, and what `Manager.run` does.
        """
        while True:
            try:
                await self._term(stop)
                return
            except LeaseLost as error:
                if error.unanswered:
                    raise
                self._lost = f"the lease was lost ({error})"
            if stop.is_set():
                return
            log.warning("this process waits for the lease again", extra={"why": self._lost})
            self._now = self._make()

    async def _term(self, stop: asyncio.Event) -> None:
        beating = asyncio.create_task(self._now.liveness.run())
        try:
            await self._now.manager.run(stop)
        finally:
            beating.cancel()

    @contextmanager
    def served(
        self,
        *,
        probes: Address | None,
        metrics: Address | None,
        healthz: Callable[[str], Response] = plain,
    ) -> Iterator[None]:
        """Serve probes and metrics, each where that is asked for. Raises HostError."""
        with ExitStack() as stack:
            if probes is not None:
                serving = health_server.served(
                    probes,
                    ailment=self.ailment,
                    unready=self.unready,
                    healthz=healthz,
                    settled=SettledProbe(self.settled),
                )
                host, port = stack.enter_context(serving)
                log.info("probes are served", extra={"host": host, "port": port})
            if metrics is not None:
                serving = health_server.served(metrics, metrics=lambda: self._now.metrics.registry)
                host, port = stack.enter_context(serving)
                log.info("metrics are served", extra={"host": host, "port": port})
            yield


async def serve(
    settings: Operation,
    make: Callable[[], Term],
    *,
    stop: asyncio.Event,
    healthz: Callable[[str], Response] = plain,
    unready: Callable[[], str] = str,
) -> None:
    """Work until `stop` is set, one term after another, and serve probes and metrics.

    `unready` is what else speaks against readiness, "" for nothing.
    Raises HostError, and LeaseLost where a write could not be waited for.
    """
    elections = Elections(make, unready)
    with elections.served(probes=settings.probes, metrics=settings.metrics, healthz=healthz):
        await elections.run(stop)


class Runtime:
    """The tools of all parts of a term: writes, Events, metrics.

    `manager` is the field manager, `reporter` the name under which Events are recorded in
    `cluster`, `holder` names this process beyond doubt.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        manager: str,
        reporter: str,
        holder: str,
        clock: Clock,
        docs: str = "",
    ) -> None:
        self.clock, self.fence, self.metrics = clock, WriteFence(), Metrics()
        self._cluster, self._manager, self._holder = cluster, manager, holder
        self.recorder = EventRecorder(
            cluster,
            self.fence,
            source=Source(reporter, holder, docs),
            manager=manager,
            clock=clock,
            metrics=self.metrics,
        )

    def executor(self, *clusters: Cluster) -> Executor:
        """Return the executor of decisions in these clusters, by the time of day of the last."""
        return Executor(
            {cluster.name: cluster for cluster in clusters},
            self.fence,
            manager=self._manager,
            recorder=self.recorder,
            now=lambda: clusters[-1].connectivity.now(self.clock.now(), self.clock.monotonic()),
        )

    def controller(
        self,
        name: str,
        reconcile: Reconcile[K],
        *,
        workers: int,
        party: Callable[[K], Party] = nobody,
    ) -> Controller[K]:
        """Return a controller for keys of this cluster."""
        return Controller(
            name,
            reconcile,
            clock=self.clock,
            metrics=self.metrics,
            workers=workers,
            depends_on=(self._cluster.connectivity,),
            party=party,
        )

    def leadership(
        self, leases: Cluster, namespace: str, name: str, *, again: Again | None
    ) -> Leadership:
        """Return the wish to hold a Lease.

        `leases` is a connection of its own: a lease that waits behind thousands of calls would be
        lost. `again` as in `Lease`.
        """
        lease = Lease(
            leases,
            Ref(leases.name, LEASE, namespace, name),
            holder=self._holder,
            manager=self._manager,
            clock=self.clock,
            times=Times(),
            again=again,
        )
        return Leadership(lease, self.fence, clock=self.clock, metrics=self.metrics)

    def term(
        self,
        views: Sequence[Informer],
        workers: Sequence[Worker],
        *,
        leadership: Leadership,
        elects: bool,
        first: Callable[[], Awaitable[None]] | None = None,
        advice: str = "",
    ) -> Term:
        """Return a term that does not run yet; see Manager."""
        manager = Manager(
            views=views,
            workers=(*workers, self.recorder),
            metrics=self.metrics,
            leadership=leadership if elects else None,
            first=first,
            advice=advice,
        )
        return Term(manager, Liveness(self.clock, leadership.ailment), self.metrics)

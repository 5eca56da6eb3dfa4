"""A long-running program: its connection and log, what one term of it works with, its probes."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from reconciler.controller import log_lines
from reconciler.controller.clock import Clock
from reconciler.controller.elections import Address, Elections, Term
from reconciler.controller.events import EventRecorder, Source
from reconciler.controller.executor import Executor
from reconciler.controller.fence import WriteFence
from reconciler.controller.flags import LogFormat
from reconciler.controller.health_server import Answer, plain
from reconciler.controller.leadership import Leadership
from reconciler.controller.lease import Again, Lease, Times
from reconciler.controller.manager import Manager, View, Worker
from reconciler.controller.metrics import Metrics
from reconciler.controller.process import Liveness
from reconciler.core.refs import LEASE, Ref
from reconciler.kube import kubeconfig
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from reconciler.kube.kubeconfig.in_cluster import in_cluster

log = logging.getLogger(__name__)

_DEBUG: Final = 4  # the verbosity from which on decisions are logged


class Settings(Protocol):
    """What the flags of every program say."""

    @property
    def verbosity(self) -> int:
        """How much is logged."""
        ...

    @property
    def log_format(self) -> LogFormat:
        """How it is logged."""
        ...

    @property
    def unserved(self) -> tuple[str, ...]:
        """The flags that have no effect."""
        ...

    @property
    def probes(self) -> Address | None:
        """Where probes are served."""
        ...

    @property
    def metrics(self) -> Address | None:
        """Where metrics are served."""
        ...


def start_log(settings: Settings) -> None:
    """Write the log to stderr from now on, and warn of flags without effect."""
    log_lines.to_stderr(settings.log_format, debug=settings.verbosity >= _DEBUG)
    if settings.unserved:
        log.warning("flags without effect here", extra={"flags": ", ".join(settings.unserved)})


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


async def serve(
    settings: Settings,
    make: Callable[[], Term],
    *,
    stop: asyncio.Event,
    healthz: Callable[[str], Answer] = plain,
) -> None:
    """Work until `stop` is set, one term after another, and serve probes and metrics.

    Raises HostError, and LeaseLost where a write could not be waited for.
    """
    elections = Elections(make)
    with elections.served(probes=settings.probes, metrics=settings.metrics, healthz=healthz):
        await elections.run(stop)


class Runtime:
    """What all parts of one term write, record and count with.

    `manager` is the field manager, `reporter` the name under which Events are recorded in
    `cluster`, `holder` names this process beyond doubt.
    """

    def __init__(
        self, cluster: Cluster, *, manager: str, reporter: str, holder: str, clock: Clock
    ) -> None:
        self.clock, self.fence, self.metrics = clock, WriteFence(), Metrics()
        self._manager, self._holder = manager, holder
        self.recorder = EventRecorder(
            cluster,
            self.fence,
            source=Source(reporter, holder),
            manager=manager,
            clock=clock,
            metrics=self.metrics,
        )

    def executor(self, *clusters: Cluster) -> Executor:
        """Return what carries decisions out in these clusters."""
        return Executor(
            {cluster.name: cluster for cluster in clusters},
            self.fence,
            manager=self._manager,
            recorder=self.recorder,
            now=self.clock.now,
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
        views: Sequence[View],
        workers: Sequence[Worker],
        *,
        leadership: Leadership,
        elects: bool,
        advice: str = "",
    ) -> Term:
        """Return a term that does not run yet; see Manager."""
        manager = Manager(
            views=views,
            workers=(*workers, self.recorder),
            metrics=self.metrics,
            leadership=leadership if elects else None,
            advice=advice,
        )
        return Term(manager, Liveness(self.clock, leadership.ailment), self.metrics)

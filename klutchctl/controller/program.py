"""Runs `klutchctl controller`: waits for its Lease, then keeps the clusters."""

import asyncio
import logging
import time
from contextlib import ExitStack

from klutchctl.controller.journal import Journal, Vitals
from klutchctl.controller.metrics import FleetMetrics
from klutchctl.controller.options import Options
from klutchctl.controller.rounds import Publishing, Rounds
from klutchctl.controller.sources import Shape, server
from klutchctl.controller.work import Parts, work
from klutchctl.entry import ExitCode, ending, sentence
from klutchctl.settings import Settings
from reconciler.controller import health_server
from reconciler.controller.fence import WriteFence
from reconciler.controller.leadership import Leadership, LeaseLost
from reconciler.controller.lease import Lease, holder_here
from reconciler.controller.metrics import Metrics
from reconciler.controller.process import Liveness
from reconciler.controller.tasks import SystemClock, ended, now_here, unless
from reconciler.core import keys, names
from reconciler.core.errors import InvalidRepository
from reconciler.core.refs import LEASE, Ref
from reconciler.fleet.load import load
from reconciler.kube import host, kubeconfig
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from reconciler.kube.kubeconfig.files import in_cluster
from reconciler.kube.networks import IN_CLUSTER
from reconciler.source.following import Server
from reconciler.watch.fleet_state import FleetState, SourceView
from reconciler.watch.loop import States

log = logging.getLogger(__name__)


async def run(options: Options, settings: Settings) -> int:
    """Keep the clusters until a signal ends it, and return the exit code.

    Raises ConfigError and HostError where it cannot start.
    """
    controller = Controller(_parts(options, settings))
    with ending(controller.end) as received:
        try:
            await controller.run()
        except LeaseLost as error:
            log.error("the lease was lost", extra={"why": str(error)})
            return ExitCode.LOCKED
    return received[0]


def _parts(options: Options, settings: Settings) -> Parts:
    url, ref = options.source.place
    states = States(
        FleetState(
            name=options.fleet,
            source=SourceView(url=url, ref=ref),
            shard=options.shard,
        )
    )
    meters, metrics = FleetMetrics(time.time), Metrics()
    meters.registry.register(metrics.leader)
    states.listen(meters.listener)
    return Parts(
        options=options,
        settings=settings,
        clock=SystemClock(),
        states=states,
        meters=meters,
        metrics=metrics,
        journal=Journal(),
        publishing=Publishing(states, now=now_here, sentence=sentence),
    )


class Controller:
    """A process, which leads at most once."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._options = parts, parts.options
        self._stop = asyncio.Event()
        self._phase = Phase()
        self._rounds: Rounds | None = None

    def end(self, why: str) -> None:
        """Let no further write start, and end."""
        self._stop.set()
        if self._rounds is not None:
            self._rounds.end(why)

    async def run(self) -> None:
        """Wait to lead, and work, until the end. Raises LeaseLost, ConfigError and HostError."""
        home = self._home()
        pulse = Liveness(self._parts.clock, self._phase.ailment)
        beating = asyncio.create_task(pulse.run())
        try:
            with ExitStack() as stack:
                self._listen(stack, pulse)
                name = self._options.fleet or await unless(self._stop, self._name(home))
                if name is not None:
                    await self._lead(name, home)
        finally:
            beating.cancel()

    def _home(self) -> Connection:
        """Return the way to the cluster it runs in, whatever the fleet's kubeconfig is."""
        environ, context = self._parts.settings.environ, self._options.home.context
        if context is None and IN_CLUSTER in environ:
            return in_cluster(environ=environ, name="home")
        paths = kubeconfig.search_paths(
            self._parts.settings.kubeconfig, environ=environ, home=host.home_directory()
        )
        return kubeconfig.load(paths, environ=environ, context=context, name="home")

    def _listen(self, stack: ExitStack, pulse: Liveness) -> None:
        if self._options.listen is None:
            return
        served = health_server.served(
            self._options.listen,
            metrics=lambda: self._parts.meters.registry,
            ailment=pulse.ailment,
            unready=self._phase.unready,
        )
        host, port = stack.enter_context(served)
        log.info("probes and metrics are served", extra={"host": host, "port": port})

    async def _name(self, home: Connection) -> str:
        """Return the name of the fleet, once its files can be read: the Lease bears it."""
        parts = self._parts
        async with server(
            self._options.source, parts.settings, home, verification=self._options.verification
        ) as source:
            parts.publishing.follow(source)
            return await self._name_in(source)

    async def _name_in(self, source: Server) -> str:
        parts, shape = self._parts, Shape("", self._options.shard)
        while True:
            try:
                found = await source.look("")
                assert found is not None
                fleet, problems = load(found.snapshot)
                if fleet is None:
                    raise InvalidRepository(problems)
                return shape(fleet).name
            except Exception as error:  # a defect, too, leaves unknown what is wanted
                parts.journal.unreadable(error)
                parts.publishing.unreadable(error)
            await source.changed()

    async def _lead(self, name: str, home: Connection) -> None:
        options, parts, fence = self._options, self._parts, WriteFence()
        if options.home.lease is None:
            await self._work(name, home, fence)
            return
        async with KubeCluster(home) as cluster:
            lease_name = names.controller_lease(name, options.shard)
            lease = Lease(
                cluster,
                Ref(cluster.name, LEASE, options.home.lease, lease_name),
                holder=holder_here(),
                manager=keys.MANAGER_CONTROLLER,
                clock=parts.clock,
                again=cluster.again,
            )
            leadership = Leadership(lease, fence, clock=parts.clock, metrics=parts.metrics)
            self._phase.stands_by()
            leading = asyncio.create_task(leadership.lead(lambda: self._work(name, home, fence)))
            await self._until_stopped(leading)

    async def _until_stopped(self, leading: asyncio.Task[None]) -> None:
        """Stand by and lead. At the end, work that has begun ends by itself."""
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({leading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._rounds is None:
                leading.cancel()
            await asyncio.wait({leading})
        finally:
            stopping.cancel()
            leading.cancel()
            await ended(leading)
        if not leading.cancelled():
            leading.result()

    async def _work(self, name: str, home: Connection, fence: WriteFence) -> None:
        options = self._options
        vitals = Vitals(options.interval, needs_source=False, wait=options.wait_timeout)
        rounds = self._rounds = self._parts.rounds(fence)
        self._phase.leads(vitals, fence)
        if not self._stop.is_set():
            await work(self._parts, name, rounds, home=home, fence=fence, vitals=vitals)


class Phase:
    """The way from the first look at the files to leading. May be asked from any thread."""

    def __init__(self) -> None:
        self._waits_for = "the files have not been read yet"
        self._vitals: Vitals | None = None
        self._fence: WriteFence | None = None

    def stands_by(self) -> None:
        """Note that it waits for the Lease."""
        self._waits_for = "another process is the leader, or its lease has not expired"

    def leads(self, vitals: Vitals, fence: WriteFence) -> None:
        """Note that it leads: from now on its rounds count."""
        self._waits_for, self._vitals, self._fence = "", vitals, fence

    def unready(self) -> str:
        """Return why it keeps no clusters, "" if it does."""
        return self._lost() or self._waits_for

    def ailment(self) -> str:
        """Return why it is not healthy, "" if it is. To stand by is."""
        return self._lost() or ("" if self._vitals is None else self._vitals.ailment())

    def _lost(self) -> str:
        lost = self._fence is not None and self._fence.lock_lost
        return "the lease was lost" if lost else ""

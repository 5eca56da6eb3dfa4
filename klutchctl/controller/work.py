"""What a controller does while it leads: rounds, and all that shows and tells what they came to."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from klutchctl.controller.journal import Journal
from klutchctl.controller.metrics import FleetMetrics
from klutchctl.controller.options import Options
from klutchctl.controller.publishing import Publishing
from klutchctl.controller.relooks import Look, Relooks
from klutchctl.controller.rounds import Rounds, now_here
from klutchctl.controller.shape import Shape
from klutchctl.controller.sources import remote
from klutchctl.controller.vitals import Vitals
from klutchctl.settings import Settings
from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.controller.events import EventRecorder, Source
from reconciler.controller.fence import WriteFence
from reconciler.controller.lease import holder_here
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, names
from reconciler.core.errors import ClusterError, Forbidden, NotServed
from reconciler.core.refs import Ref
from reconciler.fleet.values import Fleet
from reconciler.health.board import Board
from reconciler.health.survey import survey
from reconciler.kube import registry
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from reconciler.source.remote import Remote
from reconciler.source.signature import VerificationMode
from reconciler.source.verification import Verification
from reconciler.watch.agenda import Terms
from reconciler.watch.fleet_status.writer import FleetStatusWriter
from reconciler.watch.loop import Clock, Watch
from reconciler.watch.states import States

log = logging.getLogger(__name__)

_LOADS: Final = (0.5, 1.0, 2.0, 4.0)  # seconds between tries to read what was left before
_REPORTER: Final = "klutchctl.dev/klutchctl-controller"
_AGAIN: Final = 60.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What lives as long as the process, whether it leads or not."""

    options: Options
    settings: Settings
    clock: SystemClock
    verification: Verification
    states: States
    meters: FleetMetrics
    metrics: Metrics
    journal: Journal
    publishing: Publishing

    def rounds(self, fence: WriteFence) -> Rounds:
        """Return what makes the rounds of a leader, whose fence this is."""
        return Rounds(
            self.settings,
            wait_seconds=self.options.wait_timeout,
            on_outcome=self.journal.outcome,
            lead=fence,
            shows=True,
            terms=self.options.storms,
        )


async def work(
    parts: Parts, name: str, rounds: Rounds, *, home: Connection, fence: WriteFence, vitals: Vitals
) -> None:
    """Keep the clusters of the fleet of this name until the rounds are ended.

    Raises HostError where something cannot be served.
    """
    options, states = parts.options, parts.states
    async with AsyncExitStack() as stack:
        stack.push_async_callback(rounds.close)
        status = await stack.enter_async_context(_shown(parts, name, home, fence))
        rounds.heed(status.suspended)
        history = options.trust.mode is VerificationMode.HISTORY
        source = remote(
            options.source,
            parts.settings,
            verification=parts.verification,
            accepted=status.accepted if history else lambda: "",
        )
        await _serve(stack, parts, source)
        if options.sinks:
            from reconciler.watch.notify.sender import Notifier

            notifier = Notifier(options.sinks, parts.clock, parts.meters.notification)
            await stack.enter_async_context(
                beside("notifies", lambda: notifier.run(states), again=_AGAIN)
            )
        looks = Relooks(_look(parts.settings), longest=options.interval)
        await stack.enter_async_context(
            beside("looks again", lambda: looks.run(states), again=_AGAIN)
        )
        watch = Watch(
            source,
            rounds.make,
            terms=Terms(interval=options.interval),
            clock=Clock(now=time.monotonic, jitter=random.random),
            observers=[parts.journal, vitals, parts.meters],
            recorder=parts.publishing,
            shape=Shape(name, options.shard, status.suspended),
        )
        await watch.run(rounds.stop)


async def _serve(stack: AsyncExitStack, parts: Parts, source: Remote) -> None:
    """Serve the board and webhooks, where that is asked for."""
    board, hooks = parts.options.board, parts.options.hooks
    if board is not None:
        from klutchctl.web.board.explaining import Explaining
        from klutchctl.web.board.server import serving

        explain = Explaining(lambda: parts.publishing.snapshot)
        served = serving(board.address, parts.states, hosts=board.hosts, explain=explain)
        host, port = await stack.enter_async_context(served)
        log.info("the board is served", extra={"host": host, "port": port})
    if hooks is not None:
        from klutchctl.web.hooks import receiver

        receiving = receiver.serving(
            hooks.address,
            hooks.tls,
            hooks.hooks,
            source.look_soon,
            clock=parts.clock,
            counted=parts.meters.webhook,
        )
        host, port = await stack.enter_async_context(receiving)
        log.info("webhooks are received", extra={"host": host, "port": port})


@asynccontextmanager
async def _shown(
    parts: Parts, name: str, home: Connection, fence: WriteFence
) -> AsyncIterator[FleetStatusWriter]:
    """Keep the FleetStatus up to date for as long as the block lasts."""
    clock = parts.clock
    async with KubeCluster(home) as cluster:
        recorder = EventRecorder(
            cluster,
            fence,
            source=Source(_REPORTER, holder_here()),
            manager=keys.MANAGER_CONTROLLER,
            clock=clock,
            metrics=parts.metrics,
        )
        ref = Ref(
            cluster.name,
            FLEET_STATUS,
            parts.options.home.status,
            names.shard_of(name, parts.options.shard),
        )
        writer = FleetStatusWriter(cluster, ref, fence=fence, clock=clock, recorder=recorder)
        await _load(writer, parts.clock)
        async with (
            beside("records Events", recorder.run, end=recorder.stop),
            beside("shows how the fleet is", lambda: writer.run(parts.states)),
        ):
            yield writer


async def _load(writer: FleetStatusWriter, clock: SystemClock) -> None:
    """Read what was left before: somebody may have suspended the fleet.

    Where that cannot be read, it counts as suspended until it can be.
    """
    for pause in (*_LOADS, 0.0):
        try:
            await writer.load()
            return
        except ClusterError as error:
            for_ever = isinstance(error, NotServed | Forbidden)
            if for_ever or not pause:
                fields = {"why": str(error), "suspended": writer.suspended()}
                log.warning("what the FleetStatus says cannot be read", extra=fields)
                return
            await clock.sleep(pause)


def _look(settings: Settings) -> Look:
    async def look(fleet: Fleet, some: Collection[str]) -> Board:
        async with registry.of(fleet, settings.surroundings()) as clusters:
            return await survey(fleet, clusters, now=now_here, only=some, pace=settings.pace())

    return look


@asynccontextmanager
async def beside(
    what: str,
    working: Callable[[], Coroutine[Any, Any, None]],
    *,
    end: Callable[[], None] | None = None,
    again: float | None = None,
) -> AsyncIterator[None]:
    """Do something beside the rounds for as long as the block lasts; its defects end it alone.

    `again`: the seconds after which it begins anew then; None never. `end` lets it finish what it
    has begun; without one it is cancelled.
    """

    async def run() -> None:
        while True:
            try:
                await working()
                return
            except Exception:
                log.exception("a part of the controller has ended", extra={"part": what})
            if again is None:
                return
            await asyncio.sleep(again)

    task = asyncio.create_task(run())
    try:
        yield
        if end is not None:
            end()
            await asyncio.wait({task})
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

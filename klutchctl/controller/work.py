"""The work of a leading controller: rounds, and the reports of their results."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from klutchctl.controller.journal import Journal, Vitals
from klutchctl.controller.metrics import FleetMetrics
from klutchctl.controller.options import Options
from klutchctl.controller.rounds import Publishing, Rounds
from klutchctl.controller.sources import Shape, server
from klutchctl.settings import Settings
from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.controller.events import EventRecorder, Source
from reconciler.controller.fence import WriteFence
from reconciler.controller.lease import holder_here
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import SystemClock, gather_or_cancel, now_here
from reconciler.core import keys, names
from reconciler.core.errors import ClusterError, Forbidden, KlutchError, NotServed
from reconciler.core.refs import Ref
from reconciler.fleet.values import Fleet
from reconciler.health.board import UNREADY, Board, ClusterHealth
from reconciler.health.survey import survey
from reconciler.health.verdict import State
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from reconciler.source.following import Server
from reconciler.source.signature import VerificationMode
from reconciler.watch.agenda import Terms
from reconciler.watch.fleet_state import FleetState, board_seen
from reconciler.watch.fleet_status.writer import FleetStatusWriter
from reconciler.watch.loop import Clock, States, Watch

log = logging.getLogger(__name__)

_FIRST: Final = 1.0  # seconds
# Seconds from one look at a cluster to the next. A Lease is old after 20 s, and a doubtful one is
# read again 5 s later: so what stops is shown within 45 s.
_STEADY: Final = 15.0
_SHARE: Final = 10.0  # a pause lasts so many times the CPU time of the look before it
_MOMENT: Final = 0.5  # what is due so soon is looked at along
_Seen: TypeAlias = tuple[object, ...]

# Reads some app clusters of a fleet, and returns how their units are.
Look: TypeAlias = Callable[[Fleet, Collection[str]], Awaitable[Board]]


@dataclass(frozen=True, slots=True)
class Pace:
    """When a cluster is looked at again, after so many looks since a round found it so."""

    at: float
    tries: int
    seen: _Seen


Paces: TypeAlias = Mapping[str, Pace]


def paces(
    before: Paces, board: Board, looked: Collection[str], *, now: float, longest: float
) -> Paces:
    """Return when to look at each cluster again; `looked` were looked at just now.

    What is well is looked at after `longest` seconds. For what is not, pauses grow up to that by
    how often a cluster is looked at: it may give another reason each time (S22). What a round
    found again begins at the shortest one.
    """
    found: dict[str, Pace] = {}
    for cluster in board.clusters:
        known, seen = before.get(cluster.name), _seen(cluster)
        is_looked = known is not None and cluster.name in looked
        if known is not None and not is_looked and known.seen == seen:
            found[cluster.name] = known
            continue
        tries = known.tries + 1 if known is not None and is_looked else 0
        states = (cluster.state, *(one.health.state for one in cluster.units))
        pause = longest if {*UNREADY}.isdisjoint(states) else _FIRST * 2.0 ** min(tries, 32)
        found[cluster.name] = Pace(now + min(longest, pause), tries, seen)
    return found


def due(known: Paces, now: float) -> frozenset[str]:
    """Return the clusters to look at now; none where none is."""
    if all(one.at > now for one in known.values()):
        return frozenset()
    return frozenset(name for name, one in known.items() if one.at <= now + _MOMENT)


class Relooks:
    """Looks at clusters again while it runs. `interval` is in seconds: a round looks at all then.

    What could not be read may cost a timeout, so the others do not wait for it.
    """

    def __init__(self, look: Look, *, interval: float) -> None:
        self._look, self._interval = look, interval

    async def run(self, states: States) -> None:
        await gather_or_cancel(self._follow(states, unread=one) for one in (False, True))

    async def _follow(self, states: States, *, unread: bool) -> None:
        known: Paces = {}
        looked: Collection[str] = ()
        clock, cost = asyncio.get_running_loop().time, 0.0
        while True:
            version, state = states.version, states.now
            board = _part(state, unread=unread)
            if board is not None:
                longest = min(self._interval, max(_STEADY, _SHARE * cost))
                known = paces(known, board, looked, now=clock(), longest=longest)
            looked = due(known, clock()) if state.running is None else ()
            if looked:
                began = time.process_time()
                await self._again(states, looked)
                cost = time.process_time() - began
            else:
                next_at = min((one.at for one in known.values()), default=None)
                left = None if next_at is None or state.running else next_at - clock()
                await _wait(states, version, left)

    async def _again(self, states: States, names: Collection[str]) -> None:
        before = states.now
        assert before.fleet is not None
        try:
            board = await self._look(before.fleet, names)
        except KlutchError as error:
            log.info("clusters could not be read again", extra={"why": str(error)})
            return
        now = states.now
        # A round knows better, and it may have written since these were read.
        if now.running is None and now.fleet is before.fleet and now.history is before.history:
            states.put(board_seen(now, board, frozenset(names)))


async def _wait(states: States, version: int, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await states.next(version)
    except TimeoutError:
        return


def _part(state: FleetState, *, unread: bool) -> Board | None:
    """Return the part of the board with the fleet's clusters that were read, or were not."""
    board, fleet = state.board, state.fleet
    if board is None or fleet is None:
        return None
    kept = (
        one
        for one in board.clusters
        if one.name in fleet.clusters
        and fleet.clusters[one.name].suspended is None
        and (one.state is State.UNKNOWN) is unread
    )
    return Board(board.fleet, board.revision, board.time, tuple(kept))


def _seen(cluster: ClusterHealth) -> _Seen:
    units = tuple((one.health.unit, one.health.state, one.health.reason) for one in cluster.units)
    return cluster.state, units


_LOADS: Final = (0.5, 1.0, 2.0, 4.0)  # seconds between tries to read what was left before
_AGAIN: Final = 60.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that live as long as the process, whether it leads or not."""

    options: Options
    settings: Settings
    clock: SystemClock
    states: States
    meters: FleetMetrics
    metrics: Metrics
    journal: Journal
    publishing: Publishing

    def rounds(self, fence: WriteFence) -> Rounds:
        """Return the rounds of a leader, under its fence."""
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
        history = options.verification.mode is VerificationMode.HISTORY
        source = await stack.enter_async_context(
            server(
                options.source,
                parts.settings,
                home,
                verification=options.verification,
                accepted=status.accepted if history else lambda: "",
            )
        )
        parts.publishing.follow(source)
        await _serve(stack, parts, source)
        if options.sinks:
            from reconciler.watch.notify.sender import Notifier

            notifier = Notifier(options.sinks, parts.clock, parts.meters.notification)
            await stack.enter_async_context(
                beside("notifies", lambda: notifier.run(states), again=_AGAIN)
            )
        looks = Relooks(_look(parts.settings), interval=options.interval)
        await stack.enter_async_context(
            beside("looks again", lambda: looks.run(states), again=_AGAIN)
        )
        watch = Watch(
            source,
            rounds.make,
            terms=Terms(interval=options.interval),
            clock=Clock(now=time.monotonic, jitter=random.random),
            observers=[parts.journal, vitals, parts.meters, parts.publishing],
            shape=Shape(name, options.shard, status.suspended),
        )
        await watch.run(rounds.stop)


async def _serve(stack: AsyncExitStack, parts: Parts, source: Server) -> None:
    """Serve the board and webhooks, where that is asked for."""
    board, hooks = parts.options.board, parts.options.hooks
    if board is not None:
        from klutchctl.web.board.server import Explaining, serving

        explain = Explaining(lambda: parts.publishing.snapshot)
        docs = parts.settings.docs
        served = serving(board.address, parts.states, hosts=board.hosts, explain=explain, docs=docs)
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
            source=Source("klutchctl.dev/klutchctl-controller", holder_here(), parts.settings.docs),
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
    """Load the stored state: it has the suspensions.

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
                log.warning("the FleetStatus cannot be read", extra=fields)
                return
            await clock.sleep(pause)


def _look(settings: Settings) -> Look:
    async def look(fleet: Fleet, some: Collection[str]) -> Board:
        async with settings.registry(fleet) as clusters:
            return await survey(fleet, clusters, now=now_here, only=some, pace=settings.pace())

    return look


@asynccontextmanager
async def beside(
    name: str,
    working: Callable[[], Coroutine[Any, Any, None]],
    *,
    end: Callable[[], None] | None = None,
    again: float | None = None,
) -> AsyncIterator[None]:
    """Do something beside the rounds for as long as the block lasts; its defects end it alone.

    `again`: the seconds after which it begins again then; None never. `end` lets it finish what it
    has begun; without one it is cancelled.
    """

    async def run() -> None:
        while True:
            try:
                await working()
                return
            except Exception:
                log.exception("a part of the controller failed", extra={"part": name})
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

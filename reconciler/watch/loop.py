"""The loop of a watch: rounds that bring the clusters to the state of the files.

While the files cannot be read, nothing is written, and no drift is repaired: the wanted state is
unknown then, and need not be the former one (safety.md, B1).
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from reconciler.apply import GOOD, Report, Status
from reconciler.controller import log_context, tracing
from reconciler.controller.fence import Stopped
from reconciler.controller.tasks import unless
from reconciler.core import errors
from reconciler.core.errors import InvalidRepository, Problem
from reconciler.fleet.files import LoadCache
from reconciler.fleet.load import load
from reconciler.fleet.values import Fleet
from reconciler.source.following import Source, SourceState
from reconciler.watch import agenda
from reconciler.watch.fleet_state import FleetState, RoundResult

ROUNDS: Final = 3  # intervals in which a round must have ended

# Plans and applies; None for the scope is everything. Raises KlutchErrors and, when told to
# stop before it wrote anything, Stopped.
Round: TypeAlias = Callable[[Fleet, agenda.Scope], Awaitable[RoundResult]]

# Makes of a fleet what is kept of it here, such as one shard. Raises KlutchErrors.
Shape: TypeAlias = Callable[[Fleet], Fleet]


class Observer:
    """A receiver of all that happens in a watch; it does nothing by itself. Times are seconds."""

    def unreadable(self, error: Exception) -> None:
        """Receive that the files cannot be read or used, after each look that found it so."""

    def read(
        self, fleet: Fleet, found: SourceState | None, warnings: Sequence[Problem] | None
    ) -> None:
        """Receive the fleet; the read source, and its warnings, are None where nothing changed."""

    def began(self, task: agenda.Task) -> None:
        """Receive that a round begins."""

    def ended(self, task: agenda.Task, result: RoundResult, seconds: float) -> None:
        """Receive that a round has come to its end."""

    def failed(self, task: agenda.Task, error: Exception, seconds: float) -> None:
        """Receive why a round failed: a KlutchError, such as Locked, or a defect of ours."""


@dataclass(frozen=True, slots=True)
class Clock:
    """`now` is monotonic, in seconds; `jitter` is from 0 to 1, so that many do not act as one."""

    now: Callable[[], float]
    jitter: Callable[[], float]


class Watch:
    """Follows one source. Use once, within one event loop.

    `do` makes a round. It ends soon after `stop` is set, and waits for writes that were sent.
    Observers are called in their order.
    """

    def __init__(
        self,
        source: Source,
        do: Round,
        *,
        terms: agenda.Terms,
        clock: Clock,
        observers: Sequence[Observer],
        shape: Shape = lambda fleet: fleet,
    ) -> None:
        self._source, self._do, self._shape = source, do, shape
        self._terms, self._clock = terms, clock
        self._observers = observers
        self._agenda = agenda.Agenda(everything_at=clock.now())
        self._numbers = itertools.count(1)
        self._mark = ""
        self._files: Fleet | None = None  # as they say, in whatever shape
        self._fleet: Fleet | None = None
        self._cache = LoadCache()
        self._unusable: InvalidRepository | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Follow the source until `stop` is set."""
        while not stop.is_set():
            fleet = await unless(stop, self._look())
            if stop.is_set():
                return
            task = None if fleet is None else agenda.due(self._agenda, self._clock.now())
            if fleet is not None and task is not None:
                with log_context.fields(fleet=fleet.name, round=next(self._numbers)):
                    await self._round(fleet, task)
            else:
                await unless(stop, self._rest(readable=fleet is not None))

    async def _look(self) -> Fleet | None:
        """Return the fleet of the present files, or None where they cannot be used."""
        warnings: Sequence[Problem] | None = None
        try:
            found = await self._source.look(self._mark)
            if found is not None:
                warnings = self._take(found)
            if self._unusable is not None:
                raise self._unusable
            fleet = self._want()
        except Exception as error:  # a defect, too, leaves unknown what is wanted
            for observer in self._observers:
                observer.unreadable(error)
            return None
        for observer in self._observers:
            observer.read(fleet, found, warnings)
        return fleet

    def _take(self, found: SourceState) -> Sequence[Problem]:
        """Take a new source as the wanted one, if it is of use."""
        fleet, problems = load(found.snapshot, self._cache)
        self._mark = found.mark
        invalid = InvalidRepository(problems, revision=found.snapshot.revision)
        self._unusable = invalid if fleet is None else None
        self._files = fleet or self._files
        return problems

    def _want(self) -> Fleet:
        """Return the wanted fleet, and note the clusters that it changes."""
        assert self._files is not None
        fleet, before = self._shape(self._files), self._fleet
        if fleet is not before:
            changed = None if before is None else agenda.concerned(before, fleet)
            changed = agenda.union(self._agenda.changed, changed)
            self._agenda = replace(self._agenda, changed=changed)
            self._fleet = fleet
        return fleet

    async def _round(self, fleet: Fleet, task: agenda.Task) -> None:
        began = self._clock.now()
        for observer in self._observers:
            observer.began(task)
        try:
            with tracing.span("klutchctl.round", fleet=fleet.name, trigger=task.trigger.value):
                result = await self._do(fleet, task.scope)
        except Stopped:
            return
        except Exception as error:  # a defect must not end what keeps clusters right
            undone = agenda.Left(again=task.scope)
            seconds = self._clock.now() - began
            for observer in self._observers:
                observer.failed(task, error, seconds)
        else:
            undone = agenda.left(fleet, result.report)
            seconds = self._clock.now() - began
            for observer in self._observers:
                observer.ended(task, result, seconds)
        self._agenda = agenda.after(
            self._agenda,
            task,
            undone,
            now=self._clock.now(),
            jitter=self._clock.jitter(),
            terms=self._terms,
        )

    async def _rest(self, *, readable: bool) -> None:
        """Wait until the files may be others, or, as long as they are of use, something is due."""
        left = max(self._agenda.next_at - self._clock.now(), 0.0) if readable else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._source.changed()


_log = logging.getLogger("reconciler.watch.states")  # programs read its name
Listener: TypeAlias = Callable[[FleetState, FleetState], None]  # before, after


class States:
    """The present state. Use within one event loop.

    A subscriber of `next` that is slow skips what came between; nobody waits for it. Listeners are
    called at once for each state, and must be quick.
    """

    def __init__(self, first: FleetState) -> None:
        self._state, self._version = first, 0
        self._changed = asyncio.Event()
        self._listeners: list[Listener] = []

    @property
    def now(self) -> FleetState:
        """Return the newest state. May be read from any thread."""
        return self._state

    @property
    def version(self) -> int:
        """Return the number of the newest state, from 0."""
        return self._version

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the state before and after, from now on; return its end."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def put(self, state: FleetState) -> None:
        """Publish another state. A listener with a defect is in nobody's way."""
        before, self._state = self._state, state
        self._version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for listener in list(self._listeners):
            try:
                listener(before, state)
            except Exception as error:
                place = {"where": errors.origin(error), "error": type(error).__name__}
                _log.error("a listener of the fleet's state failed", extra=place)

    async def next(self, version: int) -> tuple[int, FleetState]:
        """Wait for a state after `version`, and return its number and it. May be cancelled."""
        while self._version <= version:
            await self._changed.wait()
        return self._version, self._state


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Signs that a watch does its work.

    `round_at`: the end of the last round, or the start, on a monotonic clock. A source that cannot
    be read does count: while it lasts, nothing is kept right.
    """

    round_at: float
    readable: bool = True


def ailment(signs: Signs, now: float, *, interval: float) -> str:
    """Return why the watch is not healthy, without names or texts from files; "" if it is."""
    idle = now - signs.round_at
    if idle <= ROUNDS * interval:
        return ""
    because = "" if signs.readable else ": the source cannot be read"
    return f"no round has ended for {idle:.0f} s{because}"


_BAD: Final = frozenset(Status) - GOOD


def result_of(report: Report) -> str:
    """Return the result of a round, in one word: the worst of it."""
    found = {outcome.status for outcome in report.outcomes}
    if report.lock_lost:
        return "locked"
    if found & _BAD - {Status.HELD, Status.SKIPPED} or report.plan.unseen:
        return "partial"
    if report.plan.held or found & _BAD:
        return "held"
    return "done" if found else "nothing"

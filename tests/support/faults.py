"""Clusters that fail on cue: each stands before a real one, and makes nothing up.

    faults = Faults()
    plane = FaultyCluster(real, faults)
    faults.add(on("apply", kind=SECRET).nth(2), throttled(retry_after=1))
    faults.add(on("create", name="orders"), lost(), at=AFTER)
    faults.add(on("watch"), unreachable(), at=Events(3))

Several clusters may share one `Faults`, as one process shares its death.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias, TypeVar

from reconciler.core.errors import ClusterError, Conflict, Forbidden, Missing, Unreachable
from reconciler.core.manifest import Manifest
from reconciler.core.refs import EVENT, LEASE, Kind, Ref
from reconciler.fleet.values import Access
from reconciler.kube import requests
from reconciler.kube.cluster import EVERYTHING, Cluster, ClusterWrapper, Listing, WatchEvent
from reconciler.kube.registry import Reached
from reconciler.kube.requests import ListQuery, Request, Verb
from reconciler.observe import Clusters
from tests.support.cues import AFTER, BEFORE, Cue, Moment, Rule, Rules

T = TypeVar("T")

WRITES: Final[tuple[Verb, ...]] = ("create", "apply", "patch", "delete")


class SimulatedCrash(BaseException):
    """The process dies here. Not an Exception, so that no handler outlives it."""


def is_write(call: Request) -> bool:
    """Return whether the call may change the world."""
    return call.verb in WRITES and not call.dry_run


@dataclass(frozen=True, slots=True)
class Events:
    """The point where `count` events of a watch were handed on and the next is asked for."""

    count: int


Point: TypeAlias = Moment | Events


class Effect(Protocol):
    async def perform(self, call: Request, /) -> None: ...


_Due: TypeAlias = Sequence[Rule[Request, Point, Effect]]


def on(
    *verbs: Verb,
    cluster: str | None = None,
    kind: Kind | None = None,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str | None = None,
) -> Cue[Request]:
    """Return the cue for calls by what they are about; without verbs, for calls of any verb."""

    def matches(call: Request) -> bool:
        ref = call.ref
        pairs = (
            (cluster, ref.cluster),
            (kind, ref.kind),
            (namespace, ref.namespace),
            (name, ref.name),
            (subresource, call.subresource),
        )
        asked = not verbs or call.verb in verbs
        return asked and all(wanted is None or wanted == value for wanted, value in pairs)

    return Cue(matches)


def writes() -> Cue[Request]:
    """Return the cue for all that may change the world, in any cluster."""
    return Cue(is_write)


def deeds(of: str = "") -> Cue[Request]:
    """Return the cue for all writes but those of locks and Events.

    With `of`, where a name has this word in it.
    """

    def matches(call: Request) -> bool:
        named = of in f"{call.ref.namespace} {call.ref.name}"
        return is_write(call) and call.ref.kind not in (LEASE, EVENT) and named

    return Cue(matches)


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """Something happens while a call is under way: before it arrives, or after it was answered."""

    story: Callable[[], Awaitable[object]]

    async def perform(self, _call: Request, /) -> None:
        await self.story()


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise an error about the call. `in_doubt`: a write may have happened, for all it says."""

    error: type[ClusterError]
    message: str
    status: int = 0
    reason: str = ""
    retry_after: float | None = None
    in_doubt: bool = False

    async def perform(self, call: Request, /) -> None:
        raise self.error(
            self.message,
            ref=call.ref,
            verb=call.verb,
            status=self.status,
            reason=self.reason,
            retry_after=self.retry_after,
            outcome_unknown=self.in_doubt and is_write(call),
        )


def throttled(*, retry_after: float | None = None) -> Fail:
    """429."""
    return Fail(Unreachable, "too many requests", 429, "TooManyRequests", retry_after)


def broken(status: int = 500) -> Fail:
    """An answer of 500 or above, which leaves a write in doubt."""
    return Fail(Unreachable, f"HTTP {status}", status, "InternalError", in_doubt=True)


def forbidden() -> Fail:
    """403."""
    return Fail(Forbidden, "the user may not do this", 403, "Forbidden")


def conflict() -> Fail:
    """409."""
    return Fail(Conflict, "the object has been modified", 409, "Conflict")


def missing() -> Fail:
    """404 for what a write is about, or the namespace that it would be in."""
    return Fail(Missing, "not found", 404, "NotFound")


def unreachable() -> Fail:
    """No connection: the request did not leave."""
    return Fail(Unreachable, "no connection")


def lost() -> Fail:
    """No answer: BEFORE, the request was lost; AFTER, the answer. The caller cannot tell."""
    return Fail(Unreachable, "the connection was cut before the answer", in_doubt=True)


class Crash:
    """Kill the process: this call and all that follow raise SimulatedCrash."""

    async def perform(self, _call: Request, /) -> None:
        raise SimulatedCrash


class Faults(Rules[Request, Point, Effect]):
    """The rules, and the calls met so far.

    `calls` is for choosing what to fail; tests assert the state of the world, not the calls.
    """

    def __init__(self) -> None:
        super().__init__(usually=BEFORE)
        self.calls: list[Request] = []
        self._dead = False

    def count_writes(self) -> int:
        """Return how many calls could change the world: the kill points are 1 to this."""
        return sum(is_write(call) for call in self.calls)

    def enter(self, call: Request) -> _Due:
        """Record a call and return what will befall it. Raises SimulatedCrash for the dead."""
        self.still_alive()
        self.calls.append(call)
        return self.due(call)

    async def pass_point(self, point: Point, call: Request, due: _Due) -> None:
        """Perform what is due at this point. Whoever else died meanwhile, this call dies too."""
        try:
            for rule in due:
                for effect in rule.effects if rule.at == point else ():
                    await effect.perform(call)
        except SimulatedCrash:
            self._dead = True
        self.still_alive()

    def still_alive(self) -> None:
        """Raise SimulatedCrash where the process died."""
        if self._dead:
            raise SimulatedCrash


async def survives(work: Awaitable[object]) -> bool:
    """Run `work` and return whether it ended without a SimulatedCrash.

    Any other exception comes out.
    """
    alive = True
    try:
        await work
    except* SimulatedCrash:
        alive = False
    return alive


class FaultyCluster(ClusterWrapper):
    """A `Cluster` with faults; its own ones, unless some are shared with other clusters."""

    def __init__(self, real: Cluster, faults: Faults | None = None) -> None:
        super().__init__(real)
        self.faults = faults or Faults()

    async def send(self, request: Request) -> Manifest:
        return await self._passed(request, lambda: self.inner.send(request))

    async def pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        pages = self.inner.pages(ref, query)
        yield await self._passed(requests.list_page(ref, query), lambda: anext(pages))
        async for page in pages:
            yield page

    @asynccontextmanager
    async def watch(
        self,
        ref: Ref,
        query: ListQuery = EVERYTHING,
        *,
        resource_version: str,
        read_timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        request = requests.watch(ref, query, resource_version=resource_version)
        due = self.faults.enter(request)
        await self.faults.pass_point(BEFORE, request, due)
        async with self.inner.watch(
            ref, query, resource_version=resource_version, read_timeout=read_timeout
        ) as events:
            await self.faults.pass_point(AFTER, request, due)
            yield _Stream(events, self.faults, request, due)

    async def _passed(self, request: Request, real: Callable[[], Awaitable[T]]) -> T:
        due = self.faults.enter(request)
        await self.faults.pass_point(BEFORE, request, due)
        try:
            answer = await real()
        except ClusterError:  # a refusal is an answer too, and can be late or lost
            await self.faults.pass_point(AFTER, request, due)
            raise
        await self.faults.pass_point(AFTER, request, due)
        return answer


class _Stream:
    """The events of one watch, with what is due between them."""

    def __init__(
        self, events: AsyncIterator[WatchEvent], faults: Faults, request: Request, due: _Due
    ) -> None:
        self._events, self._faults, self._request, self._due = events, faults, request, due
        self._passed = 0

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        await self._faults.pass_point(Events(self._passed), self._request, self._due)
        event = await anext(self._events)
        self._passed += 1
        self._faults.still_alive()
        return event


class FaultyClusters:
    """The way to real clusters that fail on cue, all by the same faults."""

    def __init__(self, real: Clusters, faults: Faults) -> None:
        self._real, self._faults = real, faults

    async def control_plane(self, name: str) -> Reached:
        return self._faulty(await self._real.control_plane(name))

    async def app_cluster(self, name: str, access: Access, *, control_plane: str) -> Reached:
        return self._faulty(await self._real.app_cluster(name, access, control_plane=control_plane))

    async def close(self, name: str) -> None:
        await self._real.close(name)

    def _faulty(self, reached: Reached) -> Reached:
        # The lock is renewed by way of the faults, too.
        return replace(reached, cluster=FaultyCluster(reached.cluster, self._faults), again=None)


def faulty(cue: Cue[Request], effect: Effect, at: Point | None = None) -> Faults:
    """Return faults of one rule, as `Rules.add` takes it."""
    faults = Faults()
    faults.add(cue, effect, at=at)
    return faults

"""What may go wrong with the calls to clusters, as rules that a test adds and clears.

    faults = Faults()
    plane = FaultyCluster(real, faults)
    faults.add(on("apply", kind=SECRET).nth(2), throttled(retry_after=1))
    faults.add(on("create", name="orders"), lost(), at=AFTER)
    faults.add(on("watch"), unreachable(), at=Events(3))

Several clusters may share one `Faults`, as one process shares its death.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from reconciler.core.errors import (
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Missing,
    Unauthorized,
    Unreachable,
)
from reconciler.core.refs import Kind
from reconciler.kube.requests import Request, Verb
from tests.support.cues import BEFORE, Cue, Moment, Rule, Rules

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


@dataclass(frozen=True, slots=True)
class Calls(Cue[Request]):
    """Calls by what they are about; None means any."""

    verbs: tuple[Verb, ...]
    cluster: str | None
    kind: Kind | None
    namespace: str | None
    name: str | None
    subresource: str | None

    def matches(self, call: Request) -> bool:
        ref = call.ref
        wanted = (
            (self.cluster, ref.cluster),
            (self.kind, ref.kind),
            (self.namespace, ref.namespace),
            (self.name, ref.name),
            (self.subresource, call.subresource),
        )
        return (not self.verbs or call.verb in self.verbs) and all(
            want is None or want == have for want, have in wanted
        )


class _Writes(Cue[Request]):
    def matches(self, call: Request) -> bool:
        return is_write(call)


def on(
    *verbs: Verb,
    cluster: str | None = None,
    kind: Kind | None = None,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str | None = None,
) -> Calls:
    """Return the cue for these calls, dry runs included; without verbs, for calls of any verb."""
    return Calls(
        verbs=verbs,
        cluster=cluster,
        kind=kind,
        namespace=namespace,
        name=name,
        subresource=subresource,
    )


def writes() -> Cue[Request]:
    """Return the cue for all that may change the world, in any cluster."""
    return _Writes()


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


def unauthorized() -> Fail:
    """401."""
    return Fail(Unauthorized, "Unauthorized", 401, "Unauthorized")


def forbidden() -> Fail:
    """403."""
    return Fail(Forbidden, "the user may not do this", 403, "Forbidden")


def conflict() -> Fail:
    """409."""
    return Fail(Conflict, "the object has been modified", 409, "Conflict")


def missing() -> Fail:
    """404 for what a write is about, or the namespace that it would be in."""
    return Fail(Missing, "not found", 404, "NotFound")


def expired() -> Fail:
    """410."""
    return Fail(Expired, "too old resource version", 410, "Expired")


def unreachable() -> Fail:
    """No connection: the request did not leave."""
    return Fail(Unreachable, "no connection")


def lost() -> Fail:
    """No answer: BEFORE, the request was lost; AFTER, the answer. The caller cannot tell."""
    return Fail(Unreachable, "the connection was cut before the answer", in_doubt=True)


class End:
    """End a watch quietly between two events, as servers do. Only at `Events`."""

    async def perform(self, _call: Request, /) -> None:
        raise StopAsyncIteration


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

    def crash_at(self, write: int, at: Moment) -> None:
        """Die at this write, counted from now on over all clusters that share the faults."""
        self.add(writes().nth(write), Crash(), at=at)

    def enter(self, call: Request) -> Sequence[Rule[Request, Point, Effect]]:
        """Record a call and return what will befall it. Raises SimulatedCrash for the dead."""
        self.still_alive()
        self.calls.append(call)
        return self.due(call)

    async def pass_point(
        self, point: Point, call: Request, due: Sequence[Rule[Request, Point, Effect]]
    ) -> None:
        """Perform what is due at this point. Whoever else died meanwhile, this call dies too."""
        for rule in due:
            if rule.at == point:
                for effect in rule.effects:
                    await self._perform(effect, call)
        self.still_alive()

    def still_alive(self) -> None:
        """Raise SimulatedCrash where the process died."""
        if self._dead:
            raise SimulatedCrash

    async def _perform(self, effect: Effect, call: Request) -> None:
        try:
            await effect.perform(call)
        except SimulatedCrash:
            self._dead = True
            raise


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

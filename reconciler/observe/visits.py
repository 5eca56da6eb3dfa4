"""Visits the clusters of a fleet, a number at once; a slow one delays no other.

The first, small read of each cluster is made before it has a slot, as a cluster that does not
answer at all costs nothing then. What is read after that takes a slot, for `SLOT_SECONDS` at most:
a cluster that hangs in the middle gives it back and goes on without.

No failure of one cluster, not even a defect in its reader, holds back or alters another.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from reconciler.core.documents import first_of
from reconciler.core.errors import (
    ClusterError,
    ConfigError,
    Forbidden,
    Unauthorized,
    Unreachable,
    origin,
)
from reconciler.core.live import Address, Unavailable, control_plane_ref_name
from reconciler.fleet.values import Access, Fleet
from reconciler.kube.limits import one_look
from reconciler.kube.registry import Reached
from reconciler.kube.turns import NOBODY, Places

T = TypeVar("T")

# Control planes are few and hold much. Of the many app clusters each answers little, and one more
# handshake costs more than it saves.
_PLANE_WIDTH: Final = 8
_CLUSTER_WIDTH: Final = 1
WIDE: Final = 256  # clusters with open connections at once; each may be a few files
SLOT_SECONDS: Final = 2.0
_NAMED: Final = 5  # refused reads in one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """`parallelism` clusters are read at once, each in `timeout` seconds of its own time.

    That is for all visits of a run together.
    """

    parallelism: int = 32
    timeout: float = 60.0


class Clusters(Protocol):
    """The way to the clusters; `kube.registry.Registry` is one."""

    async def control_plane(self, name: str) -> Reached: ...

    async def app_cluster(self, name: str, access: Access, *, control_plane: str) -> Reached:
        """Return an app cluster, whose kubeconfig may lie on this control plane."""
        ...

    async def close(self, name: str) -> None:
        """Give the connections of a cluster (a `Ref.cluster`) back."""
        ...


class Incomplete(Exception):
    """Some reads of one cluster failed, in the order in which they were asked for."""

    def __init__(self, errors: Sequence[ClusterError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(map(str, errors)))


class NoIdentity(Exception):
    """There is no namespace kube-system, so nothing distinguishes this cluster from another."""


class ReadSlots:
    """The limits of one event loop: clusters with open connections, and those that are read."""

    def __init__(self, pace: Pace, *, slot_seconds: float = SLOT_SECONDS) -> None:
        self._timeout, self._slot_seconds = pace.timeout, slot_seconds
        self._slots = Places(pace.parallelism)
        self._wide = asyncio.Semaphore(max(WIDE, pace.parallelism))

    @asynccontextmanager
    async def turn(self, seconds: float | None = None) -> "AsyncIterator[ReadTurn]":
        """Start a cluster's turn, with its clock running; None is all that a cluster has."""
        async with self._wide:
            clock = asyncio.timeout(self._timeout if seconds is None else seconds)
            async with clock:
                yield ReadTurn(self, clock)

    def slot(self) -> AbstractAsyncContextManager[None]:
        """Hold one of the slots while the block lasts, or until `slot_seconds` are over."""
        return self._slots.turn(NOBODY, longest=self._slot_seconds)


class ReadTurn:
    """The time of one cluster. When it is up, `ReadSlots.turn` raises TimeoutError."""

    def __init__(self, slots: ReadSlots, clock: asyncio.Timeout) -> None:
        self._all, self._clock = slots, clock
        self._frozen = 0.0  # what is left while the clock stands still

    @property
    def left(self) -> float:
        """The seconds that are left."""
        when = self._clock.when()
        return self._frozen if when is None else max(when - asyncio.get_running_loop().time(), 0.0)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Take a slot. The clock stands still while others make this cluster wait."""
        self._frozen = self.left
        self._clock.reschedule(None)
        async with self._all.slot():
            self._clock.reschedule(asyncio.get_running_loop().time() + self._frozen)
            yield


@dataclass(frozen=True, slots=True)
class Visit:
    """A cluster while it is read, with `width` reads at once: each takes a connection of its own.

    `waiting` names the reads that have no answer yet.
    """

    reached: Reached
    turn: ReadTurn
    width: int
    waiting: list[str]


class Visits:
    """The visits of one run, each with its result, or the reason why the cluster is unseen.

    A cluster that hangs costs a run its time once, however often the run comes back to it.
    """

    def __init__(self, clusters: Clusters, pace: Pace) -> None:
        self._clusters, self._timeout = clusters, pace.timeout
        self._left: dict[str, float] = {}  # seconds, by the name of its `Ref`s
        self._slots = ReadSlots(pace)
        self.clocks: dict[str, float] = {}  # by how many seconds ours is ahead, by the same name

    async def control_plane(
        self, name: str, access: Access, read: Callable[[Visit], Awaitable[T]]
    ) -> T | Unavailable:
        return await self._visit(
            control_plane_ref_name(name),
            access,
            read,
            reach=lambda: self._clusters.control_plane(name),
            width=_PLANE_WIDTH,
        )

    async def control_planes(
        self, fleet: Fleet, names: Collection[str], read: Callable[[str, Visit], Awaitable[T]]
    ) -> dict[str, T]:
        """Return the results of `read` on these control planes, but for unreadable ones."""

        async def one(name: str) -> T | Unavailable:
            access = fleet.control_planes[name].access
            return await self.control_plane(name, access, partial(read, name))

        found = zip(sorted(names), await asyncio.gather(*map(one, sorted(names))), strict=True)
        return {name: seen for name, seen in found if not isinstance(seen, Unavailable)}

    async def app_cluster(
        self,
        name: str,
        access: Access,
        read: Callable[[Visit], Awaitable[T]],
        *,
        control_plane: str,
    ) -> T | Unavailable:
        """Let `read` read an app cluster, which may answer only so much."""
        try:
            with one_look():
                return await self._visit(
                    name,
                    access,
                    read,
                    reach=lambda: self._clusters.app_cluster(
                        name, access, control_plane=control_plane
                    ),
                    width=_CLUSTER_WIDTH,
                )
        finally:
            # There may be very many, and open connections are files and memory.
            await self._clusters.close(name)

    async def _visit(
        self,
        name: str,
        access: Access,
        read: Callable[[Visit], Awaitable[T]],
        *,
        reach: Callable[[], Awaitable[Reached]],
        width: int,
    ) -> T | Unavailable:
        reached: Reached | None = None
        waiting: list[str] = []
        try:
            async with self._slots.turn(self._left.get(name)) as turn:
                try:
                    reached = await reach()
                    return await read(Visit(reached, turn, width, waiting))
                finally:
                    self._left[name] = turn.left
                    if reached and (ahead := reached.cluster.connectivity.ahead) is not None:
                        self.clocks[name] = ahead
        except TimeoutError:
            reads = ", ".join(sorted(set(waiting))) or "the connection"
            return Unavailable(
                f"not read completely in {self._timeout:g} s: no answer yet to {reads}",
                "Find out why the API server answers so slowly, or raise --timeout",
            )
        except Exception as error:
            return _verdict(error, access, reached)


async def together(*reads: Awaitable[T]) -> list[T]:
    """Make the reads at once and wait for all, so that every one that fails can be named.

    Raises Incomplete. A failure that is not a cluster's is raised as it is.
    """
    answers: list[T] = []
    errors: list[ClusterError] = []
    for outcome in await asyncio.gather(*reads, return_exceptions=True):
        if isinstance(outcome, ClusterError):
            errors.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            answers.append(outcome)
    if errors:
        raise Incomplete(errors)
    return answers


def _verdict(error: Exception, access: Access, reached: Reached | None) -> Unavailable:
    address = reached.address if reached else None
    match error:
        case ConfigError():
            return _unusable(error, access)
        case ClusterError():
            return failed([error], access, address)
        case Incomplete():
            return failed(error.errors, access, address)
        case NoIdentity():
            return Unavailable(
                "it has no namespace kube-system: its uid identifies a cluster",
                f"Check that {access} leads to a Kubernetes API server",
            )
        case _:
            return defect(error)


def _unusable(error: ConfigError, access: Access) -> Unavailable:
    """Return the verdict on a cluster that there is no way to."""
    remedy = f"Mend {access}, or spec.access of this cluster's document"
    fault = ": ".join(filter(None, (error.where, error.message)))  # the hint is the remedy
    return Unavailable(f"cannot be reached by {access}: {fault}", error.hint or remedy)


def failed(errors: Sequence[ClusterError], access: Access, address: Address | None) -> Unavailable:
    """Return the verdict on a cluster where these reads failed; there is at least one.

    All that is forbidden is named, so that the rights can be granted at once. Of other failures
    the first says it all.
    """
    refused = [error for error in errors if isinstance(error, Forbidden)]
    named = [f"{error.call}: {error.message}" for error in refused or errors[:1]]
    server = address.server if address else "the API server"
    reason = first_of(named, _NAMED, comma="; ")
    return Unavailable(reason, _remedy(refused or errors, access, server))


def defect(error: Exception) -> Unavailable:
    """Return the verdict on a cluster whose reader broke. The text of `error` may hold anything."""
    return Unavailable(
        f"unexpected {type(error).__name__} at {origin(error)}: this is a defect of klutchctl",
        "Report it with this line; the other clusters are not affected",
    )


def _remedy(errors: Sequence[ClusterError], access: Access, server: str) -> str:
    match errors[0]:
        case Forbidden():
            rights = sorted({f"{error.verb} {error.ref.kind.resource}" for error in errors})
            return f"Grant the user of {access}: {', '.join(rights)}; `klutchctl doctor` has all"
        case Unauthorized():
            return f"Renew the credentials of {access}"
        case Unreachable():
            return f"Check that {server} runs, and the way to it: DNS, proxy, certificate"
        case _:
            return f"Check that {server} is the right API server"

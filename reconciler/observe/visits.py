"""Visits to the clusters of a fleet: so many at once, and none at the cost of the others.

The first, small read of each cluster is made before it has a slot, as a cluster that does not
answer at all costs nothing then. What is read after that takes a slot, for `SLOT_SECONDS` at most:
a cluster that hangs in the middle gives it back and goes on without.

No failure of one cluster, not even a defect in its reader, holds back or alters another.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from reconciler.core.errors import ClusterError, ConfigError
from reconciler.core.live import Unavailable
from reconciler.fleet.values import Access
from reconciler.kube.limits import one_look
from reconciler.kube.registry import Reached
from reconciler.observe import unavailable
from reconciler.observe.reading import Incomplete, NoIdentity

T = TypeVar("T")

# Control planes are few and hold much. Of the many app clusters each answers little, and one more
# handshake costs more than it saves.
_PLANE_WIDTH: Final = 8
_CLUSTER_WIDTH: Final = 1
WIDE: Final = 256  # clusters with open connections at once; each may be a few files
SLOT_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """`parallelism` clusters are read at once, each in `timeout` seconds of its own time."""

    parallelism: int = 32
    timeout: float = 60.0


class Clusters(Protocol):
    """The way to the clusters; `kube.registry.Registry` is one."""

    async def control_plane(self, name: str) -> Reached:
        """Return a control plane of the fleet."""
        ...

    async def app_cluster(self, name: str, access: Access, *, control_plane: str) -> Reached:
        """Return an app cluster, whose kubeconfig may lie on this control plane."""
        ...

    async def close(self, name: str) -> None:
        """Give the connections of a cluster (a `Ref.cluster`) back."""
        ...


class ReadSlots:
    """The limits of one event loop: clusters with open connections, and those that are read."""

    def __init__(self, pace: Pace, *, wide: int = WIDE, slot_seconds: float = SLOT_SECONDS) -> None:
        self._timeout, self._slot_seconds = pace.timeout, slot_seconds
        self._slots = asyncio.Semaphore(pace.parallelism)
        self._wide = asyncio.Semaphore(max(wide, pace.parallelism))

    @asynccontextmanager
    async def turn(self) -> "AsyncIterator[ReadTurn]":
        """Start a cluster's turn, with its clock running."""
        async with self._wide:
            clock = asyncio.timeout(self._timeout)
            async with clock:
                yield ReadTurn(self, clock)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one of the slots while the block lasts, or until `slot_seconds` are over."""
        await self._slots.acquire()
        taken = True

        def give_back() -> None:
            nonlocal taken
            if taken:
                taken = False
                self._slots.release()

        overdue = asyncio.get_running_loop().call_later(self._slot_seconds, give_back)
        try:
            yield
        finally:
            overdue.cancel()
            give_back()


class ReadTurn:
    """The time of one cluster. When it is up, `ReadSlots.turn` raises TimeoutError."""

    def __init__(self, slots: ReadSlots, clock: asyncio.Timeout) -> None:
        self._all, self._clock = slots, clock

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Take a slot. The clock stands still while others make this cluster wait."""
        loop = asyncio.get_running_loop()
        when = self._clock.when()
        left = 0.0 if when is None else when - loop.time()
        self._clock.reschedule(None)
        async with self._all.slot():
            self._clock.reschedule(loop.time() + left)
            yield


@dataclass(frozen=True, slots=True)
class Visit:
    """One cluster while it is read, with `width` reads at once.

    `waiting` names the reads that have no answer yet.
    """

    reached: Reached
    turn: ReadTurn
    width: int
    waiting: list[str]


class Visits:
    """The visits of one run, each with what it came to, or why the cluster is unseen."""

    def __init__(self, clusters: Clusters, pace: Pace) -> None:
        self._clusters, self._timeout = clusters, pace.timeout
        self._slots = ReadSlots(pace)

    async def control_plane(
        self, name: str, access: Access, read: Callable[[Visit], Awaitable[T]]
    ) -> T | Unavailable:
        """Let `read` read a control plane."""
        return await self._visit(
            access, read, reach=lambda: self._clusters.control_plane(name), width=_PLANE_WIDTH
        )

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
        access: Access,
        read: Callable[[Visit], Awaitable[T]],
        *,
        reach: Callable[[], Awaitable[Reached]],
        width: int,
    ) -> T | Unavailable:
        reached: Reached | None = None
        waiting: list[str] = []
        try:
            async with self._slots.turn() as turn:
                reached = await reach()
                return await read(Visit(reached, turn, width, waiting))
        except TimeoutError:
            return unavailable.late(waiting, self._timeout)
        except Exception as error:
            return _verdict(error, access, reached)


def _verdict(error: Exception, access: Access, reached: Reached | None) -> Unavailable:
    address = reached.address if reached else None
    match error:
        case ConfigError():
            return unavailable.unusable(error, access)
        case ClusterError():
            return unavailable.failed([error], access, address)
        case Incomplete():
            return unavailable.failed(error.errors, access, address)
        case NoIdentity():
            return unavailable.nameless(access)
        case _:
            return unavailable.defect(error)

"""What the stand-ins have in common: clients, mirrors, one loop, and an orderly end."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Iterable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

from reconciler.core import conditions
from reconciler.core.conditions import Condition, Conditions
from reconciler.core.errors import Conflict, Forbidden, NotServed, Rejected, Unreachable
from reconciler.core.manifest import (
    JSON,
    Manifest,
    get,
    get_list,
    ref_of,
    resource_version_of,
    uid_of,
)
from reconciler.core.refs import Kind
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster, Preconditions, Propagation
from reconciler.kube.connection import Connection
from tests.support.stand_in_mirror import Mirror

log: Final = logging.getLogger(__name__)

_TERMINATING: Final = 405  # the answer to a create while its CRD goes
_SOON: Final = 0.1
_IDLE: Final = 1.0


class StandIn(ABC):
    """A process on its own connections: `async with` starts and stops it, any number of times.

    It looks at everything whenever something changes, and does what is due. It forgets at its
    end what the originals forget at theirs. An outage is waited out. Any other failure cancels
    the test inside `async with` and is raised at its end; where a fixture holds that, `looked`
    and the fixture's end raise it.
    """

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, owner: "asyncio.Task[Any] | None") -> None:
        self._changed = asyncio.Event()
        self._owner = owner
        self._cancelled = self._closing = self._unfinished = False
        self._failures: list[BaseException] = []
        self._asked: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._clusters: list[KubeCluster] = []
        self._mirrors: dict[tuple[int, Kind, str], Mirror] = {}

    async def __aenter__(self) -> Self:
        self._begin(asyncio.current_task())
        self.open()
        self._spawn(self._work())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for cluster in self._clusters:
            await cluster.close()
        if self._owner is not None and self._owner is asyncio.current_task() and self._cancelled:
            self._owner.uncancel()
        if self._failures:
            raise self._failures[0]

    @abstractmethod
    def open(self) -> None:
        """Connect to the clusters, and name the mirrors to begin with."""

    @abstractmethod
    async def look(self) -> None:
        """Do once what is due."""

    def connect(self, connection: Connection, *, agent: str) -> KubeCluster:
        """Return a client that is closed at the end."""
        cluster = KubeCluster(connection, agent=agent)
        self._clusters.append(cluster)
        return cluster

    def mirror(self, cluster: Cluster, kind: Kind, namespace: str = "") -> Mirror:
        """Return the mirror of a kind, which is kept up from the first call on."""
        key = id(cluster), kind, namespace
        if key not in self._mirrors:
            self._mirrors[key] = Mirror(cluster, kind, namespace)
            self._spawn(self._mirrors[key].follow(self._changed))
        return self._mirrors[key]

    def wake(self) -> None:
        """Look again at once."""
        self._changed.set()

    async def looked(self) -> None:
        """Return after one whole look that began after the call. Raises what ended the process."""
        if self._failures:
            raise self._failures[0]
        asked = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self.wake()
        await asked

    async def attempt(self, step: Awaitable[object]) -> bool:
        """Do a step, or leave it for the next look where a cluster is not ready for it."""
        try:
            await step
        except (Conflict, Forbidden, NotServed, Rejected, Unreachable) as error:
            if isinstance(error, Rejected) and error.status != _TERMINATING:
                raise
            log.info("%s tries again: %s", type(self).__name__, error)
            self._unfinished = True
            return False
        return True

    async def _work(self) -> None:
        while True:
            self._changed.clear()
            self._unfinished = False
            if all(mirror.known for mirror in self._mirrors.values()):
                asked = tuple(self._asked)
                if await self.attempt(self.look()):
                    self._tell_that_looked(asked)
            try:
                async with asyncio.timeout(_SOON if self._unfinished else _IDLE):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _tell_that_looked(self, asked: Iterable[asyncio.Future[None]]) -> None:
        for each in asked:
            self._asked.remove(each)
            if not each.done():
                each.set_result(None)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is None:
            return
        self._failures.append(failure)
        for each in self._asked:
            if not each.done():
                each.set_exception(failure)
        if self._owner is not None and not self._closing and not self._cancelled:
            # What the test waits for will never come.
            self._cancelled = self._owner.cancel()


def conditions_of(live: Manifest) -> Conditions:
    return conditions.parse(get_list(live, "status", "conditions"))


def with_conditions(
    live: Manifest, *new: Condition, copied: Iterable[Condition] = (), ready: bool
) -> list[dict[str, JSON]]:
    """Return the conditions of an object with new ones, and with Ready made anew."""
    now = datetime.now(UTC)
    found = conditions.copy_conditions(conditions_of(live), copied)
    for each in new:
        found = conditions.set_condition(found, each, now=now)
    return conditions.dump(conditions.summarize(found, now=now) if ready else found)


async def commit_status(
    cluster: Cluster, kind: Kind, live: Manifest, status: Manifest, *, manager: str
) -> None:
    """Write those keys of the status that differ, by the commit rule of protocol-konnector 0."""
    changed = {key: value for key, value in status.items() if get(live, "status", key) != value}
    if changed:
        await cluster.merge_patch(
            ref_of(cluster.name, kind, live),
            {"metadata": preconditions_of(live), "status": changed},
            manager=manager,
            subresource="status",
        )


def preconditions_of(live: Manifest) -> dict[str, JSON]:
    return {"uid": uid_of(live), "resourceVersion": resource_version_of(live)}


async def remove(cluster: Cluster, kind: Kind, live: Manifest) -> None:
    """Delete this very object."""
    await cluster.delete(
        ref_of(cluster.name, kind, live),
        preconditions=Preconditions(uid=uid_of(live)),
        propagation=Propagation.BACKGROUND,
    )

"""Keeps connections by kubeconfigs: tests new ones, swaps them, and detects dead ones.

A rotated kubeconfig leads to the same objects, so informers are not read again: watches continue
over the new connection from their last version. A silent watch proves nothing, so a dead connection
is detected by a request of its own (U2).
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from reconciler.core.errors import ClusterError, KlutchError, Unauthorized, Unreachable
from reconciler.core.manifest import Manifest, resource_version_of, uid_of
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.kube.cluster import (
    EVERYTHING,
    Cluster,
    ClusterWrapper,
    Connectivity,
    WatchEvent,
    Watching,
)
from reconciler.kube.requests import ListQuery, Request

log = logging.getLogger(__name__)

# Connects with the kubeconfig in a Secret; `name` is the cluster's. Nothing is sent before the
# first call. Raises ConfigError.
Connect: TypeAlias = Callable[[bytes, str], Cluster]
_Answer: TypeAlias = Literal["answer", "refusal", "none"]
_Open: TypeAlias = Callable[[Cluster, str], Watching]  # from a resourceVersion

_SILENCE: Final = 12.0  # seconds without an answer before a report
_PAUSE: Final = 6.0  # seconds between two questions while it answers
_AGAIN: Final = 1.0  # and while it does not
_TIMEOUT: Final = 4.0  # seconds for one answer
_BUSY: Final = 429  # the status of a server that answers, but refuses for now


class RotatingCluster(ClusterWrapper):
    """A Cluster whose connection can be replaced. `name` stays that of the first."""

    def __init__(self, first: Cluster) -> None:
        super().__init__(first)
        self.connectivity = Connectivity()  # also reports when there is a new connection
        self._unfollow = first.connectivity.follow(self.connectivity.report)

    def __repr__(self) -> str:
        return f"RotatingCluster({self.inner!r})"

    def rotate(self, to: Cluster) -> None:
        """Use another connection from now on. Calls that are under way over the old one may end.

        What answers to them is still the same cluster.
        """
        old, self.inner = self.inner, to
        self._unfollow()
        self._unfollow = to.connectivity.follow(self.connectivity.report)
        self.connectivity.report()
        old.retire()

    async def send(self, request: Request) -> Manifest:
        """Make the call over the connection of now, which is not closed before it ends."""
        cluster = self.inner
        there = cluster.connectivity
        self.connectivity.round_trip, self.connectivity.dated = there.round_trip, there.dated
        return await cluster.send(request)

    @contextlib.asynccontextmanager
    async def watch(
        self,
        ref: Ref,
        query: ListQuery = EVERYTHING,
        *,
        resource_version: str,
        read_timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Stream the events; where the connection is exchanged, over the new one from there on."""

        def opened(cluster: Cluster, version: str) -> Watching:
            return cluster.watch(ref, query, resource_version=version, read_timeout=read_timeout)

        async with contextlib.AsyncExitStack() as stack:
            cluster = self.inner
            events = await stack.enter_async_context(opened(cluster, resource_version))
            yield self._followed(stack, opened, cluster, events, resource_version)

    async def _followed(
        self,
        stack: contextlib.AsyncExitStack,
        opened: _Open,
        cluster: Cluster,
        events: AsyncIterator[WatchEvent],
        version: str,
    ) -> AsyncIterator[WatchEvent]:
        while True:
            try:
                async for event in events:
                    version = resource_version_of(event.object) or version
                    yield event
                return
            except Unreachable:
                if cluster is self.inner:
                    raise
            await stack.aclose()
            cluster = self.inner
            events = await stack.enter_async_context(opened(cluster, version))


@dataclass(frozen=True, slots=True)
class Probed:
    """`uid` is that of the Namespace that was asked for; `fault` is why there is none, or ""."""

    uid: str = ""
    fault: str = ""


async def probe(connect: Connect, content: bytes, name: str, namespace: str) -> Probed:
    """Try a kubeconfig: read one Namespace of the cluster, which is called `name`."""
    try:
        cluster = connect(content, name)
    except KlutchError as error:
        return Probed(fault=str(error))
    try:
        return await namespace_of(cluster, namespace)
    finally:
        await cluster.close()


async def namespace_of(cluster: Cluster, namespace: str) -> Probed:
    """Return the uid of a Namespace, or why it is unknown."""
    try:
        live = await cluster.get(Ref(cluster.name, NAMESPACE, "", namespace), metadata_only=True)
    except KlutchError as error:
        return Probed(fault=str(error))
    if live is None:
        return Probed(fault=f"{cluster.name}: Namespace {namespace} does not exist there")
    uid = uid_of(live)
    if not uid:
        return Probed(fault=f"{cluster.name}: Namespace {namespace} has no uid; no API server?")
    return Probed(uid=uid)


class Reach:
    """Asks for the Namespace of a space, again and again. `changed` is called when it has news."""

    def __init__(
        self,
        plane: Cluster,
        space: str,
        *,
        now: Callable[[], datetime],
        changed: Callable[[], None],
    ) -> None:
        self._plane, self._ref = plane, Ref(plane.name, NAMESPACE, "", space)
        self._now, self._changed = now, changed
        self._answered, self._answered_at = time.monotonic(), now()
        self._since: datetime | None = None
        self._answers, self._refusals = True, 0
        self._refused_since: datetime | None = None

    @property
    def since(self) -> datetime | None:
        """When the control plane answered last, if it does not any more."""
        return self._since

    @property
    def refused_since(self) -> datetime | None:
        """Since when it has not taken our credential (401), if it does not."""
        return self._refused_since

    async def run(self) -> None:
        back = asyncio.Event()
        unfollow = self._plane.connectivity.follow(back.set)
        try:
            while True:
                back.clear()
                self._note(await self._answer())
                pause = _PAUSE if self._answers and self._refusals != 1 else _AGAIN
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await back.wait()
        finally:
            unfollow()

    async def _answer(self) -> _Answer:
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._plane.get(self._ref, metadata_only=True)
        except (TimeoutError, Unreachable) as error:
            busy = isinstance(error, ClusterError) and error.status == _BUSY
            return "answer" if busy else "none"
        except Unauthorized:
            return "refusal"
        except KlutchError:
            pass  # that it refuses is an answer
        return "answer"

    def _note(self, answer: _Answer) -> None:
        before = self._since, self._refused_since
        self._answers = answer != "none"
        if self._answers:
            self._answered, self._answered_at, self._since = time.monotonic(), self._now(), None
            self._refusals = self._refusals + 1 if answer == "refusal" else 0
            # One alone proves nothing: an API server may not reach its token webhook.
            if self._refusals < 2:
                self._refused_since = None
            elif self._refused_since is None:
                self._refused_since = self._now()
        elif time.monotonic() - self._answered >= _SILENCE:
            self._since = self._answered_at
        if (self._since, self._refused_since) != before:
            self._changed()

"""Whether a kubeconfig really leads to a space, and whether a control plane answers at all (U2).

A watch that says nothing is no sign: a way that is cut without a word is seen by its silence alone.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from konnector.context import Connect
from reconciler.core.errors import ClusterError, KlutchError, Unreachable
from reconciler.core.manifest import uid_of
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.kube.cluster import Cluster

_SILENCE: Final = 12.0  # seconds without an answer that are told
_PAUSE: Final = 6.0  # seconds between two questions while it answers
_AGAIN: Final = 1.0  # and while it does not
_TIMEOUT: Final = 4.0  # seconds for one answer
_BUSY: Final = 429  # the status of who answers, but not yet


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
    """Return the uid of a Namespace, or why it cannot be told."""
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
    """Asks for the Namespace of a space, again and again. `changed` is called when `since` is."""

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

    @property
    def since(self) -> datetime | None:
        """When the control plane answered last, if it does not any more."""
        return self._since

    async def run(self) -> None:
        """Ask until cancelled."""
        back = asyncio.Event()
        unfollow = self._plane.connectivity.follow(back.set)
        try:
            while True:
                back.clear()
                answered = await self._answers()
                self._note(answered=answered)
                pause = _PAUSE if answered else _AGAIN
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await back.wait()
        finally:
            unfollow()

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._plane.get(self._ref, metadata_only=True)
        except (TimeoutError, Unreachable) as error:
            return isinstance(error, ClusterError) and error.status == _BUSY
        except KlutchError:
            return True  # that it refuses is an answer
        return True

    def _note(self, *, answered: bool) -> None:
        before = self._since
        if answered:
            self._answered, self._answered_at, self._since = time.monotonic(), self._now(), None
        elif time.monotonic() - self._answered >= _SILENCE:
            self._since = self._answered_at
        if self._since != before:
            self._changed()

"""Writes to single objects that fit them only as they were read (mapping.md 0, preconditions).

Decides nothing about which object or what for; the caller says what must still be true.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, TypeVar

from reconciler.apply.patches import Decide, Stale
from reconciler.controller.fence import WriteFence
from reconciler.core import field_set, keys
from reconciler.core.decision import modification
from reconciler.core.errors import AlreadyExists, Conflict, Missing, Replaced, Unreachable
from reconciler.core.field_set import created_to_applied
from reconciler.core.manifest import (
    Manifest,
    get,
    resource_version_of,
    uid_of,
)
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.requests import Preconditions, Propagation

T = TypeVar("T")

_TRIES: Final = 5  # each with what was read anew (mapping.md 0)
RETRY_PAUSES: Final = (0.3, 1.0, 3.0)  # seconds before an unreachable cluster is tried again


class ClusterWriter:
    """Writes to one cluster while the fence is open. Every write may raise Stopped."""

    def __init__(self, cluster: Cluster, fence: WriteFence) -> None:
        self.cluster, self.fence = cluster, fence

    async def read(self, ref: Ref) -> Manifest | None:
        """Return an object as it is now."""
        return await self.cluster.get(ref)

    async def create(self, manifest: Manifest, kind: Kind) -> Manifest | None:
        """POST, or return None where the name is taken.

        A write without an answer may have happened: then what is there now is returned as made.
        """
        ref = _ref(self.cluster.name, kind, manifest)
        for pause in (*RETRY_PAUSES, None):
            try:
                return await self.fence.write(
                    lambda: self.cluster.create(manifest, kind, manager=keys.MANAGER_CLI)
                )
            except AlreadyExists:
                return None
            except Unreachable as error:
                if error.outcome_unknown and (made := await self.cluster.get(ref)) is not None:
                    return made if _made_by_us(made) else None
                if pause is None:
                    raise
            await self.fence.pause(pause)
        raise AssertionError("the last try returns or raises")

    async def apply(self, body: Manifest, kind: Kind) -> Manifest:
        """Server-side apply by force. Raises Conflict, and Replaced for another uid."""
        return await self._retried(
            lambda: self.cluster.apply(body, kind, manager=keys.MANAGER_CLI, force=True)
        )

    async def as_applied(self, live: Manifest, ref: Ref) -> Manifest:
        """Make what we created count as applied, and return it as it is then. Raises Conflict."""
        taken = created_to_applied(live, manager=keys.MANAGER_CLI)
        if taken is None:
            return live
        return await self._retried(
            lambda: self.cluster.json_patch(ref, taken, manager=keys.MANAGER_CLI)
        )

    async def change(self, ref: Ref, decide: Decide, *, manager: str = keys.MANAGER_CLI) -> bool:
        """Patch an object by what is read of it, until that held; False where it is absent.

        Raises Stale where others keep writing.
        """

        async def attempt() -> bool:
            live = await self.cluster.get(ref)
            if live is None:
                return False
            change = decide(live)
            if change is not None:
                body = modification(ref.cluster, ref.kind, live, **change).body
                await self._retried(lambda: self.cluster.merge_patch(ref, body, manager=manager))
            return True

        return await self.again(attempt, ref)

    async def delete(self, ref: Ref, *, uid: str, propagation: Propagation) -> bool:
        """Delete this one object; False where it is absent. Raises Stale for another uid.

        `uid` "" stands for whatever bears the name now.
        """

        async def attempt() -> bool:
            live = await self.cluster.get(ref, metadata_only=True)
            if live is None:
                return False
            if uid and uid_of(live) != uid:
                raise Stale(f"{ref.object} was deleted and made again")
            known = Preconditions(uid_of(live), resource_version_of(live))
            return await self._retried(
                lambda: self.cluster.delete(ref, preconditions=known, propagation=propagation)
            )

        return await self.again(attempt, ref)

    async def again(self, attempt: Callable[[], Awaitable[T]], ref: Ref) -> T:
        """Make an attempt anew after each Conflict. Raises Stale after the last."""
        for _ in range(_TRIES):
            try:
                return await attempt()
            except (Replaced, Missing) as error:
                raise Stale(f"{ref.object} was deleted or made again meanwhile") from error
            except Conflict:
                await asyncio.sleep(0)
        raise Stale(f"others keep writing to {ref.object}")

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a write that fits only one state of the object, so it may be sent twice."""
        for pause in RETRY_PAUSES:
            try:
                return await self.fence.write(call)
            except Unreachable:
                await self.fence.pause(pause)
        return await self.fence.write(call)


Clusters: TypeAlias = Callable[[str], ClusterWriter]  # by `Ref.cluster`


def _made_by_us(live: Manifest) -> bool:
    return keys.MANAGER_CLI in field_set.managers_of(live)


def _ref(cluster: str, kind: Kind, manifest: Manifest) -> Ref:
    metadata = get(manifest, "metadata")
    return Ref(cluster, kind, str(get(metadata, "namespace") or ""), str(get(metadata, "name")))

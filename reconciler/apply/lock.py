"""One run at a time per fleet and control plane: a Lease (mapping.md 0, Lock).

The times are 15/10/2 s: a lease lives 15 s after its last renewal, is renewed every 2 s, and
counts as lost by its holder when that has failed for 10 s.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

from reconciler.apply.gate import Gate
from reconciler.blueprints import space
from reconciler.core import keys, names
from reconciler.core.durations import parse_time
from reconciler.core.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    KlutchError,
    Unreachable,
)
from reconciler.core.manifest import (
    JSON,
    Manifest,
    get_int,
    get_text,
    resource_version_of,
    uid_of,
)
from reconciler.core.refs import EVENT, LEASE, NAMESPACE, Ref
from reconciler.kube.cluster import Cluster

DURATION: Final = 15
DEADLINE: Final = 10.0
PERIOD: Final = 2.0
_PATIENCE: Final = (0.3, 1.0)  # seconds before an unreachable control plane is asked again
# A living holder renews within this time, whatever our clock and its clock say.
_ONE_RENEWAL: Final = 2 * PERIOD


class Locked(KlutchError):
    """Another run holds the lock of this fleet."""

    def __init__(self, cluster: str, holder: str, age: timedelta) -> None:
        self.cluster, self.holder, self.age = cluster, holder, age
        super().__init__(
            f"{cluster}: another run holds the lock of this fleet: {holder}, for "
            f"{max(int(age.total_seconds()), 0)} s. Wait for it, or take the lock over with "
            "--break-lock if that run is dead"
        )


class Lock:
    """The lease of one control plane. `now` is the time in UTC."""

    def __init__(
        self, cluster: Cluster, fleet: str, *, holder: str, now: Callable[[], datetime]
    ) -> None:
        self._cluster, self._holder, self._now = cluster, holder, now
        self._ref = Ref(cluster.name, LEASE, names.KLUTCH_NAMESPACE, names.lock_lease(fleet))

    @asynccontextmanager
    async def held(self, gate: Gate, *, break_it: bool) -> AsyncIterator[None]:
        """Hold the lease for the length of the block; where it is lost, the gate closes.

        Raises Locked, and the ClusterErrors of the writes.
        """
        await self._take(break_it=break_it)
        renewing = asyncio.create_task(self._renew(gate))
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await self._release()

    async def _take(self, *, break_it: bool) -> None:
        for pause in _PATIENCE:
            try:
                await self._try_to_take(break_it=break_it)
            except Unreachable as error:
                if error.outcome_unknown and await self._is_mine():
                    return
                await asyncio.sleep(pause)
            else:
                return
        await self._try_to_take(break_it=break_it)

    async def _is_mine(self) -> bool:
        live = await self._cluster.get(self._ref)
        return live is not None and get_text(live, "spec", "holderIdentity") == self._holder

    async def _try_to_take(self, *, break_it: bool) -> None:
        live = await self._cluster.get(self._ref)
        if live is None:
            await self._make()
            return
        holder = get_text(live, "spec", "holderIdentity")
        if holder and not break_it:
            live = await self._abandoned(live)
        try:
            await self._write(live, self._spec(taken_from=live))
        except Conflict as error:
            raise await self._locked() from error
        if holder and break_it:
            await self._tell(live, holder)

    async def _make(self) -> None:
        namespace = Ref(self._cluster.name, NAMESPACE, "", names.KLUTCH_NAMESPACE)
        if await self._cluster.get(namespace, metadata_only=True) is None:
            try:
                made = space.namespace(names.KLUTCH_NAMESPACE)
                await self._cluster.create(made, NAMESPACE, manager=keys.MANAGER_CLI)
            except AlreadyExists:
                pass
        metadata = {"name": self._ref.name, "namespace": self._ref.namespace}
        lease: Manifest = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": metadata,
            "spec": self._spec(taken_from=None),
        }
        try:
            await self._cluster.create(lease, LEASE, manager=keys.MANAGER_CLI)
        except AlreadyExists as error:
            raise await self._locked() from error

    async def _abandoned(self, live: Manifest) -> Manifest:
        """Return the lease of a holder that is dead. Raises Locked for one that lives."""
        renewed = _time(live, "renewTime")
        seconds = get_int(live, "spec", "leaseDurationSeconds") or DURATION
        if renewed is not None and self._now() - renewed <= timedelta(seconds=seconds):
            raise self._held_by_another(live)
        # Clocks differ, so a holder whose time seems over has to be silent as well.
        await asyncio.sleep(_ONE_RENEWAL)
        later = await self._cluster.get(self._ref)
        if later is None or resource_version_of(later) != resource_version_of(live):
            raise await self._locked()
        return later

    async def _locked(self) -> Locked:
        live = await self._cluster.get(self._ref)
        return self._held_by_another(live or {})

    def _held_by_another(self, live: Manifest) -> Locked:
        holder = get_text(live, "spec", "holderIdentity") or "unknown"
        since = _time(live, "acquireTime") or self._now()
        return Locked(self._cluster.name, holder, self._now() - since)

    def _spec(self, *, taken_from: Manifest | None) -> dict[str, JSON]:
        now = _micro(self._now())
        before = 0 if taken_from is None else get_int(taken_from, "spec", "leaseTransitions") or 0
        return {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": DURATION,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": before + (taken_from is not None),
        }

    async def _write(self, live: Manifest, spec: Manifest) -> Manifest:
        metadata = {"uid": uid_of(live), "resourceVersion": resource_version_of(live)}
        patch: Manifest = {"metadata": metadata, "spec": spec}
        return await self._cluster.merge_patch(self._ref, patch, manager=keys.MANAGER_CLI)

    async def _renew(self, gate: Gate) -> None:
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while not gate.closed:
            await asyncio.sleep(PERIOD)
            try:
                async with asyncio.timeout(DEADLINE):
                    live = await self._cluster.get(self._ref)
                    if live is None or get_text(live, "spec", "holderIdentity") != self._holder:
                        gate.lose_lock(f"{self._cluster.name}: another run took the lock over")
                        return
                    await self._write(live, {"renewTime": _micro(self._now())})
                renewed = loop.time()
            except (ClusterError, TimeoutError):
                if loop.time() - renewed > DEADLINE:
                    gate.lose_lock(f"{self._cluster.name}: the lock could not be renewed")

    async def _release(self) -> None:
        """Give the lease back, if it is still ours; else it runs out by itself."""
        try:
            live = await self._cluster.get(self._ref)
            if live is not None and get_text(live, "spec", "holderIdentity") == self._holder:
                await self._write(live, {"holderIdentity": ""})
        except ClusterError:
            return

    async def _tell(self, lease: Manifest, holder: str) -> None:
        """Record that the lock was taken from another."""
        metadata: Manifest = {
            "generateName": f"{self._ref.name}-",
            "namespace": self._ref.namespace,
        }
        event: Manifest = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": metadata,
            "eventTime": _micro(self._now()),
            "reportingController": "klutchctl.dev/klutchctl",
            "reportingInstance": self._holder,
            "action": "BreakLock",
            "reason": "LockBroken",
            "type": "Warning",
            "note": f"{self._holder} took the lock over from {holder}",
            "regarding": {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "namespace": self._ref.namespace,
                "name": self._ref.name,
                "uid": uid_of(lease),
            },
        }
        await self._cluster.create(event, EVENT, manager=keys.MANAGER_CLI)


def _time(lease: Manifest, field: str) -> datetime | None:
    text = get_text(lease, "spec", field)
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def _micro(time: datetime) -> str:
    """Return a MicroTime, the form of the times in a Lease."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

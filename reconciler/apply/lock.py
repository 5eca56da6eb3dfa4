"""Locks a fleet on a control plane with a Lease: one run at a time (mapping.md 0, Lock).

The times are 15/10/2 s: a lease lives 15 s after its last renewal, is renewed every 2 s, and
counts as lost by its holder when that has failed for 10 s.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from reconciler.apply import Options
from reconciler.apply.object_writer import RETRY_PAUSES
from reconciler.blueprints import objects
from reconciler.controller.events import Source, event_of
from reconciler.controller.fence import WriteFence
from reconciler.controller.lease import TIMES, Again, Lease, duration_of, holder_of
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, names
from reconciler.core.decision import Note
from reconciler.core.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Locked,
    StalePlan,
    Unreachable,
)
from reconciler.core.manifest import Manifest, annotations_of, get_text, resource_version_of, uid_of
from reconciler.core.refs import EVENT, LEASE, NAMESPACE, Ref
from reconciler.core.times import moment
from reconciler.fleet.values import Fleet
from reconciler.kube.cluster import Cluster

log = logging.getLogger(__name__)

_SHOWN: Final = 12  # digits of a commit
_KNOWN: Final = 200  # commits


class Lock:
    """Locks one control plane by a Lease, which also records commits. `again` is as in `Lease`."""

    def __init__(
        self, cluster: Cluster, fleet: Fleet, options: Options, *, again: Again | None = None
    ) -> None:
        self._cluster, self._holder, self._now = cluster, options.holder, options.now
        self._commit, self._ancestors = fleet.revision.removesuffix("+dirty"), options.ancestors
        self._lease = Lease(
            cluster,
            Ref(cluster.name, LEASE, names.KLUTCH_NAMESPACE, names.lock_lease(fleet.name)),
            holder=options.holder,
            manager=keys.MANAGER_CLI,
            clock=SystemClock(options.now),
            again=again,
        )
        self._in_doubt = False  # whether a write of ours may have made it ours

    @asynccontextmanager
    async def held(self, fence: WriteFence, *, break_it: bool) -> AsyncIterator[None]:
        """Hold the lease for the length of the block; where it is lost, the fence closes.

        Two documents may name one control plane: a lease in this run's name is not taken again.
        Raises Locked, StalePlan for an older commit, and the ClusterErrors of the writer.
        """
        try:
            if not await self._take(break_it=break_it):
                yield
                return
            renewing = asyncio.create_task(self._keep(fence))
            try:
                with fence.checking(lambda: self._lease.loss):
                    yield
            finally:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)
        finally:
            await self._lease.release()

    async def _keep(self, fence: WriteFence) -> None:
        await self._lease.keep()
        fence.lose_lock(self._lease.loss)

    async def _take(self, *, break_it: bool) -> bool:
        for pause in RETRY_PAUSES:
            try:
                return await self._try_to_take(break_it=break_it)
            except Unreachable as error:
                self._in_doubt |= error.outcome_unknown
                await asyncio.sleep(pause)
        return await self._try_to_take(break_it=break_it)

    async def _try_to_take(self, *, break_it: bool) -> bool:
        """Return whether it is taken now; False: this run has it already."""
        live = await self._lease.look()
        applied = self._applied(live or {})
        if live is None:
            await self._make(applied)
            return True
        holder = holder_of(live)
        if holder == self._holder:
            if not self._in_doubt:
                return False
            holder = ""
        if holder and not break_it:
            live = await self._abandoned(live)
        try:
            await self._lease.take(live, applied)
        except Conflict as error:
            raise await self._locked() from error
        if holder and break_it:
            await self._record_takeover(live, holder)
        return True

    def _applied(self, live: Manifest) -> Mapping[str, str]:
        """Return the annotation with the applied commits. Raises StalePlan for an older one."""
        before = annotations_of(live).get(keys.APPLIED, "").split()
        if not self._commit:
            return {}
        if (mine := self._commit[:_SHOWN]) in before[1:]:
            if self._ancestors is not None:
                older = f"commit {mine} is older than {before[0]}, which was applied last"
                hint = "Update the checkout; to go back, commit that: `git revert`"
                raise StalePlan(f"{self._cluster.name}: {older}. {hint}")
            before = before[before.index(mine) :]
        followed = (one[:_SHOWN] for one in self._ancestors or ())
        return {keys.APPLIED: " ".join([*dict.fromkeys((mine, *followed, *before))][:_KNOWN])}

    async def _make(self, annotations: Mapping[str, str]) -> None:
        namespace = Ref(self._cluster.name, NAMESPACE, "", names.KLUTCH_NAMESPACE)
        if await self._cluster.get(namespace, metadata_only=True) is None:
            try:
                made = objects.namespace(names.KLUTCH_NAMESPACE)
                await self._cluster.create(made, NAMESPACE, manager=keys.MANAGER_CLI)
            except AlreadyExists:
                pass
        try:
            await self._lease.make(annotations)
        except AlreadyExists as error:
            raise await self._locked() from error

    async def _abandoned(self, live: Manifest) -> Manifest:
        """Return the lease of a holder that is dead. Raises Locked for one that lives."""
        renewed = moment(get_text(live, "spec", "renewTime"))
        seconds = duration_of(live) or TIMES.duration
        if renewed is not None and abs(self._now() - renewed) <= timedelta(seconds=seconds):
            raise self._lock_of(live)
        # Clocks differ, so a holder whose time seems over has to be silent for that time as well.
        await asyncio.sleep(TIMES.duration)
        later = await self._lease.look()
        if later is None or resource_version_of(later) != resource_version_of(live):
            raise await self._locked()
        return later

    async def _locked(self) -> Locked:
        return self._lock_of((await self._lease.look()) or {})

    def _lock_of(self, live: Manifest) -> Locked:
        since = moment(get_text(live, "spec", "acquireTime")) or self._now()
        return Locked(self._cluster.name, holder_of(live) or "unknown", self._now() - since)

    async def _record_takeover(self, lease: Manifest, holder: str) -> None:
        """Record that the lock was taken from another, if that can be: it is ours already."""
        message = f"{self._holder} took the lock over from {holder}"
        event = event_of(
            self._lease.ref,
            uid_of(lease),
            Note("LockBroken", message, "Warning", "BreakLock"),
            source=Source("klutchctl.dev/klutchctl", self._holder),
            now=self._now(),
        )
        fields = {"lease": str(self._lease.ref), "holder": self._holder, "before": holder}
        log.warning("the lock was taken from another run", extra=fields)
        try:
            await self._cluster.create(event, EVENT, manager=keys.MANAGER_CLI)
        except ClusterError as error:
            log.warning("the Event about the lock was not written", extra={"error": str(error)})

"""Runs a term of work while this process holds the Lease.

The leader stops before another can begin: it counts from the moment when it sent its last
successful renewal, others from the moment when they saw it. A lost leadership is not resumed: the
process starts a new term (program.py), from the present state of the cluster.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from reconciler.controller.fence import WriteFence
from reconciler.controller.lease import Lease, duration_of, holder_of
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import Clock, ended
from reconciler.core.errors import ClusterError, Conflict, KlutchError, Missing
from reconciler.core.manifest import Manifest, get_map

log = logging.getLogger(__name__)


class LeaseLost(KlutchError):
    """This process led and does so no more. All work has ended; start again.

    `unanswered`: a write was given up that had been sent, so another leader may meet it yet.
    """

    def __init__(self, message: str, *, unanswered: bool = False) -> None:
        self.unanswered = unanswered
        super().__init__(message)


class Leadership:
    """The wish to lead. `fence` is asked before each write of the work, and closes in time."""

    def __init__(self, lease: Lease, fence: WriteFence, *, clock: Clock, metrics: Metrics) -> None:
        self._lease, self._fence = lease, fence
        self._clock, self._metrics = clock, metrics
        self._unanswered = False
        self._seen: Manifest | None = None  # the hold of another
        self._seen_at = 0.0
        self._metrics.leading(lease.ref.name, leads=False)

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of this holder and of the one that it follows without a gap, as in `Lease`."""
        return self._lease.terms

    def ailment(self) -> str:
        """Return that leadership was lost, for a probe, or "". May be asked from another thread.

        The work ends by itself then; where it cannot, a restart is better than one that idles.
        """
        return "the lease was lost" if self._fence.lock_lost else ""

    async def lead(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the lease, and do the work for as long as it is held; use once.

        Returns when the work does, with the lease given back. Where the lease is lost, the fence
        closes, the work is cancelled, writes that were sent are waited for until others may
        begin, and LeaseLost is raised. A cancelled caller's work is cancelled and waited for.
        """
        await self._acquire()
        fields = {"lease": str(self._lease.ref), "holder": self._lease.holder}
        log.info("this process is the leader", extra=fields)
        self._metrics.leading(self._lease.ref.name, leads=True)
        with self._fence.checking(lambda: self._lease.loss):
            keeping = asyncio.create_task(self._keep())
            working = asyncio.create_task(work())
            try:
                await asyncio.wait({keeping, working}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await ended(asyncio.create_task(self._end(working, keeping)))
        if self._fence.lock_lost:
            log.warning(
                "this process is no longer the leader", extra=fields | {"why": self._fence.reason}
            )
            raise LeaseLost(self._fence.reason, unanswered=self._unanswered)
        if not keeping.cancelled():
            keeping.result()
        working.result()

    async def _end(self, working: asyncio.Task[None], keeping: asyncio.Task[None]) -> None:
        """End the work, renewing until then, and give the lease back where it is still ours."""
        working.cancel()
        await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        self._fence.close("this process is no longer the leader")
        if not working.done():
            times = self._lease.times
            left = times.duration - times.period / 2 - self._lease.since_renewal
            await asyncio.wait({working}, timeout=max(left, 0.0))
            self._unanswered = self._fence.abandon()
            await asyncio.wait({working})
        keeping.cancel()
        await asyncio.wait({keeping})
        self._metrics.leading(self._lease.ref.name, leads=False)
        await self._lease.release()

    async def _keep(self) -> None:
        await self._lease.keep()
        self._fence.lose_lock(self._lease.loss)

    async def _acquire(self) -> None:
        warned = False
        while True:
            try:
                if await self._try():
                    return
            except ClusterError as error:
                if not warned:
                    fields = {"lease": str(self._lease.ref), "error": str(error)}
                    log.warning("the lease cannot be acquired", extra=fields)
                warned = True
            # Candidates that began together do not ask together for ever.
            await self._clock.sleep(self._lease.times.period * (0.75 + random.random() / 2))

    async def _try(self) -> bool:
        """Take the lease if nobody holds it, or only a dead holder."""
        live = await self._lease.look()
        try:
            if live is None:
                await self._lease.make()
            elif holder_of(live) in ("", self._lease.holder) or self._has_run_out(live):
                await self._lease.take(live)
            else:
                return False
        except Missing:
            raise  # of the namespace
        except Conflict:
            return False  # somebody was faster
        return True

    def _has_run_out(self, live: Manifest) -> bool:
        """Return whether another has not renewed it for its duration, on our clock."""
        now, spec = self._clock.monotonic(), get_map(live, "spec")
        if spec != self._seen:
            self._seen, self._seen_at = spec, now
        return now - self._seen_at > (duration_of(live) or self._lease.times.duration)

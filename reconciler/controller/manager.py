"""Runs views and what works on them: reads first, then leads, then works, and stops in order."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, Protocol

from reconciler.controller import informers
from reconciler.controller.leadership import Leadership, LeaseLost
from reconciler.controller.metrics import Cached, Metrics
from reconciler.controller.settled import NOTHING, SOON, Written
from reconciler.controller.tasks import Worker, ended

log = logging.getLogger(__name__)

_REMINDER: Final = 10.0  # seconds until what is still missing is logged again
_LOOK: Final = 0.05  # seconds between two looks whether all is at rest


class View(Cached, Protocol):
    """A view that keeps itself up to date, such as an Informer."""

    async def wait_synced(self) -> None:
        """Return once all objects were seen."""

    async def run(self) -> None:
        """Follow until cancelled."""


class Manager:
    """Views and workers that belong together. A process may run several, each once.

    Without `leadership` the work begins as soon as everything was read. With it, a process that
    does not lead keeps its views up to date, so that it can begin at once. `advice` is a sentence
    on what to do where the server lets it read less than all.
    """

    def __init__(
        self,
        *,
        views: Sequence[View],
        workers: Sequence[Worker],
        metrics: Metrics,
        leadership: Leadership | None = None,
        advice: str = "",
    ) -> None:
        self._views, self._workers = tuple(views), tuple(workers)
        self._metrics, self._leadership = metrics, leadership
        self._advice = advice
        self._working = False

    def unready(self) -> str:
        """Return what was not read yet, "" if all was. May be asked from another thread."""
        missing = [view for view in self._views if not view.synced]
        if not missing:
            return ""
        reasons = "; ".join(informers.missing(missing))
        advised = self._advice and any(view.trouble for view in missing)
        return f"not read yet: {reasons}" + (f". {self._advice}" if advised else "")

    async def unsettled(self, written: Written = NOTHING, *, soon: float = SOON) -> str:
        """Return why this process is not at rest, "" if it is; see `Activity.unsettled`."""
        if not self._working:
            return self.unready() or "this process does not lead"
        return await self._metrics.activity.unsettled(written, soon=soon)

    async def settled(
        self, written: Written = NOTHING, *, within: float, soon: float = SOON
    ) -> str:
        """Return "" once this process is at rest, or, after so many seconds, why it is not.

        `written` are resourceVersions by cluster: what was written there has been seen then.
        """
        until = time.monotonic() + within
        while True:
            reason = await self.unsettled(written, soon=soon)
            if not reason or time.monotonic() >= until:
                return reason
            await asyncio.sleep(_LOOK)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then let the workers end what they began.

        Raises LeaseLost. A defect of a view or a worker ends all, as an ExceptionGroup.
        """
        lost: LeaseLost | None = None
        with ExitStack() as counted:
            for view in self._views:
                counted.callback(self._metrics.watch(view))
            async with asyncio.TaskGroup() as group:
                following = [group.create_task(view.run()) for view in self._views]
                try:
                    await self._until(stop)
                except LeaseLost as error:
                    lost = error
                finally:
                    for each in following:
                        each.cancel()
        if lost is not None:
            raise lost

    async def _until(self, stop: asyncio.Event) -> None:
        doing = asyncio.create_task(self._do())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not self._working:
                doing.cancel()
            for worker in self._workers:
                worker.stop()
            await asyncio.wait({doing})
        finally:
            stopping.cancel()
            doing.cancel()
            await ended(doing)
            if not doing.cancelled():
                doing.exception()  # so that it counts as told where a view's failure ends us first
        if not doing.cancelled():
            doing.result()

    async def _do(self) -> None:
        await self._read()
        if self._leadership is None:
            await self._work()
        else:
            await self._leadership.lead(self._work)

    async def _read(self) -> None:
        """Wait until everything was read, and tell now and then what is missing."""
        async with asyncio.TaskGroup() as group:
            waiting = {group.create_task(view.wait_synced()) for view in self._views}
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=_REMINDER)
                if waiting:
                    log.warning("the work cannot begin", extra={"why": self.unready()})

    async def _work(self) -> None:
        self._working = True
        async with asyncio.TaskGroup() as group:
            for worker in self._workers:
                group.create_task(worker.run())

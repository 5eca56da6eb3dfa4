"""What a process does from one election to the loss of its lease, and then again.

A lease that is lost ends all work, and nothing of what was known is used again: what the cluster
holds may be another's work by then. The process itself goes on, and with it whatever serves its
probes; it ends only where a write was given up whose outcome nobody knows.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from reconciler.controller import health_server
from reconciler.controller.health_server import Answer, plain
from reconciler.controller.leadership import LeaseLost
from reconciler.controller.manager import Manager
from reconciler.controller.metrics import Metrics
from reconciler.controller.process import Liveness
from reconciler.controller.settled import SettledProbe, Written

log = logging.getLogger(__name__)

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Term:
    """Everything that works from an election on; runs once."""

    manager: Manager
    liveness: Liveness
    metrics: Metrics


class Elections:
    """One term after another, each made anew by `make`."""

    def __init__(self, make: Callable[[], Term]) -> None:
        self._make = make
        self._now = make()
        self._lost = ""

    def ailment(self) -> str:
        """Return why the process is not healthy, "" if it is. May be asked from any thread."""
        return self._now.liveness.ailment()

    def unready(self) -> str:
        """Return why it cannot do its work, "" if it can. May be asked from any thread."""
        why = self._now.manager.unready()
        return f"{self._lost}; {why}" if self._lost and why else why

    async def settled(self, written: Written, *, within: float) -> str:
        """Return as `Manager.settled` of the present term."""
        return await self._now.manager.settled(written, within=within)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set.

        Raises LeaseLost where a write could not be waited for, and what `Manager.run` does.
        """
        while True:
            try:
                await self._term(stop)
                return
            except LeaseLost as error:
                if error.unanswered:
                    raise
                self._lost = f"the lease was lost ({error})"
            if stop.is_set():
                return
            log.warning("this process stands for election again", extra={"why": self._lost})
            self._now = self._make()

    async def _term(self, stop: asyncio.Event) -> None:
        beating = asyncio.create_task(self._now.liveness.run())
        try:
            await self._now.manager.run(stop)
        finally:
            beating.cancel()

    @contextmanager
    def served(
        self,
        *,
        probes: Address | None,
        metrics: Address | None,
        healthz: Callable[[str], Answer] = plain,
    ) -> Iterator[None]:
        """Serve probes and metrics, each where that is asked for. Raises HostError."""
        with ExitStack() as stack:
            if probes is not None:
                serving = health_server.served(
                    probes,
                    ailment=self.ailment,
                    unready=self.unready,
                    healthz=healthz,
                    settled=SettledProbe(self.settled),
                )
                host, port = stack.enter_context(serving)
                log.info("probes are served", extra={"host": host, "port": port})
            if metrics is not None:
                serving = health_server.served(metrics, metrics=lambda: self._now.metrics.registry)
                host, port = stack.enter_context(serving)
                log.info("metrics are served", extra={"host": host, "port": port})
            yield

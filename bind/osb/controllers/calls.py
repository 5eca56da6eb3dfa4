"""Calls to brokers that are on their way: one for each instance, and no worker waits for them.

The answer stays until what follows from it was executed: a write that met a conflict is decided
anew with the same answer, because the call is not repeated for that.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bind.osb.decisions.view import Ask
from bind.osb.informers import InstanceKey
from reconciler.blueprints.offering.messages import OriginatingIdentity
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.controller.controller import Queue
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.metrics import Metrics
from reconciler.kube.turns import current_party

if TYPE_CHECKING:
    from bind.osb.controllers.brokers import Connection


@dataclass(frozen=True, slots=True)
class Answered:
    """A call and what it came to; None: it was not sent, because its broker takes no calls now."""

    ask: Ask
    outcome: Outcome | None


class Calls:
    """Sends calls, and holds their answers by instance."""

    def __init__(self, fence: WriteFence, metrics: Metrics) -> None:
        self._fence, self._metrics = fence, metrics
        self._queue: Queue[InstanceKey] | None = None
        self._stop = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._answers: dict[InstanceKey, Answered] = {}
        self._sent: dict[InstanceKey, asyncio.Task[None]] = {}

    def subscribe(self, queue: Queue[InstanceKey]) -> None:
        self._queue = queue

    def is_calling(self, key: InstanceKey) -> bool:
        return key in self._sent

    def answer(self, key: InstanceKey) -> Answered | None:
        """Return the answer that was not dealt with yet."""
        return self._answers.get(key)

    def forget(self, key: InstanceKey) -> None:
        """Drop an answer: what follows from it was executed."""
        self._answers.pop(key, None)

    def send(
        self,
        key: InstanceKey,
        ask: Ask,
        connection: "Connection",
        *,
        space: str,
        identity: OriginatingIdentity | None,
    ) -> None:
        """Send a call when its broker has a turn for this task's party; nothing once this stops."""

        async def run() -> None:
            outcome = None
            try:
                with self._metrics.activity.work(f"a call for {key}"):
                    async with connection.gate.turn(current_party()):
                        if not connection.closed:
                            self._fence.check()
                            outcome = await connection.call(ask.call, space, identity)
            except Stopped:
                return  # another process leads by now, and may be about to undo this very call
            finally:
                del self._sent[key]
            self._answers[key] = Answered(ask, outcome)
            if self._queue is not None:
                self._queue.enqueue(key)

        if self._group is not None and not self._stop.is_set():
            self._sent[key] = self._group.create_task(run())

    async def run(self) -> None:
        """Send until `stop`."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            await self._stop.wait()
            for task in self._sent.values():
                task.cancel()

    def stop(self) -> None:
        """Give up what is on its way: its record says that the outcome is not known."""
        self._stop.set()

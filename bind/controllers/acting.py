"""How a decision about one object becomes writes, Events and the time of the next look."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from reconciler.controller.executor import Executor, Observed
from reconciler.core.decision import Decision, Note
from reconciler.core.manifest import Manifest, ref_of
from reconciler.core.refs import Ref
from reconciler.kube.cache.read_your_writes import ReadYourWrites
from reconciler.kube.cluster import Cluster


class Recorder(Protocol):
    """Who tells Events."""

    def tell(self, ref: Ref, live: Manifest, note: Note) -> None:
        """Tell it, as soon as possible and as well as possible."""
        ...


class Queue(Protocol):
    """Where keys wait for their controller."""

    def enqueue(self, key: str) -> None:
        """Let the key be looked at soon."""
        ...

    def enqueue_after(self, key: str, seconds: float) -> None:
        """Let the key be looked at after so many seconds, or sooner."""
        ...


@dataclass(frozen=True, slots=True)
class Acting:
    """What all controllers of one backend act with."""

    cluster: Cluster
    executor: Executor
    recorder: Recorder
    now: Callable[[], datetime]

    async def carry_out(
        self, live: Manifest, recent: ReadYourWrites, decision: Decision
    ) -> timedelta | None:
        """Do what was decided about a live object of a view; return when to look again.

        Raises what `Executor.execute` raises; then the queue says when.
        """
        ref = ref_of(self.cluster.name, recent.view.ref.kind, live)
        for note in decision.notes:
            self.recorder.tell(ref, live, note)
        await self.executor.execute(decision, Observed(ref, live), recents=(recent,))
        return decision.again

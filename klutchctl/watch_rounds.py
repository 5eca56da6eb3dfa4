"""The rounds of a watch: each plans against the clusters as they are, and applies what it may."""

import asyncio
import sys
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

from klutchctl import looking, reach, repository
from klutchctl.reach import Reach
from klutchctl.render import apply_progress
from klutchctl.settings import Settings
from reconciler import apply as applying
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.lease import holder_here
from reconciler.fleet.values import Fleet
from reconciler.kube import registry
from reconciler.kube.registry import Registry
from reconciler.watch import Scope

T = TypeVar("T")


class Rounds:
    """Makes rounds, one at a time, until it is told to stop."""

    def __init__(self, how: Reach, settings: Settings, *, wait_seconds: float) -> None:
        self._how, self._settings = how, settings
        self._options = applying.Options(
            holder=holder_here(),
            now=lambda: datetime.now(UTC),
            pace=reach.pace(how),
            wait_seconds=wait_seconds,
        )
        self._gate: WriteFence | None = None
        self._clusters: Registry | None = None
        self._why = ""
        self.stop = asyncio.Event()

    def end(self, why: str) -> None:
        """Let no further write start; those that were sent are waited for."""
        self._why = self._why or why
        self.stop.set()
        if self._gate is not None:
            self._gate.close(why)

    async def make(self, fleet: Fleet, scope: Scope) -> applying.Report:
        """Plan, and apply what no guard holds back. Raises Stopped, and what an apply raises."""
        only = _both(repository.chosen(fleet, self._how), scope)
        clusters = await self._ways(fleet, anew=scope is None)
        found = await self._unless_stopped(
            looking.look(fleet, clusters, self._how, only=only, credentials=True)
        )
        gate = self._gate = WriteFence()
        told = applying.Observer(
            outcome=apply_progress.Lines(sys.stderr).outcome, stage=lambda _stage: None
        )
        try:
            return await applying.apply(
                fleet, found.plan, clusters, options=self._options, gate=gate, observer=told
            )
        finally:
            self._gate = None

    async def close(self) -> None:
        """Give all connections back."""
        if self._clusters is not None:
            await self._clusters.__aexit__(None, None, None)
            self._clusters = None

    async def _ways(self, fleet: Fleet, *, anew: bool) -> Registry:
        """Return the ways to the clusters.

        They are looked up anew for each look at everything, as kubeconfigs change. A narrow
        round never leads to other control planes.
        """
        if anew or self._clusters is None:
            await self.close()
            self._clusters = registry.of(fleet, reach.surroundings(self._how, self._settings))
        return self._clusters

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        doing, stopping = asyncio.create_task(work), asyncio.create_task(self.stop.wait())
        try:
            await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if self.stop.is_set():
                doing.cancel()
            await asyncio.gather(doing, stopping, return_exceptions=True)
        if doing.cancelled():
            raise Stopped(self._why)
        return doing.result()


def _both(chosen: Scope, scope: Scope) -> Scope:
    """Return what is in both."""
    if chosen is None or scope is None:
        return scope if chosen is None else chosen
    return chosen & scope

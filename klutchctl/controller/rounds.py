"""Makes the rounds of a watch: look, plan, apply what no guard holds, and see how units are."""

import asyncio
import sys
from datetime import UTC, datetime

from klutchctl import repository
from klutchctl.render import apply_report
from klutchctl.settings import Settings
from reconciler import apply as applying
from reconciler.apply import GOOD, Report
from reconciler.apply.run import apply
from reconciler.controller import log_context, tracing
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.lease import holder_here
from reconciler.controller.tasks import unless
from reconciler.fleet.values import Fleet
from reconciler.health.board import Board, view_of
from reconciler.health.survey import judged, survey
from reconciler.kube import registry
from reconciler.kube.registry import Registry
from reconciler.run import Look, look
from reconciler.watch.agenda import Scope
from reconciler.watch.fleet_state import RoundResult, merged


class Rounds:
    """Makes rounds, one at a time, until it is ended.

    `lead` is asked before each write as well as the lock. `shows`: how units are is looked at, too.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        wait_seconds: float,
        lead: WriteFence | None = None,
        shows: bool = False,
    ) -> None:
        self._settings, self._lead, self._shows = settings, lead, shows
        self._options = applying.Options(
            holder=holder_here(),
            now=_now,
            pace=settings.pace(),
            wait_seconds=wait_seconds,
        )
        self._fence: WriteFence | None = None
        self._clusters: Registry | None = None
        self._why = ""
        self.stop = asyncio.Event()

    def end(self, why: str) -> None:
        """Let no further write start; those that were sent are waited for."""
        self._why = self._why or why
        self.stop.set()
        if self._fence is not None:
            self._fence.close(why)

    async def make(self, fleet: Fleet, scope: Scope) -> RoundResult:
        """Plan, and apply what no guard holds back. Raises Stopped, and what an apply raises."""
        only = _both(repository.chosen(fleet, self._settings), scope)
        clusters = await self._ways(fleet, anew=scope is None)
        pace = self._settings.pace()
        found = await unless(
            self.stop, look(fleet, clusters, only=only, credentials=True, pace=pace)
        )
        if found is None:
            raise Stopped(self._why)
        report = await self._apply(fleet, found, clusters)
        board = None
        if self._shows:
            board = await unless(self.stop, self._board(fleet, found, report, clusters, only))
        return RoundResult(report, board)

    async def close(self) -> None:
        """Give all connections back."""
        if self._clusters is not None:
            await self._clusters.__aexit__(None, None, None)
            self._clusters = None

    async def _apply(self, fleet: Fleet, found: Look, clusters: Registry) -> Report:
        fence = self._fence = WriteFence(self._lead)
        observer = applying.Observer(
            outcome=apply_report.Lines(sys.stderr).outcome, stage=lambda _stage: None
        )
        plan, options = found.plan, self._options
        try:
            with log_context.fields(plan=plan.id), tracing.span("apply", plan=plan.id):
                return await apply(
                    fleet, plan, clusters, options=options, fence=fence, observer=observer
                )
        finally:
            self._fence = None

    async def _board(
        self, fleet: Fleet, found: Look, report: Report, clusters: Registry, only: Scope
    ) -> Board | None:
        """Return how units are by what the round read, and by another look where it wrote."""
        pace = self._settings.pace()
        written = {one.change.cluster for one in report.outcomes if one.status in GOOD}
        view = view_of(fleet, found.live, only=only)
        before = await judged(view, clusters, now=_now, pace=pace)
        if not written:
            return before
        after = await survey(fleet, clusters, now=_now, only=written, pace=pace)
        return merged(before, after, frozenset(written))

    async def _ways(self, fleet: Fleet, *, anew: bool) -> Registry:
        """Return the ways to the clusters.

        They are looked up anew for each look at everything, as kubeconfigs change. A narrow
        round never leads to other control planes.
        """
        if anew or self._clusters is None:
            await self.close()
            self._clusters = registry.of(fleet, self._settings.surroundings())
        return self._clusters


def _both(chosen: Scope, scope: Scope) -> Scope:
    """Return what is in both."""
    if chosen is None or scope is None:
        return scope if chosen is None else chosen
    return chosen & scope


def _now() -> datetime:
    return datetime.now(UTC)

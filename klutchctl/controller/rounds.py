"""Makes the rounds of a watch: read, plan, apply within the guards, and read the health."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from klutchctl import repository
from klutchctl.controller import storms
from klutchctl.settings import Settings
from reconciler import apply as applying
from reconciler.apply import GOOD, Outcome, Report, Status
from reconciler.apply.run import apply
from reconciler.controller import log_context, tracing
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.lease import holder_here
from reconciler.controller.tasks import now_here, unless
from reconciler.core.documents import first_of
from reconciler.core.errors import InvalidRepository, KlutchError, Locked, Problem
from reconciler.core.live import control_plane_ref_name
from reconciler.core.refs import Ref
from reconciler.fleet.values import Fleet
from reconciler.health.board import Board, view_of
from reconciler.health.survey import KeptDefinitions, judged, survey
from reconciler.kube.registry import Registry
from reconciler.planning.changes import Plan
from reconciler.run import Look, look
from reconciler.source.following import Server, SourceState
from reconciler.source.signature import Signature, Unverified
from reconciler.watch import fleet_state
from reconciler.watch.agenda import AGAIN, Scope, Task, Trigger
from reconciler.watch.fleet_state import FleetState, RoundRecord, RoundResult, SourceProblem, merged
from reconciler.watch.loop import Observer, States, result_of

if TYPE_CHECKING:
    from reconciler.fleet.files import Snapshot

_MOST: Final = 3  # objects, and fields of each, that a round names
_HEED: Final = 0.5  # seconds between looks at whether the fleet was suspended


class Rounds:
    """Makes rounds, one at a time, until it is ended.

    `lead` is asked before each write as well as the lock. `shows`: how units are is looked at, too.
    `terms` say when an object rests; None never. `on_outcome` gets what becomes of each line.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        wait_seconds: float,
        on_outcome: Callable[[Outcome], None],
        lead: WriteFence | None = None,
        shows: bool = False,
        terms: storms.Terms | None = None,
    ) -> None:
        self._settings, self._lead, self._shows = settings, lead, shows
        self._terms, self._storms = terms, storms.Storms()
        self._kept = KeptDefinitions()
        self._observer = applying.Observer(outcome=on_outcome, stage=lambda _stage: None)
        self._options = applying.Options(
            holder=holder_here(), now=now_here, pace=settings.pace(), wait_seconds=wait_seconds
        )
        self._fence: WriteFence | None = None
        self._clusters: Registry | None = None
        self._why = ""
        self._suspended: Callable[[], str] = lambda: ""
        self.stop = asyncio.Event()

    def heed(self, suspended: Callable[[], str]) -> None:
        """Let a begun round start no more writes once `suspended` has a reason."""
        self._suspended = suspended

    @property
    def sent(self) -> int:
        """The number of writes without an answer yet."""
        return 0 if self._fence is None else self._fence.sent

    def end(self, why: str) -> None:
        """Let no further write start; those that were sent are waited for."""
        self._why = self._why or why
        self.stop.set()
        if self._fence is not None:
            self._fence.close(why)

    async def make(self, fleet: Fleet, scope: Scope) -> RoundResult:
        """Plan, and apply all lines without a guard. Raises Stopped, and the errors of an apply."""
        only = _both(repository.chosen(fleet, self._settings), scope)
        clusters = await self._ways(fleet, anew=scope is None)
        pace = self._settings.pace()
        found = await unless(
            self.stop, look(fleet, clusters, only=only, credentials=True, pace=pace)
        )
        if found is None:
            raise Stopped(self._why)
        plan = (
            found.plan
            if self._terms is None
            else await self._calmed(fleet, found.plan, clusters, self._terms)
        )
        report = await self._apply(fleet, plan, clusters)
        self._storms = storms.repaired(self._storms, report, now=now_here())
        board = None
        if self._shows:
            board = await unless(self.stop, self._board(fleet, found, report, clusters, only))
        return RoundResult(report, board, self._storms.resting(now_here()))

    async def close(self) -> None:
        if self._clusters is not None:
            await self._clusters.__aexit__(None, None, None)
            self._clusters = None

    async def _apply(self, fleet: Fleet, plan: Plan, clusters: Registry) -> Report:
        fence = self._fence = WriteFence(self._lead)
        options, observer = self._options, self._observer
        heeding = None if fleet.suspended is not None else asyncio.create_task(self._heed(fence))
        try:
            with log_context.fields(plan=plan.id), tracing.span("apply", plan=plan.id):
                return await apply(
                    fleet, plan, clusters, options=options, fence=fence, observer=observer
                )
        finally:
            self._fence = None
            if heeding is not None:
                heeding.cancel()

    async def _heed(self, fence: WriteFence) -> None:
        """Close the fence of a round whose fleet is suspended from outside while it goes on."""
        why = self._suspended()
        while not why:
            await asyncio.sleep(_HEED)
            why = self._suspended()
        fence.close(f"the fleet is suspended: {why}")

    async def _calmed(
        self, fleet: Fleet, plan: Plan, clusters: Registry, terms: storms.Terms
    ) -> Plan:
        """Return a plan in which the lines of storms are held."""
        now = now_here()
        found = storms.calmed(self._storms, plan, now=now, terms=terms)
        if found.begun:
            managers = {ref: await _other_manager(fleet, ref, clusters) for ref in found.begun}
            found = storms.calmed(found.storms.named(managers), plan, now=now, terms=terms)
        self._storms = found.storms
        return found.plan

    async def _board(
        self, fleet: Fleet, found: Look, report: Report, clusters: Registry, only: Scope
    ) -> Board | None:
        """Return the health of units by the round's reads, and by another look after writes."""
        pace = self._settings.pace()
        written = {one.change.cluster for one in report.outcomes if one.status in GOOD}
        view = view_of(fleet, found.live, only=only)
        before = await judged(view, clusters, now=now_here, pace=pace, kept=self._kept)
        if not written:
            return before
        after = await survey(fleet, clusters, now=now_here, only=written, pace=pace)
        return merged(before, after, frozenset(written))

    async def _ways(self, fleet: Fleet, *, anew: bool) -> Registry:
        """Return the ways to the clusters.

        They are looked up again for each look at everything, as kubeconfigs change. A narrow
        round never leads to other control planes.
        """
        if anew or self._clusters is None:
            await self.close()
            self._clusters = self._settings.registry(fleet)
        return self._clusters


async def _other_manager(fleet: Fleet, ref: Ref, clusters: Registry) -> str:
    """Return the other manager of an object, as far as that can be read."""
    planes = {control_plane_ref_name(name): name for name in fleet.control_planes}
    try:
        if ref.cluster in planes:
            reached = await clusters.control_plane(planes[ref.cluster])
        else:
            app = fleet.clusters[ref.cluster]
            reached = await clusters.app_cluster(
                app.name, app.access, control_plane=app.control_plane
            )
        return storms.other_manager(await reached.cluster.get(ref))
    except KlutchError:
        return ""


def _both(chosen: Scope, scope: Scope) -> Scope:
    if chosen is None or scope is None:
        return scope if chosen is None else chosen
    return chosen & scope


class Publishing(Observer):
    """An observer that fills `states`. `sentence` makes the text of an error for people."""

    def __init__(
        self, states: States, *, now: Callable[[], datetime], sentence: Callable[[Exception], str]
    ) -> None:
        self._states, self._now, self._sentence = states, now, sentence
        self._signature: Signature | None = None
        self._source: Server | None = None
        self.snapshot: Snapshot | None = None  # of the files in use

    def follow(self, source: Server) -> None:
        """Publish the looks of this one from now on."""
        self._source = source

    def _looked(self) -> FleetState:
        now = self._states.now
        return now if self._source is None else fleet_state.looked_at(now, self._source.looked)

    def unreadable(self, error: Exception) -> None:
        """Publish why the files are not used."""
        state = fleet_state.source_failed(
            self._looked(),
            problem_of(error),
            self._sentence(error),
            refused=error.revision if isinstance(error, Unverified | InvalidRepository) else "",
            now=self._now(),
        )
        self._states.put(state)

    def read(
        self, fleet: Fleet, found: SourceState | None, _warnings: Sequence[Problem] | None
    ) -> None:
        if found is not None:
            self._signature, self.snapshot = found.signature, found.snapshot
        state = fleet_state.source_read(self._looked(), fleet, self._signature, now=self._now())
        self._states.put(state)

    def began(self, task: Task) -> None:
        self._states.put(fleet_state.round_began(self._states.now, task))

    def ended(self, task: Task, result: RoundResult, seconds: float) -> None:
        report = result.report
        done = sum(one.status is Status.DONE for one in report.outcomes)
        failed = sum(one.status in AGAIN for one in report.outcomes)
        why = "" if failed or task.trigger is not Trigger.DRIFT else _repaired(report)
        record = self._record(task, seconds, result_of(report), done=done, failed=failed, why=why)
        self._states.put(fleet_state.round_ended(self._states.now, task, result, record))

    def failed(self, task: Task, error: Exception, seconds: float) -> None:
        word = "locked" if isinstance(error, Locked) else "failed"
        record = self._record(task, seconds, word, why=self._sentence(error))
        self._states.put(fleet_state.round_failed(self._states.now, record))

    def _record(
        self,
        task: Task,
        seconds: float,
        result: str,
        *,
        done: int = 0,
        failed: int = 0,
        why: str = "",
    ) -> RoundRecord:
        return RoundRecord(
            ended_at=self._now(),
            seconds=seconds,
            trigger=task.trigger,
            revision=self._states.now.source.revision,
            result=result,
            done=done,
            failed=failed,
            why=why,
        )


def _repaired(report: Report) -> str:
    """Name the objects, and their fields, that others had changed; "" for none."""
    lines = [one.change for one in report.outcomes if one.status is Status.DONE]
    repairs = (
        f"{line.cluster}: {line.action.value} {line.ref.object}"
        + "".join(f" {field.path}" for field in line.fields[:_MOST])
        for line in lines
    )
    return first_of(repairs, _MOST, comma="; ")


def problem_of(error: Exception) -> SourceProblem:
    """Return the kind of a failure to read the files."""
    if isinstance(error, Unverified):
        return SourceProblem.UNVERIFIED
    if isinstance(error, InvalidRepository):
        return SourceProblem.INVALID
    return SourceProblem.UNREADABLE

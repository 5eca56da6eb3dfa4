"""Applies a plan: lock, plan again, match with the approved plan, write, wait, report."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from reconciler import run
from reconciler.apply import NotReady, Observer, Options, Outcome, Report, Status, approval, cluster
from reconciler.apply.cluster import Job
from reconciler.apply.lock import Lock
from reconciler.apply.object_writer import ClusterWriter
from reconciler.apply.waits import Readiness, SharedListReader, WaitStages
from reconciler.controller import log_context
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.tasks import gather_or_cancel
from reconciler.core.errors import ConfigError, KlutchError, Locked, StalePlan
from reconciler.core.live import ClusterState, Live, Unavailable
from reconciler.core.manifest import uid_of
from reconciler.core.names import KUBE_SYSTEM
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.fleet.compile import units_by_cluster
from reconciler.fleet.values import Access, Fleet, Unit, UnitKey
from reconciler.health import board
from reconciler.health.live_units import Location
from reconciler.kube.cluster import Cluster
from reconciler.observe import Clusters, observe, read_scope
from reconciler.planning.changes import Change, Plan

_AT_ONCE: Final = 256  # clusters: most of them wait for a peer
_MANY: Final = 32  # clusters of one control plane: one look at all it holds costs less


async def apply(
    fleet: Fleet,
    approved: Plan,
    clusters: Clusters,
    *,
    options: Options,
    fence: WriteFence,
    observer: Observer,
) -> Report:
    """Execute the approved lines that still fit; return the outcome of each.

    Writes nothing at all where the plan holds nothing to do. Raises Locked, StalePlan, and the
    error of the lock where no control plane gives its own. What fails for one cluster, or for those
    behind one control plane, stands in the report.
    """
    work = _Run(fleet, approved, clusters, options, fence, observer)
    changing = approval.clusters_to_change(approved)
    _require_planes(
        fleet, approved, changing, {o.name: o.control_plane for o in fleet.clusters.values()}
    )
    asked = frozenset(approved.sections) if options.wait else changing
    if not changing:
        return await work.report([], await work.seen(asked) if asked else None)
    async with AsyncExitStack() as locks:
        observer.stage("taking the lock")
        barred = await work.locked(locks, changing)
        observer.stage("reading again")
        pace, only = options.pace, asked - barred.keys()
        look = await run.look(fleet, clusters, only=only, credentials=True, pace=pace)
        _require_planes(fleet, approved, only & changing, look.plan.sections)
        rest = tuple(one for one in approved.changes if one.cluster not in barred)
        matched = approval.match(replace(approved, changes=rest), look.plan)
        failed = [
            Outcome(one, Status.FAILED, barred[one.cluster])
            for one in approved.changes
            if one.acts and not one.held and one.cluster in barred
        ]
        refused = [*failed, *matched.refused]
        for outcome in refused:
            observer.outcome(outcome)
        observer.stage("applying")
        done = await work.lines(look.live, matched.lines)
    return await work.report([*done, *refused], look.live)


@dataclass(slots=True)
class _Run:
    """The state of one apply."""

    fleet: Fleet
    approved: Plan
    clusters: Clusters
    options: Options
    fence: WriteFence
    observer: Observer
    units: Mapping[str, Sequence[Unit]] = field(init=False)
    slots: asyncio.Semaphore = field(init=False)
    behind: Counter[str] = field(default_factory=Counter)  # app clusters to wait for, by plane
    shared_readers: dict[str, SharedListReader] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.units = units_by_cluster(self.fleet)
        self.slots = asyncio.Semaphore(max(_AT_ONCE, self.options.pace.parallelism))

    async def seen(self, names: Collection[str]) -> Live:
        """Read some app clusters, and the parts of their control planes that concern them."""
        return await observe(
            self.fleet,
            self.clusters,
            only=names,
            in_part=True,
            credentials=True,
            pace=self.options.pace,
        )

    async def locked(self, locks: AsyncExitStack, names: Collection[str]) -> Mapping[str, str]:
        """Take the lock of each control plane behind which something is to be changed.

        Return why clusters behind some cannot be. Raises as `apply`.
        """
        sections, options = self.approved.sections, self.options
        planes, failed = sorted({sections[name] for name in names}), dict[str, str]()
        for plane in planes:
            try:
                reached = await self.clusters.control_plane(plane)
                lock = Lock(reached.cluster, self.fleet, options, again=reached.again)
                await locks.enter_async_context(lock.held(self.fence, break_it=options.break_lock))
            except (Locked, StalePlan):
                raise
            except KlutchError as error:
                failed[plane] = f"without the lock of its control plane nothing is done: {error}"
                if len(failed) == len(planes):
                    raise
        return {name: failed[sections[name]] for name in names if sections[name] in failed}

    async def lines(self, live: Live, lines: Mapping[str, Sequence[Change]]) -> list[Outcome]:
        locations = _locations(self.fleet, live)
        done = await gather_or_cancel(
            self._lines(live, locations.get(name), name, lines[name]) for name in lines
        )
        return [outcome for one in done for outcome in one]

    async def _lines(
        self, live: Live, location: Location | None, name: str, lines: Sequence[Change]
    ) -> list[Outcome]:
        log_context.bind(control_plane=self.approved.sections[name], cluster=name)
        try:
            async with self.slots, self._reached(live, name) as (plane, app):
                await _require_same(app.cluster, live.clusters.get(name))
                both = {plane.cluster.name: plane, app.cluster.name: app}
                job = Job(
                    name=name,
                    mode=self.fleet.control_planes[self.approved.sections[name]].mode,
                    lines=lines,
                    clusters=both.__getitem__,
                    options=self.options,
                    readiness=self._readiness(location, plane, app),
                    depends_on={unit.key: unit.depends_on for unit in self.units.get(name, ())},
                    on_outcome=self.observer.outcome,
                )
                return await cluster.run(job)
        except KlutchError as error:  # the way to it is gone since it was read
            failed = [Outcome(line, Status.FAILED, str(error)) for line in lines]
            for outcome in failed:
                self.observer.outcome(outcome)
            return failed

    async def report(self, done: Sequence[Outcome], live: Live | None) -> Report:
        """Wait for the units where that is asked, and report all outcomes."""
        late, ready = ((), 0) if live is None else await self._waited(live)
        by_line = {approval.line_key(one.change): one for one in done}
        outcomes = [
            by_line.get(approval.line_key(change)) or Outcome.held(change)
            for change in self.approved.changes
            if change.acts and (change.held or approval.line_key(change) in by_line)
        ]
        planned = {approval.line_key(change) for change in self.approved.changes}
        # What an apply found where the plan had left it to that (trust.md T2).
        outcomes += [one for line, one in by_line.items() if line not in planned]
        return Report(
            plan=self.approved,
            outcomes=tuple(outcomes),
            not_ready=tuple(late),
            ready=ready,
            ended=self.fence.reason,
            lock_lost=self.fence.lock_lost,
        )

    async def _waited(self, live: Live) -> tuple[Sequence[NotReady], int]:
        if not self.options.wait:
            return (), 0
        self.observer.stage("waiting until all is ready")
        locations = _locations(self.fleet, live)
        awake = {
            name: [unit.key for unit in units]
            for name, units in self.units.items()
            if name in live.clusters and self.fleet.clusters[name].suspended is None
        }
        self.behind.update(self.approved.sections[name] for name in awake)
        stages = WaitStages(self.observer.stage)
        found = await gather_or_cancel(
            self._ready(live, locations.get(name), name, units, partial(stages.looked, name))
            for name, units in awake.items()
        )
        late = sorted((one for some in found for one in some), key=lambda one: one.unit)
        asked = sum(len(units) for name, units in self.units.items() if name in live.clusters)
        return late, asked - len(late)

    def _shared_reader(self, name: str, plane: ClusterWriter) -> SharedListReader | None:
        """Return the first look at a cluster's control plane, where many are behind that."""
        section = self.approved.sections[name]
        if self.behind[section] < _MANY:
            return None
        return self.shared_readers.setdefault(section, SharedListReader(plane.cluster))

    async def _ready(
        self,
        live: Live,
        location: Location | None,
        name: str,
        units: Sequence[UnitKey],
        looked: Callable[[Sequence[NotReady]], None],
    ) -> Sequence[NotReady]:
        if location is None:
            return [
                NotReady(str(unit), "its cluster could not be read, or is held back")
                for unit in units
            ]
        try:
            async with self.slots, self._reached(live, name) as (plane, app):
                readiness = self._readiness(location, plane, app, self._shared_reader(name, plane))
                return await readiness.wait(units, seconds=self.options.wait_seconds, looked=looked)
        except (KlutchError, Stopped) as error:
            return [NotReady(str(unit), str(error)) for unit in units]

    def _readiness(
        self,
        location: Location | None,
        plane: ClusterWriter,
        app: ClusterWriter,
        shared_reader: SharedListReader | None = None,
    ) -> Readiness:
        return Readiness(
            location=location,
            control_plane=plane,
            app=app,
            fence=self.fence,
            now=self.options.now,
            shared_reader=shared_reader,
        )

    @asynccontextmanager
    async def _reached(
        self, live: Live, name: str
    ) -> AsyncIterator[tuple[ClusterWriter, ClusterWriter]]:
        """Reach a cluster and its control plane, and give the cluster's connections back."""
        known = self.fleet.clusters.get(name)
        if known is None:
            leaver = read_scope.removed_clusters(self.fleet, live.control_planes)[name]
            assert not isinstance(leaver, Unavailable), name
            access: Access = leaver.access
        else:
            access = known.access
        plane_name = self.approved.sections[name]
        plane = await self.clusters.control_plane(plane_name)
        app = await self.clusters.app_cluster(name, access, control_plane=plane_name)
        try:
            yield ClusterWriter(plane.cluster, self.fence), ClusterWriter(app.cluster, self.fence)
        finally:
            await self.clusters.close(name)


def _require_planes(
    fleet: Fleet, approved: Plan, names: Iterable[str], known: Mapping[str, str]
) -> None:
    """Raise StalePlan where a plan, which a file may be, leads to the lock of another one."""
    for name in sorted(names):
        plane = approved.sections.get(name, "")
        if plane not in fleet.control_planes or known.get(name, plane) != plane:
            raise StalePlan(f"{name} is not behind control plane {plane!r}: plan again")


async def _require_same(cluster: Cluster, seen: ClusterState | Unavailable | None) -> None:
    """Raise ConfigError where the way by which a cluster was read leads to another one now.

    It is opened again for the writes: its kubeconfig, or an address, may have changed since then.
    """
    if isinstance(seen, ClusterState):
        system = Ref(cluster.name, NAMESPACE, "", KUBE_SYSTEM)
        if uid_of(await cluster.get(system, metadata_only=True) or {}) != seen.uid:
            raise ConfigError("it is another cluster now", where=cluster.name, hint="Plan again")


def _locations(fleet: Fleet, live: Live) -> Mapping[str, Location]:
    view = board.view_of(fleet, live, only=live.clusters.keys() & fleet.clusters.keys())
    return {name: units.live.location for name, units in view.clusters.items()}

"""Applies the lines of one app cluster in order: shared objects, units, then leaving objects.

A line that fails stops its dependents only: the later lines of its unit, or all after a shared one.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.api import API_SERVICE_BINDING, APP_CLUSTER_BINDING, is_established, secret_of
from reconciler.apply import GOOD, Options, Outcome, Status, object_writer, service_objects
from reconciler.apply.object_writer import Clusters, ClusterWriter, Unfilled
from reconciler.apply.patches import Stale
from reconciler.apply.step_runner import StepRunner
from reconciler.apply.waits import BackendWait, MirrorWait, Readiness, Refused, Unconfirmed
from reconciler.controller import log_context
from reconciler.controller.fence import Stopped
from reconciler.controller.tasks import gather_or_cancel
from reconciler.core.errors import KlutchError
from reconciler.core.refs import CRD, SECRET, Ref
from reconciler.fleet.values import Mode, UnitKey
from reconciler.observe import visits
from reconciler.planning.changes import Action, Change
from reconciler.planning.clusters import is_new_address

OnOutcome = Callable[[Outcome], None]

_AT_ONCE: Final = 8  # units that write to the app cluster
_SIMPLE: Final = frozenset({Action.CREATE, Action.UPDATE, Action.ADOPT})
_ESTABLISHED_WAIT: Final = 30.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An app cluster's share of an apply.

    `depends_on` are the units that have to be Ready before a unit, all of this cluster.
    `on_outcome` is called with each outcome as soon as it is known.
    """

    name: str
    mode: Mode
    lines: Sequence[Change]
    clusters: Clusters
    options: Options
    readiness: Readiness
    depends_on: Mapping[UnitKey, Collection[UnitKey]]
    on_outcome: OnOutcome


async def run(job: Job) -> list[Outcome]:
    """Execute all lines of one app cluster, and return the outcome of each.

    A defect of klutchctl fails the lines of the cluster that triggers it, and of no other.
    """
    worker = _Worker(job)
    try:
        await _all(worker)
    except Exception as error:
        known = {id(outcome.change) for outcome in worker.outcomes}
        rest = [line for line in job.lines if id(line) not in known]
        worker.fail(rest, visits.defect(error).reason)
    return worker.outcomes


async def _all(worker: "_Worker") -> None:
    job = worker.job
    once = [line for line in job.lines if line.unit is None and not line.leaves]
    # With the bindings there before it, the backend finds them and keeps their claims.
    last = [line for line in once if worker.makes_app_cluster_binding and _is_whole(line)]
    # What leaves needs its rights until it has left.
    leaving = any(line.unit is not None and line.leaves for line in job.lines)
    rights = [line for line in once if leaving and line.changes_rights]
    # The old address may work on, so that nothing else waits for the konnector.
    moved = [line for line in once if worker.waits_for_mirror(line)]
    first = [line for line in once if line not in last and line not in (*rights, *moved)]
    units = _by_unit(job.lines)
    if await worker.chain(first):
        # What is new comes before what leaves: its turn is over when that begins.
        for leaves in (False, True):
            turn = [key for key in units if units[key][-1].leaves is leaves]
            await gather_or_cancel(worker.unit(key, units[key]) for key in turn)
        await worker.chain(last)
        await worker.chain(moved)
    else:
        why = "a shared object of the cluster was not written"
        worker.skip([*(one for found in units.values() for one in found), *last, *moved], why)
    whole = [line for line in job.lines if line.unit is None and line.leaves]
    if worker.all_good:
        await worker.chain([*rights, *whole])
    else:
        worker.skip([*rights, *whole], "not all leaving objects are released")


@dataclass(slots=True)
class _Worker:
    job: Job
    outcomes: list[Outcome] = field(default_factory=list)
    done: dict[UnitKey, asyncio.Event] = field(default_factory=dict)
    failed: set[UnitKey] = field(default_factory=set)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    established: set[Ref] = field(default_factory=set)
    backend_waits: dict[tuple[str, str], BackendWait] = field(default_factory=dict)
    adopted: dict[Ref, str] = field(default_factory=dict)  # digests, as `Change.before`
    notes: dict[Ref, str] = field(default_factory=dict)  # about Secrets that bindings name
    noting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.done = {line.unit: asyncio.Event() for line in self.job.lines if line.unit is not None}

    @property
    def _plane(self) -> ClusterWriter:
        return self.job.readiness.control_plane

    def _mends_kubeconfig(self, change: Change) -> bool:
        """Return whether a line changes the kubeconfig in the app cluster, which bindings name."""
        wanted, direct = change.wanted, self.job.mode is Mode.DIRECT
        in_app = change.ref.cluster == self.job.name and change.ref.kind == SECRET
        kubeconfig = wanted is not None and wanted.kubeconfig is not None
        return direct and in_app and kubeconfig and change.action is Action.UPDATE

    def waits_for_mirror(self, change: Change) -> bool:
        """Return whether a live konnector has to try the kubeconfig that a line would write."""
        return self._mends_kubeconfig(change) and is_new_address(change.fields)

    @property
    def makes_app_cluster_binding(self) -> bool:
        return any(_is_whole(line) and line.action is Action.CREATE for line in self.job.lines)

    @property
    def all_good(self) -> bool:
        """Whether nothing has failed, or was left undone, so far."""
        return all(outcome.status in GOOD for outcome in self.outcomes)

    async def unit(self, key: UnitKey, changes: Sequence[Change]) -> None:
        """Do the lines of one unit, after all that it depends on."""
        log_context.bind(unit=key.name)
        try:
            if reason := await self._waits(key):
                self.failed.add(key)
                self.skip(changes, reason)
                return
            if not await self.chain(changes):
                self.failed.add(key)
        finally:
            self.done[key].set()

    async def _waits(self, key: UnitKey) -> str:
        """Wait for the units that this one depends on; return why it may not go on, or ""."""
        others = self.job.depends_on.get(key, ())
        for other in others:
            if other in self.done:
                await self.done[other].wait()
            if other in self.failed:
                return f"it depends on {other.name}, which was not done"
        # What is all of one AppClusterBinding becomes Ready only after that has been made.
        if not others or self.makes_app_cluster_binding:
            return ""
        try:
            late = await self.job.readiness.wait(others, seconds=self.job.options.wait_seconds)
        except Stopped as stop:
            return str(stop)
        return "".join(f"it depends on {one.unit}: {one.reason}" for one in late[:1])

    async def chain(self, changes: Sequence[Change]) -> bool:
        """Execute lines one after another, up to the first that fails; return whether none did."""
        for place, change in enumerate(changes):
            outcome = await self._line(change)
            self._add(outcome)
            if outcome.status not in GOOD:
                self.skip(changes[place + 1 :], f"after {change.ref.object}, which was not done")
                return False
        return True

    def skip(self, changes: Sequence[Change], reason: str) -> None:
        stopped = self.job.readiness.fence.closed
        for change in changes:
            status = Status.INTERRUPTED if stopped else Status.SKIPPED
            self._add(Outcome(change, Status.HELD if change.held else status, reason))

    def fail(self, changes: Sequence[Change], reason: str) -> None:
        for change in changes:
            self._add(Outcome(change, Status.FAILED, reason))

    def _add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.job.on_outcome(outcome)

    async def _line(self, change: Change) -> Outcome:
        if change.held:
            return Outcome.held(change)
        try:
            self.job.readiness.fence.check()
            return await self._do(change)
        except Stale as stale:
            return Outcome(change, Status.STALE, f"{stale}: plan again")
        except Unconfirmed as late:
            return Outcome(change, Status.UNCONFIRMED, str(late))
        except Stopped as stop:
            return Outcome(change, Status.INTERRUPTED, str(stop))
        except (KlutchError, Unfilled, Refused) as error:
            return Outcome(change, Status.FAILED, str(error))

    async def _do(self, change: Change) -> Outcome:
        simple = change.action in _SIMPLE and not change.steps
        if simple and change.ref.kind == API_SERVICE_BINDING and change.action is Action.CREATE:
            return await self._bind(change)
        if change.ref.cluster != self.job.name:
            return await (self._plainly(change) if simple else self._steps(change))
        async with self.slots:
            return await (self._plainly(change) if simple else self._steps(change))

    async def _plainly(self, change: Change) -> Outcome:
        # An adoption that held has left the object as the plan saw it, but for our marks.
        known = self.adopted.get(change.ref, change.before)
        if await self._is_mirrored(change):
            outcome = Outcome(change, Status.DONE, "its konnector tried it, and wrote it")
        else:
            outcome = await object_writer.do(replace(change, before=known), self.job.clusters)
            outcome = replace(outcome, change=change)
        carrier = service_objects.carrier_after(change)
        # Also where the konnector was faster: what is there then is not noted yet.
        if carrier is not None and outcome.status in GOOD:
            await service_objects.note_kubeconfig(self.job.clusters(carrier.cluster), carrier)
        elif self._mends_kubeconfig(change) and outcome.status in GOOD:
            await service_objects.note_bindings(change, self.job.clusters, self._plane.cluster.name)
        if change.action is Action.ADOPT:
            self.adopted[change.ref] = await object_writer.now(change, self.job.clusters)
            if change.ref.kind == API_SERVICE_BINDING:
                await self._note(change)
        if change.ref.kind == CRD:
            await self._established(change.ref)
        return outcome

    async def _is_mirrored(self, change: Change) -> bool:
        """Wait for a konnector to write a new address; False where it is for us to write.

        Raises Unconfirmed, Stopped and ClusterErrors.
        """
        if not self.waits_for_mirror(change) or self.job.options.force:
            return False
        assert change.placement is not None, change
        app, options = self.job.clusters(change.ref.cluster), self.job.options
        wait = MirrorWait(self._plane, app, change.placement, wait=options.wait_seconds)
        place = "" if change.placement.bindings_cluster_scoped else change.ref.namespace
        secret = change.ref.namespace, change.ref.name
        bindings = await service_objects.list_bindings(app, place)
        led = [binding for binding in bindings if secret_of(binding) == secret]
        if not await wait.has_konnector(led, options.now()):
            return False
        await wait.mirrored(change.ref)
        return True

    async def _steps(self, change: Change) -> Outcome:
        if change.action is Action.REPLACE and change.before:
            await object_writer.check(change, self.job.clusters)
        runner = StepRunner(change, self.job.clusters, self.job.options)
        notes = [await runner.do(step) for step in change.steps]
        if change.action is Action.REPLACE and change.ref.kind == API_SERVICE_BINDING:
            await self._note(change)
        return Outcome(change, Status.DONE, "; ".join(note for note in notes if note))

    async def _bind(self, change: Change) -> Outcome:
        """Make an APIServiceBinding once that has something to bind (mapping.md 3, 8).

        Who waits for the backend holds no slot: so one list tells all units of a cluster.
        """
        assert change.unit is not None, change
        name, clusters = change.unit.name, self.job.clusters
        if self.job.mode is not Mode.DIRECT and not self.makes_app_cluster_binding:
            live = await self._backend_wait(change).binding(name)
            async with self.slots:
                outcome = await object_writer.accept_claims(change, live, clusters)
                return await self._owning(outcome, name)
        if self.job.mode is Mode.DIRECT:
            await self._backend_wait(change).export(name)
        async with self.slots:
            # A konnector that is there brings the CRD of bindings, as soon as it runs.
            await self._established(Ref(change.ref.cluster, CRD, "", change.ref.kind.resource))
            outcome = await object_writer.do(change, clusters)
            outcome = await self._owning(outcome, name)
            await self._note(change)
        return outcome

    async def _note(self, change: Change) -> None:
        """Note the facts of its Secret on an APIServiceBinding; it is read once for all of them."""
        if self.job.mode is not Mode.DIRECT:
            return
        assert change.wanted is not None, change
        assert change.placement is not None, change
        app, space = self.job.clusters(change.ref.cluster), change.placement.space
        secret = Ref(change.ref.cluster, SECRET, *secret_of(change.wanted.manifest))
        async with self.noting:
            if secret not in self.notes:
                self.notes[secret] = await service_objects.binding_note(
                    app, secret, self._plane, space
                )
        await service_objects.put_note(app, change.ref, self.notes[secret])

    async def _owning(self, outcome: Outcome, name: str) -> Outcome:
        """Give a CRD that is there from before its new binding as the owner."""
        change, crd = outcome.change, Ref(self.job.name, CRD, "", name)
        assert change.placement is not None, change
        made = await self.job.clusters(change.ref.cluster).read(change.ref)
        # The garbage collector would look for a cluster-scoped owner, and delete the CRD.
        astray = self.job.mode is not Mode.DIRECT and change.placement.bindings_cluster_scoped
        app = self.job.clusters(self.job.name)
        missed = "" if astray else await service_objects.own_crd(app, crd, made)
        return replace(outcome, message=missed or outcome.message)

    def _backend_wait(self, change: Change) -> BackendWait:
        assert change.placement is not None, change
        assert change.wanted is not None, change
        plane, space = self._plane, change.placement.space
        key = plane.cluster.name, space
        if key not in self.backend_waits:
            self.backend_waits[key] = BackendWait(plane, space, wait=self.job.options.wait_seconds)
        return self.backend_waits[key]

    async def _established(self, ref: Ref) -> None:
        """Wait until the API server serves what a CRD defines."""
        if ref in self.established:
            return
        app = self.job.clusters(ref.cluster)

        async def look() -> bool | None:
            return True if is_established(await app.read(ref)) else None

        if await app.fence.until(look, seconds=_ESTABLISHED_WAIT) is None:
            raise Unconfirmed(f"{ref}: not Established after {_ESTABLISHED_WAIT:.0f} s")
        self.established.add(ref)


def _by_unit(changes: Sequence[Change]) -> Mapping[UnitKey, Sequence[Change]]:
    found: dict[UnitKey, list[Change]] = {}
    for change in changes:
        if change.unit is not None:
            found.setdefault(change.unit, []).append(change)
    return found


def _is_whole(change: Change) -> bool:
    return change.ref.kind == APP_CLUSTER_BINDING and not change.leaves

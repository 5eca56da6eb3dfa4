"""Applies within the test's own process, so that it can die, or meet faults, at a chosen call."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from klutchctl import repository
from reconciler import api, run
from reconciler.apply import Observer, Options, Outcome, Report
from reconciler.apply.run import apply
from reconciler.blueprints.objects import build
from reconciler.controller import log_context
from reconciler.controller.fence import WriteFence
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, names, refs
from reconciler.core.errors import NotServed
from reconciler.core.manifest import Manifest, annotations_of, finalizers_of, ref_of
from reconciler.fleet.values import Fleet as FleetValue
from reconciler.fleet.values import Mode
from reconciler.kube import registry
from reconciler.kube.registry import Surroundings
from reconciler.observe import Clusters, Pace
from reconciler.planning.changes import Action, Plan
from tests.support import removal
from tests.support.applying import Fleet, Scene
from tests.support.bound_scenes import new
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.faults import Faults, FaultyClusters
from tests.support.observing import established
from tests.support.offers import offered
from tests.support.removal import remove_for_good
from tests.support.role_holders import operator

_MANY_RUNS = 5


@dataclass
class Runs:
    """Runs of `klutchctl apply` on a scene, each a process of its own as far as clusters can tell.

    `heard` are the stages of the last run, and what became of its lines, as they were told, and
    `logged` what a record of the log would say at each of these lines, of all runs.
    """

    scene: Scene
    wait_seconds: float = 90.0
    now: Callable[[], datetime] = field(default=lambda: SystemClock().now())
    heard: list[object] = field(default_factory=list)
    logged: list[Mapping[str, object]] = field(default_factory=list)
    _count: int = 0

    async def plan(self) -> Plan:
        async with self._clusters(Faults()) as (fleet, clusters):
            return await _plan(fleet, clusters)

    async def todo(self) -> list[str]:
        """Return the lines of a plan by which something would be done, or a person has to look."""
        lines = (await self.plan()).changes
        return [
            f"{one.action.value} {one.ref.object}: {one.reason}"
            for one in lines
            if one.acts or one.action is Action.BLOCKED
        ]

    async def run(
        self,
        faults: Faults | None = None,
        *,
        fence: WriteFence | None = None,
        break_lock: bool = True,
        force: bool = False,
        wait: bool = False,
        approved: Plan | None = None,
    ) -> Report:
        """Apply a plan, usually a new one. Raises SimulatedCrash where the faults say so."""
        self._count += 1
        self.heard.clear()
        options = Options(
            holder=f"run-{self._count}",
            now=self.now,
            pace=Pace(),
            wait=wait,
            wait_seconds=self.wait_seconds,
            force=force,
            break_lock=break_lock,
        )
        async with self._clusters(faults or Faults()) as (fleet, clusters):
            return await apply(
                fleet,
                approved or await _plan(fleet, clusters),
                clusters,
                options=options,
                fence=fence or WriteFence(),
                observer=Observer(outcome=self._hear, stage=self.heard.append),
            )

    def _hear(self, outcome: Outcome) -> None:
        self.heard.append(outcome)
        self.logged.append(log_context.current())

    async def finish(self) -> Sequence[Report]:
        """Run again until nothing is left to do; return what the runs did."""
        reports: list[Report] = []
        while left := await self.todo():
            assert len(reports) < _MANY_RUNS, (left, reports[-1].outcomes)
            reports.append(await self.run())
        return reports

    @asynccontextmanager
    async def _clusters(self, faults: Faults) -> AsyncIterator[tuple[FleetValue, Clusters]]:
        self.scene.fleet.write()
        fleet = repository.fleet_in(self.scene.fleet.folder, check_owner=False)
        around = Surroundings(kubeconfigs=[self.scene.kubeconfig], environ={})
        async with registry.of(fleet, around) as real:
            yield fleet, FaultyClusters(real, faults)


async def _plan(fleet: FleetValue, clusters: Clusters) -> Plan:
    return (await run.look(fleet, clusters, only=None, credentials=True, pace=Pace())).plan


@asynccontextmanager
async def staged(
    plane: LiveCluster, app: LiveCluster, *, namespace: str, mode: Mode, folder: Path, **more: Any
) -> AsyncIterator[Scene]:
    """Offer a service, and describe a fleet that binds it; all traces go at the end."""
    async with offered(plane.cluster, app.cluster, namespace=namespace, **more) as offer:
        await _unbind(app)
        fleet = Fleet(folder, namespace.removeprefix("test-"), mode, offer.group)
        scene = Scene(fleet, plane, app, offer, namespace, plane.kubeconfig)
        await app.cluster.create(build(refs.NAMESPACE, namespace), refs.NAMESPACE, manager="tests")
        try:
            yield scene
        finally:
            try:
                await removal.remove(app.cluster, refs.Ref(app.name, refs.NAMESPACE, "", namespace))
            finally:
                await wipe(scene)


async def _unbind(app: LiveCluster) -> None:
    """Take away what other tests bound and left: one of their claims keeps Secrets of this one."""
    with suppress(NotServed):
        for one in (await app.cluster.list(api.API_SERVICE_BINDING)).items:
            await remove_for_good(app, ref_of(app.name, api.API_SERVICE_BINDING, one))


async def wipe(scene: Scene) -> None:
    """Remove what a fleet leaves in clusters and namespaces that tests share.

    What cannot be removed stops no other removal: a carrier that stays would block the fleets of
    all later tests, which name the same app cluster (trust.md T13).
    """
    bound = scene.app if scene.fleet.mode is Mode.DIRECT else scene.plane
    lease = refs.Ref(
        scene.plane.name, refs.LEASE, names.KLUTCH_NAMESPACE, names.lock_lease(scene.fleet.name)
    )
    own = refs.Ref(scene.plane.name, refs.NAMESPACE, "", scene.fleet.name)
    async with AsyncExitStack() as stack:  # the last comes first
        stack.push_async_callback(_wipe_app, scene)
        for ref in (lease, own, scene.home):
            stack.push_async_callback(removal.remove, scene.plane.cluster, ref)
        stack.push_async_callback(remove_for_good, scene.plane, scene.whole)
        stack.push_async_callback(remove_for_good, bound, scene.binding)


async def _wipe_app(scene: Scene) -> None:
    bind, labels = names.KLUTCH_NAMESPACE, f"{keys.FLEET}={scene.fleet.name}"
    for kind in (refs.SECRET, refs.SERVICE_ACCOUNT, refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING):
        place = bind if kind.namespaced else ""
        for one in (await scene.app.cluster.list(kind, namespace=place, labels=labels)).items:
            await removal.remove_manifest(scene.app.cluster, kind, one)


async def inhabit(scene: Scene, name: str = "db") -> tuple[refs.Ref, refs.Ref]:
    """Make an instance of the service; return it and its copy, once both are held.

    After a release the original marks a copy again with the next change of the instance: what
    is released here is marked at once.
    """
    claim = refs.Ref(scene.app.name, scene.offer.kind, scene.app_namespace, name)
    copy = refs.Ref(scene.plane.name, scene.offer.kind, scene.service_namespace, name)
    await established(scene.app.cluster, scene.offer.kind)
    if await scene.at(claim) is None:
        made = scene.offer.instance(name, namespace=scene.app_namespace, spec={"size": 1})
        await new(scene.app, made, scene.offer.kind, manager="developer")
    elif await scene.at(copy) is not None:
        marks = {keys.BOUND: keys.BOUND_VALUE, keys.RELEASED: None}
        again: Manifest = {"metadata": {"annotations": marks}}
        await scene.plane.cluster.merge_patch(copy, again, manager=keys.MANAGER_KONNECTOR)

    async def held():
        here, there = await scene.at(claim) or {}, await scene.at(copy) or {}
        marked = all(keys.BOUND in annotations_of(one) for one in (here, there))
        return marked and keys.SYNCER in finalizers_of(here)

    await eventually(held)
    return claim, copy


@pytest.fixture
def mode() -> Mode:
    """How the fleet binds; tests of other modes have one of their own."""
    return Mode.DIRECT


@pytest.fixture
async def scene(
    mode: Mode, control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str, tmp_path: Path
) -> AsyncIterator[Scene]:
    where = staged(control_plane, app_cluster, namespace=namespace, mode=mode, folder=tmp_path)
    async with where as scene:
        yield scene


@pytest.fixture
def runs(scene: Scene) -> Runs:
    return Runs(scene)


@pytest.fixture
async def files(scene: Scene) -> AsyncIterator[Path]:
    """The folder of the fleet, with what the scene says in it, for an operator of its own."""
    async with operator((scene.plane, scene.app), scene.fleet.folder) as somebody:
        scene.kubeconfig, scene.user = somebody
        scene.fleet.folder = scene.fleet.folder / "fleet"
        scene.fleet.folder.mkdir()
        scene.fleet.write()
        yield scene.fleet.folder

"""What `klutchctl doctor` says of konnectors, backends and Crossplane."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from klutchctl.commands.doctor import exit_code
from klutchctl.entry import ExitCode
from reconciler import api
from reconciler.controller.lease import micro
from reconciler.controller.tasks import SystemClock
from reconciler.core import conditions, keys, names, refs
from reconciler.core.manifest import Manifest
from reconciler.core.times import format_time
from reconciler.doctor.diagnosis import Check, Examination, Finding, Level
from reconciler.doctor.examine import ACCESS_REVIEW, examine
from reconciler.doctor.rights import Task
from reconciler.fleet.values import Fleet, Konnector, Mode
from reconciler.kube import registry
from reconciler.kube.registry import Reached
from reconciler.kube.requests import Request
from reconciler.observe import Pace
from tests.support import fleets
from tests.support.definitions import OPEN, spec_of, version_of
from tests.support.faults import Faults, FaultyCluster, FaultyClusters, forbidden, on
from tests.support.observing import BIND, Hand, around, established
from tests.support.wire_objects import WireObjects

LONG, RECENT = timedelta(minutes=5), timedelta(seconds=3)
OK, WARNING, PROBLEM = Level


class Reviewing(FaultyCluster):
    """A model that answers reviews of access, too: everything is allowed."""

    async def send(self, request: Request) -> Manifest:
        if request.ref.kind == ACCESS_REVIEW:
            return {"metadata": {}, "status": {"allowed": True}}
        return await super().send(request)


class ReviewingClusters(FaultyClusters):
    def _faulty(self, reached: Reached) -> Reached:
        return replace(reached, cluster=Reviewing(reached.cluster, self._faults))


async def examined(fleet: Fleet, plane: Hand, faults: Faults, task: Task) -> Sequence[Examination]:
    async with registry.of(fleet, around(plane.live.kubeconfig)) as real:
        clusters, now = ReviewingClusters(real, faults), SystemClock().now
        return await examine(fleet, clusters, task=task, now=now, pace=Pace())


@dataclass
class Scene:
    """A fleet with one unit, and its clusters, on which nothing was applied yet."""

    fleet: Fleet
    plane: Hand
    app: Hand
    faults: Faults = field(default_factory=Faults)

    @property
    def space(self) -> str:
        return names.direct_space(self.fleet.name, "shop")

    async def lease(self, hand: Hand, name: str, ago: timedelta, at: str = BIND) -> str:
        """Make a Lease that was renewed that long ago, and return when."""
        time = SystemClock().now() - ago
        spec = {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": micro(time)}
        await hand.create(refs.LEASE, name, namespace=at, spec=spec)
        return format_time(time)

    async def bound(self, beat: timedelta | None = None, space: str = "") -> None:
        """Make an export, and a konnector's heartbeat."""
        labels = {} if space else {keys.FLEET: self.fleet.name, keys.CLUSTER: "shop"}
        space = space or self.space
        await self.plane.create(refs.NAMESPACE, space, metadata={"labels": labels})
        wire = WireObjects(self.plane.live.name, self.plane.live.cluster, space)
        await wire.create(api.API_SERVICE_EXPORT)
        await wire.create(api.CLUSTER_BINDING)
        if beat is not None:
            status = {"lastHeartbeatTime": format_time(SystemClock().now() - beat)}
            await wire.patch(api.CLUSTER_BINDING, {"status": status}, subresource="status")

    async def examined(
        self, task: Task = Task.APPLY, check: Check = Check.AGENTS
    ) -> Mapping[str, tuple[Level, str]]:
        """Return what is said of agents, or by another check, by cluster."""
        found = await examined(self.fleet, self.plane, self.faults, task)
        return {
            one.name: (finding.level, f"{finding.message}. {finding.remedy}")
            for one in found
            for finding in one.findings
            if finding.check is check
        }


@pytest.fixture
async def scene(fleet: Fleet, on_plane: Hand, in_app: Hand) -> Scene:
    made = fleets.fleet(
        control_planes=fleet.control_planes.values(), clusters=fleet.clusters.values()
    )
    await on_plane.create(refs.NAMESPACE, BIND)
    return Scene(replace(made, name=fleet.name), on_plane, in_app)


async def test_agents_that_run(scene: Scene) -> None:
    await scene.lease(scene.plane, names.BACKEND_LEASE, RECENT)
    await scene.lease(scene.app, names.KONNECTOR_LEASE, RECENT)
    found = await scene.examined()
    assert (found["eu"][0], found["shop"][0]) == (OK, OK)


async def test_a_backend_that_stopped(scene: Scene) -> None:
    since = await scene.lease(scene.plane, names.BACKEND_LEASE, timedelta(seconds=21))
    level, said = (await scene.examined())["eu"]
    assert level is PROBLEM
    assert f"stopped: Lease {BIND}/klutch-bind-backend was last renewed at {since}" in said
    assert (await scene.examined(Task.PLAN))["eu"][0] is WARNING


async def test_a_konnector_that_stopped(scene: Scene) -> None:
    since = await scene.lease(scene.app, names.KONNECTOR_LEASE, LONG, at="kube-system")
    await scene.bound(beat=LONG)
    level, said = (await scene.examined())["shop"]
    assert level is PROBLEM
    assert f"stopped: Lease kube-system/klutch-bind was last renewed at {since}" in said


async def test_the_originals_konnector_works_on_without_its_lease(scene: Scene) -> None:
    await scene.lease(scene.app, names.KONNECTOR_LEASE, LONG)
    await scene.bound(beat=RECENT)
    assert "shop" not in await scene.examined()


async def test_what_a_konnector_holds_until_a_person_decides(scene: Scene) -> None:
    await scene.bound(beat=RECENT)
    assert await scene.examined(Task.PLAN, Check.GUARDS) == {}
    wire = WireObjects(scene.plane.live.name, scene.plane.live.cluster, scene.space)
    said = conditions.false(conditions.MASS_DELETION, "Copies are kept: kubectl annotate it")
    found = conditions.set_condition((), said, now=SystemClock().now())
    status = {"conditions": conditions.dump(found)}
    await wire.patch(api.CLUSTER_BINDING, {"status": status}, subresource="status")
    held = "MassDeletion: Copies are kept: kubectl annotate it. klutchctl explain MassDeletion"
    assert await scene.examined(Task.PLAN, Check.GUARDS) == {"shop": (WARNING, held)}


async def test_a_konnector_that_was_never_there_is_no_finding(scene: Scene) -> None:
    await scene.bound()  # and a backend without a Lease has exported something
    assert await scene.examined() == {}


async def test_no_backend_before_the_first_apply(scene: Scene) -> None:
    level, said = (await scene.examined())["eu"]
    assert level is WARNING
    assert "no Lease klutch-bind-backend in klutch-bind or default, and no APIServiceExport" in said


async def test_nothing_that_is_bound_needs_no_backend(scene: Scene) -> None:
    scene.fleet = replace(scene.fleet, units={})
    assert await scene.examined() == {}


async def test_a_konnector_on_the_control_plane(scene: Scene) -> None:
    (plane,), (cluster,) = scene.fleet.control_planes.values(), scene.fleet.clusters.values()
    hosted = fleets.fleet(
        control_planes=[replace(plane, mode=Mode.APP_CLUSTER_BINDING)],
        clusters=[replace(cluster, konnector=Konnector(deploy=True))],
    )
    scene.fleet = replace(hosted, name=scene.fleet.name)
    space = names.app_cluster_binding_space("klutch-fleet", "shop")
    await scene.plane.create(refs.NAMESPACE, "klutch-fleet")
    spec = {"kubeconfigSecretRef": {"namespace": "klutch-fleet", "name": "x", "key": "kubeconfig"}}
    place = (api.APP_CLUSTER_BINDING, "shop")
    await scene.plane.create(*place, namespace="klutch-fleet", spec={**spec, "apiExports": []})
    await scene.bound(beat=LONG, space=space)
    since = await scene.lease(scene.plane, names.KONNECTOR_LEASE, LONG, at=space)
    await scene.lease(scene.app, names.KONNECTOR_LEASE, LONG)  # of another time
    level, said = (await scene.examined())["shop"]
    assert level is PROBLEM
    assert f"Lease {space}/klutch-bind on control plane eu was last renewed at {since}" in said


@pytest.mark.parametrize("kind", [refs.LEASE, api.CLUSTER_BINDING])
async def test_what_may_not_be_read_is_no_problem_and_no_crash(scene: Scene, kind: Any) -> None:
    """That a right is missing, the check of rights says."""
    await scene.lease(scene.app, names.KONNECTOR_LEASE, LONG)
    scene.faults.add(on(kind=kind), forbidden())
    found = {name: level for name, (level, _) in (await scene.examined()).items()}
    assert found == ({} if kind is refs.LEASE else {"shop": WARNING, "eu": WARNING})


async def test_a_cluster_that_is_held_back_says_so_and_hides_no_stopped_agent(scene: Scene) -> None:
    (cluster,) = scene.fleet.clusters.values()
    scene.fleet = replace(scene.fleet, clusters={"shop": replace(cluster, identity="another")})
    await scene.lease(scene.app, names.KONNECTOR_LEASE, LONG)
    assert (await scene.examined())["shop"][0] is WARNING
    level, said = (await scene.examined(check=Check.GUARDS))["shop"]
    assert (level, said.endswith("klutchctl explain identity")) == (PROBLEM, True)


XR = refs.Kind("doctored.example", "v1", "XDatabase", "xdatabases", namespaced=False)
KINDS = (
    refs.COMPOSITION,
    refs.COMPOSITION_REVISION,
    refs.COMPOSITE_DEFINITION,
    refs.FUNCTION_REVISION,
    XR,
)


class Composing(NamedTuple):
    fleet: Fleet
    plane: Hand
    faults: Faults

    async def install(self, *versions: str) -> None:
        """Make Crossplane's CRDs; definitions are served in these versions."""
        for kind in KINDS:
            named = versions if kind == refs.COMPOSITE_DEFINITION else ("v1",)
            served = [version_of(OPEN, one, storage=one == "v1") for one in named]
            spec = spec_of(kind, served) | {"scope": "Cluster"}
            await self.plane.create(refs.CRD, kind.resource, spec=spec)
            await established(self.plane.live.cluster, kind)
        spec = {"group": XR.group, "names": {"plural": XR.plural, "kind": XR.kind}}
        await self.plane.create(refs.COMPOSITE_DEFINITION, XR.resource, spec=spec)

    async def composes(self, kind: refs.Kind, name: str, mode: str) -> None:
        of = {"apiVersion": XR.api_version, "kind": XR.kind}
        body: dict[str, Any] = {"pipeline": [{"step": "a"}]} if mode == "Pipeline" else {}
        await self.plane.create(kind, name, spec={"compositeTypeRef": of, "mode": mode, **body})

    async def examined(self) -> tuple[Sequence[Finding], ExitCode]:
        found = await examined(self.fleet, self.plane, self.faults, Task.PLAN)
        said = [one for each in found for one in each.findings if one.check is Check.CROSSPLANE]
        said = [one for one in said if "the support of Crossplane 1.20 ends" not in one.message]
        return said, exit_code(found, allow_unreachable=False)


@pytest.fixture
async def composing(fleet: Fleet, on_plane: Hand) -> Composing:
    made = fleets.fleet(control_planes=fleet.control_planes.values(), clusters=())
    await on_plane.create(refs.NAMESPACE, BIND)
    return Composing(replace(made, name=fleet.name), on_plane, Faults())


async def test_nothing_is_said_where_there_is_no_crossplane(composing: Composing) -> None:
    said, code = await composing.examined()
    assert (said, code) == ([], ExitCode.SUCCESS)


@pytest.mark.parametrize("versions", [("v1",), ("v1", "v2")], ids=["1.20", "2.x"])
async def test_a_composition_of_mode_resources_stops_an_upgrade(composing, versions) -> None:
    await composing.install(*versions)
    await composing.composes(refs.COMPOSITION, "good", "Pipeline")
    (ok,), code = await composing.examined()
    assert (ok.level, code) == (Level.OK, ExitCode.SUCCESS)
    await composing.composes(refs.COMPOSITION, "bad", "Resources")
    (problem,), code = await composing.examined()
    assert (problem.level, code) == (Level.PROBLEM, ExitCode.HELD_BACK)
    after = "v2" in versions
    assert ("Scale Crossplane to 0 now" in problem.remedy) is after
    assert ("Convert them before any upgrade" in problem.remedy) is not after
    assert "Composition bad." in problem.message


async def test_a_revision_counts_while_a_composite_resource_uses_it(composing: Composing) -> None:
    await composing.install("v1")
    await composing.composes(refs.COMPOSITION_REVISION, "pg-1", "Resources")
    (ok,), _ = await composing.examined()
    assert ok.level is Level.OK
    await composing.plane.create(XR, "one", spec={"compositionRevisionRef": {"name": "pg-1"}})
    (problem,), code = await composing.examined()
    assert "CompositionRevision pg-1." in problem.message
    assert code == ExitCode.HELD_BACK


@pytest.mark.parametrize("kind", KINDS[1:])
async def test_what_may_not_be_read_is_named_and_hides_no_problem(
    composing: Composing, kind: refs.Kind
) -> None:
    await composing.install("v1", "v2")
    await composing.composes(refs.COMPOSITION, "bad", "Resources")
    await composing.composes(refs.COMPOSITION_REVISION, "pg-1", "Resources")
    composing.faults.add(on("list", kind=kind), forbidden())
    (problem, unread), code = await composing.examined()
    assert (problem.level, code) == (Level.PROBLEM, ExitCode.HELD_BACK)
    assert f"{kind.resource} may not be listed" in unread.message
    composing.faults.add(on("list", kind=refs.COMPOSITION), forbidden())
    (unread,), code = await composing.examined()
    assert (unread.level, code) == (Level.WARNING, ExitCode.SUCCESS)
    assert refs.COMPOSITION.resource in unread.message

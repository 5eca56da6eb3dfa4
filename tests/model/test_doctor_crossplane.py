"""What `klutchctl doctor` says of Crossplane on a control plane, before and after an upgrade."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from klutchctl.commands.doctor import exit_code
from klutchctl.entry import ExitCode
from reconciler.controller.tasks import SystemClock
from reconciler.core.refs import (
    COMPOSITE_DEFINITION,
    COMPOSITION,
    COMPOSITION_REVISION,
    CRD,
    FUNCTION_REVISION,
    NAMESPACE,
    Kind,
)
from reconciler.doctor.diagnosis import Check, Finding, Level
from reconciler.doctor.examine import examine
from reconciler.doctor.rights import Task
from reconciler.fleet.values import Fleet
from reconciler.kube import registry
from reconciler.observe import Pace
from tests.model.test_doctor_agents import ReviewingClusters
from tests.support import fleets
from tests.support.faults import Faults, forbidden, on
from tests.support.observing import BIND, Hand, around, established

XR = Kind("doctored.example", "v1", "XDatabase", "xdatabases", namespaced=False)
KINDS = (COMPOSITION, COMPOSITION_REVISION, COMPOSITE_DEFINITION, FUNCTION_REVISION, XR)
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Scene(NamedTuple):
    fleet: Fleet
    plane: Hand
    faults: Faults

    async def install(self, *versions: str) -> None:
        """Make Crossplane's CRDs; definitions are served in these versions."""
        for kind in KINDS:
            served = [
                {
                    "name": one,
                    "served": True,
                    "storage": one == "v1",
                    "schema": {"openAPIV3Schema": OPEN},
                }
                for one in (versions if kind == COMPOSITE_DEFINITION else ("v1",))
            ]
            names = {"plural": kind.plural, "kind": kind.kind}
            spec = {"group": kind.group, "names": names, "scope": "Cluster", "versions": served}
            await self.plane.create(CRD, kind.resource, spec=spec)
            await established(self.plane.live.cluster, kind)
        names = {"plural": XR.plural, "kind": XR.kind}
        spec = {"group": XR.group, "names": names}
        await self.plane.create(COMPOSITE_DEFINITION, XR.resource, spec=spec)

    async def composes(self, kind: Kind, name: str, mode: str) -> None:
        of = {"apiVersion": XR.api_version, "kind": XR.kind}
        body: dict[str, Any] = {"pipeline": [{"step": "a"}]} if mode == "Pipeline" else {}
        spec = {"compositeTypeRef": of, "mode": mode, **body}
        await self.plane.create(kind, name, spec=spec)

    async def examined(self) -> tuple[Sequence[Finding], ExitCode]:
        async with registry.of(self.fleet, around(self.plane.live.kubeconfig)) as real:
            found = await examine(
                self.fleet,
                ReviewingClusters(real, self.faults),
                task=Task.PLAN,
                now=SystemClock().now,
                pace=Pace(),
            )
        said = [one for each in found for one in each.findings if one.check is Check.CROSSPLANE]
        said = [one for one in said if "the support of Crossplane 1.20 ends" not in one.message]
        return said, exit_code(found, allow_unreachable=False)


@pytest.fixture
async def scene(fleet: Fleet, on_plane: Hand) -> Scene:
    made = fleets.fleet(control_planes=fleet.control_planes.values(), clusters=())
    await on_plane.create(NAMESPACE, BIND)
    return Scene(replace(made, name=fleet.name), on_plane, Faults())


async def test_nothing_is_said_where_there_is_no_crossplane(scene: Scene) -> None:
    said, code = await scene.examined()
    assert (said, code) == ([], ExitCode.SUCCESS)


@pytest.mark.parametrize("versions", [("v1",), ("v1", "v2")], ids=["1.20", "2.x"])
async def test_a_composition_of_mode_resources_stops_an_upgrade(scene, versions) -> None:
    await scene.install(*versions)
    await scene.composes(COMPOSITION, "good", "Pipeline")
    (ok,), code = await scene.examined()
    assert (ok.level, code) == (Level.OK, ExitCode.SUCCESS)
    await scene.composes(COMPOSITION, "bad", "Resources")
    (problem,), code = await scene.examined()
    assert (problem.level, code) == (Level.PROBLEM, ExitCode.HELD_BACK)
    after = "v2" in versions
    assert ("Scale Crossplane to 0 now" in problem.remedy) is after
    assert ("Convert them before any upgrade" in problem.remedy) is not after
    assert "Composition bad." in problem.message


async def test_a_revision_counts_while_a_composite_resource_uses_it(scene: Scene) -> None:
    await scene.install("v1")
    await scene.composes(COMPOSITION_REVISION, "pg-1", "Resources")
    (ok,), _ = await scene.examined()
    assert ok.level is Level.OK
    await scene.plane.create(XR, "one", spec={"compositionRevisionRef": {"name": "pg-1"}})
    (problem,), code = await scene.examined()
    assert "CompositionRevision pg-1." in problem.message
    assert code == ExitCode.HELD_BACK


@pytest.mark.parametrize("kind", KINDS[1:])
async def test_what_may_not_be_read_is_named_and_hides_no_problem(scene: Scene, kind: Kind) -> None:
    await scene.install("v1", "v2")
    await scene.composes(COMPOSITION, "bad", "Resources")
    await scene.composes(COMPOSITION_REVISION, "pg-1", "Resources")
    scene.faults.add(on("list", kind=kind), forbidden())
    (problem, unread), code = await scene.examined()
    assert (problem.level, code) == (Level.PROBLEM, ExitCode.HELD_BACK)
    assert f"{kind.resource} may not be listed" in unread.message
    scene.faults.add(on("list", kind=COMPOSITION), forbidden())
    (unread,), code = await scene.examined()
    assert (unread.level, code) == (Level.WARNING, ExitCode.SUCCESS)
    assert COMPOSITION.resource in unread.message

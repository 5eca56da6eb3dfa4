"""T13: a Fleet that is given another name changes nothing of what it did, on real API servers."""

import pytest

from reconciler.fleet.values import Mode
from tests.support import modes
from tests.support.apply_runs import staged


@pytest.mark.parametrize("mode", modes.both(Mode.APP_CLUSTER_BINDING))
async def test_a_renamed_fleet_writes_nothing(
    control_plane, app_cluster, namespace, tmp_path, mode
):
    made = staged(control_plane, app_cluster, namespace=namespace, mode=mode, folder=tmp_path)
    async with made as scene:
        async with scene.peers():
            await scene.apply("--wait")
        own = scene.fleet.name
        scene.fleet.name = f"{own}-x"
        marks = scene.marks()
        await scene.apply(code=6)
        writes = [w for audit, mark in marks for w in audit.writes_since(mark)]
        assert [w for w in writes if w.agent == "klutchctl"] == []
        plan = await scene.klutchctl("plan", str(scene.fleet.folder), "-o", "json")
        assert {one["action"] for one in plan.report["changes"]} <= {"blocked", "noop"}
        scene.fleet.name = own
        assert await scene.lines() == []

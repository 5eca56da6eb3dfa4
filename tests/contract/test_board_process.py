"""`klutchctl board` as a process: of live clusters, and of what was written once."""

import json
from dataclasses import replace

from klutchctl.render import status_document
from reconciler.core.manifest import Manifest
from reconciler.planning import planfile
from reconciler.planning.changes import Plan
from tests.support import boards, programs
from tests.support.apply_runs import files, mode, scene
from tests.support.eventually import eventually
from tests.support.watching import going_on

__all__ = ["files", "mode", "scene"]

DRIFT: Manifest = {"spec": {"permissionClaims": []}}


async def test_a_live_fleet_shows_how_units_are_and_a_field_edited_by_hand(scene, files):
    async with scene.peers():
        await scene.apply("--wait")
        options = ("--listen", "127.0.0.1:0", "--every", "1")
        given = ("--kubeconfig", str(scene.kubeconfig), "board", str(files), *options)
        async with going_on(*given) as board:

            async def said(path, text):
                code, page = await board.get(path)
                assert code == 200
                return text in page

            await eventually(lambda: said("/", "Nothing: all that was read is as the files say."))
            code, document = await board.get("/status.json")
            (cluster,) = json.loads(document)["clusters"]
            assert [unit["state"] for unit in cluster["units"]] == ["Ready"]
            name = f"{cluster['units'][0]['resource']}.{cluster['units'][0]['group']}"
            code, page = await board.get(f"/units/{cluster['name']}/{name}")
            assert (code, "fleet.yaml:" in page, "Nothing waits." in page) == (200, True, True)
            marks = scene.marks()
            await scene.app.cluster.merge_patch(scene.binding, DRIFT, manager="someone")
            await eventually(lambda: said("/plan", "/spec/permissionClaims"))
            assert await said(f"/units/{cluster['name']}/{name}", "/spec/permissionClaims")
            assert await board.end() == 143
            assert scene.writes(marks) == []


async def test_what_was_written_is_shown_without_any_cluster(tmp_path):
    status, plan = tmp_path / "status.json", tmp_path / "fleet.plan"
    status.write_text(status_document.dump(boards.plain().board))
    lines = tuple(change for change, _ in boards.waiting().lines)
    made = Plan("acme", "", "", lines, {"shop-eu-1": "eu"})
    plan.write_bytes(planfile.dump(made))
    given = ("--from", str(status), "--plan", str(plan), "--listen", "127.0.0.1:0")
    async with going_on("board", *given) as board:
        assert "14</b>" in (await board.get("/"))[1]
        assert "/spec/permissionClaims/0/all" in (await board.get("/plan"))[1]
        assert await board.end() == 143
    plan.write_bytes(planfile.dump(replace(made, fleet="other")))
    ended = await programs.klutchctl_beside("board", *given)
    assert (ended.returncode, "of fleet other, not acme" in ended.stderr) == (3, True)

"""`klutchctl import`, `why` and `drift` on real clusters: what nobody wrote down, in files."""

import pytest

from reconciler.core import names
from reconciler.core.manifest import Manifest, drop, get_map, get_maps, uid_of
from reconciler.core.refs import NAMESPACE, SECRET, SERVICE_ACCOUNT, Ref
from reconciler.fleet.values import Mode
from tests.contract.test_release import scene as scene
from tests.contract.test_release import written


async def make_foreign(scene):
    """Take away all that tells that klutchctl made it."""
    strip: Manifest = {"metadata": {"labels": None, "annotations": None, "managedFields": [{}]}}
    bind, space = names.KLUTCH_NAMESPACE, scene.space
    if scene.fleet.mode is Mode.DIRECT:
        secret = names.kubeconfig_secret(space)
        objects = [
            scene.home,
            Ref(scene.plane.name, SERVICE_ACCOUNT, space, names.BINDER),
            scene.request,
            scene.binding,
            Ref(scene.app.name, SECRET, bind, secret),
        ]
    else:
        objects = [scene.whole, Ref(scene.plane.name, NAMESPACE, "", space)]
    for ref in objects:
        if await scene.at(ref) is not None:
            live = scene.app if ref.cluster == scene.app.name else scene.plane
            await live.cluster.merge_patch(ref, strip, manager="someone")


async def imported(scene, *arguments):
    return await scene.klutchctl("import", str(scene.fleet.folder), *arguments)


@pytest.fixture
async def foreign(scene, monkeypatch):
    """What was bound by somebody else, and a fleet that names the clusters alone."""
    write, file = scene.fleet.write, scene.fleet.folder / "fleet.yaml"

    def with_include():
        write()
        more = "spec: {include: [{glob: 'imported/*.yaml', optional: true}], "
        file.write_text(file.read_text().replace("spec: {", more, 1))

    async with scene.peers():
        await scene.apply("--wait")
        await make_foreign(scene)
        scene.fleet.bound = False
        monkeypatch.setattr(scene.fleet, "write", with_include)
        yield scene


async def test_what_somebody_else_bound_is_taken_over_through_files(foreign):
    await a_repository_begins_with_what_is_live(foreign)
    await what_files_cannot_say_is_left_alone(foreign)
    await what_is_live_becomes_a_file_that_changes_nothing(foreign)
    await what_was_imported_is_taken_over_as_it_is(foreign)


async def what_is_live_becomes_a_file_that_changes_nothing(foreign):
    marks = foreign.marks()
    done = await imported(foreign)
    assert done.code == 0, done.stdout + done.stderr
    assert "1 Binding for 1 unit" in done.stdout
    assert written(marks) == []
    file = foreign.fleet.folder / "imported" / "imported.yaml"
    text = file.read_text()
    assert "kind: Template" in text
    assert "    names:\n    - shop\n" in text
    assert file.stat().st_mode & 0o777 == 0o644
    plan = await foreign.klutchctl("plan", str(foreign.fleet.folder), "--credentials", "-o", "json")
    assert plan.code == 0, plan.stdout
    lines = [one for one in plan.report["changes"] if one.get("unit")]
    assert {one["action"] for one in lines} <= {"adopt", "noop", "update"}
    touched = [field["path"] for one in lines for field in one.get("fields") or ()]
    assert all(path.startswith("/metadata/") for path in touched)
    assert not plan.report["widened"]
    again = await imported(foreign)
    assert again.code == 3
    assert "is there already" in again.stderr
    assert file.read_text() == text
    elsewhere = await imported(foreign, "--out", str(foreign.fleet.folder / "elsewhere"))
    assert elsewhere.code == 3
    assert "no include matches elsewhere/imported.yaml" in elsewhere.stderr


async def what_was_imported_is_taken_over_as_it_is(foreign):
    before = await foreign.at(foreign.binding)
    await foreign.apply("--wait")
    after = await foreign.at(foreign.binding)
    assert (uid_of(after), get_map(after, "spec")) == (uid_of(before), get_map(before, "spec"))
    assert await foreign.lines() == []
    folder = foreign.fleet.folder / "imported"
    new = str(foreign.fleet.folder / "lost")
    ways = ("--from", foreign.plane.context, "--app", f"shop={foreign.app.context}")
    await foreign.klutchctl("init", new, *ways)  # whatever was lost, its name is on the spaces
    assert f"name: {foreign.fleet.name}\n" in (foreign.fleet.folder / "lost/fleet.yaml").read_text()
    (folder / "imported.yaml").rename(folder / "orders.yaml")
    nothing = await imported(foreign)
    assert "Nothing to import was found; nothing was written" in nothing.stdout
    assert not (folder / "imported.yaml").exists()


async def a_repository_begins_with_what_is_live(foreign):
    folder = foreign.fleet.folder / "new"
    done = await foreign.klutchctl(
        "init",
        str(folder),
        "--name",
        foreign.fleet.name,
        "--from",
        foreign.plane.context,
        "--app",
        f"shop={foreign.app.context}",
        "--mode",
        foreign.fleet.mode.value,
    )
    assert done.code == 0, done.stdout + done.stderr
    assert (folder / "controlplanes" / f"{foreign.plane.context}.yaml").exists()
    # In mode AppClusterBinding the document has to name the one that is there.
    found = foreign.fleet.mode is Mode.DIRECT
    assert (folder / "bindings" / "imported.yaml").exists() is found
    assert ("1 Binding for 1 unit" in done.stdout) is found
    plan = await foreign.klutchctl("plan", str(folder), "--credentials", "-o", "json")
    assert plan.code == 0, plan.stdout + plan.stderr
    of_units = {one["action"] for one in plan.report["changes"] if one.get("unit")}
    assert of_units <= {"adopt", "noop", "update"}
    assert bool(of_units) is found


async def what_files_cannot_say_is_left_alone(foreign):
    live = foreign.app if foreign.fleet.mode is Mode.DIRECT else foreign.plane
    (claim,) = get_maps(await foreign.at(foreign.binding), "spec", "permissionClaims")
    change: Manifest = {"spec": {"permissionClaims": [drop(claim, "selector", "owner")]}}
    await live.cluster.merge_patch(foreign.binding, change, manager="someone")
    done = await imported(foreign)
    assert done.code == 0, done.stdout + done.stderr
    assert "names no owner" in done.stdout
    assert not (foreign.fleet.folder / "imported").exists()
    back: Manifest = {"spec": {"permissionClaims": [claim]}}
    await live.cluster.merge_patch(foreign.binding, back, manager="someone")


async def test_drift_and_why_report_what_somebody_changed(scene):
    async with scene.peers():
        await scene.apply("--wait")
        folder = str(scene.fleet.folder)
        clean = await scene.klutchctl("drift", folder, "--detailed-exitcode")
        assert clean.code == 0, clean.stdout + clean.stderr
        live = scene.app if scene.fleet.mode is Mode.DIRECT else scene.plane
        drift: Manifest = {"spec": {"permissionClaims": []}}
        await live.cluster.merge_patch(scene.binding, drift, manager="someone")
        marks = scene.marks()
        found = await scene.klutchctl("drift", folder, "--detailed-exitcode", "-o", "json")
        assert found.code == 2
        acting = [one for one in found.report["changes"] if one["action"] != "noop"]
        assert [(one["action"], one["ref"]["kind"]) for one in acting] == [
            ("update", "APIServiceBinding")
        ]
        for name in ("orders-db", scene.offer.name):
            reported = await scene.klutchctl("why", f"shop/{name}", folder, "-o", "json")
            assert reported.code == 0, reported.stdout + reported.stderr
            assert reported.report["source"]["origin"]["path"] == "fleet.yaml"
            assert "update" in {one["action"] for one in reported.report["changes"]}
            assert [one["state"] for one in reported.report["health"]] == ["Ready"]
        scene.fleet.bound = False
        reported = await scene.klutchctl("why", f"shop/{scene.offer.name}", folder)
        assert reported.code == 0, reported.stdout + reported.stderr
        assert "no document binds it in shop" in reported.stdout
        assert "< release" in reported.stdout
        gone = await scene.klutchctl("drift", folder, "-o", "json")
        # The rights of what left are no longer wanted: these are ours, and differ.
        acting = [one for one in gone.report["changes"] if one["action"] != "noop"]
        assert {(one["action"], one["ref"]["kind"]) for one in acting} <= {
            ("update", "ClusterRole")
        }
        assert written(marks) == []
        unknown = await scene.klutchctl("why", "shop/order-db", folder)
        assert unknown.code == 3
        assert "neither in the files nor live" in unknown.stderr

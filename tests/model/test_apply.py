"""What an apply makes of a fleet and its clusters, with backend and konnector at work."""

import pytest

from reconciler.api import API_SERVICE_BINDING, API_SERVICE_NAMESPACE
from reconciler.apply import GOOD, Status
from reconciler.blueprints import objects
from reconciler.blueprints.objects import Marks
from reconciler.core import keys, manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, NAMESPACE, Ref
from reconciler.fleet.values import Mode
from tests.support import removal
from tests.support.apply_runs import inhabit, runs, scene
from tests.support.backend import backend
from tests.support.definitions import OPEN, definition
from tests.support.eventually import eventually
from tests.support.faults import Faults, deeds
from tests.support.fleet_texts import control_plane
from tests.support.observing import established
from tests.support.offers import offered

__all__ = ["runs", "scene"]


@pytest.fixture(params=[Mode.DIRECT, Mode.APP_CLUSTER_BINDING], ids=["direct", "acb"])
def mode(request):
    return request.param


def became(report):
    return {(one.status, one.change.action.value) for one in report.outcomes}


async def done(runs):
    report = await runs.run()
    assert {one.status for one in report.outcomes} <= GOOD, report.outcomes
    assert await runs.todo() == []
    return {(one.change.action.value, one.change.ref.kind.kind) for one in report.outcomes}


async def claims_of(scene):
    return manifest.get_maps(await scene.at(scene.binding), "spec", "permissionClaims")


async def test_a_fleet_becomes_bindings_and_a_second_apply_writes_nothing(scene, runs):
    async with scene.peers():
        first = await runs.run(wait=True)
        assert {one.status for one in first.outcomes} == {Status.DONE}
        places = {(one["control_plane"], one["cluster"]) for one in runs.logged}
        assert places == {("eu", "shop")}
        assert {one["unit"] for one in runs.logged if "unit" in one} == {scene.offer.name}
        assert first.ready == 1
        assert [manifest.get(claim, "state") for claim in await claims_of(scene)] == ["Accepted"]
        faults = Faults()
        second = await runs.run(faults, wait=True)
        assert (second.outcomes, second.ready) == ((), 1)
        assert [call for call in faults.calls if deeds().matches(call)] == []


async def test_a_wait_names_what_it_is_for_before_it_ends(scene, runs):
    """In both modes no konnector runs here; in one, the fleet could have had it deployed."""
    async with backend(scene.plane.connection):
        await runs.run(wait=True)
    stages = [one for one in runs.heard if isinstance(one, str)]
    waited = stages[stages.index("waiting until all is ready") + 1 :]
    assert len(waited) == len({*waited}) > 0
    assert waited[-1].startswith(f"waiting for 1 unit, shop/{scene.offer.name}: ")
    if scene.fleet.mode is Mode.APP_CLUSTER_BINDING:
        assert "konnector.deploy" in waited[-1]


async def test_drift_is_repaired_and_a_field_that_left_the_files_goes(scene, runs):
    async with scene.peers():
        await runs.finish()
        await scene.meddle(scene.binding, {"spec": {"permissionClaims": []}})
        assert await done(runs) == {("update", "APIServiceBinding")}
        assert len(await claims_of(scene)) == 1
        scene.fleet.claims = ", claims: []"
        await done(runs)
        assert await claims_of(scene) == []


async def test_a_removed_binding_is_released_and_bound_again_without_a_delete(scene, runs):
    async with scene.peers():
        await runs.finish()
        claim, copy = await inhabit(scene)
        before = [manifest.uid_of(await scene.at(ref)) for ref in (claim, copy)]
        scene.fleet.bound = False
        assert "release" in {action for action, _ in await done(runs)}
        assert await scene.at(scene.binding) is await scene.at(scene.export) is None
        marks = manifest.annotations_of(await scene.at(copy))
        assert (keys.BOUND in marks, keys.RELEASED in marks) == (False, True)
        assert manifest.finalizers_of(await scene.at(claim)) == []
        assert keys.LEAVING not in manifest.annotations_of(await scene.at(scene.home_of_units))
        assert await scene.at(scene.crd) is not None
        scene.fleet.bound = True
        await runs.run(wait=True)

        async def is_bound_again():
            return keys.SYNCER in manifest.finalizers_of(await scene.at(claim))

        await eventually(is_bound_again)
        assert [manifest.uid_of(await scene.at(ref)) for ref in (claim, copy)] == before
        assert await runs.todo() == []


async def test_an_app_cluster_that_is_a_control_plane_too_can_leave(scene, runs):
    """Its namespace klutch-bind has our labels, and is no space of anybody."""
    scene.fleet.extra = f"---\n{control_plane('other', at='app-1', more=', mode: Direct')}"
    async with scene.peers():
        await runs.finish()
        scene.fleet.listed = False
        assert "release" in {action for action, _ in await done(runs)}


async def test_deleting_happens_only_within_the_guards(scene, runs):
    scene.fleet.policy = "Delete"
    async with scene.peers():
        await runs.finish()
        claim, copy = await inhabit(scene)
        scene.fleet.bound = False
        assert (Status.HELD, "delete") in (held := became(await runs.run()))
        assert Status.DONE not in {status for status, _ in held}
        scene.fleet.prune += ", keepIfInUse: false"
        approved = await runs.plan()
        another, _ = await inhabit(scene, "made-since")
        stale = await runs.run(approved=approved)
        reported = [one.message for one in stale.outcomes if one.status is Status.STALE]
        assert "instances to delete: 1 when it was approved, 2 now; plan again" in reported
        for ref in (claim, another):
            assert not manifest.is_deleting(await scene.at(ref))
        assert "delete" in {action for action, _ in await done(runs)}
        for ref in (scene.binding, scene.export, scene.crd, copy):
            assert await scene.at(ref) is None


@pytest.mark.parametrize("marks", [{}, {keys.SPACE_UID: "uid-of-another"}], ids=["hand", "space"])
async def test_a_kind_that_did_not_come_by_the_binding_stays_with_its_objects(scene, runs, marks):
    """They are of somebody else, as an operator in the app cluster or another provider."""
    scene.fleet.policy = "Delete"
    scene.fleet.prune += ", keepIfInUse: false"
    app, kind = scene.app.cluster, scene.offer.kind
    theirs = definition(kind, OPEN, marks=Marks(annotations=marks))
    await app.create(theirs, CRD, manager=keys.MANAGER_KONNECTOR if marks else "operator")
    await established(app, kind)
    made = scene.offer.instance("db", namespace=scene.app_namespace, spec={})
    claim = manifest.ref_of(app.name, kind, await app.create(made, kind, manager="developer"))
    async with scene.peers():
        await runs.finish()
        before = [manifest.uid_of(await scene.at(ref)) for ref in (scene.crd, claim)]
        scene.fleet.bound = False
        await done(runs)
        assert await scene.at(scene.binding) is None
        after = [await scene.at(ref) for ref in (scene.crd, claim)]
        assert [manifest.uid_of(one) for one in after] == before
        assert not any(map(manifest.is_deleting, after))


async def test_a_space_stays_with_what_was_released_of_a_service_that_nobody_offers(scene, runs):
    scene.fleet.prune += ", onClusterLeave: Delete"
    clusters = scene.plane.cluster, scene.app.cluster
    async with (
        offered(*clusters, namespace="", scope="Cluster", template=False) as other,
        scene.peers(),
    ):
        await runs.finish()
        claim, copy = await inhabit(scene)
        for name, life in (
            ("of-former", "former"),
            ("kept", manifest.uid_of(await scene.at(scene.home))),
        ):
            marks = {keys.CLUSTER_NAMESPACE: scene.space, keys.SPACE_UID: life}
            kept = manifest.put(other.instance(name, spec={}), marks, "metadata", "annotations")
            await scene.plane.cluster.create(kept, other.kind, manager="provider")
        mapping = Ref(scene.plane.name, API_SERVICE_NAMESPACE, scene.space, scene.app_namespace)
        await scene.meddle(
            mapping, {"metadata": {"annotations": {keys.RELEASED_KINDS: other.name}}}
        )
        await removal.remove(scene.app.cluster, claim)
        await eventually(lambda: scene.is_gone(copy))
        scene.fleet.listed = False
        (line,) = [one for one in (await runs.run()).outcomes if one.status is not Status.DONE]
        assert f"1 {other.name} are left on the control plane" in line.message
        await removal.remove_manifest(scene.plane.cluster, other.kind, kept)
        await lost_mapping(scene)
        (line,) = [one for one in (await runs.run()).outcomes if one.status is not Status.DONE]
        assert f"1 {scene.offer.name} are left on the control plane" in line.message
        assert await scene.at(scene.home_of_units) is not None


async def lost_mapping(scene):
    """Make a service namespace of the space, with a copy, to which no mapping leads any more."""
    space = manifest.uid_of(await scene.at(scene.home))
    notes = {keys.API_SERVICE_NAMESPACE: f"{scene.space}/lost", keys.SPACE_UID: space}
    home = objects.namespace(f"{scene.app_namespace}-lost", marks=Marks(annotations=notes))
    await scene.plane.cluster.create(home, NAMESPACE, manager="restore")
    kept = scene.offer.instance("kept", namespace=manifest.name_of(home), spec={})
    await scene.plane.cluster.create(kept, scene.offer.kind, manager="restore")


async def test_a_tripped_budget_holds_what_leaves_and_lets_the_rest_go_on(scene, runs):
    async with scene.peers():
        await runs.finish()
        scene.fleet.prune = "maxDeletes: 0, allowEmpty: true"
        scene.fleet.bound = False
        held = became(await runs.run())
        assert (Status.HELD, "release") in held
        assert Status.DONE not in {status for status, _ in held}
        assert await scene.at(scene.binding) is not None


async def test_a_plan_is_applied_exactly_as_it_was_approved_or_refused(scene, runs):
    async with scene.peers():
        await runs.finish()
        scene.fleet.claims = ", claims: []"
        approved = await runs.plan()
        await scene.meddle(scene.binding, {"metadata": {"annotations": {"someone": "was here"}}})
        (claim,) = await claims_of(scene)
        narrowed: Manifest = manifest.put(claim, ["one"], "selector", "names")
        await scene.meddle(scene.binding, {"spec": {"permissionClaims": [narrowed]}})
        faults = Faults()
        assert (Status.STALE, "update") in became(await runs.run(faults, approved=approved))
        writes = [call for call in faults.calls if deeds().matches(call)]
        assert API_SERVICE_BINDING not in {call.ref.kind for call in writes}
        assert ("update", "APIServiceBinding") in await done(runs)

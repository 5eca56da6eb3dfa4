"""What goes wrong around an apply: it harms nobody else, is told as it is, and ends well later."""

from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT, CLUSTER_BINDING
from reconciler.apply import GOOD, Status
from reconciler.controller.tasks import SystemClock
from reconciler.core import field_set, keys, names
from reconciler.core.manifest import annotations_of, finalizers_of, get_maps, get_text, is_deleting
from reconciler.core.refs import CRD, LEASE, Ref
from reconciler.core.times import format_time
from tests.kit.clusters import model_of
from tests.support import fleet_texts, removal
from tests.support.apply_runs import Runs, inhabit, mode, runs, scene
from tests.support.applying import Scene
from tests.support.backend import backend
from tests.support.cues import AFTER, BEFORE
from tests.support.eventually import eventually
from tests.support.faults import Faults, deeds, faulty, forbidden, lost, on, unreachable, writes
from tests.support.wire_objects import strip_server_fields

__all__ = ["mode", "runs", "scene"]


@asynccontextmanager
async def bound(runs):
    """Apply the fleet, with an instance of its service, and let the peers work."""
    async with runs.scene.peers():
        await runs.finish()
        await inhabit(runs.scene)
        yield


def reported(report):
    return {(one.status, one.change.action.value): one.message for one in report.outcomes}


def not_done(report):
    return [(one.status, one.message) for one in report.outcomes if one.status not in GOOD]


@dataclass
class Once:
    """An effect on each object and verb once, so that the next try finds things as they are."""

    effect: Any
    met: set[Any] = field(default_factory=set)

    async def perform(self, call):
        if (call.verb, call.ref) not in self.met:
            self.met.add((call.verb, call.ref))
            await self.effect.perform(call)


@dataclass
class Meddling:
    """Another writer writes to what is about to be written."""

    scene: Scene

    async def perform(self, call):
        if call.verb != "create":
            noise = {"metadata": {"annotations": {"someone": "was here"}}}
            await self.scene.meddle(call.ref, noise)


@dataclass
class MadeAgain:
    """Another deletes what is about to be written, and makes it again."""

    scene: Scene

    async def perform(self, call):
        live = self.scene.of(call.ref)
        held = await live.cluster.get(call.ref)
        assert held is not None
        await removal.remove(live.cluster, call.ref)
        # The konnector lets go of it first.
        await eventually(lambda: self.scene.is_gone(call.ref))
        made = strip_server_fields(held, keep_status=False)
        await live.cluster.create(made, call.ref.kind, manager="someone")


TROUBLES = {
    "no connection": (lambda _: unreachable(), BEFORE),
    "the request was lost": (lambda _: lost(), BEFORE),
    "the answer was lost": (lambda _: lost(), AFTER),
    "another writer was faster": (Meddling, BEFORE),
}


@pytest.mark.parametrize(("effect", "at"), TROUBLES.values(), ids=TROUBLES)
async def test_trouble_at_every_write_is_overcome_within_the_run(effect, at, scene, runs):
    async def all_is_done():
        assert not_done(await runs.run(faulty(writes(), Once(effect(scene)), at=at))) == []

    async with scene.peers():
        await all_is_done()
        assert await runs.todo() == []
        claim, copy = await inhabit(scene)
        scene.fleet.claims = ", claims: []"
        await all_is_done()
        scene.fleet.bound = False
        await all_is_done()
        assert await runs.todo() == []
        assert keys.RELEASED in annotations_of(await scene.at(copy))
        assert await scene.at(claim) is not None


async def test_what_was_deleted_and_made_again_meanwhile_is_not_touched(scene, runs):
    async with bound(runs):
        scene.fleet.claims = ", claims: []"
        report = await runs.run(faulty(deeds().nth(1), MadeAgain(scene)))
        assert reported(report).keys() == {(Status.STALE, "update")}
        assert keys.MANAGER_CLI not in field_set.managers_of(await scene.at(scene.binding))
        await runs.finish()


async def test_a_missing_right_fails_its_own_line_and_the_next_run_goes_on(scene, runs):
    async with scene.peers():
        report = await runs.run(faulty(on("create", kind=API_SERVICE_BINDING), forbidden()))
        ((status, message),) = not_done(report)
        assert status is Status.FAILED
        assert "may not" in message
        await runs.finish()
        assert await scene.at(scene.binding) is not None


async def test_what_may_not_be_deleted_is_still_ours_and_planned_again(scene, runs):
    async with bound(runs):
        scene.fleet.bound = False
        faults = faulty(on("delete", kind=API_SERVICE_EXPORT), forbidden())
        for _ in range(2):
            assert reported(await runs.run(faults)).keys() == {(Status.FAILED, "release")}
            assert len(await runs.todo()) == 1
        await runs.finish()
        assert await scene.at(scene.export) is None


async def is_reported(runs, *words):
    """Run, and tell what becomes of the one line; before that, a run may wait for the konnector."""
    (message,) = reported(await runs.run()).values()
    assert [word for word in words if word not in message] == [], message
    return True


HELD = {"an export, released": ("Release", False), "instances, deleted": ("Delete", True)}


@pytest.mark.parametrize(("policy", "instances"), HELD.values(), ids=HELD)
async def test_what_a_finalizer_holds_is_reported_and_planned_until_it_is_gone(
    policy, instances, scene, runs
):
    scene.fleet.policy, scene.fleet.prune = policy, f"{scene.fleet.prune}, keepIfInUse: false"
    claim = Ref(scene.app.name, scene.offer.kind, scene.app_namespace, "db")
    ref, others = (claim, [keys.SYNCER]) if instances else (scene.export, [])
    words = ["1 databases"] if instances else []
    async with bound(runs):
        await scene.meddle(ref, {"metadata": {"finalizers": ["example.com/hold", *others]}})
        scene.fleet.bound = False
        runs.wait_seconds = 3
        for _ in range(2):
            await eventually(lambda: is_reported(runs, "example.com/hold", *words))
        # The binding carries the deletion of what is left.
        assert await scene.is_gone(scene.binding) is not instances
        await scene.meddle(ref, {"metadata": {"finalizers": None}})
        runs.wait_seconds = 60
        await runs.finish()
        assert await scene.is_gone(scene.binding)
        assert await scene.is_gone(scene.export)
        assert await scene.is_gone(scene.crd) is instances


@dataclass
class Inhabited:
    """A developer makes an instance while the lines of a run are done."""

    runs: Runs
    done: bool = False

    async def perform(self, call):
        if "applying" in self.runs.heard and not self.done:
            self.done = True
            await inhabit(self.runs.scene)


async def test_an_instance_that_is_made_while_its_empty_service_is_deleted_stays(scene, runs):
    scene.fleet.policy = "Delete"
    async with scene.peers():
        await runs.finish()
        scene.fleet.bound = False
        reads = on("get", kind=CRD, name=scene.offer.name)
        (message,) = reported(await runs.run(faulty(reads, Inhabited(runs)))).values()
        assert "1 databases" in message
        assert "nothing is deleted" in message
        claim = Ref(scene.app.name, scene.offer.kind, scene.app_namespace, "db")
        assert not is_deleting(await scene.at(claim))
        assert await scene.at(scene.binding) is not None
        assert {one.held for one in (await runs.plan()).changes if one.leaves} == {("in-use",)}


async def test_a_backend_that_never_answers_is_reported_and_the_next_run_goes_on(scene, runs):
    runs.wait_seconds = 1
    (message,) = [one for status, one in not_done(await runs.run())]
    assert "the backend has made no export" in message
    runs.wait_seconds = 60
    async with scene.peers():
        await runs.finish()
    assert await scene.at(scene.binding) is not None


@pytest.mark.parametrize("force", [False, True], ids=["it comes back", "forced"])
async def test_a_dead_konnector_stops_a_release_before_anything_is_let_go(force, scene, runs):
    async with backend(scene.plane.connection):
        async with scene.konnector():
            await runs.finish()
            _, copy = await inhabit(scene)
        beat = Ref(scene.plane.name, CLUSTER_BINDING, scene.space, names.CLUSTER_BINDING)
        status = {"lastHeartbeatTime": format_time(SystemClock().now() - timedelta(minutes=11))}
        await scene.meddle(beat, {"status": status}, "status")
        if force:  # as the original leaves what it adopted
            await scene.meddle(copy, {"metadata": {"annotations": {keys.BOUND: None}}})
        scene.fleet.bound = False
        for _ in range(2):
            (message,) = reported(await runs.run()).values()
            assert "sync stop not confirmed: the konnector does not answer" in message
            assert await scene.at(scene.export) is not None
            marks = annotations_of(await scene.at(copy))
            assert (keys.BOUND in marks, keys.RELEASED in marks) == (not force, False)
        if force:
            assert not_done(await runs.run(force=True)) == []
        else:
            async with scene.konnector():  # which ends its sync while a run looks
                await runs.finish()
        assert await runs.todo() == []
        assert keys.RELEASED in annotations_of(await scene.at(copy))
        assert scene.offer.name in await warning(scene)


async def warning(scene):
    """Return what the API server says to everyone who uses the kind."""
    (version,) = get_maps(await scene.at(scene.crd), "spec", "versions")
    return get_text(version, "deprecationWarning")


async def test_a_crd_that_may_not_be_changed_holds_no_release_up(scene, runs):
    async with backend(scene.plane.connection):
        async with scene.konnector():
            await runs.finish()
            claim, _ = await inhabit(scene)
        scene.fleet.bound = False
        barred = faulty(on("patch", kind=CRD), forbidden())
        (message,) = reported(await runs.run(barred, force=True)).values()
        assert "no right to change" in message
        assert finalizers_of(await scene.at(claim)) == []
        assert await warning(scene) == ""
        assert await runs.todo() == []


def with_mall(scene, *more, plane):
    """Put another app cluster into the fleet."""
    scene.fleet.extra = "---\n" + fleet_texts.one_file(
        fleet_texts.cluster("mall", at="app-2", plane=plane), *more
    )
    scene.fleet.clusters = "names: [shop, mall]"


def statuses_of(report, cluster):
    return {one.status for one in report.outcomes if one.change.cluster == cluster}


async def test_a_cluster_that_fails_does_not_hold_another(scene, runs, second_app_cluster):
    with_mall(scene, plane="eu")
    faults = Faults()
    for verb in ("create", "apply", "patch", "delete"):
        faults.add(on(verb, cluster="shop"), forbidden())
    async with scene.peers():
        report = await runs.run(faults)
    assert statuses_of(report, "mall") == {Status.DONE}
    assert Status.FAILED in statuses_of(report, "shop")
    bound = replace(scene.binding, cluster=second_app_cluster.name)
    assert await second_app_cluster.cluster.get(bound) is not None


async def test_two_documents_of_one_control_plane_share_its_lock(scene, runs, second_app_cluster):
    with_mall(scene, fleet_texts.control_plane("us", at=scene.plane.context), plane="us")
    async with scene.peers():
        report = await runs.run(break_lock=False)
    assert statuses_of(report, "shop") == statuses_of(report, "mall") == {Status.DONE}


@pytest.mark.parametrize("why", [unreachable, forbidden], ids=["away", "forbidden"])
async def test_a_control_plane_without_lock_stops_only_what_is_behind_it(
    scene, runs, second_app_cluster, why
):
    with_mall(scene, fleet_texts.control_plane("ap", at=scene.plane.context), plane="ap")
    mark = second_app_cluster.audit.mark()
    async with scene.peers():
        report = await runs.run(faulty(on("get", cluster="control-plane/ap", kind=LEASE), why()))
    assert statuses_of(report, "shop") == {Status.DONE}
    assert statuses_of(report, "mall") == {Status.FAILED}
    messages = {message.partition(":")[0] for _, message in not_done(report)}
    assert messages == {"without the lock of its control plane nothing is done"}
    assert second_app_cluster.audit.writes_since(mark) == []


async def test_a_way_that_leads_to_another_cluster_since_it_was_read_is_not_written_by(
    scene, runs, wires, second_app_cluster
):
    class Heard(list[object]):
        def append(self, one):
            super().append(one)
            if one == "applying":
                wires.models[scene.app.connection.server] = model_of(second_app_cluster)

    runs.heard, mark = Heard(), second_app_cluster.audit.mark()
    async with scene.peers():
        report = await runs.run()
    assert statuses_of(report, "shop") == {Status.FAILED}
    assert second_app_cluster.audit.writes_since(mark) == []

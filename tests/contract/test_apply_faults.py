"""What goes wrong around an apply: it harms nobody else, is told as it is, and ends well later."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from reconciler.api.bindings import API_SERVICE_BINDING, CLUSTER_BINDING
from reconciler.api.exports import API_SERVICE_EXPORT
from reconciler.apply import Status, WriteFence
from reconciler.apply.outcomes import GOOD
from reconciler.blueprints.objects import build
from reconciler.core import keys, names
from reconciler.core.errors import Forbidden, Locked
from reconciler.core.manifest import annotations_of, get_text, is_deleting, strip_server_fields
from reconciler.core.refs import CRD, EVENT, LEASE, NAMESPACE, SECRET, Ref
from reconciler.core.times import format_time
from reconciler.fleet.values import Mode
from reconciler.kube.requests import Propagation
from tests.support.apply_runs import WHATEVER, Deeds, Runs, inhabit, remove, staged
from tests.support.applying import Scene
from tests.support.backend import backend
from tests.support.cues import AFTER, BEFORE
from tests.support.eventually import eventually
from tests.support.faults import Faults, forbidden, lost, on, unreachable, writes


@pytest.fixture
async def scene(control_plane, app_cluster, namespace, tmp_path):
    where = {"namespace": namespace, "mode": Mode.DIRECT, "folder": tmp_path}
    async with staged(control_plane, app_cluster, **where) as scene:
        yield scene


@pytest.fixture
def runs(scene):
    return Runs(scene)


@asynccontextmanager
async def bound(runs):
    """Apply the fleet, with an instance of its service, and let the peers work."""
    async with runs.scene.peers():
        await runs.finish()
        await inhabit(runs.scene)
        yield


def told(report):
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
        if call.verb == "create":
            return
        live = self.scene.app if call.ref.cluster == "shop" else self.scene.plane
        noise = {"metadata": {"annotations": {"someone": "was here"}}}
        await live.cluster.merge_patch(call.ref, noise, manager="someone")


@dataclass
class MadeAgain:
    """Another deletes what is about to be written, and makes it again."""

    scene: Scene

    async def perform(self, call):
        live = self.scene.app if call.ref.cluster == "shop" else self.scene.plane
        held = await live.cluster.get(call.ref)
        assert held is not None
        await live.cluster.delete(
            call.ref, preconditions=WHATEVER, propagation=Propagation.BACKGROUND
        )
        await eventually(lambda: gone(live, call.ref))  # the konnector lets go of it first
        made = strip_server_fields(held, keep_status=False)
        await live.cluster.create(made, call.ref.kind, manager="someone")


async def gone(live, ref):
    return await live.cluster.get(ref) is None


TROUBLE = {
    "no connection": (lambda _: unreachable(), BEFORE),
    "the request was lost": (lambda _: lost(), BEFORE),
    "the answer was lost": (lambda _: lost(), AFTER),
    "another writer was faster": (Meddling, BEFORE),
}
# What was never sent is the easier half of what is not known to have arrived.
_EASY = ("no connection", "the request was lost")
TROUBLES = [
    pytest.param(*trouble, id=name, marks=pytest.mark.soak if name in _EASY else ())
    for name, trouble in TROUBLE.items()
]


@pytest.mark.parametrize(("effect", "at"), TROUBLES)
async def test_trouble_at_every_write_is_overcome_within_the_run(effect, at, scene, runs):
    def troubled():
        faults = Faults()
        faults.add(writes(), Once(effect(scene)), at=at)
        return faults

    async with scene.peers():
        assert not_done(await runs.run(troubled())) == []
        assert await runs.todo() == []
        claim, copy = await inhabit(scene)
        scene.fleet.claims = "  claims: []\n"
        assert not_done(await runs.run(troubled())) == []
        scene.fleet.bound = False
        assert not_done(await runs.run(troubled())) == []
        assert await runs.todo() == []
        assert keys.RELEASED in annotations_of(await scene.at(copy))
        assert await scene.at(claim) is not None


async def test_what_was_deleted_and_made_again_meanwhile_is_not_touched(scene, runs):
    async with bound(runs):
        scene.fleet.claims = "  claims: []\n"
        faults = Faults()
        faults.add(Deeds().nth(1), MadeAgain(scene))
        report = await runs.run(faults)
        assert told(report).keys() == {(Status.STALE, "update")}
        made = await scene.at(scene.binding)
        assert "klutchctl" not in {e["manager"] for e in made["metadata"]["managedFields"]}
        await runs.finish()


async def test_a_missing_right_fails_its_own_line_and_the_next_run_goes_on(scene, runs):
    async with scene.peers():
        faults = Faults()
        faults.add(on("create", kind=API_SERVICE_BINDING), forbidden())
        report = await runs.run(faults)
        ((status, message),) = not_done(report)
        assert status is Status.FAILED
        assert "may not" in message
        await runs.finish()
        assert await scene.at(scene.binding) is not None


async def test_what_may_not_be_deleted_is_still_ours_and_planned_again(scene, runs):
    async with bound(runs):
        scene.fleet.bound = False
        faults = Faults()
        faults.add(on("delete", kind=API_SERVICE_EXPORT), forbidden())
        for _ in range(2):
            assert told(await runs.run(faults)).keys() == {(Status.FAILED, "release")}
            assert len(await runs.todo()) == 1
        await runs.finish()
        assert await scene.at(scene.export) is None


async def is_told(runs, *words):
    """Run, and tell what becomes of the one line; before that, a run may wait for the konnector."""
    (message,) = told(await runs.run()).values()
    assert [word for word in words if word not in message] == [], message
    return True


async def test_what_a_finalizer_holds_is_told_with_it_and_planned_until_it_is_gone(scene, runs):
    async with bound(runs):
        scene.fleet.bound = False
        held = {"metadata": {"finalizers": ["example.com/hold"]}}
        await scene.plane.cluster.merge_patch(scene.export, held, manager="someone")
        runs.wait_seconds = 3
        for _ in range(2):
            await eventually(lambda: is_told(runs, "held by example.com/hold"))
        free = {"metadata": {"finalizers": None}}
        await scene.plane.cluster.merge_patch(scene.export, free, manager="someone")
        runs.wait_seconds = 60
        await runs.finish()
        assert await scene.at(scene.export) is None


async def test_instances_that_a_finalizer_holds_keep_the_binding_that_carries_them(scene, runs):
    scene.fleet.policy, scene.fleet.prune = "Delete", f"{scene.fleet.prune}, keepIfInUse: false"
    async with bound(runs):
        claim = Ref(scene.app.name, scene.offer.kind, scene.app_namespace, "db")
        held = {"metadata": {"finalizers": ["example.com/hold", keys.SYNCER]}}
        await scene.app.cluster.merge_patch(claim, held, manager="someone")
        scene.fleet.bound = False
        runs.wait_seconds = 3
        await eventually(lambda: is_told(runs, "1 databases", "example.com/hold"))
        assert await scene.at(scene.binding) is not None
        free = {"metadata": {"finalizers": None}}
        await scene.app.cluster.merge_patch(claim, free, manager="someone")
        runs.wait_seconds = 60
        await runs.finish()
        for ref in (scene.binding, scene.export, scene.crd):
            assert await scene.at(ref) is None


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
        faults = Faults()
        faults.add(on("get", kind=CRD, name=scene.offer.name), Inhabited(runs), at=BEFORE)
        (message,) = told(await runs.run(faults)).values()
        assert "1 databases" in message
        assert "nothing is deleted" in message
        claim = Ref(scene.app.name, scene.offer.kind, scene.app_namespace, "db")
        assert not is_deleting(await scene.at(claim))
        assert await scene.at(scene.binding) is not None
        assert {one.held for one in (await runs.plan()).changes if one.leaves} == {("in-use",)}


# The lock


def lease_of(scene):
    return Ref(scene.plane.name, LEASE, names.KLUTCH_NAMESPACE, names.lock_lease(scene.fleet.name))


async def hold(scene, *, renewed):
    """Let another run hold the lock, which it renewed so long ago."""
    time = (datetime.now(UTC) - renewed).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {
        "holderIdentity": "another",
        "leaseDurationSeconds": 15,
        "acquireTime": time,
        "renewTime": time,
    }
    ref = lease_of(scene)
    made = build(LEASE, ref.name, namespace=ref.namespace, spec=spec)
    if await scene.at(Ref(scene.plane.name, NAMESPACE, "", ref.namespace)) is None:
        own = build(NAMESPACE, ref.namespace)
        await scene.plane.cluster.create(own, NAMESPACE, manager="tests")
    await scene.plane.cluster.apply(made, LEASE, manager="another", force=True)


async def holder(scene):
    return get_text(await scene.at(lease_of(scene)), "spec", "holderIdentity")


async def test_a_run_that_meets_a_living_one_writes_nothing_and_names_it(scene, runs):
    await hold(scene, renewed=timedelta(0))
    faults, held = Faults(), datetime.now(UTC)
    runs.now = lambda: held  # however long the plan takes before
    with pytest.raises(Locked, match=r"another, for \d s\. ") as caught:
        await runs.run(faults, break_lock=False)
    assert (caught.value.holder, faults.count_writes()) == ("another", 0)
    assert await holder(scene) == "another"


async def test_the_lock_of_a_dead_run_is_taken_over_and_given_back(scene, runs):
    await hold(scene, renewed=timedelta(seconds=20))
    async with scene.peers():
        assert not_done(await runs.run(break_lock=False)) == []
    assert await holder(scene) == ""


async def test_a_broken_lock_is_recorded(scene, runs):
    await hold(scene, renewed=timedelta(0))
    async with scene.peers():
        assert not_done(await runs.run(break_lock=True)) == []
    events = await scene.plane.cluster.list(EVENT, namespace=names.KLUTCH_NAMESPACE)
    mine = [one for one in events.items if one["regarding"]["name"] == lease_of(scene).name]
    assert [one["note"] for one in mine] == ["run-1 took the lock over from another"]


async def test_a_broken_lock_that_nobody_can_be_told_of_is_ours_all_the_same(scene, runs):
    await hold(scene, renewed=timedelta(0))
    faults = Faults()
    faults.add(on("create", kind=EVENT), forbidden())
    async with scene.peers():
        assert not_done(await runs.run(faults, break_lock=True)) == []
    assert await holder(scene) == ""


class CutOff:
    """The run is cancelled in the middle of this call."""

    async def perform(self, _call):
        raise asyncio.CancelledError


async def test_a_run_that_is_cut_off_while_it_takes_the_lock_gives_it_back(scene, runs):
    await hold(scene, renewed=timedelta(0))
    faults = Faults()
    faults.add(on("create", kind=EVENT), CutOff())
    with pytest.raises(asyncio.CancelledError):
        await runs.run(faults, break_lock=True)
    assert await holder(scene) == ""


@dataclass
class Theft:
    """Another run takes the lock, and this one gets time to notice."""

    scene: Scene
    fence: WriteFence

    async def perform(self, _call):
        await hold(self.scene, renewed=timedelta(0))
        await eventually(lambda: self.fence.closed)


async def test_a_run_that_lost_the_lock_starts_no_further_write(scene, runs):
    fence, faults = WriteFence(), Faults()
    faults.add(Deeds().nth(3), Theft(scene, fence))
    async with scene.peers():
        report = await runs.run(faults, fence=fence)
    assert report.lock_lost
    assert "another run took the lock over" in report.ended
    done = [one for one in report.outcomes if one.status is Status.DONE]
    rest = [one for one in report.outcomes if one.status is not Status.DONE]
    assert len(done) == len([c for c in faults.calls if Deeds().matches(c)]) == 3
    assert {one.status for one in rest} == {Status.INTERRUPTED}
    assert await holder(scene) == "another"


# Peers and other clusters


async def test_a_backend_that_never_answers_is_told_and_the_next_run_goes_on(scene, runs):
    runs.wait_seconds = 1
    (message,) = [one for status, one in not_done(await runs.run())]
    assert "the backend has made no export" in message
    runs.wait_seconds = 60
    async with scene.peers():
        await runs.finish()
    assert await scene.at(scene.binding) is not None


async def was_silent(scene, since):
    """Let the last beat of the konnector, which is gone, be so long ago."""
    beat = Ref(scene.plane.name, CLUSTER_BINDING, scene.space, names.CLUSTER_BINDING)
    status = {"lastHeartbeatTime": format_time(datetime.now(UTC) - since)}
    await scene.plane.cluster.merge_patch(
        beat, {"status": status}, manager="konnector", subresource="status"
    )


@pytest.mark.parametrize("force", [False, True], ids=["it comes back", "forced"])
async def test_a_dead_konnector_stops_a_release_before_anything_is_let_go(force, scene, runs):
    async with backend(scene.plane.connection):
        async with scene.konnector():
            await runs.finish()
            _, copy = await inhabit(scene)
        await was_silent(scene, timedelta(minutes=11))
        scene.fleet.bound = False
        for _ in range(2):
            (message,) = told(await runs.run()).values()
            assert "sync stop not confirmed: the konnector does not answer" in message
            assert await scene.at(scene.export) is not None
            assert keys.BOUND in annotations_of(await scene.at(copy))
        if force:
            assert not_done(await runs.run(force=True)) == []
        else:
            async with scene.konnector():  # which ends its sync while a run looks
                await runs.finish()
        assert await runs.todo() == []
        assert keys.RELEASED in annotations_of(await scene.at(copy))


SECOND = """---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Cluster
metadata: {{name: self}}
spec:
  access: {{kubeconfigContext: {context}}}
  controlPlane: eu
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Binding
metadata: {{name: of-self}}
spec:
  resources: [{{group: {group}, resource: databases}}]
  clusters: {{names: [self]}}
  claims: []
"""


async def test_a_cluster_that_fails_does_not_hold_another(scene, runs):
    """The control plane is an app cluster of its own here."""
    scene.fleet.extra = SECOND.format(context=scene.plane.context, group=scene.offer.group)
    other = names.direct_space(scene.fleet.name, "self")
    faults = Faults()
    for verb in ("create", "apply", "patch", "delete"):
        faults.add(on(verb, cluster="shop"), forbidden())
    refs = [
        Ref(scene.plane.name, kind, place, name)
        for kind, name, place in (
            (API_SERVICE_BINDING, scene.offer.name, names.KLUTCH_NAMESPACE),
            (SECRET, names.kubeconfig_secret(other), names.KLUTCH_NAMESPACE),
            (NAMESPACE, other, ""),
        )
    ]
    try:
        async with backend(scene.plane.connection):
            report = await runs.run(faults)
        by_cluster = {
            name: {one.status for one in report.outcomes if one.change.cluster == name}
            for name in ("shop", "self")
        }
        assert by_cluster["self"] <= GOOD
        assert Status.FAILED in by_cluster["shop"]
        assert [ref for ref in refs if await scene.at(ref) is None] == []
    finally:  # another fleet's cluster `self` would block that of the next
        for ref in refs:
            await remove(scene.plane, ref)


SECOND_PLANE = """---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: ControlPlane
metadata: {{name: us}}
spec:
  access: {{kubeconfigContext: us}}
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Cluster
metadata: {{name: mall}}
spec:
  access: {{kubeconfigContext: {context}}}
  controlPlane: us
"""


def with_second_plane(scene, app, folder):
    """Put another app cluster into the fleet, behind what looks like another control plane."""
    known = yaml.safe_load(app.kubeconfig.read_text())
    plane = next(one for one in known["contexts"] if one["name"] == scene.plane.context)
    known["contexts"].append({"name": "us", "context": dict(plane["context"])})
    scene.kubeconfig = folder / "kubeconfig"
    scene.kubeconfig.write_text(yaml.safe_dump(known))
    scene.fleet.extra = SECOND_PLANE.format(context=app.context)
    scene.fleet.clusters = "names: [shop, mall]"


@pytest.mark.parametrize("why", [unreachable, forbidden], ids=["away", "forbidden"])
async def test_a_control_plane_without_lock_stops_only_what_is_behind_it(
    scene, runs, second_app_cluster, tmp_path, why
):
    with_second_plane(scene, second_app_cluster, tmp_path)
    faults = Faults()
    faults.add(on("get", cluster="control-plane/us", kind=LEASE), why())
    async with scene.peers():
        mark = second_app_cluster.audit.mark()
        report = await runs.run(faults)
        found = {(one.change.cluster, one.status) for one in report.outcomes}
        assert found == {("shop", Status.DONE), ("mall", Status.FAILED)}
        messages = {one.message for one in report.outcomes if one.change.cluster == "mall"}
        assert all(one.startswith("without the lock of its control plane") for one in messages)
        assert second_app_cluster.audit.writes_since(mark, namespace=names.KLUTCH_NAMESPACE) == []


async def test_a_fleet_without_any_lock_is_not_applied(scene, runs):
    faults = Faults()
    faults.add(on("get", kind=LEASE), forbidden())
    async with scene.peers():
        with pytest.raises(Forbidden):
            await runs.run(faults)

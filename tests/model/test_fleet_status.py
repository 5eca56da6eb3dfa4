"""A FleetStatus is kept up to date on an API server, whatever befalls it, and never in a hurry."""

import asyncio
from dataclasses import replace

import pytest

from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.controller.fence import WriteFence
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys
from reconciler.core.errors import ClusterError, Forbidden, NotServed, Unreachable
from reconciler.core.manifest import annotations_of, get_map, uid_of
from reconciler.core.refs import Ref
from reconciler.kube.requests import Preconditions, Propagation
from reconciler.planning.changes import Tripped
from reconciler.watch import fleet_state
from reconciler.watch.fleet_status import writer
from reconciler.watch.fleet_status.writer import PERIOD, UNREAD, FleetStatusWriter
from reconciler.watch.loop import States
from tests.kit import virtual_time
from tests.kit.clusters import model_clusters
from tests.support import faults
from tests.support.cues import AFTER
from tests.support.fleet_states import COMMIT, NEXT, at, at_rest, begun, ended, fleet
from tests.support.reports import report


class Clock(SystemClock):
    def __init__(self) -> None:
        super().__init__(virtual_time.now)

    def monotonic(self) -> float:
        return virtual_time.monotonic()


class Recorder:
    def __init__(self):
        self.notes, self.docs = [], ""

    def record(self, about, live, note):
        assert uid_of(live)
        self.notes.append(note.reason)


class Scene:
    def __init__(self, plane, namespace):
        self.real, self.cluster = plane.cluster, faults.FaultyCluster(plane.cluster)
        self.faults = self.cluster.faults
        self.ref = Ref(plane.name, FLEET_STATUS, namespace, "acme")
        self.fence, self.recorder = WriteFence(), Recorder()
        self.states = States(at_rest())
        self.tasks = []
        self.writer = self.made()

    def made(self):
        return FleetStatusWriter(
            self.cluster, self.ref, fence=self.fence, clock=Clock(), recorder=self.recorder
        )

    async def run(self, states=None):
        """Begin to write; return once a first look is over."""
        if states is not None:
            self.states = states
        for task in self.tasks:
            task.cancel()
        await self.writer.load()
        self.tasks.append(asyncio.create_task(self.writer.run(self.states)))
        await asyncio.sleep(0.5)

    async def live(self):
        return await self.real.get(self.ref)

    async def status(self):
        return get_map(await self.live(), "status")

    async def annotate(self, reason):
        body = {"metadata": {"annotations": {keys.SUSPEND: reason}}}
        await self.real.merge_patch(self.ref, body, manager="kubectl")

    async def edit(self, status):
        await self.real.merge_patch(
            self.ref, {"status": status}, manager="kubectl", subresource="status"
        )

    async def delete(self):
        there = Preconditions(uid_of(await self.live()))
        await self.real.delete(self.ref, preconditions=there, propagation=Propagation.BACKGROUND)

    def next(self, revision=NEXT):
        self.states.put(fleet_state.source_read(self.states.now, fleet(revision), None, now=at(50)))

    @property
    def written(self):
        return self.faults.count_writes()


@pytest.fixture(scope="module")
async def models(tmp_path_factory):
    async with model_clusters(tmp_path_factory.mktemp("clusters")) as made:
        yield made


@pytest.fixture
async def scene(control_plane, namespace):
    made = Scene(control_plane, namespace)
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


# What stands there


async def test_it_is_made_and_filled(scene):
    await scene.run()
    status = await scene.status()
    assert status["summary"] == {"revision": "a" * 12, "units": "2/2", "waiting": 0}
    assert (status["accepted"], status["observedGeneration"]) == (COMMIT, 1)
    assert scene.written == 2


async def test_an_hour_at_rest_costs_no_write(scene):
    await scene.run()
    before = scene.written
    for minute in range(60):
        for _ in range(2):
            state = scene.states.now
            scene.states.put(fleet_state.source_read(state, fleet(), None, now=at(60 * minute)))
        scene.states.put(ended(scene.states.now, time=60 * minute))
        await asyncio.sleep(60)
    assert scene.written == before


async def test_it_is_looked_at_every_10_s_and_after_news_each_second_at_most(scene):
    await scene.run()
    scene.states.put(replace(scene.states.now))
    await asyncio.sleep(60)
    looks = len(scene.faults.calls)
    await asyncio.sleep(60)
    assert len(scene.faults.calls) - looks == pytest.approx(60 / PERIOD, abs=1)
    for _ in range(600):
        scene.states.put(replace(scene.states.now))
        await asyncio.sleep(0.1)
    assert len(scene.faults.calls) - looks == pytest.approx(60 / PERIOD + 60, abs=3)


async def test_news_are_there_at_once_and_then_every_10_s(scene):
    await scene.run()
    await asyncio.sleep(60)
    before = scene.written
    began = virtual_time.monotonic()
    for number in range(100):
        scene.next(f"{number:040}")
        await asyncio.sleep(1.0)
        if number == 1:
            assert (await scene.status())["source"]["revision"] == f"{0:040}"
    assert virtual_time.monotonic() - began == pytest.approx(100)
    assert scene.written - before == pytest.approx(100 / PERIOD, abs=1)
    await asyncio.sleep(PERIOD)
    assert (await scene.status())["accepted"] == f"{99:040}"


async def test_what_is_worse_is_there_at_once(scene):
    await scene.run()
    held = report(held=[Tripped("max-deletes", "too many", ("shop",))])
    opened = replace(at_rest(), applied_at=None)
    for state, ready in ((opened, "Unknown"), (ended(opened, "held", of=held), "False")):
        scene.states.put(state)
        await asyncio.sleep(2.0)
        assert (await scene.status())["conditions"][0]["status"] == ready
    scene.states.put(at_rest())
    await asyncio.sleep(2.0)
    assert (await scene.status())["conditions"][0]["status"] == "False"


async def test_what_is_stated_no_more_goes(scene):
    await scene.run(States(replace(at_rest(), shard=("eu",))))
    assert (await scene.status())["shard"] == ["eu"]
    scene.states.put(at_rest())
    await asyncio.sleep(2 * PERIOD)
    assert "shard" not in await scene.status()


async def test_a_process_that_begins_leaves_what_the_one_before_it_found(scene):
    await scene.run()
    there = await scene.live()
    scene.writer = scene.made()
    await scene.run(States(begun()))
    await asyncio.sleep(3 * PERIOD)
    assert await scene.live() == there


async def test_an_edited_status_is_put_right_once(scene):
    await scene.run()
    await scene.edit({"summary": {"units": "0/0"}, "history": []})
    before = scene.written
    await asyncio.sleep(5 * PERIOD)
    status = await scene.status()
    assert (status["summary"]["units"], len(status["history"])) == ("2/2", 1)
    assert scene.written == before + 1


async def test_a_condition_of_somebody_else_costs_one_write(scene):
    await scene.run()
    there = (await scene.status())["conditions"]
    theirs = {**there[0], "type": "Theirs"}
    await scene.edit({"conditions": [*there, theirs]})
    before = scene.written
    await asyncio.sleep(5 * PERIOD)
    assert theirs in (await scene.status())["conditions"]
    assert scene.written == before + 1


async def test_it_is_made_again_where_somebody_deleted_it(scene):
    await scene.run()
    there = await scene.live()
    await scene.delete()
    await asyncio.sleep(2 * PERIOD)
    again = await scene.live()
    assert uid_of(again) != uid_of(there)
    assert get_map(again, "status") == get_map(there, "status")


async def test_it_may_go_between_a_look_and_the_write(scene):
    await scene.run()
    scene.faults.add(faults.on("patch", "apply").nth(1), faults.Meanwhile(scene.delete))
    scene.next()
    await asyncio.sleep(3 * PERIOD)
    assert (await scene.status())["accepted"] == NEXT


async def test_another_may_make_it_first(scene):
    async def make():
        body = {
            "apiVersion": FLEET_STATUS.api_version,
            "kind": FLEET_STATUS.kind,
            "metadata": {"name": "acme", "namespace": scene.ref.namespace},
        }
        await scene.real.create(body, FLEET_STATUS, manager="kubectl")

    scene.faults.add(faults.on("create").nth(1), faults.Meanwhile(make))
    await scene.run()
    await asyncio.sleep(2 * PERIOD)
    assert (await scene.status())["accepted"] == COMMIT


# What cannot be written

FAULTS = {
    "there is no way": (faults.on(), faults.unreachable()),
    "it may not be read": (faults.on("get"), faults.forbidden()),
    "it may not be written": (faults.writes(), faults.forbidden()),
}


@pytest.mark.parametrize(("cue", "fault"), FAULTS.values(), ids=FAULTS)
async def test_it_is_written_later_where(scene, caplog, cue, fault):
    await scene.run()
    scene.faults.add(cue, fault)
    scene.next()
    await asyncio.sleep(12 * PERIOD)
    assert caplog.text.count("cannot be written for now") == 1
    assert "can be written again" not in caplog.text
    scene.faults.clear()
    await asyncio.sleep(2 * PERIOD)
    assert (await scene.status())["accepted"] == NEXT
    assert caplog.text.count("can be written again") == 1


async def test_a_defect_of_ours_is_no_end(scene, caplog, monkeypatch):
    await scene.run()
    with monkeypatch.context() as broken:
        broken.setattr(writer, "status_of", lambda *_, **__: 1 / 0)
        await asyncio.sleep(3 * PERIOD)
        await scene.annotate("a move")
        await asyncio.sleep(2 * PERIOD)
        assert scene.writer.suspended() == "a move"
        assert caplog.text.count("cannot be written for now") == 1
        assert scene.writer.accepted() == COMMIT
    scene.next()
    await asyncio.sleep(2 * PERIOD)
    assert (await scene.status())["accepted"] == NEXT


async def test_what_was_written_without_an_answer_is_not_written_again(scene):
    scene.faults.add(faults.writes(), faults.lost(), at=AFTER)
    await scene.run()
    await asyncio.sleep(5 * PERIOD)
    assert (await scene.status())["accepted"] == COMMIT
    assert scene.written == 2


@pytest.mark.parametrize("news", [True, False])
async def test_after_the_fence_has_closed_nothing_is_written(scene, news):
    await scene.run()
    before = scene.written
    scene.fence.close("the lease was lost")
    if news:
        scene.next()
    async with asyncio.timeout(3 * PERIOD):
        await scene.tasks[0]
    assert scene.written == before


# What is remembered


async def left_to(writer):
    await writer.load()
    return writer.accepted(), writer.suspended()


async def test_nothing_is_remembered_of_a_first_start(scene):
    assert await left_to(scene.writer) == ("", "")
    assert scene.writer.accepted() == ""


async def test_the_next_process_knows_what_was_accepted(scene):
    await scene.run()
    scene.next()
    await asyncio.sleep(2 * PERIOD)
    later = scene.made()
    assert await left_to(later) == (NEXT, "")
    assert later.accepted() == NEXT


async def test_who_edits_what_was_accepted_takes_nothing_back(scene):
    await scene.run()
    await scene.edit({"accepted": NEXT})
    assert await left_to(scene.writer) == (COMMIT, "")
    await asyncio.sleep(2 * PERIOD)
    assert (await scene.status())["accepted"] == COMMIT
    await scene.delete()
    await asyncio.sleep(2 * PERIOD)
    assert scene.writer.accepted() == COMMIT


async def test_a_source_that_cannot_be_read_does_not_lose_what_was_accepted(scene):
    await scene.run()
    problem = fleet_state.SourceProblem.UNREADABLE
    nothing = fleet_state.FleetState(name="")
    scene.writer = scene.made()
    await scene.run(
        States(fleet_state.source_failed(nothing, problem, "away", refused="", now=at(0)))
    )
    await asyncio.sleep(PERIOD)
    assert (await scene.status())["accepted"] == COMMIT
    assert "source" not in await scene.status()


async def test_unknown_is_not_nothing_accepted(scene):
    scene.faults.add(faults.on("get"), faults.unreachable())
    for call in (scene.writer.load, scene.writer.load):
        with pytest.raises(Unreachable):
            await call()
        with pytest.raises(Unreachable):
            scene.writer.accepted()
    scene.faults.clear()
    assert await left_to(scene.writer) == ("", "")
    assert scene.writer.accepted() == ""


async def test_what_cannot_be_written_down_is_not_built_upon(scene):
    await scene.run()
    scene.faults.add(faults.writes(), faults.forbidden())
    scene.next()
    assert scene.writer.accepted() == NEXT  # it was not tried yet
    await asyncio.sleep(2 * PERIOD)
    with pytest.raises(Forbidden):
        scene.writer.accepted()
    scene.faults.clear()
    await asyncio.sleep(2 * PERIOD)
    assert scene.writer.accepted() == NEXT


# Suspension


async def test_an_annotation_suspends_until_it_is_taken_off(scene):
    await scene.run()
    assert scene.writer.suspended() == ""
    await scene.annotate(" a move ")
    await asyncio.sleep(PERIOD)
    assert scene.writer.suspended() == "a move"
    assert await left_to(scene.made()) == (COMMIT, "a move")
    await scene.annotate("")
    await asyncio.sleep(PERIOD)
    assert scene.writer.suspended() == "no reason is given"
    await scene.annotate(None)
    await asyncio.sleep(PERIOD)
    assert scene.writer.suspended() == ""


async def test_no_outage_and_no_deletion_ends_a_suspension(scene):
    await scene.run()
    await scene.annotate("a move")
    await asyncio.sleep(PERIOD)
    scene.faults.add(faults.on("get"), faults.unreachable())
    await asyncio.sleep(2 * PERIOD)
    assert scene.writer.suspended() == "a move"
    scene.faults.clear()
    await scene.delete()
    await asyncio.sleep(3 * PERIOD)
    assert scene.writer.suspended() == "a move"
    assert annotations_of(await scene.live()) == {keys.SUSPEND: "a move"}


@pytest.mark.parametrize(
    "fault", [faults.unreachable(), faults.forbidden()], ids=["no way", "no right"]
)
async def test_what_was_never_read_suspends_until_it_was(scene, fault):
    scene.faults.add(faults.on("get"), fault)
    with pytest.raises(ClusterError):
        await scene.run()
    assert scene.writer.suspended() == UNREAD
    scene.tasks.append(asyncio.create_task(scene.writer.run(scene.states)))
    await asyncio.sleep(3 * PERIOD)
    assert scene.writer.suspended() == UNREAD
    scene.faults.clear()
    await asyncio.sleep(2 * PERIOD)
    assert scene.writer.suspended() == ""
    assert keys.SUSPEND not in annotations_of(await scene.live())  # it is no reason of a person


async def test_where_the_kind_is_absent_nobody_suspended_it(scene):
    scene.faults.add(faults.on("get"), faults.Fail(NotServed, "the kind is not there", 404))
    with pytest.raises(NotServed):
        await scene.writer.load()
    assert scene.writer.suspended() == ""
    scene.faults.clear()
    await scene.run()
    await scene.annotate("a move")
    await asyncio.sleep(2 * PERIOD)
    scene.faults.add(faults.on("get"), faults.Fail(NotServed, "the kind is not there", 404))
    await asyncio.sleep(2 * PERIOD)
    assert scene.writer.suspended() == "a move"


# Events


async def test_events_wait_for_the_object_and_are_recorded_once(scene):
    states = States(fleet_state.FleetState(name=""))
    scene.faults.add(faults.on("create"), faults.forbidden())
    await scene.run(states)
    states.put(begun())
    states.put(ended(states.now, "done", done=1))
    await asyncio.sleep(2 * PERIOD)
    assert scene.recorder.notes == []
    scene.faults.clear()
    await asyncio.sleep(2 * PERIOD)
    assert scene.recorder.notes == ["SourceChanged", "Applied"]
    states.put(ended(states.now, "done", done=1, time=9))
    assert scene.recorder.notes == ["SourceChanged", "Applied", "Applied"]


async def test_one_that_ended_listens_no_more(scene):
    await scene.run()
    scene.tasks[0].cancel()
    await asyncio.gather(*scene.tasks, return_exceptions=True)
    scene.next()
    assert scene.recorder.notes == []

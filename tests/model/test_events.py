"""Kubernetes Events in a real API server: told once, counted when told again, never in a flood."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reconciler.controller import events
from reconciler.controller.events import EventRecorder, Source
from reconciler.controller.fence import WriteFence
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import SystemClock
from reconciler.core.decision import Note
from reconciler.core.manifest import get_int, get_maps, get_text, name_of, uid_of
from reconciler.core.refs import CLUSTER_ROLE, CONFIG_MAP, EVENT, Ref
from reconciler.kube.requests import Preconditions, Propagation
from tests.support.cues import AFTER
from tests.support.eventually import eventually
from tests.support.fake_clock import FakeClock
from tests.support.faults import FaultyCluster, forbidden, lost, on, unreachable

MANAGER = "tests"
SOURCE = Source("klutchctl.dev/tests", "tests-1")
NOTE = Note("Released", "the copies are kept", "Warning", "Release")


class Scene:
    def __init__(self, plane, namespace, clock):
        self.real, self.namespace, self.clock = plane.cluster, namespace, clock
        self.cluster = FaultyCluster(plane.cluster)
        self.fence, self.metrics = WriteFence(), Metrics()
        self.recorder = EventRecorder(
            self.cluster,
            self.fence,
            source=SOURCE,
            manager=MANAGER,
            clock=clock,
            metrics=self.metrics,
        )
        self.about = Ref(plane.name, CONFIG_MAP, namespace, "orders")
        self.live = {"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}}
        self.task = asyncio.create_task(self.recorder.run())

    def record(self, note=NOTE):
        self.recorder.record(self.about, self.live, note)

    async def events(self, number):
        """Return the Events of the namespace once there are so many."""

        async def found():
            listing = await self.real.list(EVENT, namespace=self.namespace)
            return listing.items if len(listing.items) == number else None

        return await eventually(found)

    async def knows(self, result):
        """Wait until the recorder has the first answer of this kind: its times begin there."""
        await eventually(lambda: self.count(result) == 1)

    async def end(self):
        self.recorder.stop()
        await self.task

    def count(self, result):
        return self.metrics.registry.get_sample_value("klutch_events_total", {"result": result})


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let a busy API server take longer for the last words than a process would wait."""
    monkeypatch.setattr(events, "_LAST_WORDS", 60.0)


@pytest.fixture
async def scene(control_plane, namespace):
    made = Scene(control_plane, namespace, SystemClock())
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)


async def test_what_an_event_says(scene):
    scene.record()
    (event,) = await scene.events(1)
    assert name_of(event).startswith("orders.")
    said = {key: event.get(key) for key in ("type", "reason", "action", "note")}
    assert said == {
        "type": "Warning",
        "reason": "Released",
        "action": "Release",
        "note": "the copies are kept",
    }
    assert event["reportingController"] == "klutchctl.dev/tests"
    assert event["reportingInstance"] == "tests-1"
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": scene.namespace,
        "name": "orders",
        "uid": "11111111-2222-3333-4444-555555555555",
    }


async def test_what_was_reported_before_the_end_is_written(scene):
    for number in range(5):
        scene.record(Note("Counted", f"number {number}"))
    await scene.end()
    assert {get_text(event, "note") for event in await scene.events(5)} == {
        f"number {number}" for number in range(5)
    }


async def test_the_same_again_is_counted_now_and_then(control_plane, namespace):
    clock = FakeClock()
    scene = Scene(control_plane, namespace, clock)
    scene.record()
    await scene.knows("sent")
    for _ in range(1_000):
        scene.record()
    await clock.advance(59)
    assert [get_int(event, "series", "count") for event in await scene.events(1)] == [None]
    await clock.advance(2)

    async def counted():
        (event,) = await scene.events(1)
        assert get_int(event, "series", "count") == 1_001
        return event

    event: Any = await eventually(counted)
    assert get_text(event, "series", "lastObservedTime").startswith("2026-01-01T00:00:")
    await scene.knows("counted")
    await clock.advance(400)  # of silence
    scene.record()
    assert len(await scene.events(2)) == 2
    await scene.end()
    assert (scene.count("sent"), scene.count("counted")) == (2, 1)


async def test_an_answer_that_was_lost_makes_no_second_event(scene):
    scene.cluster.faults.add(on("create", kind=EVENT).nth(1), lost(), at=AFTER)
    scene.record()
    await eventually(lambda: scene.count("sent") == 1)
    await scene.events(1)


async def test_what_cannot_be_reported_hinders_nothing(scene):
    scene.cluster.faults.add(on("create", kind=EVENT).nth(1), forbidden())
    scene.cluster.faults.add(on("create", kind=EVENT).nth(2), unreachable())
    scene.record(Note("First", "refused once"))
    await eventually(lambda: scene.count("sent") == 1)
    await scene.events(1)


async def test_after_a_few_tries_it_is_given_up(scene):
    scene.cluster.faults.add(on("create", kind=EVENT).first(3), forbidden())
    scene.record()
    await eventually(lambda: scene.count("failed") == 1)
    scene.record()
    await scene.events(1)


async def test_an_event_that_is_gone_is_not_counted_up(control_plane, namespace):
    clock = FakeClock()
    scene = Scene(control_plane, namespace, clock)
    scene.record()
    await scene.knows("sent")
    (event,) = await scene.events(1)
    await scene.real.delete(
        Ref(scene.real.name, EVENT, namespace, name_of(event)),
        preconditions=Preconditions(uid_of(event)),
        propagation=Propagation.BACKGROUND,
    )
    scene.record()
    await clock.advance(61)
    await eventually(lambda: scene.count("failed") == 1)
    scene.record()
    (again,) = await scene.events(1)
    assert uid_of(again) != uid_of(event)
    await scene.end()


async def test_a_flood_is_written_slowly(control_plane, namespace):
    clock = FakeClock()
    scene = Scene(control_plane, namespace, clock)
    notes = [Note("Counted", f"number {number}") for number in range(200)]
    for second in range(600):
        for note in notes if second % 60 == 0 else ():
            scene.record(note)
        await scene.events(min(50 + 2 * second, 200))
        await clock.advance(1)
    scene.record()  # news, which waits for no count
    await clock.advance(1)
    assert NOTE.reason in {get_text(one, "reason") for one in await scene.events(201)}
    scene.task.cancel()
    await asyncio.gather(scene.task, return_exceptions=True)


async def test_a_flood_of_one_namespace_keeps_no_event_of_another_away(scene):
    """Law 4: two a second are for all, and so is what is remembered."""
    flood = replace(scene.about, namespace="default")
    for number in range(2_000):
        scene.recorder.record(flood, scene.live, Note("Counted", f"number {number}"))
        if number == 500:
            scene.record()
    (event,) = await scene.events(1)
    assert get_text(event, "reason") == NOTE.reason


async def test_memory_is_bounded(scene):
    await asyncio.sleep(0)  # it runs
    for number in range(3_000):
        scene.record(Note("Counted", f"number {number}"))
    assert scene.count("dropped") == 2_000
    assert scene.metrics.activity.queued() == "events: 1000 keys wait"
    scene.fence.close("the end")


async def test_a_closed_gate_lets_nothing_be_reported(scene, control_plane):
    mark = control_plane.audit.mark()
    scene.fence.close("the end")
    scene.record()
    await scene.end()
    assert control_plane.audit.writes_since(mark, namespace=scene.namespace) == []


async def test_long_texts_and_odd_names_are_reported_too(scene):
    scene.about = Ref(scene.real.name, CONFIG_MAP, scene.namespace, "x" * 253)
    scene.record(Note("Long", "ö" * 2_000))
    (event,) = await scene.events(1)
    assert get_text(event, "note") == "ö" * 512


async def test_an_object_without_a_namespace(scene):
    uid = f"uid-of-{scene.namespace}"
    about = Ref(scene.real.name, CLUSTER_ROLE, "", f"system:{scene.namespace}")
    scene.recorder.record(about, {"metadata": {"uid": uid}}, NOTE)
    await scene.end()
    listing = await scene.real.list(EVENT, namespace="default")
    (event,) = [one for one in listing.items if get_text(one, "regarding", "uid") == uid]
    assert name_of(event).startswith("clusterrole.")
    assert get_maps(event, "related") == []

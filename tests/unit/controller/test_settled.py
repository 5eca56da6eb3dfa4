"""A program is at rest when nothing waits and no view lacks what its cluster has."""

import asyncio
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any, cast

import pytest

from reconciler.controller import health_server
from reconciler.controller.controller import Controller
from reconciler.controller.health_server import SettledProbe
from reconciler.controller.manager import Manager
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import SystemClock
from reconciler.core.errors import Unreachable
from reconciler.core.refs import SECRET, Ref


class View:
    """A view of a cluster that is at version 7."""

    def __init__(self, name="app"):
        self.ref = Ref(name, SECRET, "", "")
        self.store, self.restarts, self.trouble = (), 0, ""
        self.synced, self.shows, self.error = True, True, None
        self.listed = 0
        self.meanwhile = lambda: None  # happens while a list is on its way

    async def is_current(self, written):
        self.listed += 1
        await asyncio.sleep(0)
        self.meanwhile()
        if self.error is not None:
            raise self.error
        return self.shows and int(written or "0") <= 7

    async def wait_synced(self):
        return

    async def run(self):
        await asyncio.Event().wait()


class Scene:
    """A manager of one view and one controller, whose work the test ends."""

    def __init__(self):
        self.metrics = Metrics()
        self.view = cast("Any", View())
        self.may_end, self.again = asyncio.Event(), None
        self.may_end.set()
        self.controller = Controller(
            "orders", self._work, clock=SystemClock(), metrics=self.metrics
        )
        self.manager = Manager(
            views=[self.view], workers=[self.controller], metrics=self.metrics, leadership=None
        )

    async def _work(self, key):
        await self.may_end.wait()
        return self.again

    async def reason(self, written=None, **more):
        return await self.manager.unsettled(written or {}, **more)


@pytest.fixture
async def scene():
    scene, stop = Scene(), asyncio.Event()
    running = asyncio.create_task(scene.manager.run(stop))
    assert await scene.manager.settled(within=5) == ""
    yield scene
    scene.may_end.set()
    stop.set()
    await running


async def test_a_manager_that_does_not_work_is_not_settled():
    scene = Scene()
    assert await scene.reason() == "this process does not lead"
    scene.view.synced = False
    assert "not answered yet" in await scene.reason()


async def test_a_key_that_waits_or_is_worked_on(scene):
    scene.may_end.clear()
    scene.controller.enqueue("one")
    assert await scene.reason() == "orders: 1 keys wait"
    await asyncio.sleep(0.01)
    assert await scene.reason() == "orders: 1 keys are worked on"
    scene.may_end.set()
    assert await scene.manager.settled(within=5) == ""


async def test_a_delay_counts_if_it_ends_soon(scene):
    scene.again = timedelta(seconds=3)
    scene.controller.enqueue("one")
    assert await scene.manager.settled(within=5) == ""
    assert (await scene.reason(soon=4.0)).startswith("orders: a key is due in ")


async def test_an_event_on_its_way(scene):
    scene.view.shows = False
    assert await scene.manager.settled(within=0.1) == "app: Secret list lacks changes"
    scene.view.shows = True
    assert await scene.manager.settled(within=0.1) == ""


async def test_what_was_written_has_to_be_seen(scene):
    assert await scene.reason({"app": "7"}) == ""
    assert await scene.reason({"app": "8"}) == "app: Secret list lacks changes"
    assert await scene.reason({"plane": "1"}) == "no cluster is called plane; there are app"


async def test_work_begins_and_ends_while_a_list_is_on_its_way(scene):
    async def meanwhile(written):
        scene.controller.enqueue("one")
        await asyncio.sleep(0.05)
        return True

    scene.view.is_current = meanwhile
    assert await scene.reason() == "there was work in the meantime"


async def test_a_view_begins_while_a_list_is_on_its_way(scene):
    began = []
    scene.view.meanwhile = lambda: began.append(scene.metrics.watch(View("plane")))
    assert await scene.reason() == "there was work in the meantime"
    began[0]()


async def test_work_that_comes_from_no_queue(scene):
    with scene.metrics.activity.work("space x is read"):
        assert await scene.reason() == "space x is read"
    assert await scene.reason() == ""


async def test_a_cluster_that_does_not_answer(scene):
    scene.view.error = Unreachable("no answer", ref=scene.view.ref, verb="list")
    assert "no answer" in await scene.reason()


async def test_views_are_not_listed_while_there_is_work(scene):
    listed = scene.view.listed
    with scene.metrics.activity.work("space x is read"):
        await scene.manager.settled(within=0.2)
    assert scene.view.listed == listed


@pytest.fixture
async def ask(scene):
    """Ask over HTTP; return the status and the text."""
    probe = SettledProbe(scene.manager.settled)
    with health_server.served(("127.0.0.1", 0), settled=probe) as (host, port):

        def get(query=""):
            try:
                with urllib.request.urlopen(f"http://{host}:{port}/settled{query}") as answer:
                    return answer.status, answer.read().decode().strip()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode().strip()

        yield lambda query="": asyncio.to_thread(get, query)


async def test_it_is_served(scene, ask):
    assert await ask() == (200, "ok")
    assert await ask("?after=app:7&within=2") == (200, "ok")
    assert await ask("?after=app:8") == (503, "app: Secret list lacks changes")


@pytest.mark.parametrize(
    "query",
    [
        "?after=app",
        "?after=:7",
        "?after=app:",
        "?after=app:x",
        "?within=5",
        "?within=-1",
        "?within=nan",
        "?within=x",
        "?else=1",
        "?&&",
    ],
)
async def test_bad_questions(ask, query):
    status, text = await ask(query)
    assert status == 400
    assert text.startswith("ask for after=CLUSTER:RESOURCEVERSION")


@pytest.mark.parametrize(
    ("client", "status"),
    [
        ("127.0.0.1", 200),
        ("127.1.2.3", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("10.0.0.1", 403),
        ("::ffff:10.0.0.1", 403),
        ("fe80::1%eth0", 403),
    ],
)
async def test_only_the_same_machine_is_answered(scene, client, status):
    assert (await SettledProbe(scene.manager.settled)(client, "")).status == status


async def test_one_request_at_a_time(scene):
    probe = SettledProbe(scene.manager.settled)
    with scene.metrics.activity.work("space x is read"):
        first = asyncio.create_task(probe("::1", "within=1"))
        await asyncio.sleep(0.3)
        assert (await probe("::1", "")).status == 429
        assert (await first).body == b"space x is read\n"


async def test_an_event_loop_that_is_stuck_answers_nothing(monkeypatch):
    monkeypatch.setattr("reconciler.controller.health_server._LONGEST", 0.1)

    async def settled(written, within):
        await asyncio.Event().wait()

    answer = await SettledProbe(settled)("::1", "")
    assert answer.body == b"there was no answer in time\n"

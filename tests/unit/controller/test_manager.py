"""The manager: reads, then leads, then works, and stops in that order backwards."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from reconciler.controller.leadership import LeaseLost
from reconciler.controller.manager import InformerSet, Manager
from reconciler.controller.metrics import Metrics
from reconciler.controller.process import SILENCE, Liveness
from reconciler.controller.program import Elections
from reconciler.core.refs import CONFIG_MAP, SECRET, Ref
from tests.support.fake_clock import FakeClock, settle


class View:
    history = 1

    def __init__(self, diary, kind=SECRET, *, synced=True):
        self.on_synced: Any = None
        self.ref, self.store, self.restarts, self.trouble = Ref("plane", kind, "", ""), "abc", 2, ""
        self._diary, self._synced = diary, asyncio.Event()
        if synced:
            self._synced.set()

    @property
    def synced(self):
        return self._synced.is_set()

    async def is_current(self, written):
        return True

    def read(self):
        self._synced.set()

    async def wait_synced(self):
        await self._synced.wait()

    async def run(self):
        self._diary.append("follows")
        if self.on_synced is not None:
            self.on_synced()
        try:
            await asyncio.Event().wait()
        finally:
            self._diary.append("follows no more")


class Worker:
    def __init__(self, diary, error=None):
        self._diary, self._error, self._stop = diary, error, asyncio.Event()

    def stop(self):
        self._stop.set()

    async def run(self):
        self._diary.append("works")
        try:
            if self._error:
                raise self._error
            await self._stop.wait()
            await settle()
            self._diary.append("has ended its work")
        except asyncio.CancelledError:
            self._diary.append("is cut")
            raise


class Leading:
    """Leadership as the manager sees it."""

    def __init__(self, diary):
        self._diary, self.granted, self.lost = diary, asyncio.Event(), asyncio.Event()

    async def lead(self, work):
        await self.granted.wait()
        self._diary.append("leads")
        working = asyncio.create_task(work())
        losing = asyncio.create_task(self.lost.wait())
        await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
        losing.cancel()
        if self.lost.is_set():
            working.cancel()
            await asyncio.wait({working})
            raise LeaseLost("lost")
        self._diary.append("gives it back")


@pytest.fixture
def diary():
    return []


@pytest.fixture
def stop():
    return asyncio.Event()


def managed(diary, *, views=None, workers=None, leadership=None, advice=""):
    return Manager(
        views=views or [View(diary)],
        workers=workers or [Worker(diary)],
        metrics=Metrics(),
        leadership=leadership,
        advice=advice,
    )


async def test_the_order_of_things(diary, stop):
    leading = Leading(diary)
    running = asyncio.create_task(managed(diary, leadership=leading).run(stop))
    await settle()
    assert diary == ["follows"]
    leading.granted.set()
    await settle()
    stop.set()
    await running
    assert diary == [
        "follows",
        "leads",
        "works",
        "has ended its work",
        "gives it back",
        "follows no more",
    ]


async def test_nothing_is_worked_on_until_everything_was_read(diary, stop):
    views = [View(diary), View(diary, CONFIG_MAP, synced=False)]
    manager = managed(diary, views=views)
    running = asyncio.create_task(manager.run(stop))
    await settle()
    assert manager.unready() == "not read yet: plane: ConfigMap list: not answered yet"
    views[1].trouble = "plane: list ConfigMap: the user may not"
    assert manager.unready() == "not read yet: plane: list ConfigMap: the user may not"
    assert "works" not in diary
    views[1].read()
    await settle()
    assert manager.unready() == ""
    assert diary[-1] == "works"
    stop.set()
    await running


def test_advice_is_given_where_the_server_said_no(diary):
    view = View(diary, CONFIG_MAP, synced=False)
    manager = managed(diary, views=[view], advice="Apply the roles again")
    assert manager.unready() == "not read yet: plane: ConfigMap list: not answered yet"
    view.trouble = "plane: list ConfigMap: the user may not"
    assert manager.unready() == f"not read yet: {view.trouble}. Apply the roles again"
    view.read()
    assert manager.unready() == ""


@pytest.mark.parametrize("synced", [True, False])
async def test_who_is_stopped_before_the_work_ends_at_once(diary, stop, synced):
    manager = managed(diary, views=[View(diary, synced=synced)], leadership=Leading(diary))
    running = asyncio.create_task(manager.run(stop))
    await settle()
    stop.set()
    await running
    assert diary == ["follows", "follows no more"]


async def test_a_lost_lease_ends_all_and_is_reported(diary, stop):
    leading = Leading(diary)
    leading.granted.set()
    running = asyncio.create_task(managed(diary, leadership=leading).run(stop))
    await settle()
    leading.lost.set()
    with pytest.raises(LeaseLost):
        await running
    assert diary[-2:] == ["is cut", "follows no more"]


async def test_a_defect_of_one_worker_ends_all(diary, stop):
    workers = [Worker(diary), Worker(diary, ZeroDivisionError())]
    with pytest.raises(ExceptionGroup) as caught:
        await managed(diary, workers=workers).run(stop)
    assert caught.group_contains(ZeroDivisionError, depth=2)
    assert sorted(diary[-2:]) == ["follows no more", "is cut"]


async def test_who_is_cancelled_ends_all(diary, stop):
    running = asyncio.create_task(managed(diary).run(stop))
    await settle()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(diary[-2:]) == ["follows no more", "is cut"]


async def test_views_are_counted_while_they_are_followed(diary, stop):
    metrics = Metrics()
    views: list[Any] = [View(diary), View(diary), View(diary, CONFIG_MAP)]
    views[2].trouble = "no connection"

    def values(metric):
        found = {}
        for kind in ("secrets", "configmaps"):
            labels = {"cluster": "plane", "resource": kind}
            found[kind] = metrics.registry.get_sample_value(metric, labels)
        return found

    manager = Manager(views=views, workers=[Worker(diary)], metrics=metrics)
    running = asyncio.create_task(manager.run(stop))
    await settle()
    # Two views of one kind, as of two namespaces, count together.
    assert values("klutch_cache_objects") == {"secrets": 6, "configmaps": 3}
    assert values("klutch_cache_troubled") == {"secrets": 0, "configmaps": 1}
    assert values("klutch_watch_restarts_total") == {"secrets": 4, "configmaps": 2}
    stop.set()
    await running
    assert values("klutch_cache_objects") == {"secrets": None, "configmaps": None}
    # A counter never goes back.
    assert values("klutch_watch_restarts_total") == {"secrets": 4, "configmaps": 2}


async def test_a_defect_of_what_a_set_of_informers_calls_ends_it(diary):
    def broken():
        raise ZeroDivisionError

    view: Any = View(diary)
    informers = InformerSet[str](Metrics())
    informers.add("orders", view, on_synced=broken)
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(5):
            await informers.run()
    assert caught.group_contains(ZeroDivisionError)


async def test_the_pulse_of_a_loop_that_turns_and_of_one_that_is_stuck():
    clock, wrong = FakeClock(), ""
    liveness = Liveness(clock, lambda: wrong)
    beating = asyncio.create_task(liveness.run())
    await clock.advance(100)
    assert liveness.ailment() == ""
    clock.jump(SILENCE + 1)
    assert liveness.ailment() == "the event loop has been stuck for 31 s"
    await clock.advance(1)
    assert liveness.ailment() == ""
    wrong = "the lease was lost"
    assert liveness.ailment() == "the lease was lost"
    beating.cancel()


class FakeManager:
    """Runs until it is told how to end."""

    def __init__(self):
        self.end = asyncio.get_running_loop().create_future()
        self.missing = "not read yet: Secrets"

    def unready(self):
        return self.missing

    async def run(self, stop):
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({self.end, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self.end.done():
            self.end.result()


class FakeLiveness:
    def ailment(self):
        return ""

    async def run(self):
        await asyncio.Event().wait()


@dataclass
class Term:
    manager: Any
    liveness: Any
    metrics: Metrics


@pytest.fixture
def terms():
    return []


@pytest.fixture
async def elections(terms):
    def make():
        terms.append(Term(FakeManager(), FakeLiveness(), Metrics()))
        return terms[-1]

    return Elections(make)


async def test_a_lost_lease_is_stood_for_again(elections, terms):
    stop = asyncio.Event()
    running = asyncio.create_task(elections.run(stop))
    await settle()
    assert elections.unready() == "not read yet: Secrets"
    terms[0].manager.end.set_exception(LeaseLost("not renewed for 10 s"))
    await settle()
    assert len(terms) == 2
    assert elections.unready() == (
        "the lease was lost (not renewed for 10 s); not read yet: Secrets"
    )
    terms[1].manager.missing = ""
    assert elections.unready() == ""
    stop.set()
    await running
    assert len(terms) == 2


async def test_a_write_that_nobody_knows_the_outcome_of_ends_the_process(elections, terms):
    running = asyncio.create_task(elections.run(asyncio.Event()))
    await settle()
    terms[0].manager.end.set_exception(LeaseLost("lost", unanswered=True))
    with pytest.raises(LeaseLost):
        await running
    assert len(terms) == 1


async def test_a_lease_that_is_lost_at_the_end_is_not_stood_for_again(elections, terms):
    stop = asyncio.Event()
    stop.set()
    terms[0].manager.end.set_exception(LeaseLost("lost"))
    await elections.run(stop)
    assert len(terms) == 1

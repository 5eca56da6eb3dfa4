"""Tasks that come and go, how they end, and work in threads."""

import asyncio
import threading
import time

import pytest

from reconciler.controller.tasks import SystemClock, TaskSupervisor, in_thread, unless
from tests.support.fake_clock import settle


def test_a_lease_of_a_machine_that_slept_is_old(monkeypatch):
    clock, awake = SystemClock(), time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: awake)
    monkeypatch.setattr(
        time, "clock_gettime", {time.CLOCK_MONOTONIC: awake, time.CLOCK_BOOTTIME: awake + 60}.get
    )
    assert clock.monotonic() == awake + 60


async def test_work_that_ends_is_answered():
    async def work():
        await asyncio.sleep(0)
        return 7

    assert await unless(asyncio.Event(), work()) == 7


async def test_work_that_fails_fails():
    async def work():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await unless(asyncio.Event(), work())


async def test_work_that_is_stopped_is_cancelled_and_ends_first():
    stop, done = asyncio.Event(), []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("closed")

    asyncio.get_running_loop().call_soon(stop.set)
    assert await unless(stop, work()) is None
    assert done == ["closed"]


async def test_who_waits_may_be_cancelled():
    done = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            done.append("closed")

    waiting = asyncio.create_task(unless(asyncio.Event(), work()))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == ["closed"]


async def test_work_in_a_thread_goes_on_while_the_caller_is_busy():
    seen = []

    async def work():
        for _ in range(5):
            await asyncio.sleep(0.01)
            seen.append(threading.current_thread().name)
        return "done"

    working = asyncio.create_task(in_thread(work, name="beside"))
    await asyncio.sleep(0)
    time.sleep(0.5)  # noqa: ASYNC251 - this is what it is to be busy
    assert seen == ["beside"] * 5
    assert await working == "done"


async def test_work_in_a_thread_is_cancelled_with_its_caller_who_waits_for_its_end():
    ended = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            ended.append(True)

    working = asyncio.create_task(in_thread(work, name="beside"))
    await asyncio.sleep(0.05)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert ended == [True]


async def test_what_work_in_a_thread_raises_is_raised():
    async def work():
        raise KeyError("x")

    with pytest.raises(KeyError):
        await in_thread(work, name="beside")


class Worker:
    """Works until it is told to stop, and then for as long as the test likes."""

    def __init__(self, *, at_once=True):
        self.diary = []
        self._stop, self.may_end = asyncio.Event(), asyncio.Event()
        if at_once:
            self.may_end.set()

    def stop(self):
        self.diary.append("told")
        self._stop.set()

    async def run(self):
        self.diary.append("runs")
        await self._stop.wait()
        await self.may_end.wait()
        self.diary.append("ended")


class Endless:
    """What only ends by being cancelled."""

    def __init__(self):
        self.diary = []

    async def __call__(self):
        self.diary.append("runs")
        try:
            await asyncio.Event().wait()
        finally:
            self.diary.append("cancelled")


@pytest.fixture
async def supervisor():
    made = TaskSupervisor()
    yield made
    made.stop()


async def test_what_waits_begins_with_the_owner_and_ends_with_it(supervisor):
    worker, endless = Worker(), Endless()
    supervisor.start_worker("worker", worker)
    supervisor.start("endless", endless)
    await settle()
    assert (worker.diary, endless.diary) == ([], [])
    assert "worker" in supervisor
    assert "endless" in supervisor
    running = asyncio.create_task(supervisor.run())
    await settle()
    assert (worker.diary, endless.diary) == (["runs"], ["runs"])
    supervisor.stop()
    await running
    assert worker.diary == ["runs", "told", "ended"]
    assert endless.diary == ["runs", "cancelled"]


async def test_the_owner_waits_for_one_that_is_not_done(supervisor):
    worker = Worker(at_once=False)
    supervisor.start_worker("worker", worker)
    running = asyncio.create_task(supervisor.run())
    await settle()
    supervisor.stop()
    await settle()
    assert not running.done()
    worker.may_end.set()
    await running
    assert worker.diary[-1] == "ended"


async def test_one_is_ended_and_its_name_is_free_again(supervisor):
    running = asyncio.create_task(supervisor.run())
    await settle()
    first, second = Worker(at_once=False), Worker()
    supervisor.start_worker("x", first)
    await settle()
    ending = asyncio.create_task(supervisor.end("x"))
    await settle()
    assert not ending.done()
    first.may_end.set()
    await ending
    assert "x" not in supervisor
    supervisor.start_worker("x", second)
    await settle()
    assert second.diary == ["runs"]
    supervisor.stop()
    await running
    assert first.diary == ["runs", "told", "ended"]


async def test_one_is_dropped_and_nobody_waits(supervisor):
    running = asyncio.create_task(supervisor.run())
    await settle()
    first, second = Endless(), Endless()
    supervisor.start("x", first)
    await settle()
    supervisor.drop("x")
    supervisor.start("x", second)
    await settle()
    assert first.diary == ["runs", "cancelled"]
    assert second.diary == ["runs"]
    supervisor.stop()
    await running


@pytest.mark.parametrize("how", ["end", "drop"])
async def test_one_that_never_began_is_reported_and_does_not_begin(supervisor, how):
    worker = Worker()
    supervisor.start_worker("x", worker)
    if how == "end":
        await supervisor.end("x")
    else:
        supervisor.drop("x")
    supervisor.stop()
    await supervisor.run()
    assert worker.diary == ["told"]


async def test_there_is_nothing_to_end_under_another_name(supervisor):
    await supervisor.end("x")
    supervisor.drop("x")
    assert "x" not in supervisor


@pytest.mark.parametrize("how", ["stopped", "cancelled"])
async def test_nothing_begins_after_the_end(supervisor, how):
    running = asyncio.create_task(supervisor.run())
    await settle()
    supervisor.stop() if how == "stopped" else running.cancel()
    await asyncio.wait({running})
    worker = Worker()
    supervisor.start_worker("late", worker)
    await settle()
    assert worker.diary == []


async def test_a_defect_of_one_ends_the_owner_and_the_others(supervisor):
    async def fails():
        raise RuntimeError("a defect")

    endless = Endless()
    supervisor.start("endless", endless)
    supervisor.start("fails", fails)
    with pytest.raises(ExceptionGroup) as raised:
        await supervisor.run()
    assert raised.group_contains(RuntimeError, match="a defect")
    assert endless.diary == ["runs", "cancelled"]


async def test_an_end_that_is_cancelled_waits_all_the_same(supervisor):
    running = asyncio.create_task(supervisor.run())
    await settle()
    worker = Worker(at_once=False)
    supervisor.start_worker("x", worker)
    await settle()
    ending = asyncio.create_task(supervisor.end("x"))
    await settle()
    ending.cancel()
    await settle()
    assert not ending.done()
    worker.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert worker.diary == ["runs", "told", "ended"]
    supervisor.stop()
    await running

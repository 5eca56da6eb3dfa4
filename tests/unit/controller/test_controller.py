"""A controller: which outcome brings a key again and when, and how it ends."""

import asyncio
import logging
from datetime import timedelta

import pytest

from reconciler.controller import log_context
from reconciler.controller.controller import Controller
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.metrics import Metrics
from reconciler.core.errors import (
    AlreadyExists,
    ConfigError,
    Conflict,
    Forbidden,
    Rejected,
    Unreachable,
)
from reconciler.core.refs import SECRET, Ref
from reconciler.kube.cluster import Connectivity
from tests.support.fake_clock import settle

REF = Ref("plane", SECRET, "shop", "orders")
CANARY = "canary-that-must-not-be-seen"


def api(error, message="no", **facts):
    return error(message, ref=REF, verb="patch", **facts)


class Work:
    """Reconciles by a script of outcomes, the last of which goes on for ever."""

    def __init__(self, clock, *script):
        self.clock, self.script = clock, list(script) or [None]
        self.begun, self.ended = [], []
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self, key):
        self.begun.append((key, round(self.clock.monotonic(), 3)))
        outcome = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        await self.hold.wait()
        self.ended.append(key)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    @property
    def times(self):
        return [at for _, at in self.begun]


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
async def running(clock, metrics):
    """Run controllers until the end of the test."""
    started = []

    def run(work, **how):
        controller = Controller(
            "tests", work, clock=clock, metrics=metrics, jitter=lambda: 1.0, **how
        )
        started.append((controller, asyncio.create_task(controller.run())))
        return started[-1]

    yield run
    for controller, task in started:
        controller.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


AGAIN = {
    "done: never": ([None], [0]),
    "to be looked at again": ([timedelta(seconds=30)], [0, 30, 60, 90]),
    "no time at all is no busy loop": ([timedelta(0), None], [0, 0.005]),
    "a conflict: at once a few times, then with pauses": (
        [api(Conflict)] * 6 + [None],
        [0, 0, 0, 0, 0.005, 0.015, 0.035],
    ),
    "a name that is taken is a conflict": ([api(AlreadyExists), None], [0, 0]),
    "no answer: with pauses": ([api(Unreachable)] * 3 + [None], [0, 0.005, 0.015, 0.035]),
    "no right: with pauses": ([api(Forbidden), None], [0, 0.005]),
    "a server that names a time": ([api(Unreachable, retry_after=40.0), None], [0, 44]),
    "a server that names a very long time": ([api(Unreachable, retry_after=1e9), None], [0]),
    "refused until the input changes: slowly": ([api(Rejected), None], [0, 66]),
    "a wrong input: slowly": ([ConfigError("no", where="x"), None], [0, 66]),
    "a defect of ours: with pauses": ([ZeroDivisionError(), KeyError(), None], [0, 0.005, 0.015]),
    "success ends a row of failures": (
        [api(Unreachable), api(Unreachable), timedelta(seconds=50), api(Unreachable), None],
        [0, 0.005, 0.015, 50.015, 50.02],
    ),
    "the end of the run": ([Stopped("the end"), None], [0]),
}


@pytest.mark.parametrize(("script", "times"), AGAIN.values(), ids=AGAIN.keys())
async def test_when_a_key_comes_again(running, clock, script, times):
    work = Work(clock, *script)
    controller, _ = running(work)
    controller.enqueue("a")
    await clock.advance(100)
    assert work.times == times


async def test_the_log_says_what_key_the_work_is_about(running, clock):
    seen = []

    async def work(key):
        seen.append(log_context.current())

    controller, _ = running(work)
    controller.enqueue(REF)
    await clock.advance(1)
    assert seen == [{"controller": "tests", "key": REF}]


async def test_the_others_go_on_while_one_key_fails(running, clock):
    done = []

    async def work(key):
        if key == "broken":
            raise RuntimeError
        done.append(key)

    controller, _ = running(work)
    for key in ("a", "broken", "b"):
        controller.enqueue(key)
    await clock.advance(10)
    controller.enqueue("c")
    await settle()
    assert done == ["a", "b", "c"]


async def test_so_many_at_a_time_and_no_key_twice(running, clock):
    work = Work(clock)
    work.hold.clear()
    controller, _ = running(work, workers=2)
    for key in "aabc":
        controller.enqueue(key)
    await settle()
    controller.enqueue("a")
    await settle()
    assert [key for key, _ in work.begun] == ["a", "b"]
    work.hold.set()
    await settle()
    assert [key for key, _ in work.begun] == ["a", "b", "c", "a"]


@pytest.mark.parametrize(("seconds", "at_once"), [(0.002, 2), (0.1, 12), (60.0, 16)])
async def test_more_at_a_time_where_clusters_are_far(running, clock, seconds, at_once):
    near, far = Connectivity(clock=clock.monotonic), Connectivity(clock=clock.monotonic)
    work = Work(clock)
    work.hold.clear()
    controller, _ = running(work, workers=2, depends_on=(near, far))
    for took in (seconds, 90.0, 0.0):  # one that waited somewhere, and a stream
        far.answered(took)
    for key in range(30):
        controller.enqueue(key)
    await settle()
    assert len(work.begun) == at_once


async def test_keys_that_were_added_before_the_start_wait(running, clock):
    work = Work(clock)
    controller = Controller("tests", work, clock=clock, metrics=Metrics())
    controller.enqueue("a")
    await settle()
    assert work.begun == []
    task = asyncio.create_task(controller.run())
    await settle()
    assert work.ended == ["a"]
    controller.stop()
    await task


async def test_stop_begins_nothing_and_lets_work_end(running, clock):
    work = Work(clock)
    work.hold.clear()
    controller, task = running(work, workers=1)
    controller.enqueue("a")
    controller.enqueue("b")
    await settle()
    controller.stop()
    await settle()
    assert not task.done()
    work.hold.set()
    await task
    assert (work.ended, [key for key, _ in work.begun]) == (["a"], ["a"])


def slow_write():
    """Return work with one write, and what says that it was sent, answered, and what followed."""
    fence, sent, answered, after = WriteFence(), asyncio.Event(), asyncio.Event(), []

    async def write():
        sent.set()
        await answered.wait()
        after.append("written")

    async def work(_key):
        await fence.write(write)
        after.append("gone on")

    return work, sent, answered, after


async def test_work_that_does_not_end_is_cut_but_never_in_a_write(running, clock):
    work, sent, answered, after = slow_write()
    controller, task = running(work, timeout=0.01)
    controller.enqueue("a")
    await sent.wait()
    controller.stop()
    done, _ = await asyncio.wait({task}, timeout=0.2)
    assert not done
    answered.set()
    await task
    assert after == ["written"]


async def test_a_controller_that_is_cancelled_waits_for_its_writes(running, clock):
    work, sent, answered, after = slow_write()
    controller, task = running(work)
    controller.enqueue("a")
    await sent.wait()
    task.cancel()
    await settle()
    task.cancel()  # whoever is impatient
    await settle()
    assert not task.done()
    answered.set()
    await asyncio.gather(task, return_exceptions=True)
    assert after == ["written"]


async def test_the_death_of_the_process_is_not_survived(running, clock):
    class Death(BaseException):
        pass

    controller, task = running(Work(clock, Death()))
    controller.enqueue("a")
    with pytest.raises(BaseExceptionGroup) as caught:
        await task
    assert caught.group_contains(Death)


async def test_a_defect_is_reported_with_its_place_and_without_its_text(running, clock, caplog):
    def inner():
        raise ValueError(CANARY)

    async def work(_key):
        try:
            inner()
        except ValueError:
            dict[str, str]()[CANARY]

    controller, _ = running(work)
    controller.enqueue("shop/orders")
    with caplog.at_level(logging.DEBUG):
        await settle()
    reported = caplog.records[0]
    assert (reported.levelname, reported.key) == ("ERROR", "shop/orders")
    assert reported.error.startswith("KeyError at unit/controller/test_controller.py:")
    assert "; from ValueError at " in reported.error
    assert " inner, " in reported.error
    assert CANARY not in str(vars(reported))
    assert reported.exc_info is None


async def test_an_error_of_a_cluster_is_reported_and_a_conflict_is_not(running, clock, caplog):
    controller, _ = running(Work(clock, api(Conflict), api(Forbidden, "the user may not"), None))
    controller.enqueue("a")
    with caplog.at_level(logging.INFO):
        await clock.advance(1)
    assert [record.error for record in caplog.records] == [
        "plane: patch Secret shop/orders: the user may not"
    ]


async def test_what_happened_is_counted(running, clock, metrics):
    work = Work(clock, api(Conflict), api(Unreachable), timedelta(seconds=500), None)
    controller, task = running(work)
    controller.enqueue("a")
    await clock.advance(1)
    controller.stop()
    await task

    def value(metric, **labels):
        return metrics.registry.get_sample_value(metric, labels)

    assert value("workqueue_adds_total", name="tests") == 3
    assert value("workqueue_retries_total", name="tests") == 2
    assert value("workqueue_depth", name="tests") == 0
    assert value("workqueue_queue_duration_seconds_count", name="tests") == 3
    assert value("klutch_active_workers", controller="tests") == 0
    ends = {
        result: value("klutch_reconcile_total", controller="tests", result=result)
        for result in ("conflict", "error", "requeue_after", "success")
    }
    assert ends == {"conflict": 1, "error": 1, "requeue_after": 1, "success": 0}
    assert value("klutch_reconcile_errors_total", controller="tests") == 1
    assert value("klutch_reconcile_time_seconds_count", controller="tests") == 3


async def test_keys_left_at_the_end_are_waited_for_no_more(running, clock, metrics):
    work = Work(clock)
    work.hold.clear()
    controller, task = running(work, workers=1)
    for key in "abc":
        controller.enqueue(key)
    await settle()
    controller.stop()
    work.hold.set()
    await task
    controller.enqueue("d")
    assert metrics.registry.get_sample_value("workqueue_depth", {"name": "tests"}) == 0


async def test_what_failed_is_tried_again_when_a_cluster_is_back(clock, running):
    cluster = Connectivity(clock=clock.monotonic)
    work = Work(clock, *[api(Unreachable)] * 30, None)
    controller, _ = running(work, depends_on=(Connectivity(), cluster))
    controller.enqueue("a")
    await clock.advance(400)
    count, now = len(work.times), clock.monotonic()
    assert now - work.times[-1] < 60
    cluster.failed()
    cluster.answered()
    await settle()
    assert (len(work.times), work.times[-1]) == (count + 1, now)

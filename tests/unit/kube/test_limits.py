"""The token bucket, with a clock that only moves when it is told to."""

import asyncio

import pytest

from reconciler.kube.limits import TokenBucket


class FakeTime:
    def __init__(self):
        self.now = 100.0
        self.slept = []

    def read(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(round(seconds, 6))


async def test_a_burst_passes_and_then_the_rate_holds():
    time = FakeTime()
    bucket = TokenBucket(qps=10, burst=3, now=time.read, sleep=time.sleep)
    for _ in range(3):
        await bucket.take()
    assert time.slept == []
    for _ in range(3):
        await bucket.take()
    assert time.slept == [0.1, 0.2, 0.3], "those who come at once leave one after the other"


async def test_idle_time_gives_credit_up_to_the_burst_and_no_more():
    time = FakeTime()
    bucket = TokenBucket(qps=10, burst=2, now=time.read, sleep=time.sleep)
    await bucket.take()
    time.now += 3600
    for _ in range(3):
        await bucket.take()
    assert time.slept == [0.1]


async def test_a_wait_that_is_cancelled_costs_nobody_anything():
    time = FakeTime()

    async def cancelled(seconds):
        raise asyncio.CancelledError

    bucket = TokenBucket(qps=10, burst=1, now=time.read, sleep=cancelled)
    await bucket.take()
    for _ in range(50):
        with pytest.raises(asyncio.CancelledError):
            await bucket.take()
    time.now += 0.1
    await bucket.take()

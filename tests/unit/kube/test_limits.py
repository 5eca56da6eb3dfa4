"""The token bucket, with a clock that only moves when it is told to, and the size of pages."""

import asyncio

import pytest

from reconciler.kube import limits
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


MIB = 2**20
# at most, objects and octets of the last page -> the next page
CASES = {
    "small objects": (500, 25, 25 * 2_000, 500),
    "large ones": (500, 25, 25 * MIB, 8),
    "one that is larger than a page should be": (500, 1, 20 * MIB, 1),
    "after large ones, small ones again": (500, 8, 8 * 100_000, 83),
    "no more than was asked for": (10, 10, 1_000, 10),
    "a page without objects": (500, 0, 100, 1),
    "no limit": (0, 25, 25_000, 0),
}


@pytest.mark.parametrize(("at_most", "items", "octets", "want"), CASES.values(), ids=CASES)
def test_the_next_page(at_most: int, items: int, octets: int, want: int) -> None:
    assert limits.next_page(at_most, items=items, octets=octets) == want


@pytest.mark.parametrize(("at_most", "want"), [(500, 25), (10, 10), (0, 0)])
def test_the_first_page_is_small(at_most: int, want: int) -> None:
    assert limits.first_page(at_most) == want

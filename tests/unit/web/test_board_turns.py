"""S21: what those who ask for pages may cost the process that works on the fleet."""

import asyncio
import time
from itertools import pairwise
from threading import Event, get_ident

import pytest

from klutchctl.web.board.newest import Made
from reconciler.web.requests import RequestRefused
from tests.support.eventually import eventually


@pytest.fixture
def made():
    return Made(time.monotonic, 60.0)


async def test_one_page_is_made_at_a_time_and_those_of_an_address_wait_for_its_turn(made):
    began, end = [], Event()

    def page(name):
        def make():
            began.append(name)
            assert end.wait(30)
            return name.encode()

        return make

    def ask(address, name):
        return asyncio.create_task(made.get(1, name, page(name), address))

    asked = [ask("10.0.0.1", f"a{n}") for n in range(50)]

    async def first():
        return began

    await eventually(first)
    asked.append(ask("10.0.0.2", "b"))
    await asyncio.sleep(0)
    assert began == ["a0"]
    end.set()
    await asyncio.gather(*asked)
    assert began.index("b") == 2  # after a0, and a1 which waited alone


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
async def test_an_address_that_waits_for_many_gets_no_more_and_others_do(made, others):
    end = Event()
    asked = [
        asyncio.create_task(made.get(1, n, lambda: b"x" * end.wait(30), "10.0.0.1"))
        for n in range(64)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(RequestRefused, match="reload it later"):
        await made.get(1, "more", bytes, "10.0.0.1")
    asked += [asyncio.create_task(made.get(1, "b", bytes, "10.0.0.2"))] * others
    end.set()
    await asyncio.gather(*asked)
    assert await made.get(1, "more", lambda: b"y", "10.0.0.1") == b"y"


async def test_pages_take_half_of_the_time_and_none_of_the_loop(made):
    spans = []

    def make():
        began = time.monotonic()
        time.sleep(0.02)
        spans.append((began, time.monotonic(), get_ident()))
        return b""

    await asyncio.gather(*(made.get(1, n, make) for n in range(5)))
    assert get_ident() not in {thread for _, _, thread in spans}
    for (began, ended, _), (following, _, _) in pairwise(spans):
        assert following - ended >= 0.95 * (ended - began)

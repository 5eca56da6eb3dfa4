"""How quick the board of a big fleet is: the index of a state, pages, and their first byte."""

import asyncio
import statistics
import time
from typing import Final

import uvloop

from klutchctl.web.board.index import index_of
from klutchctl.web.board.server import serving
from reconciler.watch.loop import States
from tests.support import boards
from tests.support.web import HERE, connected, request

_UNITS: Final = 100_000
_ROUNDS: Final = 10
_PATHS: Final = (
    "/",
    "/?page=70&columns=2",
    "/?state=Degraded",
    "/?q=service-07",
    "/?label=control-plane%3Deu",
    "/?group=control-plane",
    "/clusters/shop-eu-04000",
)


def main() -> None:
    """Measure, and print it."""
    state = boards.big(_UNITS)
    began = time.perf_counter()
    index = index_of(0, state)
    print(f"board: index of {_UNITS:,} units: {time.perf_counter() - began:.2f} s")
    began = time.perf_counter()
    index_of(1, boards.big(_UNITS), index)
    print(f"board: index of the next look: {time.perf_counter() - began:.2f} s, with making it")
    uvloop.run(_served(States(state)))


async def _served(states: States) -> None:
    async with serving(HERE, states, now=lambda: boards.NOW) as where:
        for path in _PATHS:
            found = [
                await _asked(where, f"{path}{'&' if '?' in path else '?'}n={n}")
                for n in range(_ROUNDS)
            ]
            first = sorted(seconds for seconds, _ in found)
            print(
                f"board: {path}: first byte {statistics.median(first) * 1e3:.0f} ms, "
                f"at worst {first[-1] * 1e3:.0f} ms, {found[0][1] / 1e3:.0f} kB"
            )


async def _asked(where: tuple[str, int], path: str) -> tuple[float, int]:
    """Return the seconds until the first byte of a page that was not just made, and its size."""
    await asyncio.sleep(1.1)
    sent = request(f"GET {path} HTTP/1.1").replace(b"Host: x", b"Host: localhost")
    async with connected(where) as (reader, writer):
        began = time.perf_counter()
        writer.write(sent)
        first = await reader.read(1)
        seconds = time.perf_counter() - began
        return seconds, len(first + await reader.read())

"""An event loop whose clock jumps: what waits for a minute goes on at once.

Time passes where nothing is left to do, and a little in each turn of the loop: two tasks that sleep
until the same nanosecond would go on in turns for ever. Work in threads takes real time.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from reconciler.controller.tasks import SystemClock
from reconciler.kube.cluster import Connectivity

_START: Final = 1000.0
_TURN: Final = 1e-8  # seconds; more than the resolution of loops
_real: Final = time.monotonic
_real_of: Final = time.clock_gettime


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer where real loops sleep until then."""

    def __init__(self) -> None:
        super().__init__()
        self._now = _START
        self._beginning = datetime.now(UTC)
        self._threads = 0
        selector: Any = self._selector  # type: ignore[attr-defined]
        self._wait: Callable[[float | None], Any] = selector.select
        selector.select = self._select

    def time(self) -> float:
        return self._now

    def time_of_day(self) -> datetime:
        return self._beginning + timedelta(seconds=self._now - _START)

    def run_in_executor(self, executor, func, *args):  # type: ignore[override]
        self._threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._end_thread)
        return future

    async def shutdown_default_executor(self, *args, **options) -> None:
        self._threads += 1  # one joins all others, and from Python 3.12 on not for long
        try:
            await super().shutdown_default_executor(*args, **options)
        finally:
            self._threads -= 1

    def _end_thread(self, _: object) -> None:
        self._threads -= 1

    def _select(self, timeout: float | None = None) -> Any:
        self._now += _TURN
        if timeout is None or self._threads:
            return self._wait(timeout)
        events = self._wait(0)
        if not events:
            self._now += timeout
        return events


def monotonic() -> float:
    """Return the time of the running loop, where it is a virtual one."""
    loop = _virtual_loop()
    return loop.time() if loop else _real()


def now() -> datetime:
    """Return the time of day on the running loop, where it is a virtual one."""
    loop = _virtual_loop()
    return loop.time_of_day() if loop else datetime.now(UTC)


def _virtual_loop() -> VirtualLoop | None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop if isinstance(loop, VirtualLoop) else None


@contextmanager
def virtual_time() -> Iterator[None]:
    """Let the product's clocks be those of the running virtual loop."""
    clock, connectivity = _defaults(SystemClock), _defaults(Connectivity)
    defaults, named = clock.__defaults__, dict(connectivity.__kwdefaults__)
    time.monotonic, time.clock_gettime = monotonic, lambda _: monotonic()
    clock.__defaults__ = (now,)
    connectivity.__kwdefaults__["clock"] = monotonic
    try:
        yield
    finally:
        time.monotonic, time.clock_gettime = _real, _real_of
        clock.__defaults__ = defaults
        connectivity.__kwdefaults__.update(named)


def _defaults(of: type) -> Any:
    return vars(of)["__init__"]

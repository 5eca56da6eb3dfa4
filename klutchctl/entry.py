"""Where `klutchctl` begins, before its imports, which take a good part of a second; and signals."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from klutchctl.exit_codes import ExitCode

_CODES: Final = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


def main() -> None:
    """Run the command line and end the process."""
    with ending_quietly():
        from klutchctl.main import main as run
    run()


@contextmanager
def ending_quietly() -> Iterator[None]:
    """Let Ctrl-C end the process at once and in silence, for the length of the block.

    For imports: nothing is begun yet, and an exception would show where it found them. A
    parent that started us with SIGINT ignored, as shells do in the background, means it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> None:
    del number, frame
    os._exit(ExitCode.INTERRUPTED)


@contextmanager
def ending(end: Callable[[str], None]) -> Iterator[list[ExitCode]]:
    """Let SIGINT and SIGTERM call `end` with the reason, for the length of the block.

    The run ends in order then, with a true report. Yields the exit codes of those that came. Use
    it inside a running event loop.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    received: list[ExitCode] = []

    def caught(number: signal.Signals) -> None:
        received.append(_CODES[number])
        end(f"ended by {number.name}")

    for number in _CODES:
        loop.add_signal_handler(number, caught, number)
    try:
        yield received
    finally:
        for number in _CODES:
            loop.remove_signal_handler(number)

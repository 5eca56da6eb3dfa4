"""A run that Ctrl-C or a SIGTERM ends in order, with a true report and the right exit code."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from klutchctl.exit_codes import ExitCode

_CODES: Final = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


@contextmanager
def ending(end: Callable[[str], None]) -> Iterator[list[ExitCode]]:
    """Let SIGINT and SIGTERM call `end` with the reason, for the length of the block.

    Yields the exit codes of those that came. Use it inside a running event loop.
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

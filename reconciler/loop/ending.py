"""How a program that runs until it is told to stop ends: by signals, and by what went wrong.

Refuses to know what the program does.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

from reconciler.core.errors import KlutchError

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Ending:
    """The first signal asks the program to stop, the second ends the process at once.

    Heard also while the event loop is busy, where a handler of the loop itself would wait.
    """

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop, self._loop, self._asked = stop, asyncio.get_running_loop(), False

    def listen(self) -> None:
        """Take both signals from now on."""
        for number in _SIGNALS:
            signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._asked:
            os._exit(1)
        self._asked = True
        self._loop.call_soon_threadsafe(self._stop.set)


def sentences(errors: BaseExceptionGroup[Exception], program: str) -> Iterator[str]:
    """Yield a sentence for each of the failures."""
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from sentences(error, program)
        else:
            yield _sentence(error, program)


def _sentence(error: Exception, program: str) -> str:
    if isinstance(error, KlutchError):
        return str(error)
    # The text of an unknown exception may tell values, so only its type and origin are shown.
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "an unknown place"
    if trace is not None:
        place = f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
    return f"unexpected {type(error).__name__} at {place}. This is a defect of {program}"

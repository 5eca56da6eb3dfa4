"""The entry point of `konnector`: flags to a running konnector, every failure to one sentence.

What is heavy is imported once the flags are known to be good.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Final

from konnector import settings
from reconciler.core.errors import KlutchError
from reconciler.kube import home, open_files

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_MANY_FILES: Final = 2**20  # the most that Linux gives, unless it is told otherwise


def main() -> None:
    """Run the command line and end the process: 0 after a signal, 1 after a failure."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Errors go to stderr."""
    code = 0
    try:
        if arguments[:1] == ["detach"]:
            _detach(arguments[1:])
            return code
        given = settings.parse(arguments, os.environ)
        open_files.allow_many(_MANY_FILES)
        import uvloop

        uvloop.run(_serve(given))
    except* Exception as errors:
        for error in _leaves(errors):
            print(f"Error: {_sentence(error)}", file=sys.stderr)
        code = 1
    return code


def _detach(arguments: list[str]) -> None:
    from konnector import detach

    asyncio.run(detach.run(detach.parse(arguments), os.environ, home.directory()))


async def _serve(given: settings.Settings) -> None:
    stop = asyncio.Event()
    _Ending(stop).listen()
    from konnector import program
    from reconciler.loop import garbage

    garbage.collect_seldom()
    await program.serve(given, os.environ, home.directory(), stop=stop)


class _Ending:
    """The first signal asks the konnector to stop, the second ends the process at once.

    Heard also while the event loop is busy, where a handler of the loop itself would wait.
    """

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop, self._loop, self._asked = stop, asyncio.get_running_loop(), False

    def listen(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._asked:
            os._exit(1)
        self._asked = True
        self._loop.call_soon_threadsafe(self._stop.set)


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _sentence(error: Exception) -> str:
    if isinstance(error, KlutchError):
        return str(error)
    # The text of an unknown exception may tell values, so only its type and origin are shown.
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "an unknown place"
    if trace is not None:
        place = f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
    return f"unexpected {type(error).__name__} at {place}. This is a defect of the konnector"

"""The entry point of `klutch-bind`: flags to a running backend, every failure to one sentence."""

import asyncio
import os
import signal
import sys
from typing import Final

import uvloop

from bind import program, settings
from reconciler.core.errors import KlutchError
from reconciler.kube import home
from reconciler.loop import garbage

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Run the command line and end the process: 0 after a signal, 1 after a failure."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Errors go to stderr."""
    code = 0
    try:
        given = settings.parse(arguments)
        garbage.collect_seldom()
        uvloop.run(_serve(given))
    except* KlutchError as errors:
        for error in _leaves(errors):
            print(f"Error: {error}", file=sys.stderr)
        code = 1
    return code


async def _serve(given: settings.Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    await program.serve(given, os.environ, home.directory(), stop=stop)


def _leaves(error: BaseExceptionGroup[KlutchError]) -> list[KlutchError]:
    found = list[KlutchError]()
    for one in error.exceptions:
        found += _leaves(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found

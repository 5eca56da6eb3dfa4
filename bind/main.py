"""The entry point of `klutch-bind`: flags to a running backend, every failure to one sentence."""

import asyncio
import os
import sys

import uvloop

from bind import program, settings
from reconciler.controller import process
from reconciler.kube import home, open_files


def main() -> None:
    """Run the command line and end the process: 0 after a signal, 1 after a failure."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Errors go to stderr."""
    code = 0
    try:
        given = settings.parse(arguments)
        open_files.allow_many(open_files.MOST)
        process.collect_seldom()
        process.give_back()
        uvloop.run(_serve(given))
    except* Exception as errors:
        for sentence in process.sentences(errors, "klutch-bind"):
            print(f"Error: {sentence}", file=sys.stderr)
        code = 1
    return code


async def _serve(given: settings.Settings) -> None:
    stop = asyncio.Event()
    process.SignalHandler(stop).listen()
    await program.serve(given, os.environ, home.directory(), stop=stop)

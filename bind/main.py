"""The entry point of `klutch-bind`: flags to a running backend, every failure to one sentence."""

import asyncio
import os
import sys

import uvloop

from bind import program, settings
from reconciler.controller import process
from reconciler.kube import host


def main() -> None:
    """Run the command line and end the process: 0 after a signal, 1 after a failure."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Errors go to stderr."""
    code = 0
    try:
        given = settings.parse(arguments)
        host.allow_open_files(host.MANY_FILES)
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
    await program.serve(given, os.environ, host.home_directory(), stop=stop)

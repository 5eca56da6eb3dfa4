"""Runs `klutch-bind`: parses flags, starts the backend, and words a failure."""

import asyncio
import os
import sys
from functools import partial

from bind import program, settings
from reconciler.controller import process
from reconciler.kube import host


def main() -> None:
    """Run the command line and end the process: 0 after a signal, 1 after a failure."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Errors go to stderr."""
    return process.exit_code("klutch-bind", partial(_run, arguments))


def _run(arguments: list[str]) -> None:
    given = settings.parse(arguments)
    process.tune_memory()
    process.until_signal(partial(_serve, given))


async def _serve(given: settings.Settings, stop: asyncio.Event) -> None:
    await program.serve(given, os.environ, host.home_directory(), stop=stop)


if __name__ == "__main__":
    main()

"""Runs `konnector`: parses flags, starts it, and words a failure.

What is heavy is imported once the flags are known to be good.
"""

import asyncio
import os
import sys
from functools import partial

from konnector import settings
from reconciler.controller import process
from reconciler.kube import host


def main() -> None:
    """Run the command line and end the process: 0 after a signal, 1 after a failure."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Errors go to stderr."""
    return process.exit_code("the konnector", partial(_run, arguments))


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["detach"]:
        from konnector import detach

        asyncio.run(detach.run(detach.parse(arguments[1:]), os.environ, host.home_directory()))
        return
    given = settings.parse(arguments, os.environ)
    from konnector import program

    process.until_signal(program.serve, given)


if __name__ == "__main__":
    main()

"""The entry point of `konnector`: flags to a running konnector, every failure to one sentence.

What is heavy is imported once the flags are known to be good.
"""

import asyncio
import os
import sys

from konnector import settings
from reconciler.controller import process
from reconciler.kube import host


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
        host.allow_open_files(host.MANY_FILES)
        import uvloop

        uvloop.run(_serve(given))
    except* Exception as errors:
        for sentence in process.sentences(errors, "the konnector"):
            print(f"Error: {sentence}", file=sys.stderr)
        code = 1
    return code


def _detach(arguments: list[str]) -> None:
    from konnector import detach

    asyncio.run(detach.run(detach.parse(arguments), os.environ, host.home_directory()))


async def _serve(given: settings.Settings) -> None:
    stop = asyncio.Event()
    process.SignalHandler(stop).listen()
    from konnector import program

    process.collect_seldom()
    await program.serve(given, os.environ, host.home_directory(), stop=stop)

"""Runs `klutch-bind`: parses flags, starts the backend, and words a failure."""

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
    home = host.home_directory()
    process.until_signal(lambda stop: program.serve(given, os.environ, home, stop=stop))


if __name__ == "__main__":
    main()

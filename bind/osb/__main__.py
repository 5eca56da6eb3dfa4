"""Runs `klutch-osb`: parses flags, starts it, and words a failure."""

import sys

from bind.osb import program, settings
from reconciler.controller import process


def main() -> None:
    """Run the command line and end the process: 0 after a signal, 1 after a failure."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Errors go to stderr."""
    return process.exit_code(
        "klutch-osb", lambda: process.until_signal(program.serve, settings.parse(arguments))
    )


if __name__ == "__main__":
    main()

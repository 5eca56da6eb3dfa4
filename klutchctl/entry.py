"""Where `klutchctl` begins: before its imports, which take a good part of a second."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from klutchctl.exit_codes import ExitCode


def main() -> None:
    """Run the command line and end the process."""
    with ending_quietly():
        from klutchctl.main import main as run
    run()


@contextmanager
def ending_quietly() -> Iterator[None]:
    """Let Ctrl-C end the process at once and in silence, for the length of the block.

    For imports: nothing is begun yet, and an exception would show where it found them. A
    parent that started us with SIGINT ignored, as shells do in the background, means it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> None:
    del number, frame
    os._exit(ExitCode.INTERRUPTED)

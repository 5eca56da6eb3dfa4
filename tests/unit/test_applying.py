"""The question before an apply, at a terminal."""

import os
import pty
import signal
import subprocess
import sys

ASKS = """
import sys
import uvloop
from klutchctl import settings

async def main():
    print("answer:", settings.answer("Apply this? ", sys.stdout))

uvloop.run(main())
"""


# The signal comes as soon as the question can be read.
INTERRUPTED = """
import io
import signal
import uvloop
from klutchctl import settings

class Screen(io.StringIO):
    def flush(self):
        signal.raise_signal(signal.SIGINT)

async def main():
    settings.answer("Apply this? ", Screen())

try:
    uvloop.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


def asked(answer: bytes | signal.Signals) -> tuple[int, str]:
    """Return the exit status and the output of a program that asks, and gets one answer."""
    terminal, end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", ASKS], stdin=end, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as program:
        os.close(end)
        assert program.stdout is not None
        assert program.stdout.read(len("Apply this? ")) == b"Apply this? "
        if isinstance(answer, bytes):
            os.write(terminal, answer)
        else:
            program.send_signal(answer)
        rest = program.stdout.read().decode()
    os.close(terminal)
    return program.returncode, rest


def test_an_answer_is_read() -> None:
    assert asked(b"yes\n") == (0, "answer: yes\n")


def test_the_first_interrupt_ends_the_question() -> None:
    status, output = asked(signal.SIGINT)
    assert status != 0
    assert output == ""


def test_an_interrupt_right_after_the_question_ends_it() -> None:
    terminal, end = pty.openpty()
    command = (sys.executable, "-c", INTERRUPTED)
    try:
        run = subprocess.run(command, stdin=end, capture_output=True, timeout=60, check=False)
    finally:
        os.close(end)
        os.close(terminal)
    assert run.stdout == b"interrupted\n"

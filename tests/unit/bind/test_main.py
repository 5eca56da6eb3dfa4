"""The program `klutch-bind`: how it ends, and what it says then."""

import signal
import subprocess
import sys
import textwrap

import pytest

SERVED = {
    "until it is told to stop": "await stop.wait()",
    "for ever": "await asyncio.Event().wait()",
    "for ever, and busy": "while True: pass",
    "not at all, by the clusters": "raise HostError('no port')",
    "not at all, by a defect": "raise ValueError('a password')",
}


def started(what):
    """Start the program with `what` for its work, which says `up` before it."""
    script = f"""
import asyncio, sys
from reconciler.core.errors import HostError
from bind import main, program

async def serve(settings, environ, home, *, stop):
    print("up", flush=True)
{textwrap.indent(SERVED[what], "    ")}

program.serve = serve
sys.exit(main.run([]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n", process.communicate(timeout=60)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_it_end_its_work(number):
    process = started("until it is told to stop")
    process.send_signal(number)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0


@pytest.mark.parametrize("what", ["for ever", "for ever, and busy"])
def test_a_second_signal_ends_it_at_once(what):
    process = started(what)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 1


FAILURES = {
    "not at all, by the clusters": "Error: no port\n",
    "not at all, by a defect": (
        "Error: unexpected ValueError at __main__:8. This is a defect of klutch-bind\n"
    ),
}


@pytest.mark.parametrize(("what", "sentence"), FAILURES.items(), ids=FAILURES)
def test_a_failure_is_a_sentence(what, sentence):
    process = started(what)
    _, told = process.communicate(timeout=60)
    assert told == sentence
    assert process.returncode == 1


def test_it_may_open_many_files():
    script = """
import resource, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
from bind import main, program

async def serve(settings, environ, home, *, stop):
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))

program.serve = serve
sys.exit(main.run([]))
"""
    answer = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    soft, hard = map(int, answer.split())
    assert soft == (min(hard, 2**20) if hard > 0 else 2**20)

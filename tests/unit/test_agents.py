"""The processes klutch-bind and konnector: how they end, and what they say where they cannot go on.

What they serve is put in its place by hand.
"""

import signal
import subprocess
import sys
import textwrap

import pytest

# What puts `serve` in the place of the program's own, and runs it.
PROGRAMS = {
    "klutch-bind": """
from bind import __main__ as main, program
program.serve = serve
sys.exit(main.run([]))
""",
    "konnector": """
sys.modules["konnector.program"] = types.SimpleNamespace(serve=serve)
from konnector.__main__ import run
sys.exit(run([]))
""",
}
SERVED = {
    "until it is told to stop": "await stop.wait()",
    "for ever": "await asyncio.Event().wait()",
    "for ever, and busy": "while True: pass",
    "not at all, by a mistake of the user": "raise ConfigError('no such file', where='/k')",
    "not at all, by the clusters": """
        raise ExceptionGroup("", [LeaseLost("another took it"), HostError("no port")])
    """,
    "not at all, by a defect": "raise ValueError('a password')",
}

pytestmark = pytest.mark.parametrize("program", PROGRAMS)


def started(program, what):
    """Start a program with `what` for its work, which says `up` before it."""
    script = f"""
import asyncio, sys, types
from reconciler.core.errors import ConfigError, HostError
from reconciler.controller.leadership import LeaseLost

async def serve(settings, environ, home, *, stop):
    print("up", flush=True)
{textwrap.indent(textwrap.dedent(SERVED[what]), "    ")}
{PROGRAMS[program]}
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n", process.communicate(timeout=60)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_it_end_its_work(program, number):
    process = started(program, "until it is told to stop")
    process.send_signal(number)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0


@pytest.mark.parametrize("what", ["for ever", "for ever, and busy"])
def test_a_second_signal_ends_it_at_once(program, what):
    process = started(program, what)
    # Signals of one number that come together count as one.
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 1


FAILURES = {
    "not at all, by a mistake of the user": ["Error: /k: no such file"],
    "not at all, by the clusters": ["Error: another took it", "Error: no port"],
    "not at all, by a defect": [
        "Error: unexpected ValueError at __main__:8. This is a defect of {}"
    ],
}


@pytest.mark.parametrize(("what", "sentences"), FAILURES.items(), ids=FAILURES)
def test_a_failure_is_a_sentence(program, what, sentences):
    process = started(program, what)
    _, said = process.communicate(timeout=60)
    name = "the konnector" if program == "konnector" else program
    assert said.splitlines() == [one.format(name) for one in sentences]
    assert process.returncode == 1


def test_it_may_open_many_files(program):
    script = f"""
import resource, sys, types
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

async def serve(settings, environ, home, *, stop):
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))
{PROGRAMS[program]}
"""
    answer = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    soft, hard = map(int, answer.split())
    assert soft == (min(hard, 2**20) if hard > 0 else 2**20)

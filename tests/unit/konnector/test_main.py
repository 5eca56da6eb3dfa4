"""The process: how it starts, how it ends, and what it says where it cannot go on.

What it serves is put in its place by hand.
"""

import signal
import subprocess
import sys
import textwrap

import pytest

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


def started(what, *arguments):
    """Start the program with `what` for its work, which says `up` before it."""
    script = f"""
import asyncio, sys, types
from reconciler.core.errors import ConfigError, HostError
from reconciler.loop.leadership import LeaseLost

async def serve(settings, environ, home, *, stop):
    print("up", flush=True)
{textwrap.indent(textwrap.dedent(SERVED[what]), "    ")}

sys.modules["konnector.program"] = types.SimpleNamespace(serve=serve)
sys.argv = ["konnector", *{arguments!r}]
from konnector.main import main
main()
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
    # Signals of one number that come together count as one.
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 1


FAILURES = {
    "not at all, by a mistake of the user": ["Error: /k: no such file"],
    "not at all, by the clusters": ["Error: another took it", "Error: no port"],
    "not at all, by a defect": [
        "Error: unexpected ValueError at __main__:8. This is a defect of the konnector"
    ],
}


@pytest.mark.parametrize(("what", "sentences"), FAILURES.items(), ids=FAILURES)
def test_a_failure_is_a_sentence(what, sentences):
    process = started(what)
    _, told = process.communicate(timeout=60)
    assert told.splitlines() == sentences
    assert process.returncode == 1


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_need_nothing_that_is_heavy(flag):
    script = f"""
import sys
sys.argv = ["konnector", "{flag}"]
from konnector.main import main
try:
    main()
finally:
    loaded = {{"aiohttp", "pydantic", "uvloop", "prometheus_client"}} & sys.modules.keys()
    print(sorted(loaded), file=sys.stderr)
"""
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert "konnector " in run.stdout
    assert run.stderr == "[]\n"


def test_it_may_open_many_files():
    script = """
import resource, sys, types
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

async def serve(settings, environ, home, *, stop):
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))

sys.modules["konnector.program"] = types.SimpleNamespace(serve=serve)
from konnector.main import run
sys.exit(run([]))
"""
    answer = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    soft, hard = map(int, answer.split())
    assert soft == (min(hard, 2**20) if hard > 0 else 2**20)

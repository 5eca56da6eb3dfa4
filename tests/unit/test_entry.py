"""Ctrl-C in the first second of a program, while it imports."""

import importlib.metadata
import signal
import subprocess
import sys

import pytest

from klutchctl.entry import ExitCode, ending_quietly

INTERRUPTED_AT = """
import runpy
import signal
import sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[2]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
runpy.run_module(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("program", "imported"),
    [
        ("klutchctl", "klutchctl.main"),
        ("klutchctl", "typer"),
        ("tests.demo", "tests.demo.program"),
        ("tests.demo", "uvloop"),
    ],
)
def test_it_ends_in_silence(program, imported):
    command = (sys.executable, "-c", INTERRUPTED_AT, program, imported)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (ExitCode.INTERRUPTED, "", "")


def test_the_installed_program_begins_there():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="klutchctl")
    assert script.value == "klutchctl.entry:main"


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_afterwards_all_is_as_before(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        with ending_quietly():
            inside = signal.getsignal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is handler
        assert (inside is handler) is (handler is signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGINT, before)

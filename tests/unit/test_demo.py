"""What `make demo` does when it is interrupted."""

import os
import signal
import subprocess
import sys

import pytest

from klutchctl import main
from tests.demo.__main__ import is_kept
from tests.demo.telling import owner_check

CLEANING = """
import signal
import time
from tests.demo.__main__ import interrupt_once

signal.signal(signal.SIGHUP, signal.SIG_DFL)
interrupt_once()
try:
    print("working", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("cleaning", flush=True)
    time.sleep(0.5)
    print("clean", flush=True)
"""


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_only_the_first_interruption_counts(first):
    with subprocess.Popen(
        (sys.executable, "-c", CLEANING), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(first)
        assert process.stdout.readline() == "cleaning\n"
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process.send_signal(number)
        assert process.stdout.readline() == "clean\n"
        assert process.wait() == 0


GOING_ON = """
import signal
from tests.demo.__main__ import interrupt_once

signal.signal(signal.SIGHUP, signal.SIG_IGN)
interrupt_once()
signal.raise_signal(signal.SIGHUP)
print("going on")
"""


def test_with_nohup_a_closed_terminal_does_not_interrupt():
    command = (sys.executable, "-c", GOING_ON)
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "going on\n"


TAKING_DOWN = """
import sys
from tests.demo import __main__ as demo

demo.KLUTCHCTL = sys.argv[1]
demo.take_down()
"""


def test_it_is_taken_down_though_nobody_hears_of_it(tmp_path):
    klutchctl, told = tmp_path / "klutchctl", tmp_path / "told"
    klutchctl.write_text(f'#!/bin/sh\necho going && echo "$@" > {told}\n')
    klutchctl.chmod(0o755)
    reading, writing = os.pipe()
    os.close(reading)
    command = (sys.executable, "-c", TAKING_DOWN, str(klutchctl))
    subprocess.run(command, stdout=writing, stderr=subprocess.DEVNULL, timeout=60, check=False)
    os.close(writing)
    assert told.read_text().startswith("sandbox down --delete")


@pytest.mark.parametrize(("said", "kept"), [(None, False), ("", False), ("0", False), ("no", False),
                                            ("1", True), ("yes", True)])  # fmt: skip
def test_keep_is_a_switch(said, kept):
    assert is_kept({} if said is None else {"KEEP": said}) is kept


def test_a_checkout_of_another_user_is_read_all_the_same(tmp_path, monkeypatch):
    assert owner_check(tmp_path) == ()
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert main.run(["version", *owner_check(tmp_path)]) == 0

"""What `make demo` does when it is interrupted."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from klutchctl import main
from tests.demo import telling
from tests.demo.program import is_kept
from tests.demo.telling import owner_check

CLEANING = """
import signal
import time
from tests.demo.program import interrupt_once

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


TAKING_DOWN = """
import sys
from tests.demo import program as demo

demo.KLUTCHCTL = sys.argv[1]
demo.take_down()
"""


def test_it_is_taken_down_though_nobody_hears_of_it(tmp_path):
    told = tmp_path / "told"
    klutchctl = recorder(tmp_path, told)
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


ENDING_EARLY = """
import os
import sys
from tests.demo import program as demo

async def early(place):
    exec(sys.argv[2])

demo.KLUTCHCTL, demo.demo = sys.argv[1], early
demo.main(os.getppid())
"""


@pytest.mark.parametrize(("keep", "kept"), [("1", True), ("0", False)])
def test_a_demo_that_fails_is_taken_down_or_says_how_to(tmp_path, keep, kept):
    told = tmp_path / "told"
    step = "demo.fail('a cluster is gone')"
    command = (sys.executable, "-c", ENDING_EARLY, str(recorder(tmp_path, told)), step)
    environment = os.environ | {"KEEP": keep, "XDG_STATE_HOME": str(tmp_path / "state")}
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 1
    assert "The demo failed: a cluster is gone" in run.stderr
    assert ("End it with: " in run.stdout) is kept
    assert told.exists() is not kept


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("assert False, 'it is not Ready'", "it is not Ready"),
        ("raise demo.psycopg.OperationalError('refused\\n')", "refused"),
    ],
)
def test_what_fails_is_told_in_a_sentence(tmp_path, step, told):
    program = str(recorder(tmp_path, tmp_path / "told"))
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    command = (sys.executable, "-c", ENDING_EARLY, program, step)
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    what, then = run.stderr.splitlines()
    assert (run.returncode, what) == (1, f"The demo failed: {told}")
    assert "KEEP=1" in then


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_it_does_not_begin_where_make_is_dead_already(tmp_path):
    code = "import sys\nfrom tests.demo.program import main\nmain(int(sys.argv[1]))"
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    command = (sys.executable, "-c", code, str(os.getppid()))
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")
    assert not list(tmp_path.iterdir())


def recorder(folder, told):
    """Return a program that writes its arguments to the file `told`."""
    program = folder / "klutchctl"
    program.write_text(f'#!/bin/sh\necho going && echo "$@" > {told}\n')
    program.chmod(0o755)
    return program


def test_a_demo_whose_end_is_killed_is_taken_down_again(tmp_path):
    told = tmp_path / "told"
    program = tmp_path / "klutchctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {told}\n[ $(wc -l < {told}) = 2 ] || kill -9 $$\n')
    program.chmod(0o755)
    command = (sys.executable, "-c", TAKING_DOWN, str(program))
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert told.read_text() == "sandbox down --delete --name demo\n" * 2
    assert "could not be taken down" not in run.stdout


HINTS = """
import sys
from pathlib import Path
from klutchctl.sandbox.layout import Layout
from tests.demo import program
from tests.demo.place import Place

program.KLUTCHCTL = sys.argv[1]
program.look_around(Place(Layout(Path(sys.argv[2]))))
"""


def test_what_it_says_to_look_around_is_typed_as_it_stands(tmp_path):
    folder = tmp_path / "a folder; it's mine"
    folder.mkdir()
    told, root = tmp_path / "told", folder / "klutchctl" / "sandbox" / "demo"
    program = recorder(folder, told)
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$XDG_STATE_HOME" "$@" > {told}\n')
    command = (sys.executable, "-c", HINTS, str(program), str(root))
    environment = os.environ | {"XDG_STATE_HOME": str(folder)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    without = {key: value for key, value in os.environ.items() if key != "XDG_STATE_HOME"}
    found = []
    for line in run.stdout.splitlines():
        typed = line.removeprefix("End it with:").strip()
        if (program.name in typed and "status" in typed) or "down" in typed:
            subprocess.run(["sh", "-c", typed], env=without, check=True)
            found.append(told.read_text().removesuffix("|").split("|"))
    assert [words[0] for words in found] == [str(folder), "", str(folder)]
    assert found[0][1:] == ["sandbox", "status", "--name", "demo"]
    assert found[1][1:3] == ["status", str(root / "fleet-example")]
    assert found[2][1:] == ["sandbox", "down", "--delete", "--name", "demo"]


async def test_every_command_reads_a_checkout_of_another_user(tmp_path, monkeypatch):
    told = tmp_path / "told"
    monkeypatch.setattr(telling, "KLUTCHCTL", str(recorder(tmp_path, told)))
    monkeypatch.setattr(os, "geteuid", lambda: Path().stat().st_uid + 1)
    await telling.klutchctl("validate", "fleet-example")
    assert told.read_text() == "--git-owner-check=off validate fleet-example\n"


def test_a_checkout_of_another_user_is_read_all_the_same(tmp_path, monkeypatch):
    assert owner_check(tmp_path) == ()
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert main.run(["version", *owner_check(tmp_path)]) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_so_is_one_whose_repository_alone_belongs_to_another_user(tmp_path):
    (tmp_path / ".git").mkdir()
    assert owner_check(tmp_path) == ()
    os.chown(tmp_path / ".git", 12345, 12345)
    assert owner_check(tmp_path) == ("--git-owner-check=off",)

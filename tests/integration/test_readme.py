"""The books work as printed: the commands of each run from top to bottom in a new home folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klutchctl.sandbox import processes
from klutchctl.settings import Settings
from tests.support import books

# What does not run here: the targets of make run all tests, and this machine may lack kubectl.
LEFT_OUT = {"make"} if shutil.which("kubectl") else {"make", "kubectl"}


def script(book):
    """Return the lines of one shell, as a person would type them, each with its exit code."""
    for command, code in books.commands(book):
        if command.split()[0] not in LEFT_OUT:
            yield command
            yield f'[ $? -eq {code} ] || {{ echo "FAILED: {command}" >&2; exit 1; }}'


SCRIPTS = {book: "\n".join(lines) for book in books.BOOKS if (lines := [*script(book)])}


@pytest.fixture
def home(tmp_path, programs):
    """A new home folder; the executables, once made, are found where they are."""
    binaries = Path(sys.executable).parent
    environ = {
        "HOME": str(tmp_path),
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(Settings(os.environ).cache_home),
    }
    kept = ("KUBEBUILDER_ASSETS", processes.PORTS_VARIABLE)
    environ |= {name: os.environ[name] for name in kept if name in os.environ}
    yield environ
    command = ["klutchctl", "sandbox", "down", "--delete"]
    subprocess.run(command, env=environ, check=True, capture_output=True)


@pytest.mark.parametrize("book", SCRIPTS)
def test_every_command_runs(book, home):
    assert SCRIPTS[book].count("klutchctl ") >= 3
    done = subprocess.run(
        ["bash", "-c", SCRIPTS[book]],
        env=home,
        cwd=books.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_the_books_that_show_a_way_are_run():
    assert {*SCRIPTS} == {"README.md", "klutchctl/README.md", "fleet-example/README.md"}

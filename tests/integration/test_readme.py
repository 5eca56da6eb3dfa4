"""The books work as printed: the commands of each run from top to bottom in a new home folder."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from klutchctl.sandbox import processes
from klutchctl.sandbox.addons import keycloak_distribution as distribution
from klutchctl.settings import Settings
from reconciler.core.errors import HostError
from tests.support import books, helm

pytestmark = pytest.mark.timeout(900)

# What does not run here: the targets of make run all tests, and this machine may lack the clients.
CLIENTS = {"kubectl", "psql"}
LEFT_OUT = {"make"} | (set() if all(map(shutil.which, CLIENTS)) else CLIENTS)
# The person at a browser.
VISITOR = [sys.executable, "-m", "tests.support.keycloak", "door", "%s", "&"]


def has_java():
    """Return whether a Keycloak can run here; in CI it has to."""
    try:
        distribution.find_java(os.environ)
    except HostError:
        return bool(os.environ.get("CI"))
    return True


def script(book):
    """Return the lines of one shell, as a person would type them, each with its exit code."""
    for console in books.blocks(book, "console"):
        if "--oidc" in console and not has_java():
            continue
        for command, code in books.commands_of(console):
            if command.split()[0] not in LEFT_OUT:
                yield command
                yield f"[ $? -eq {code} ] || {{ echo FAILED: {shlex.quote(command)} >&2; exit 1; }}"


def first_hour():
    """Return that page up to the first row, but for images and offers, which a sandbox lacks."""
    page = books.text(HOUR).partition("## 7.")[0]
    found = re.findall(r"```sh\n(.*?)```|in place of Pods first: `(.*?)`", page, re.DOTALL)
    shown = [one for one in map("".join, found) if not re.search("make |kind: API", one)]
    return "\n".join(["set -e", *shown])


HOUR = "klutchctl/docs/start/production.md"
ACCESS = "klutchctl/docs/install/ci-kubeconfigs.md"
SCRIPTS = {book: "\n".join(lines) for book in books.BOOKS if (lines := [*script(book)])}
SCRIPTS[HOUR] = first_hour()
SCRIPTS[ACCESS] = "set -e\n" + books.blocks(ACCESS, "sh")[0]
LONG = [pytest.mark.soak, pytest.mark.skipif(bool(LEFT_OUT & CLIENTS), reason="needs clients")]


@pytest.fixture
def home(tmp_path, programs):
    """A new home folder; the executables, once made, are found where they are."""
    binaries = Path(sys.executable).parent
    environ = {
        "HOME": str(tmp_path),
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(Settings(os.environ).cache_home),
        "BROWSER": " ".join(VISITOR),
    }
    kept = ("KUBEBUILDER_ASSETS", "JAVA_HOME", "GOGC", "GOMEMLIMIT", processes.PORTS_VARIABLE)
    environ |= {name: os.environ[name] for name in kept if name in os.environ}
    yield environ
    for name in ("default", "foundry", "door", "hour"):
        command = ["klutchctl", "sandbox", "down", "--delete", "--name", name]
        subprocess.run(command, env=environ, check=True, capture_output=True)


@pytest.mark.parametrize(
    "book", [pytest.param(one, marks=LONG if one in (HOUR, ACCESS) else []) for one in SCRIPTS]
)
def test_every_command_runs(book, home):
    if "helm " in SCRIPTS[book]:
        home["PATH"] += f"{os.pathsep}{helm.program().parent}"
    assert SCRIPTS[book].count("klutchctl ") >= 3
    with subprocess.Popen(
        ["bash", "-c", SCRIPTS[book]],
        env=home,
        cwd=books.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            output, _ = shell.communicate()
        finally:
            if shell.poll() != 0:  # what it left in the background
                with suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, output
    assert book != HOUR or "\n a bicycle\n" in output


def test_the_books_that_show_a_way_are_run():
    pages = ("first-fleet", "front-door", "production", "sandbox")
    start = {f"klutchctl/docs/start/{page}.md" for page in pages}
    assert {*SCRIPTS} == {"fleet-example/README.md", ACCESS, *start}

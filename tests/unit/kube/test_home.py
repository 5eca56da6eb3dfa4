"""The home directory, for users that have none as well, and the programs that look for it."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from klutchctl import settings
from klutchctl.cluster_options import ClusterOptions
from reconciler.kube import home

# A user without an entry, as a container may give one by number.
UNKNOWN = """
import os, pwd, sys, types

def unknown(number):
    raise KeyError(number)

os.environ.pop("HOME", None)
pwd.getpwuid = unknown
"""


@pytest.fixture
def unknown(monkeypatch):
    def nobody(number):
        raise KeyError(number)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)


def test_what_home_says(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert home.directory() == Path("/somewhere")


def test_what_the_entry_of_the_user_says(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    assert home.directory() == Path(pwd.getpwuid(os.getuid()).pw_dir)


@pytest.mark.usefixtures("unknown")
def test_a_user_without_an_entry_is_at_the_top():
    assert home.directory() == Path("/")


@pytest.mark.usefixtures("unknown")
def test_a_user_without_an_entry_reaches_the_clusters_of_a_kubeconfig():
    given = settings.read({"KUBECONFIG": "/some/config"})
    assert ClusterOptions().surroundings(given).kubeconfigs == (Path("/some/config"),)


@pytest.mark.parametrize("package", ["bind", "konnector"])
def test_a_program_starts_for_a_user_without_an_entry(package):
    script = f"""{UNKNOWN}
async def serve(settings, environ, home, *, stop):
    print(home)

program = types.SimpleNamespace(serve=serve)
sys.modules["{package}.program"] = program
import {package}
{package}.program = program
from {package}.main import run
sys.exit(run([]))
"""
    answer = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "/\n", "")

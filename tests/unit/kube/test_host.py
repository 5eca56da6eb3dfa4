"""The home directory, for users that have none as well, and the limit of open files."""

import os
import pwd
import resource
import sys
from pathlib import Path

import pytest

from klutchctl.settings import Settings
from reconciler.kube import host
from tests.support.shells import ran

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
    assert host.home_directory() == Path("/somewhere")


def test_what_the_entry_of_the_user_says(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    assert host.home_directory() == Path(pwd.getpwuid(os.getuid()).pw_dir)


@pytest.mark.usefixtures("unknown")
def test_a_user_without_an_entry_is_at_the_top():
    assert host.home_directory() == Path("/")


@pytest.mark.usefixtures("unknown")
def test_a_user_without_an_entry_reaches_the_clusters_of_a_kubeconfig():
    given = Settings({"KUBECONFIG": "/some/config"})
    assert given.surroundings().kubeconfigs == (Path("/some/config"),)


@pytest.mark.parametrize("package", ["bind", "konnector"])
def test_a_program_starts_for_a_user_without_an_entry(package):
    script = f"""{UNKNOWN}
async def serve(settings, environ, home, *, stop):
    print(home)

program = types.SimpleNamespace(serve=serve)
sys.modules["{package}.program"] = program
import {package}
{package}.program = program
from {package}.__main__ import run
sys.exit(run([]))
"""
    answer = ran([sys.executable, "-c", script], timeout=60)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "/\n", "")


ASK = (
    "import resource; from reconciler.kube import host; host.allow_open_files(8192); "
    "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
)

LIMITS = {
    "a shell's limit is raised as far as it may be": ((256, 2048), (2048, 2048)),
    "and not without end": ((256, 10_000), (8192, 10_000)),
    "what is more already stays": ((9_000, 10_000), (9_000, 10_000)),
    "what cannot be raised stays": ((512, 512), (512, 512)),
}


@pytest.mark.parametrize(("given", "expected"), LIMITS.values(), ids=LIMITS.keys())
def test_how_many_files_may_be_open(given, expected):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < given[1]:
        pytest.skip(f"this machine allows no more than {most}")
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, {given})"
    answer = ran([sys.executable, "-c", f"{limit}; {ASK}"], check=True)
    assert tuple(map(int, answer.stdout.split())) == expected


MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
UNLIMITED = min(MACHINE // 4, 2 * 2**30)
OURS = 512 * 2**20
V1, V2 = "memory/memory.limit_in_bytes", "memory.max"
CGROUPS = {
    "version 2": ({V2: OURS}, OURS),
    "version 1": ({V1: OURS}, OURS),
    "version 1, no limit": ({V1: 2**63 - 4096}, UNLIMITED),
    "no limit": ({V2: "max"}, UNLIMITED),
    "not Linux": ({}, UNLIMITED),
}


@pytest.mark.parametrize(("files", "want"), CGROUPS.values(), ids=CGROUPS)
def test_how_much_memory_a_process_may_have(tmp_path, files, want):
    for name, content in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    assert host.memory_limit(tmp_path) == want


def test_a_limit_of_the_shell_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (OURS, resource.RLIM_INFINITY))
    assert host.memory_limit(tmp_path) == OURS

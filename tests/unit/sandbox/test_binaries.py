"""Where the executables come from, and every way in which getting them fails."""

import shutil
import threading
from pathlib import Path

import pytest

from klutchctl import files
from klutchctl.sandbox import go_build, recipes
from klutchctl.sandbox.servers import Program
from reconciler.core.errors import HostError
from tests.support.eventually import eventually

RECIPE = recipes.of().recipe
ENTRY = RECIPE.id


def folder_with(folder: Path, *programs: Program) -> Path:
    folder.mkdir()
    for program in programs:
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
    return folder


def test_a_build_is_made_once_and_then_found(workshop):
    workshop.go()
    first = workshop.provide()
    again = workshop.provide()
    assert first == again
    assert set(first) == set(Program)
    assert all(path.parent.name == ENTRY for path in first.values())
    assert workshop.builds == 1
    assert workshop.entries() == {ENTRY}


def test_the_users_own_go_settings_do_not_change_the_result(workshop):
    workshop.go('env > "$HOME/seen"')
    workshop.environ |= {"GOFLAGS": "-mod=mod", "GOOS": "plan9", "GOPROXY": "https://proxy.test"}
    workshop.provide()
    seen = (workshop.home / "seen").read_text().splitlines()
    assert {
        "CGO_ENABLED=0",
        "GOTOOLCHAIN=local",
        "GOFLAGS=-buildvcs=false -mod=readonly",
        "GOWORK=off",
        "GOPROXY=https://proxy.test",
    } <= set(seen)
    assert not [line for line in seen if line.startswith("GOOS=")]


FAILURES = {
    "a compile error shows the last lines": (
        'echo "main.go:3: undefined: x"; exit 1',
        r"status 1:\n.*undefined: x",
    ),
    "go itself killed": ("kill -9 $$", "status -9"),
}


@pytest.mark.parametrize(("does", "says"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failed_build_says_why_and_leaves_nothing(workshop, does, says):
    workshop.go(does)
    with pytest.raises(HostError, match=f"(?s){says}") as caught:
        workshop.provide()
    assert caught.value.hint
    assert workshop.entries() == set()
    workshop.go()
    workshop.provide()
    assert workshop.entries() == {ENTRY}


TOOLCHAINS = {
    "too old": ("go1.25.9", "is go1.25.9"),
    "too old, though its number sorts later as text": ("go1.9", "is go1.9"),
    "of no version": ("devel", "is devel"),
}


@pytest.mark.parametrize(("version", "says"), TOOLCHAINS.values(), ids=TOOLCHAINS.keys())
def test_a_go_that_cannot_do_it_is_named(workshop, version, says):
    workshop.go(version=version)
    with pytest.raises(HostError, match=f"no Go toolchain of version 1.26 .*{says}") as caught:
        workshop.provide()
    for remedy in ("'.[sandbox]'", "--download", "KUBEBUILDER_ASSETS"):
        assert remedy in caught.value.hint


def test_no_go_at_all(workshop):
    workshop.environ["PATH"] = str(workshop.home / "bin")
    with pytest.raises(HostError, match=r"no Go toolchain of version 1\.26 or later"):
        workshop.provide()


def test_a_broken_go_gives_way_to_the_packaged_one(workshop):
    workshop.go()
    working = workshop.home / "packaged-go"
    shutil.move(workshop.home / "bin" / "go", working)
    (workshop.home / "bin" / "go").write_text("#!/bin/sh\nexit 3\n")
    (workshop.home / "bin" / "go").chmod(0o755)
    found = go_build.find_toolchain(workshop.environ, RECIPE, otherwise=working)
    assert found.go == working
    with pytest.raises(HostError, match="bin/go does not work"):
        go_build.find_toolchain(workshop.environ, RECIPE, otherwise=None)


ASSETS = {
    "all three: nothing else is looked at": (tuple(Program), set(Program), 0),
    "as envtest has them: the controller manager comes from the cache": (
        (Program.ETCD, Program.API_SERVER),
        {Program.ETCD, Program.API_SERVER},
        1,
    ),
    "a folder without etcd is not used": ((Program.API_SERVER,), set(), 1),
    "an empty folder is not used": ((), set(), 1),
}


@pytest.mark.parametrize(("there", "used", "builds"), ASSETS.values(), ids=ASSETS.keys())
def test_kubebuilder_assets(workshop, there, used, builds):
    workshop.go()
    assets = folder_with(workshop.home / "assets", *there)
    workshop.environ["KUBEBUILDER_ASSETS"] = str(assets)
    paths = workshop.provide()
    assert {program for program, path in paths.items() if path.parent == assets} == used
    assert set(paths) == set(Program)
    assert workshop.builds == builds
    assert any("KUBEBUILDER_ASSETS" in note for note in workshop.notes)


async def test_two_runs_at_once_build_once_and_the_second_says_that_it_waits(workshop):
    gate = workshop.home / "gate"
    workshop.go(f'while [ ! -e "{gate}" ]; do sleep 0.02; done')
    runs = [threading.Thread(target=workshop.provide) for _ in range(2)]
    for run in runs:
        run.start()

    def somebody_waits():
        return any("waiting for another run" in note for note in workshop.notes)

    try:
        await eventually(somebody_waits)
    finally:
        gate.touch()
        for run in runs:
            run.join(timeout=120)
    assert workshop.builds == 1
    assert workshop.entries() == {ENTRY}


def test_the_entry_is_another_when_sources_versions_or_flags_change(tmp_path):
    module = tmp_path / "module"
    shutil.copytree(recipes.MODULE, module)
    original = recipes.of(module)
    assert original.recipe.id == ENTRY
    assert original.recipe.id.startswith("v1.36.3-")
    (module / "etcd" / "main.go").write_text("package main\n")
    assert recipes.of(module).recipe.id != original.recipe.id


def test_a_disk_that_fills_up_is_reported_as_such(tmp_path):
    with (
        pytest.raises(HostError, match=rf"no space left for {tmp_path}.*XDG_STATE_HOME"),
        files.full_disk_explained(tmp_path, variable="XDG_STATE_HOME"),
    ):
        Path("/dev/full").write_text("x")

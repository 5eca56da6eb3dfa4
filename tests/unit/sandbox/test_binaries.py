"""Where the executables come from, and every way in which getting them fails."""

import asyncio
import os
import shutil
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from klutchctl import files
from klutchctl.sandbox import binaries, go_build, recipes
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
    "a full disk": ('echo "write y: no space left on device"; exit 1', "no space left.*GOCACHE"),
    "a compiler killed for its memory": (
        'echo "compile: signal: killed"; exit 1',
        "killed.*memory",
    ),
    "go itself killed": ("kill -9 $$", "killed.*memory"),
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


RUN = """\
import os
import sys
from pathlib import Path
from klutchctl.sandbox import binaries, recipes
from tests.support.quiet import Quiet
place = binaries.Workshop(binaries.Cache(Path(sys.argv[1]), "the control plane"), os.environ, None)
binaries.provide(recipes.of(), place, progress=Quiet())
"""


async def building(workshop):
    """Return a run that is in the middle of a build, and the pid of its `go`.

    As the real one, it leaves its files where they are when it is ended.
    """
    scratch = 'mktemp -d "${GOTMPDIR:-$HOME}/go-buildXXXXXX" > "$HOME/scratch"'
    workshop.go(f'{scratch}; echo $$ > "{workshop.home}/pid"; exec sleep 60')
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RUN, str(workshop.home / "cache")),
        env=workshop.environ,
        stderr=asyncio.subprocess.PIPE,
    )
    pid_file = workshop.home / "pid"
    return run, int(await eventually(lambda: pid_file.exists() and pid_file.read_text()))


async def test_an_interrupted_run_ends_its_build_and_leaves_nothing(workshop):
    run, go = await building(workshop)
    run.send_signal(signal.SIGINT)
    await run.communicate()
    assert workshop.entries() == set()
    assert not scratch_of(workshop).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(go, 0)


def scratch_of(workshop):
    return Path((workshop.home / "scratch").read_text().strip())


async def test_a_killed_run_leaves_no_entry_and_its_draft_is_cleared_away(workshop):
    run, go = await building(workshop)
    run.kill()
    await run.communicate()
    os.kill(go, signal.SIGKILL)
    (draft,) = workshop.entries()
    assert draft != ENTRY
    workshop.go()
    found = workshop.provide()
    assert workshop.entries() == {ENTRY}
    assert not scratch_of(workshop).exists()
    entry = next(iter(found.values())).parent
    assert not [one.name for one in entry.iterdir() if one.name.startswith(".work")]


def truncate(entry):
    (entry / Program.ETCD).write_text("")


def forget(entry):
    (entry / Program.ETCD).unlink()


def lock_out(entry):
    (entry / Program.ETCD).chmod(0o600)


def garble(entry):
    (entry / "contents.json").write_text("{")


def empty(entry):
    shutil.rmtree(entry)
    entry.mkdir()


DAMAGE = {
    "cut short": (truncate, "etcd has another size"),
    "missing": (forget, "etcd is not an executable"),
    "not executable": (lock_out, "etcd is not an executable"),
    "a garbled list": (garble, "contents.json cannot be read"),
    "an empty folder": (empty, "contents.json cannot be read"),
}


@pytest.mark.parametrize(("spoil", "says"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_entry_is_noticed_and_replaced(workshop, spoil, says):
    workshop.go()
    workshop.provide()
    entry = workshop.home / "cache" / ENTRY
    spoil(entry)
    assert says in (binaries.damage(entry, Program) or "")
    workshop.provide()
    assert any(says in note for note in workshop.notes)
    assert binaries.damage(entry, Program) is None
    assert workshop.entries() == {ENTRY}


def test_a_damaged_entry_stays_where_nothing_can_replace_it(workshop):
    workshop.go()
    workshop.provide()
    truncate(workshop.home / "cache" / ENTRY)
    workshop.go("exit 1")
    with pytest.raises(HostError, match="go build failed"):
        workshop.provide()
    assert workshop.entries() == {ENTRY}


def test_the_entry_is_another_when_sources_versions_or_flags_change(tmp_path):
    module = tmp_path / "module"
    shutil.copytree(recipes.MODULE, module)
    original = recipes.of(module)
    assert original.recipe.id == ENTRY
    assert original.recipe.id.startswith("v1.36.3-")
    (module / "etcd" / "main.go").write_text("package main\n")
    assert recipes.of(module).recipe.id != original.recipe.id


def test_too_little_room_for_a_build_names_the_folder_that_stays(workshop):
    workshop.go()
    recipe = replace(RECIPE, space=replace(RECIPE.space, result=10**9))
    with pytest.raises(HostError, match=rf"^{workshop.home}/cache has .*XDG_CACHE_HOME"):
        workshop.provide(release=replace(recipes.of(), recipe=recipe))


def test_needs_on_one_file_system_add_up(tmp_path):
    free = shutil.disk_usage(tmp_path).free // 1024 // 1024
    part = free * 2 // 3
    files.require({tmp_path / "a": (part, "A")})
    with pytest.raises(HostError, match="are needed"):
        files.require({tmp_path / "a": (part, "A"), tmp_path / "b": (part, "B")})


def test_a_disk_that_fills_up_is_reported_as_such(tmp_path):
    with (
        pytest.raises(HostError, match=rf"no space left for {tmp_path}.*XDG_STATE_HOME"),
        files.full_disk_explained(tmp_path, variable="XDG_STATE_HOME"),
    ):
        Path("/dev/full").write_text("x")

"""Where the executables come from, and every way in which getting them fails."""

import shutil
from pathlib import Path

import pytest

from klutchctl import files
from klutchctl.sandbox import recipes
from klutchctl.sandbox.servers import Program
from reconciler.core.errors import HostError

RECIPE = recipes.of().recipe
ENTRY = RECIPE.id


def test_a_build_is_made_once_and_then_found(workshop):
    workshop.go()
    first = workshop.provide()
    again = workshop.provide()
    assert first == again
    assert set(first) == set(Program)
    assert all(path.parent.name == ENTRY for path in first.values())
    assert workshop.builds == 1
    assert workshop.entries() == {ENTRY}


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

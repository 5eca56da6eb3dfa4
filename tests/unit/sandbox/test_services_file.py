"""services.yaml: what it may say, and that every mistake is told with its place."""

from functools import partial
from pathlib import Path

import pytest

from klutchctl.sandbox import manifests
from klutchctl.sandbox.state import Component
from reconciler.core.errors import ConfigError, InvalidRepository

WHOLE = """\
apiVersion: sandbox.klutchctl.dev/v1alpha1
kind: Services
metadata: {name: example}
spec:
  components: [crossplane, postgresql]
  manifests: [b/*.yaml, "*.yaml"]
  programs:
    - name: scribe
      command: ["${python}", scribe.py, "--data=${data}", "${postgresql}"]
"""
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}}}\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.yaml").write_text(CONFIG_MAP.format("two"))
    (tmp_path / "b" / "1.yaml").write_text(
        CONFIG_MAP.format("one") + "---\n---\n" + CONFIG_MAP.format("more")
    )
    (tmp_path / ".hidden.yaml").write_text("not: an object")
    return tmp_path


def write(folder, text):
    (folder / "services.yaml").write_text(text)
    return manifests.read(folder)


def test_objects_come_in_the_order_of_the_patterns_and_of_the_files(folder):
    suite = write(folder, WHOLE.replace('"*.yaml"', '"**/1.yaml"'))
    names = [one.manifest["metadata"]["name"] for one in suite.manifests]
    assert names == ["one", "more", "two"]
    assert str(suite.manifests[1].origin) == f"{folder}/b/1.yaml:6:1"
    assert suite.components == (Component.CROSSPLANE, Component.POSTGRESQL)
    assert [program.name for program in suite.programs] == ["scribe"]


MISTAKES = {
    "an unknown component": ("crossplane,", "crossplan,"),
    "an unknown key": ("metadata:", "meta:"),
    "another kind of document": ("kind: Services", "kind: Fleet"),
    "another version": ("v1alpha1", "v2"),
    "a program without a command": (
        '["${python}", scribe.py, "--data=${data}", "${postgresql}"]',
        "[]",
    ),
    "an unknown reference": ("${data}", "${date}"),
    "a reference that does not end": ("${data}", "${"),
    "the name of a server of ours": ("name: scribe", "name: etcd"),
    "the database without its component": (", postgresql]", "]"),
    "a pattern that leads out": ("b/*.yaml", "../*.yaml"),
    "a pattern without a file": ("b/*.yaml", "c/*.yaml"),
    "a file that is no object": ('"*.yaml"', '".*.yaml"'),
    "no YAML": ("spec:", "spec: ["),
    "a second document": ("spec:", "---\nspec:"),
}


def test_a_mistake_is_reported_with_its_place(folder, refusals):
    attempts = {}
    for name, (old, new) in MISTAKES.items():
        assert old in WHOLE
        attempts[name] = partial(write, folder, WHOLE.replace(old, new, 1))
    refusals("mistakes", attempts, unique=f"{folder}/")


def test_two_programs_of_one_name(folder):
    twice = WHOLE + "    - {name: scribe, command: [x]}\n"
    with pytest.raises(InvalidRepository, match="10:14: program scribe is there twice"):
        write(folder, twice)


def test_a_folder_without_the_file(tmp_path):
    with pytest.raises(ConfigError, match=r"services.yaml: cannot be read: .*--no-services"):
        manifests.read(tmp_path)


def test_a_link_is_not_followed(folder):
    (folder / "b" / "3.yaml").symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match=r"3.yaml: is a symbolic link"):
        write(folder, WHOLE)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


EXAMPLE = Path(__file__).parents[3] / "fleet-example" / "services"


def test_which_services_are_meant(here):
    fleet = here / "acme"
    (fleet / "services").mkdir(parents=True)
    (fleet / "fleet.yaml").touch()
    for one in (fleet, fleet / "fleet.yaml", None):
        assert manifests.folder_of(one) == EXAMPLE, "those of the example, where a fleet has none"
    for folder in (fleet, here):
        (folder / "services").mkdir(exist_ok=True)
        (folder / "services" / "services.yaml").symlink_to("nowhere")
    assert (
        manifests.folder_of(fleet)
        == manifests.folder_of(fleet / "fleet.yaml")
        == fleet / "services"
    )
    assert manifests.folder_of(None) == EXAMPLE, "here is no fleet"
    (here / "klutch-fleet.yaml").touch()
    assert manifests.folder_of(None).resolve() == here / "services"


def test_a_wheel_has_the_example_in_the_package(here, monkeypatch):
    (here / "example").mkdir()
    monkeypatch.setattr(manifests, "_IN_WHEEL", here / "example")
    assert manifests.folder_of(None) == here / "example"

"""`klutchctl render`: the objects of a repository, offline, with the places they come from."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from klutchctl import main
from klutchctl.render import manifests
from tests.support import fleet_texts
from tests.support.json_values import json_values

EXAMPLE = Path(__file__).parents[2] / "fleet-example"
FLEET = fleet_texts.one_file(
    fleet_texts.document("Fleet", "acme", "{}"),
    fleet_texts.control_plane(more=", prettyName: '\u202e', mode: %s"),
    fleet_texts.cluster(),
    fleet_texts.binding("orders-db", group="shop.example", plural="databases"),
)


@pytest.fixture
def repository(tmp_path):
    def make(mode="Direct", more=""):
        (tmp_path / "fleet.yaml").write_text(FLEET % mode + more)
        return str(tmp_path)

    return make


def run(capsys, *arguments):
    return main.run(["render", *arguments]), capsys.readouterr()


def documents(text):
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("mode", ["Direct", "AppClusterBinding"])
def test_json_holds_the_same_objects(capsys, repository, mode):
    path = repository(mode)
    text, shown = run(capsys, path)[1].out, run(capsys, path, "-o", "json")[1].out
    whole = json.loads(shown)
    assert shown.isascii()
    assert [one["manifest"] for one in whole["objects"]] == documents(text)
    last = whole["objects"][-1]
    assert last["controlPlane"] == (None if mode == "Direct" else "eu")


def test_the_crd_is_whole(capsys, repository):
    crds = [
        each
        for each in documents(run(capsys, repository())[1].out)
        if each["kind"] == "CustomResourceDefinition"
    ]
    assert [each["spec"]["scope"] for each in crds] == ["Namespaced"]
    assert "labels" not in crds[0]["metadata"]


def test_secrets_are_known_after_apply(capsys, repository):
    secrets = [d for d in documents(run(capsys, repository())[1].out) if d["kind"] == "Secret"]
    payloads = [value for each in secrets for value in each.get("data", {}).values()]
    assert payloads == ["(known after apply)"] * 2


NARROWED = {
    "by name": (["--cluster", "shop-eu-1", "--cluster", "shop-eu-2"], "shop-eu-1 shop-eu-2"),
    "by labels": (["-l", "team=team-a,env=prod"], "shop-eu-1"),
    "by both": (["--selector=team=team-a", "--cluster=shop-eu-2"], "shop-eu-2"),
    "by neither": ([], "analytics-eu-1 shop-eu-1 shop-eu-2"),
}


@pytest.mark.parametrize(("options", "want"), NARROWED.values(), ids=NARROWED.keys())
def test_options_narrow_the_clusters(capsys, options, want):
    lines = run(capsys, str(EXAMPLE), *options)[1].out.splitlines()
    found = {line.split()[2].rstrip(",") for line in lines if line.startswith("# cluster ")}
    assert found == set(want.split())


def test_the_same_files_elsewhere_give_the_same_bytes(capsys, tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "copy")
    first, second = (run(capsys, str(path))[1].out for path in (EXAMPLE, tmp_path / "copy"))
    assert first == second


# YAML


def test_what_stands_plain_and_what_in_quotes():
    value = {
        "plain": "registry.example.com:5000/a/b-c_d:v1.0",
        "word": "No",
        "number": "1",
        "colon": "a:",
        "empty": "",
        "escape": "\x1b[31m\u202e",
        "quote": 'a "b" \\',
        "lines": "a\nb",
        "letters": "Müller",
    }
    assert manifests.yaml_lines(value) == [
        "plain: registry.example.com:5000/a/b-c_d:v1.0",
        'word: "No"',
        'number: "1"',
        'colon: "a:"',
        'empty: ""',
        'escape: "\\u001b[31m\\u202e"',
        'quote: "a \\"b\\" \\\\"',
        'lines: "a\\nb"',
        'letters: "Müller"',
    ]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
VALUES = json_values(
    TEXTS,
    8,
    st.integers(),
    st.sampled_from(["y", "NO", "~", "1e3", "0x1", "12:30:45", "2026-01-01", "<<", "=", "a: b"]),
)


@given(st.dictionaries(TEXTS, VALUES, max_size=3))
def test_a_reader_gets_the_values_back(value):
    text = "\n".join(manifests.yaml_lines(value))
    assert yaml.load(text, yaml.CSafeLoader) == value
    assert all(
        character.isprintable() for line in manifests.yaml_lines(value) for character in line
    )

"""`klutchctl catalog`, as people and pipelines run it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from klutchctl import main
from tests.support.offerings import plan, service

BROKER = """\
apiVersion: osb.klutchctl.dev/v1alpha1
kind: ServiceBroker
metadata: {name: acme, namespace: klutch-osb}
spec:
  group: services.acme.example
  secretRef: {name: acme-broker}
  MORE
"""
FILES = [
    "crds/dbbindings.services.acme.example.yaml",
    "crds/dbinstances.services.acme.example.yaml",
    "fleet/acme-db.yaml",
    "rights.yaml",
    "templates.yaml",
]
SECRET = "pa55word"


def save(root: Path, *plans: Any, more: str = "url: https://broker.example", **of: Any) -> None:
    root.mkdir(exist_ok=True)
    (root / "broker.yaml").write_text(BROKER.replace("MORE", more))
    (root / "saved.json").write_text(json.dumps({"services": [service(*plans, **of)]}))


def run(root: Path, *options: str) -> int:
    saved = str(root / "saved.json")
    return main.run(["catalog", str(root / "broker.yaml"), "--catalog", saved, *options])


def files_in(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "acme"
    save(folder, plan("small"), plan("big"))
    return folder


def test_files_are_beside_the_broker_and_the_same_each_time(root, capsys):
    assert run(root) == 0
    first = files_in(root)
    assert sorted(first) == sorted([*FILES, "broker.yaml", "saved.json"])
    assert "5 files, 5 of them changed" in capsys.readouterr().out
    assert run(root) == 0
    assert files_in(root) == first
    assert "5 files, 0 of them changed" in capsys.readouterr().out


def test_a_folder_of_its_own(root, tmp_path):
    assert run(root, "--out", str(tmp_path / "out")) == 0
    assert sorted(files_in(tmp_path / "out")) == FILES


def test_check_writes_nothing_and_names_what_differs(root, capsys):
    assert run(root, "--check") == 2
    assert sorted(files_in(root)) == ["broker.yaml", "saved.json"]
    assert run(root) == 0
    assert run(root, "--check") == 0
    with (root / "rights.yaml").open("a") as file:
        file.write("# edited")
    capsys.readouterr()
    assert run(root, "--check") == 2
    assert capsys.readouterr().out == f"changed  {root}/rights.yaml\n"


# As earlier versions wrote it beside the files.
LOCK = {
    "broker": "acme",
    "group": "services.acme.example",
    "files": ["crds/dbinstances.services.acme.example.yaml", "../acme/broker.yaml"],
    "offerings": [{
        "id": "service-db", "name": "db", "stem": "Db", "description": "A database.",
        "metadata": {}, "plans": [
            {"id": "plan-gone", "name": "gone", "description": "", "bindable": True,
             "planUpdateable": True, "schemas": {"create": "0123456789abcdef"}},
            {"id": "plan-small", "name": "small", "description": "", "bindable": True,
             "planUpdateable": False, "schemas": {}},
        ],
    }],
    "schemas": {"0123456789abcdef": {"type": "object", "properties": {"a": {"type": "string"}}}},
}  # fmt: skip


def test_a_lock_file_of_earlier_versions_is_read_once_and_goes(root, capsys):
    save(root, plan("small"))
    (root / "catalog.lock").write_text(json.dumps(LOCK))
    assert run(root, "--check") == 2
    assert f"gone     {root}/catalog.lock" in capsys.readouterr().out
    for _ in range(2):
        assert run(root) == 0
        assert "plan gone is no longer offered" in capsys.readouterr().err
        assert b"- gone" in (root / "crds/dbinstances.services.acme.example.yaml").read_bytes()
        assert sorted(files_in(root)) == sorted([*FILES, "broker.yaml", "saved.json"])
    save(root, plan("small"), plan("gone", {"properties": {"a": {"type": "integer"}}}))
    assert run(root) == 6
    assert "plan gone: parameters.a: its type is new" in capsys.readouterr().err


def test_files_that_are_gone_are_deleted_and_no_other_ones(root):
    assert run(root) == 0
    (root / "crds" / "mine.yaml").write_text("mine")
    save(root, plan("small"), bindable=False)
    assert run(root, "--allow-narrowing") == 0
    left = {path.name for path in root.rglob("*.yaml")}
    assert {"mine.yaml", "broker.yaml", "dbinstances.services.acme.example.yaml"} <= left
    assert "dbbindings.services.acme.example.yaml" not in left


def edited(root: Path) -> None:
    """Make the files, and have a merge leave its marks in what is kept in them."""
    assert run(root) == 0
    file = root / "crds/dbinstances.services.acme.example.yaml"
    file.write_text(re.sub("(osb-offered: ).*", r"\1<<<<<<<", file.read_text()))


REFUSED = {
    "a catalogue that is none": (
        lambda root: (root / "saved.json").write_text("[]"), "no JSON object",
    ),
    "no ServiceBroker": (
        lambda root: (root / "broker.yaml").write_text("a: b"), "0 ServiceBrokers",
    ),
    "a field that is none": (
        lambda root: save(root, plan("small"), more="ulr: https://broker.example"),
        "spec.ulr is no field",
    ),
    "a value of another type": (
        lambda root: save(root, plan("small"), more="offerings: all"), "spec.offerings is no array",
    ),
    "a version that is none": (
        lambda root: save(root, plan("small"), more="apiVersion: '3'"), "spec.apiVersion is not of",
    ),
    "a plan that is none": (
        lambda root: save(root, plan("small"), more="offerings: [{name: db, plans: [x]}]"),
        "offering db has no plan 'x'",
    ),
    "a lock file that is none": (
        lambda root: (root / "catalog.lock").write_text("<<<<<<<"), "catalog.lock: it is no JSON",
    ),
    "an annotation that is none": (
        lambda root: edited(root), "annotation klutchctl.dev/osb-offered: it is no JSON",
    ),
    "a file in the way": (
        lambda root: (root / "rights.yaml").write_text("mine"), "not from a catalogue",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("break_", "part"), REFUSED.values(), ids=REFUSED)
def test_what_is_invalid_changes_nothing(root, capsys, break_, part):
    break_(root)
    before = files_in(root)
    assert run(root) == 3
    assert part in capsys.readouterr().err
    assert files_in(root) == before


def test_the_folder_of_another_broker_is_left_alone(root, capsys):
    assert run(root) == 0
    text = (root / "broker.yaml").read_text().replace("name: acme,", "name: other,")
    (root / "broker.yaml").write_text(text)
    assert run(root) == 3
    assert "the files are of the broker acme" in capsys.readouterr().err


def test_a_catalogue_comes_from_one_place(root, capsys):
    assert main.run(["catalog", str(root / "broker.yaml")]) == 64
    assert run(root, "--credentials", "x") == 64


ASKED = {
    "in the clear": ("http://broker.example", "username: u\npassword: {}"),
    "with half of the credentials": ("https://127.0.0.1:1", "password: {}"),
    "with an address that is none": ("https://", "username: u\npassword: {}"),
}


@pytest.mark.parametrize(("url", "held"), ASKED.values(), ids=ASKED)
def test_no_password_is_shown_where_a_broker_is_not_asked(root, capsys, url, held):
    save(root, plan("small"), more=f"url: {url}")
    (root / "keys.yaml").write_text(held.format(SECRET))
    options = ["--credentials", str(root / "keys.yaml")]
    assert main.run(["catalog", str(root / "broker.yaml"), *options]) == 3
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert said.err.startswith("Error: ")

"""T24: where a saved plan looks for its files is part of what was approved."""

import json
import shutil
from pathlib import Path

import pytest

from klutchctl import main
from reconciler.core import livefile
from reconciler.core.live import Live
from reconciler.planning import planfile
from tests.support.checkouts import Checkout
from tests.support.fleet_texts import BINDING, GOOD


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A commit of a fleet, and a plan of it in which no cluster was read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    made = Checkout(tmp_path)
    made.write(GOOD)
    made.commit()
    Path("live.json").write_bytes(livefile.dump(Live({}, {}, {})))
    main.run(["plan", str(made.folder), "--snapshot", "live.json", "--out", "a.plan"])
    return made


EDITS = {"revision": "0" * 40, "repository": "/somewhere/else"}


@pytest.mark.parametrize(("key", "value"), EDITS.items())
def test_a_plan_that_names_another_place_is_refused(checkout, capsys, key, value):
    plan = json.loads(Path("a.plan").read_bytes())
    assert plan[key]
    Path("a.plan").write_text(json.dumps({**plan, key: value}))
    for command in ("apply", "show"):
        assert main.run([command, "a.plan"]) == 3
        assert "the plan was changed after it was written" in capsys.readouterr().err


def test_the_id_that_is_shown_is_that_of_the_file(checkout, capsys):
    capsys.readouterr()
    options = ["--snapshot", "live.json", "--out", "b.plan", "-o", "json"]
    main.run(["plan", str(checkout.folder), *options])
    shown = json.loads(capsys.readouterr().out)
    assert planfile.parse(Path("b.plan").read_bytes(), "b.plan").id == shown["id"]
    assert shown["repository"] == str(checkout.folder)


def applied(*more):
    return main.run(["--allow-unreachable", "apply", "a.plan", *more])


def test_a_repository_that_has_moved_is_named(checkout, capsys):
    checkout.write({"bindings/db.yaml": BINDING.replace("name: db", "name: x")})  # in no commit
    main.run(["plan", str(checkout.folder), "--snapshot", "live.json", "--out", "a.plan"])
    moved = checkout.folder.rename("moved")
    for options in ((), ("--repository", "nowhere")):
        assert applied(*options) == 3
        assert "kubeconfig" not in capsys.readouterr().err
    applied("--repository", str(moved))
    assert "no kubeconfig found" in capsys.readouterr().err


def test_it_has_to_be_what_the_plan_was_made_from(checkout, capsys):
    other = Path("other")
    shutil.copytree(checkout.folder, other, ignore=shutil.ignore_patterns(".git"))
    (other / "bindings" / "db.yaml").write_text(BINDING.replace("name: db", "name: x"))
    assert applied("--repository", str(other)) == 7


REFUSED = {"a folder": ["repo"], "following": ["repo", "--watch"]}


@pytest.mark.parametrize("target", REFUSED.values(), ids=REFUSED.keys())
def test_only_a_saved_plan_has_one(checkout, capsys, target):
    assert main.run(["apply", *target, "--repository", "."]) == 64
    assert "--repository" in capsys.readouterr().err

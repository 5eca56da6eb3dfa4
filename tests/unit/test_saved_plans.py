"""Saved plans: shown in each format, and applied to the files that they were made from, or not.

T24: where a saved plan looks for its files is part of what was approved.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from klutchctl import main, repository
from klutchctl.render import plan_formats
from reconciler.core.live import Live, dump_live
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.planning import planfile
from reconciler.planning.changes import Action, Change, Plan
from tests.support.checkouts import Checkout
from tests.support.fleet_texts import BINDING, GOOD

PLAN = planfile.identified(
    Plan(
        fleet="acme",
        revision="",
        digest="",
        changes=(Change("shop", "db", Ref("shop", CONFIG_MAP, "ns", "a"), Action.CREATE, "new"),),
        sections={"shop": "eu"},
        clusters_total=1,
    )
)
FORMATS = {
    "text": ([], plan_formats.text(PLAN)),
    "text by name": (["-o", "text"], plan_formats.text(PLAN)),
    "json": (["-o", "json"], plan_formats.as_json(PLAN)),
    "markdown": (["--output", "markdown"], plan_formats.comment(PLAN)),
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(planfile.dump(PLAN))
    return path


@pytest.mark.parametrize("columns", ["30", "60"])
def test_a_terminal_gets_lines_that_fit_and_a_pipe_whole_ones(columns, file, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    assert main.run(["show", str(file)]) == 0
    assert capsys.readouterr().out == plan_formats.text(PLAN)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main.run(["--no-color", "show", str(file)]) == 0
    fits = plan_formats.text(PLAN, columns=max(40, int(columns)))
    assert capsys.readouterr().out == fits != plan_formats.text(PLAN)


@pytest.mark.parametrize(("options", "output"), FORMATS.values(), ids=FORMATS.keys())
def test_formats(capsys, file, options, output):
    assert main.run(["show", str(file), *options]) == 0
    assert capsys.readouterr().out == output


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.chdir(tmp_path)
    named = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("cp", "shop")]
    known = {
        "contexts": named,
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    Path("kubeconfig").write_text(yaml.safe_dump(known))
    monkeypatch.setenv("KUBECONFIG", "kubeconfig")
    made = Checkout(tmp_path)
    made.write(GOOD)
    return made


def save(checkout: Checkout, revision: str) -> None:
    fleet = repository.fleet_in(checkout.folder, check_owner=True)
    plan = Plan(
        fleet=fleet.name,
        revision=revision,
        digest=fleet.digest,
        changes=(),
        sections={},
        repository=str(checkout.folder),
    )
    Path("a.plan").write_bytes(planfile.dump(planfile.identified(plan)))


CHANGED = BINDING.replace("name: db", "name: other")
EDITED = {"changed": CHANGED, "being edited": "wrong: ["}


@pytest.mark.parametrize("text", EDITED.values(), ids=EDITED)
def test_a_plan_of_a_commit_is_applied_whatever_stands_in_the_folder(checkout, text):
    save(checkout, checkout.commit())
    checkout.write({"bindings/db.yaml": text})
    assert main.run(["apply", "a.plan"]) == 0


def test_a_plan_of_a_commit_is_applied_without_the_folder(checkout):
    save(checkout, checkout.commit())
    shutil.rmtree(checkout.folder)
    assert main.run(["apply", "a.plan"]) == 0


@pytest.mark.parametrize(("text", "code"), [(CHANGED, 7), ("wrong: [", 3)], ids=EDITED)
def test_a_plan_of_no_commit_needs_the_files_as_they_were(checkout, text, code):
    checkout.commit()
    save(checkout, "")
    assert main.run(["apply", "a.plan"]) == 0
    checkout.write({"bindings/db.yaml": text})
    assert main.run(["apply", "a.plan"]) == code


def test_another_commit_is_no_substitute(checkout):
    save(checkout, "")
    checkout.write({"bindings/db.yaml": CHANGED})
    other = checkout.commit()
    checkout.write({"bindings/db.yaml": BINDING})
    save(checkout, other)
    checkout.write({"bindings/db.yaml": CHANGED})
    assert main.run(["apply", "a.plan"]) == 7


def test_changed_files_make_a_plan_stale_whose_commit_is_gone(checkout, capsys):
    save(checkout, "a" * 40)
    checkout.commit()
    checkout.write({"bindings/db.yaml": CHANGED})
    assert main.run(["apply", "a.plan"]) == 7
    assert "what a shallow clone lacks, fetch" in capsys.readouterr().err


@pytest.fixture
def planned(checkout, monkeypatch):
    """A commit of a fleet, and a plan of it in which no cluster was read."""
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    checkout.commit()
    Path("live.json").write_bytes(dump_live(Live({}, {}, {})))
    main.run(["plan", str(checkout.folder), "--snapshot", "live.json", "--out", "a.plan"])
    return checkout


EDITS = {"revision": "0" * 40, "repository": "/somewhere/else"}


@pytest.mark.parametrize(("key", "value"), EDITS.items())
def test_a_plan_that_names_another_place_is_refused(planned, capsys, key, value):
    plan = json.loads(Path("a.plan").read_bytes())
    assert plan[key]
    Path("a.plan").write_text(json.dumps({**plan, key: value}))
    for command in ("apply", "show"):
        assert main.run([command, "a.plan"]) == 3
        assert "the plan was changed after it was written" in capsys.readouterr().err


def test_the_id_that_is_shown_is_that_of_the_file(planned, capsys):
    capsys.readouterr()
    options = ["--snapshot", "live.json", "--out", "b.plan", "-o", "json"]
    main.run(["plan", str(planned.folder), *options])
    shown = json.loads(capsys.readouterr().out)
    assert planfile.parse(Path("b.plan").read_bytes(), "b.plan").id == shown["id"]
    assert shown["repository"] == str(planned.folder)


def applied(*more):
    return main.run(["--allow-unreachable", "apply", "a.plan", *more])


def test_a_repository_that_has_moved_is_named(planned, capsys):
    planned.write({"bindings/db.yaml": BINDING.replace("name: db", "name: x")})  # in no commit
    main.run(["plan", str(planned.folder), "--snapshot", "live.json", "--out", "a.plan"])
    moved = planned.folder.rename("moved")
    for options in ((), ("--repository", "nowhere")):
        assert applied(*options) == 3
        assert "kubeconfig" not in capsys.readouterr().err
    applied("--repository", str(moved))
    assert "no kubeconfig found" in capsys.readouterr().err


def test_it_has_to_be_what_the_plan_was_made_from(planned, capsys):
    other = Path("other")
    shutil.copytree(planned.folder, other, ignore=shutil.ignore_patterns(".git"))
    (other / "bindings" / "db.yaml").write_text(BINDING.replace("name: db", "name: x"))
    assert applied("--repository", str(other)) == 7

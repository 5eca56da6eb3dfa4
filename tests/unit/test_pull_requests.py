"""`--ref` and `--base` of validate, render and plan, as a pipeline runs them."""

import asyncio
import json
from pathlib import Path

import pygit2
import pytest

from klutchctl import main
from reconciler.core.live import Live, dump_live
from tests.support.checkouts import PERSON, Checkout
from tests.support.fleet_texts import (
    BINDING,
    CLUSTER,
    CONTROL_PLANE,
    GOOD,
    POLICY,
    TEMPLATE,
    document,
)
from tests.support.listener import Listener, hang_up

SUMMARY = "acme: 1 control plane, 1 cluster, 1 template, 1 binding -> 1 unit\n"
ASKED = {
    "templates/x.yaml": TEMPLATE.replace("name: pg", "name: x").replace("pgs", "xs"),
    "bindings/x.yaml": BINDING.replace("name: db", "name: x").replace(
        "template: pg", "template: x"
    ),
}
GRANTED = {"policies/p.yaml": POLICY.replace("[pg]", "[pg, x]"), **ASKED}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Checkout(tmp_path)
    made.write({**GOOD, "policies/p.yaml": POLICY})
    return made


def test_the_files_of_a_ref_are_read_instead_of_the_folder(checkout, capsys):
    checkout.commit()
    checkout.write({"bindings/db.yaml": "wrong", "bindings/y.yaml": "wrong"})
    assert main.run(["validate", "repo"]) == 3
    capsys.readouterr()
    for path in ("repo", "repo/fleet.yaml"):
        assert main.run(["validate", path, "--ref", "main"]) == 0
        assert capsys.readouterr().out == SUMMARY
    assert main.run(["render", "repo", "--ref", "main"]) == 0
    assert "APIServiceExportRequest" in capsys.readouterr().out


def test_problems_at_a_ref_have_the_paths_of_the_folder(checkout, capsys):
    checkout.write({"bindings/db.yaml": BINDING.replace("pg", "gp")})
    checkout.commit()
    for path in ("repo", "repo/fleet.yaml"):
        assert main.run(["validate", path, "--ref", "HEAD"]) == 3
        assert capsys.readouterr().out.startswith("repo/bindings/db.yaml:4:18: ")
    checkout.folder.rename("elsewhere")
    for path in ("repo", "repo/fleet.yaml"):
        assert main.run(["validate", path, "--ref", "HEAD"]) == 3
        assert capsys.readouterr().out.startswith("repo/bindings/db.yaml:4:18: ")


REFUSED = {
    "a ref that is not there": (["repo", "--ref", "nope"], "'nope' is not in the repository"),
    "a revision": (["repo", "--ref", "HEAD~1"], "'HEAD~1' is not in the repository"),
    "a base that is not there": (["repo", "--base", "nope"], "'nope' is not in the repository"),
    "a base without a fleet": (["repo", "--base", "bare"], "there is no folder 'repo' in commit"),
    "a base that is invalid": (["repo", "--base", "broken"], "--base broken: invalid itself"),
    "a base with too little": (["repo", "--base", "empty"], "--base empty: invalid itself"),
}


@pytest.mark.parametrize(("arguments", "says"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("command", ["validate", "plan"])
def test_what_cannot_be_read(checkout, capsys, command, arguments, says):
    checkout.commit()
    checkout.write({"bindings/db.yaml": "wrong"})
    checkout.commit("broken")
    empty = checkout.git.TreeBuilder()
    bare = checkout.git.create_commit("refs/heads/bare", PERSON, PERSON, "x", empty.write(), [])
    assert bare
    inner = checkout.git.TreeBuilder()
    inner.insert("README", checkout.git.create_blob(b""), pygit2.enums.FileMode.BLOB)
    empty.insert("repo", inner.write(), pygit2.enums.FileMode.TREE)
    checkout.git.create_commit("refs/heads/empty", PERSON, PERSON, "x", empty.write(), [])
    checkout.write({"bindings/db.yaml": GOOD["bindings/db.yaml"]})
    assert main.run([command, *arguments]) == 3
    answer = capsys.readouterr()
    assert answer.out == ""
    assert says in answer.err


def test_a_pull_request_is_judged_by_the_base(checkout, capsys):
    checkout.commit()
    checkout.write(GRANTED)
    assert main.run(["validate", "repo"]) == 0
    capsys.readouterr()
    assert main.run(["validate", "repo", "--base", "main"]) == 4
    assert capsys.readouterr().out == (
        "repo/bindings/x.yaml:4:18: denied: Policy team does not allow Template x in shop"
        " [policy-denied]\n"
        "    4 | spec: {template: x, clusters: {matchLabels: {env: ...}}}\n"
        "      |                  ^\n"
        "    The Policies of main apply; changes to them count after the merge\n"
        "1 denied by policy\n"
    )
    checkout.commit("pr")
    assert main.run(["validate", "repo", "--ref", "pr", "--base", "main"]) == 4
    assert main.run(["validate", "repo", "--ref", "main", "--base", "pr"]) == 0


@pytest.fixture
def snapshot(tmp_path):
    """A snapshot in which no cluster was read."""
    file = tmp_path / "live.json"
    file.write_bytes(dump_live(Live({}, {}, {})))
    return ["--snapshot", str(file)]


DENIED = "bindings/x.yaml:4:18  Policy team does not allow Template x in shop."
SAYS_DENIED = {
    "text": "\n\nDenied by policy\n  ! ",
    "markdown": "\n\n#### Denied by policy\n\n```text\n  ! ",
}


@pytest.mark.parametrize("form", SAYS_DENIED)
def test_what_is_denied_has_a_plan_and_says_so_first(checkout, capsys, snapshot, form):
    checkout.commit()
    checkout.write(GRANTED)
    assert main.run(["plan", "repo", "--base", "main", *snapshot, "-o", form]) == 4
    shown = capsys.readouterr()
    assert f"{SAYS_DENIED[form]}{DENIED}" in shown.out
    assert shown.out.index(DENIED) < shown.out.index("Changed against")
    assert "2 unknown" in shown.out
    assert "does not allow Template x" in shown.err


def test_what_is_denied_is_never_saved_or_read_again(checkout, capsys, snapshot):
    checkout.commit()
    checkout.write(GRANTED)
    plan = ["plan", "repo", "--base", "main", *snapshot, "--out", "saved", "-o", "json=plan.json"]
    assert main.run(plan) == 4
    assert not Path("saved").exists()
    (denied,) = json.loads(Path("plan.json").read_text())["summary"]["against"]["denied"]
    assert (denied["code"], denied["line"]) == ("policy-denied", 4)
    capsys.readouterr()
    for command in (["show"], ["apply", "--repository", "repo"]):
        assert main.run([command[0], "plan.json", *command[1:]]) == 3
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "the plan of a pull request that a Policy denies" in shown.err


WITHOUT_A_PLAN = {
    "invalid files": ({"bindings/db.yaml": BINDING.replace("pg", "gp")}, [], 3, "#### Not valid"),
    "another name": (
        {"fleet.yaml": GOOD["fleet.yaml"].replace("acme", "bank")},
        [],
        4,
        "#### Denied by policy",
    ),
    "a base that is not there": ({}, ["--base", "nope"], 3, "'nope' is not in the repository"),
    "no such cluster": ({}, ["--cluster", "nope"], 3, "no such cluster: nope"),
    "a snapshot that is none": ({}, ["--snapshot", "repo/fleet.yaml"], 3, "not a snapshot, as"),
    "a defect": ({}, [], 1, "unexpected ZeroDivisionError"),
}


@pytest.mark.parametrize("case", WITHOUT_A_PLAN.values(), ids=WITHOUT_A_PLAN.keys())
def test_a_comment_says_that_there_is_no_plan(checkout, capsys, snapshot, monkeypatch, case):
    changes, more, code, says = case
    checkout.commit()
    checkout.write(changes)
    if code == 1:
        monkeypatch.setattr("reconciler.planning.planner.plan", lambda *_, **__: 1 / 0)
    plan = ["plan", "repo", "--base", "main", *snapshot, *more, "-o", "markdown=plan.md"]
    assert main.run(plan) == code
    comment = Path("plan.md").read_text()
    assert comment.startswith("### No plan\n")
    assert says in comment
    assert capsys.readouterr().out == ""


def test_a_plan_tells_what_the_pull_request_changes(checkout, capsys, snapshot):
    head = checkout.commit()
    checkout.write(
        {"fleet.yaml": document("Fleet", "acme", "{include: ['*/*.yaml'], prune: {mode: 'off'}}")}
    )
    (checkout.folder / "bindings" / "db.yaml").unlink()
    (checkout.folder / "policies" / "p.yaml").unlink()
    checkout.write({"bindings/new.yaml": BINDING.replace("name: db", "name: new")})
    assert main.run(["plan", "repo", "--base", "main", *snapshot]) == 1
    assert capsys.readouterr().out.split("\n\n")[1].splitlines() == [
        f"Changed against main ({head[:7]})",
        "  ! rights   -      Fleet              fleet.yaml:3",
        '               /prune/mode: "auto" -> "off"',
        "  ! rights   team   Policy             policies/p.yaml:3",
        "  ~ change   new    pgs.gi.o in shop   bindings/new.yaml:3",
        '               /binding: "db" -> "new"',
    ]
    main.run(["plan", "repo", "--base", "main", *snapshot, "-o", "json"])
    assert json.loads(capsys.readouterr().out)["revision"] == f"{head}+dirty"


KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters:
- {name: known, cluster: {server: "http://127.0.0.1:%d"}}
- {name: bank, cluster: {server: "http://127.0.0.1:%d"}}
users: [{name: u, user: {token: t}}]
contexts:
- {name: cp, context: {cluster: known, user: u}}
- {name: shop, context: {cluster: known, user: u}}
- {name: bank, context: {cluster: bank, user: u}}
"""


@pytest.fixture
async def servers():
    """Two servers that take connections, count them and hang up."""

    async def serve(reader, writer):
        hang_up(writer, "rst")

    made = Listener(serve), Listener(serve)
    for one in made:
        await one.accept()
    yield made
    for one in made:
        await one.close()


TO_THE_BANK = {
    "a cluster": {"clusters/shop.yaml": CLUSTER.replace("Context: shop", "Context: bank")},
    "a new cluster": {"clusters/new.yaml": CLUSTER.replace("shop", "bank")},
    "a control plane": {"planes/eu.yaml": CONTROL_PLANE.replace("Context: cp", "Context: bank")},
    "a new control plane": {
        "planes/us.yaml": CONTROL_PLANE.replace("eu", "us").replace("Context: cp", "Context: bank")
    },
}


@pytest.mark.parametrize("changes", TO_THE_BANK.values(), ids=TO_THE_BANK.keys())
async def test_a_pull_request_leads_us_to_no_other_cluster(checkout, capsys, servers, changes):
    known, bank = servers
    checkout.commit()
    checkout.write(changes)
    checkout.write({"kubeconfig": KUBECONFIG % (known.port, bank.port)})
    plan = ["--kubeconfig", "repo/kubeconfig", "--timeout", "5", "plan", "repo"]
    assert await asyncio.to_thread(main.run, [*plan, "--base", "main"]) == 1
    assert known.accepted > 0
    assert bank.accepted == 0
    # What is behind an unseen control plane is told to be that.
    shown = capsys.readouterr().out
    refused = "main does not lead there, so it is not contacted" in shown
    said = max(line.count("It is read once") for line in shown.splitlines())
    assert said == refused, "no sentence is there twice"
    assert refused == any(path.startswith("planes/") for path in changes)
    await asyncio.to_thread(main.run, plan)
    assert bank.accepted > 0, "without --base it is an ordinary change"

"""`klutchctl validate`, `init` and `schema`, as people and pipelines run them."""

import json
import subprocess
import sys
from pathlib import Path

import pygit2
import pytest

from klutchctl import main, repository
from klutchctl.entry import code_of
from reconciler.core.errors import InvalidRepository, Origin, Problem, Severity
from tests.support.fleet_texts import GOOD, POLICY, document

SUMMARY = "acme: 1 control plane, 1 cluster, 1 template, 1 binding -> 1 unit\n"
WRONG = document("Binding", "db", "{template: gp, clusters: {names: [shop]}}")
DENIED = document("Policy", "team", "{paths: ['bindings/*']}")


def write(root, changes=None):
    for name, text in {**GOOD, **(changes or {})}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A folder to stand in; the fleet is in `repo`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "repo"


def test_a_good_fleet(repo, capsys):
    write(repo)
    assert main.run(["validate", "repo"]) == 0
    assert capsys.readouterr().out == SUMMARY


def test_documents_that_no_include_reads(repo, capsys):
    others = {"clusters/b.yml": WRONG, "cluster/a/c.yaml": WRONG, ".github/x.yaml": WRONG}
    of_others = {"x/2/fleet.yaml": WRONG, "x/2/a/b.yaml": WRONG, "x/y/c.yaml": "a: b\n"}
    of_others["x/y/status.yaml"] = document("FleetStatus", "acme", "{files: ''}")
    write(repo, others | of_others)
    assert main.run(["validate", "repo", "-o", "github"]) == 0
    *warned, _ = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert warned == ["::warning file=repo/cluster/a/c.yaml", "::warning file=repo/clusters/b.yml"]


RUNS = {
    "nothing wrong": ({}, 0),
    "invalid": ({"bindings/db.yaml": WRONG}, 3),
    "denied": ({"policies/p.yaml": DENIED}, 4),
    "invalid and denied": (
        {"bindings/db.yaml": WRONG, "policies/p.yaml": POLICY, "bindings/p.yaml": DENIED},
        3,
    ),
}


@pytest.mark.parametrize(("changes", "code"), RUNS.values(), ids=RUNS.keys())
@pytest.mark.parametrize("output", ["text", "json", "sarif", "github"])
def test_exit_codes_are_the_same_in_every_format(repo, capsys, changes, code, output):
    write(repo, changes)
    assert main.run(["validate", "repo", "-o", output]) == code
    output = capsys.readouterr()
    assert output.err == ""
    assert output.out.endswith("\n")


def test_paths_can_be_opened_from_where_one_is(repo, capsys, monkeypatch):
    write(repo, {"bindings/db.yaml": WRONG})
    assert main.run(["validate", "repo"]) == 3
    assert capsys.readouterr().out == (
        "repo/bindings/db.yaml:4:18: error: there is no Template gp [unknown-template]\n"
        "    4 | spec: {template: gp, clusters: {names: [shop]}}\n"
        "      |                  ^\n"
        "    Known: pg\n"
        "1 error\n"
    )
    assert main.run(["validate", "repo/fleet.yaml"]) == 3
    assert capsys.readouterr().out.startswith("repo/bindings/db.yaml:4:18: ")
    monkeypatch.chdir(repo)
    assert main.run(["validate"]) == 3
    assert capsys.readouterr().out.startswith("bindings/db.yaml:4:18: ")


def test_no_fleet_at_all(repo, capsys):
    repo.mkdir()
    assert main.run(["validate", "repo"]) == 3
    assert capsys.readouterr().out == (
        "repo: error: the folder has neither fleet.yaml nor klutch-fleet.yaml [no-entry-file]\n"
        "    `klutchctl init` makes one\n"
        "1 error\n"
    )
    assert main.run(["validate", "nowhere"]) == 3
    assert "nowhere: cannot be read: No such file" in capsys.readouterr().err


def test_scanners_and_annotations_name_files_from_the_top_of_git(repo, capsys):
    write(repo, {"bindings/db.yaml": WRONG})
    repository = pygit2.init_repository(repo.parent)
    person = pygit2.Signature("t", "t@example.com", 1_700_000_000, 0)
    tree = repository.index.write_tree()
    repository.create_commit("HEAD", person, person, "x", tree, [])
    assert main.run(["validate", "repo", "-o", "sarif"]) == 3
    log = json.loads(capsys.readouterr().out)
    (result,) = log["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "repo/bindings/db.yaml"
    assert place["region"] == {"startLine": 4, "startColumn": 18}
    assert [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]] == [
        "unknown-template"
    ]
    assert main.run(["--chdir", "repo", "validate", "-o", "github"]) == 3
    assert capsys.readouterr().out == (
        "::error file=repo/bindings/db.yaml,line=4,col=18,title=unknown-template::"
        "there is no Template gp. Known: pg\n"
        "1 error\n"
    )


def test_several_formats_at_once(repo, capsys):
    write(repo)
    assert main.run(["validate", "repo", "-o", "text", "-o", "json=found.json"]) == 0
    assert capsys.readouterr().out == SUMMARY
    assert json.loads(Path("found.json").read_text()) == {
        "format": "klutchctl.dev/problems",
        "version": "1.0",
        "fleet": "acme",
        "counts": {"controlPlanes": 1, "clusters": 1, "templates": 1, "bindings": 1, "units": 1},
        "problems": [],
    }


def test_validate_contacts_nothing_and_loads_no_client(repo):
    write(repo)
    code = (
        "import sys\n"
        "from klutchctl import main\n"
        "assert main.run(['validate', 'repo']) == 0\n"
        "assert not {'httptools', 'kubernetes', 'uvloop', 'ssl', 'pygit2'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=repo.parent)


def test_init_makes_a_fleet_that_validates(repo, capsys):
    assert main.run(["init", "repo", "--name", "shops"]) == 0
    capsys.readouterr()
    assert main.run(["validate", "repo"]) == 0
    assert capsys.readouterr().out == SUMMARY.replace("acme", "shops").replace("1 unit", "2 units")
    assert main.run(["schema", "--check", "repo/fleet.schema.json"]) == 0


def test_init_takes_names_of_its_own(repo, capsys):
    clusters = ["--control-plane", "on=eu: a, b", "--app", "no=1e3", "--app", "12"]
    assert main.run(["init", "repo", "--name", "null", *clusters, "--team", "yes"]) == 0
    capsys.readouterr()
    assert main.run(["validate", "repo"]) == 0
    assert capsys.readouterr().out == (
        "null: 1 control plane, 2 clusters, 1 template, 1 binding -> 4 units\n"
    )
    fleet = repository.fleet_in(repo, check_owner=False)
    assert fleet.control_planes["on"].access.context == "eu: a, b"
    assert {name: one.access.context for name, one in fleet.clusters.items()} == {
        "no": "1e3",
        "12": "12",
    }


def test_init_overwrites_nothing(repo, capsys):
    repo.mkdir()
    (repo / "fleet.yaml").symlink_to("nowhere")
    assert main.run(["init", "repo"]) == 3
    assert "already there: fleet.yaml" in capsys.readouterr().err
    assert [path.name for path in repo.iterdir()] == ["fleet.yaml"]
    assert main.run(["init", "other", "--name", "A b"]) == 3
    assert not (repo.parent / "other").exists()


def test_schema(repo, capsys):
    assert main.run(["schema"]) == 0
    printed = capsys.readouterr().out
    assert main.run(["schema", "s.json"]) == 0
    assert Path("s.json").read_text() == printed
    assert main.run(["schema", "--check", "s.json"]) == 0
    Path("s.json").write_text("{}")
    assert main.run(["schema", "--check", "s.json"]) == 3
    assert "`klutchctl schema fleet s.json` writes it" in capsys.readouterr().err


CODES = {
    "denied": ([Severity.DENIED, Severity.WARNING], 4),
    "invalid": ([Severity.DENIED, Severity.INVALID], 3),
}


@pytest.mark.parametrize(("severities", "code"), CODES.values(), ids=CODES.keys())
def test_other_commands_end_with_the_same_code(severities, code):
    found = [Problem(Origin("f"), "x", "y", severity=severity) for severity in severities]
    assert code_of(InvalidRepository(found)) == code


def test_init_refuses_a_second_team(tmp_path, capsys):
    assert main.run(["init", str(tmp_path / "repo"), "--team", "a", "--team", "b"]) == 64
    assert "one team" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

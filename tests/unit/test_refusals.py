"""What the command line takes in any order, and what it refuses, by which exit code and words."""

import os
import shlex

import pytest

from klutchctl import main
from klutchctl.main import globals_first, is_verbose
from reconciler.core.live import Live, dump_live
from tests.support.fleet_texts import GOOD

# The fleet that stands in this folder has one cluster, shop, with one binding, db of pgs.gi.o.
ROWS = {
    "no command": "",
    "an unknown option": "sandbox up --fast",
    "not a number": "sandbox up --app-clusters two",
    "two ways to say which clusters": "sandbox up --app-clusters 1 --fleet .",
    "a name that is a path": "sandbox up --name ../x",
    "a name with a space": "sandbox down --name 'A b'",
    "a fleet that is nowhere": "sandbox up --fleet /nowhere",
    "a saved plan is not narrowed, by name": "apply saved.plan --cluster shop",
    "nor by labels": "apply saved.plan -lenv=test",
    "only a saved plan has a repository": "apply . --repository .",
    "also where files are followed": "apply . --watch --repository .",
    "an unknown cluster": "render --cluster shpo",
    "labels of no cluster": "render -l env=dev",
    "no selector": "render -l 'env>1'",
    "an empty selector": "render -l ''",
    "an unknown format": "status -o xml",
    "a document that never ends": "status --watch -o json",
    "a file that never ends": "status --watch -o text=here",
    "two formats at once": "status --watch -o text -o jsonl=here",
    "a saved plan that is to be followed": "apply saved.plan --watch",
    "waiting while files are followed": "apply --watch --wait",
    "dangers then": "apply --watch --force --break-lock",
    "formats then": "apply --watch -o json",
    "a ref alone": "apply --ref main",
    "a URL with a password": "apply --watch --git https://me:hunter2canary@git.example.com/fleet.git",
    "a repository on this machine": "apply --watch --git file:///srv/fleet.git",
    "its path": "apply --watch --git ../fleet.git",
    "no port": "apply --watch --listen localhost",
    "no address": "apply --watch --listen :9090",
    "no such port": "apply --watch --listen localhost:65536",
    "no target": "why shop",
    "release of what is named": "release shop/pgs.gi.o",
    "release of what is named, in a folder": "release shop/pgs.gi.o .",
    "release in a folder that is nowhere": "release shop/x nowhere",
    "release in two folders": "release shop/x . --fleet .",
    "release of a path alone": "release ./shop/pgs.gi.o",
    "release of nothing": "release",
    "import into no include": "import",
    "import out of the repository": "import --out ..",
    "a beginning from what is live, without clusters": "init x --from a",
    "of what is live, with names for what is not": "init x --from a --app b --team c",
    "of an app cluster with an empty context": "init x --app b=",
    "of a control plane without a name": "init x --control-plane =b",
    "of one that the files would take for a variable": "init x --from a --app 'b=${c}'",
    "so for a control plane": "init x --from '${c}' --app b=c",
    "of an app cluster twice": "init x --from a --app b=c --app b=d",
    "a schema to compare with nothing": "schema --check",
    "a folder that is nowhere": "--chdir nowhere validate",
    "a plan that is none": "show saved.plan",
    "a plan that is nowhere": "show nowhere.plan",
    "a plan that is a folder": "show .",
    "a plan that is a device": "show /dev/zero",
    "a plan that nobody writes": "show .pipe",
    "a plan that is no text": "show latin",
    "a snapshot that is nowhere": "plan --snapshot nowhere.json",
    "a snapshot that is no text": "plan --snapshot latin",
    "so for why": "why shop/pgs.gi.o --snapshot nowhere.json",
    "a status that is nowhere": "status --from nowhere.json",
    "a status that is a device": "status --from /dev/zero",
    "a status that is no text": "status --from latin",
    "so for the board": "board --from nowhere.json",
    "a broker that is nowhere": "catalog nowhere.yaml --catalog catalog.json",
    "a broker that is a device": "catalog /dev/zero --catalog catalog.json",
    "a port in digits of another script": "board --from nowhere.json --listen localhost:٨٠",
}

ROWS |= {
    f"{command}: an option that narrows would be ignored": f"{command} {option}"
    for command, option in {
        "sandbox down --delete": "--cluster app-1",
        "validate": "-lenv=test",
        "show x": "--cluster app-1",
        "init": "-lenv=test",
        "version": "--cluster app-1",
        "why shop/x": "--cluster shop",
    }.items()
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to stand in, with a fleet, a snapshot of nothing, and no sandbox."""
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name, text in GOOD.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "saved.plan").write_text("{}")
    (tmp_path / "latin").write_bytes(b'"caf\xe9"')
    os.mkfifo(tmp_path / ".pipe")
    (tmp_path / "live.json").write_bytes(dump_live(Live({}, {}, {})))
    return tmp_path


def test_what_is_refused(folder, capsys, golden):
    reported = []
    for name, line in ROWS.items():
        before = sorted(folder.rglob("*"))
        code = main.run(shlex.split(line))
        answer = capsys.readouterr()
        reported += [
            name,
            f"  $ klutchctl {line}",
            f"  {' '.join(answer.err.split())}",
            f"  {code}",
        ]
        assert answer.out == ""
        assert sorted(folder.rglob("*")) == before
    golden("".join(f"{line}\n" for line in reported), "refusals.txt")


LINES = {
    "before the command": ("--qps 5 plan .", "--qps 5 plan ."),
    "after it": ("plan . --kubeconfig k -o json", "--kubeconfig k plan . -o json"),
    "a network": ("plan . --deny-networks 10.0.0.0/8", "--deny-networks 10.0.0.0/8 plan ."),
    "a short one": ("plan -l env=prod .", "-l env=prod plan ."),
    "a short one with its value": ("plan -lenv=prod .", "-lenv=prod plan ."),
    "one that is repeated": ("plan --cluster a . --cluster=b", "--cluster a --cluster=b plan ."),
    "with an equals sign": ("plan --timeout=5 x", "--timeout=5 plan x"),
    "a flag takes no value": ("plan --no-color x", "--no-color plan x"),
    "what follows -- is not an option": ("plan -- --qps 5", "plan -- --qps 5"),
    "a value that is missing is for the parser to refuse": ("plan --qps", "--qps plan"),
}


@pytest.mark.parametrize(("given", "parsed"), LINES.values(), ids=LINES.keys())
def test_order(given, parsed):
    assert globals_first(given.split()) == parsed.split()


VERBOSE = {
    "before the command": ("-v plan", True),
    "after a global option with a value": ("--timeout 5 -v plan", True),
    "after a network": ("--deny-networks 10.0.0.0/8 -v plan", True),
    "an option of the command itself": ("version -v", False),
    "not at all": ("plan .", False),
}


@pytest.mark.parametrize(("given", "verbose"), VERBOSE.values(), ids=VERBOSE.keys())
def test_verbose(given, verbose):
    assert is_verbose(given.split()) is verbose

"""What the command line refuses, by which exit code and in which words, before it does anything."""

import shlex

import pytest

from klutchctl import main
from reconciler.core.live import Live, dump_live
from tests.support.fleet_texts import GOOD

# The fleet that stands in this folder has one cluster, shop, with one binding, db of pgs.g.io.
ROWS = {
    "no command": ("", 64, "Commands:"),
    "an unknown option": ("sandbox up --fast", 64, "No such option: --fast"),
    "not a number": ("sandbox up --app-clusters two", 64, "should be a valid integer"),
    "two ways to say which clusters": (
        "sandbox up --app-clusters 1 --fleet .",
        64,
        "exclude each other",
    ),
    "a name that is a path": ("sandbox up --name ../x", 64, "'../x' cannot name a sandbox"),
    "a name with a space": ("sandbox down --name 'A b'", 64, "'A b' cannot name a sandbox"),
    "a fleet that is nowhere": ("sandbox up --fleet /nowhere", 3, "/nowhere: cannot"),
    **{
        f"{command}: an option that narrows would be ignored": (
            f"{command} {option}",
            64,
            "has no use for --cluster and --selector",
        )
        for command, option in {
            "sandbox down --delete": "--cluster app-1",
            "validate": "-lenv=test",
            "show x": "--cluster app-1",
            "init": "-lenv=test",
            "version": "--cluster app-1",
            "why shop/x": "--cluster shop",
        }.items()
    },
    "a saved plan is not narrowed, by name": (
        "apply saved.plan --cluster shop",
        64,
        "is a saved plan, which is applied as a whole",
    ),
    "nor by labels": (
        "apply saved.plan -lenv=test",
        64,
        "is a saved plan, which is applied as a whole",
    ),
    "only a saved plan has a repository": ("apply . --repository .", 64, "--repository"),
    "also where files are followed": ("apply . --watch --repository .", 64, "--repository"),
    "an unknown cluster": ("render --cluster shpo", 3, "no such cluster: shpo"),
    "labels of no cluster": (
        "render -l env=dev",
        3,
        "--selector: matches no cluster of 1. Their labels: env=prod",
    ),
    "no selector": ("render -l 'env>1'", 64, "'env>1' is no condition on a label"),
    "an empty selector": ("render -l ''", 64, "an empty part is no condition"),
    "an unknown format": ("status -o xml", 64, "xml"),
    "a document that never ends": ("status --watch -o json", 64, "'json' is not FORMAT"),
    "a file that never ends": ("status --watch -o text=here", 64, "to standard output"),
    "two formats at once": ("status --watch -o text -o jsonl=here", 64, "to standard output"),
    "a saved plan that is to be followed": ("apply saved.plan --watch", 64, "not a saved plan"),
    "waiting while files are followed": (
        "apply --watch --wait",
        64,
        "--wait cannot be given with --watch",
    ),
    "dangers then": (
        "apply --watch --force --break-lock",
        64,
        "--break-lock, --force cannot be given",
    ),
    "formats then": ("apply --watch -o json", 64, "-o cannot be given with --watch"),
    "a ref alone": ("apply --ref main", 64, "--git, --ref and --listen need --watch"),
    "a URL with a password": (
        "apply --watch --git https://me:hunter2canary@git.example.com/fleet.git",
        64,
        "it holds a password",
    ),
    "no port": ("apply --watch --listen localhost", 64, "'localhost' is not ADDR:PORT"),
    "no address": ("apply --watch --listen :9090", 64, "':9090' is not ADDR:PORT"),
    "no such port": ("apply --watch --listen localhost:65536", 64, "is not ADDR:PORT"),
    "no target": ("why shop", 3, "is not CLUSTER/BINDING"),
    "release of what is named": ("release shop/pgs.g.io", 3, "bind it again"),
    "release of nothing": ("release", 64, "Missing argument"),
    "import into no include": ("import", 3, "no include matches imported.yaml"),
    "import out of the repository": ("import --out ..", 3, "no include matches"),
    "a beginning from what is live, without clusters": ("init x --from a", 64, "--app"),
    "of clusters without a control plane": ("init x --app a=b", 64, "need each other"),
    "of an app cluster without its context": (
        "init x --from a --app b",
        64,
        "is not NAME=CONTEXT",
    ),
    "of one that the files would take for a variable": (
        "init x --from a --app 'b=${c}'",
        64,
        "is not NAME=CONTEXT",
    ),
    "so for a control plane": ("init x --from '${c}' --app b=c", 64, "cannot stand in a file"),
    "of an app cluster twice": ("init x --from a --app b=c --app b=d", 64, "b is there twice"),
    "a schema to compare with nothing": ("schema --check", 64, "--check needs a FILE"),
    "a folder that is nowhere": ("--chdir nowhere validate", 64, "does not exist"),
    "a plan that is none": (
        "show saved.plan",
        3,
        "saved.plan: not a plan. `klutchctl plan --out FILE` writes one",
    ),
    "a plan that is nowhere": ("show nowhere.plan", 1, "No such file or directory: nowhere.plan"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to stand in, with a fleet, a snapshot of nothing, and no sandbox."""
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.chdir(tmp_path)
    for name, text in GOOD.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "saved.plan").write_text("{}")
    (tmp_path / "live.json").write_bytes(dump_live(Live({}, {}, {})))
    return tmp_path


@pytest.mark.parametrize(("line", "code", "says"), ROWS.values(), ids=ROWS.keys())
def test_what_is_refused(folder, capsys, line, code, says):
    before = sorted(folder.rglob("*"))
    assert main.run(shlex.split(line)) == code
    answer = capsys.readouterr()
    assert says in " ".join(answer.err.split())
    assert answer.out == ""
    assert sorted(folder.rglob("*")) == before

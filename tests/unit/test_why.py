"""`klutchctl why` of a snapshot: how it ends. And who refuses what."""

import pytest

from klutchctl import main
from reconciler.core import livefile
from tests.support.scenes import applied, binding, cluster, fleet, fleet_head, plane
from tests.support.worlds import POSTGRES

FLEET = fleet_head() + plane() + cluster() + binding()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A fleet in which one unit is bound, and a snapshot of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    read = fleet(plane(), cluster(), binding())
    (tmp_path / "live.json").write_bytes(livefile.dump(applied().live(read)))
    return tmp_path


def why(*arguments):
    return main.run(["why", *arguments, "--snapshot", "live.json"])


def test_a_cluster_of_which_the_snapshot_knows_nothing_was_not_read(repository, capsys):
    (repository / "fleet.yaml").write_text(FLEET + cluster("new").replace("---\n", "---\n", 1))
    assert why("new/postgresqlinstances") == 5
    assert "it was not read" in capsys.readouterr().out
    assert why("new/postgresqlinstances", "--allow-unreachable") == 0


REFUSED = {
    "a name that is nowhere": (["why", "shop/x", "--snapshot", "live.json"], 3, "Known:"),
    "no target": (["why", "shop"], 3, "is not CLUSTER/BINDING"),
    "a cluster beside the target": (["why", "shop/x", "--cluster", "shop"], 64, "no use for"),
    "release of what is named": (["release", f"shop/{POSTGRES}"], 3, "bind it again"),
    "release of nothing": (["release"], 64, "Missing argument"),
    "import into no include": (["import"], 3, "no include matches imported.yaml"),
    "a beginning from what is live, without clusters": (["init", "x", "--from", "a"], 64, "--app"),
    "a beginning of clusters without a control plane": (
        ["init", "x", "--app", "a=b"],
        64,
        "need each other",
    ),
    "an app cluster without its context": (
        ["init", "x", "--from", "a", "--app", "b"],
        64,
        "is not NAME=CONTEXT",
    ),
    "an app cluster that the files would take for a variable": (
        ["init", "x", "--from", "a", "--app", "b=${c}"],
        64,
        "is not NAME=CONTEXT",
    ),
    "a control plane that the files would take for a variable": (
        ["init", "x", "--from", "${c}", "--app", "b=c"],
        64,
        "cannot stand in a file",
    ),
    "an app cluster twice": (
        ["init", "x", "--from", "a", "--app", "b=c", "--app", "b=d"],
        64,
        "b is there twice",
    ),
    "import out of the repository": (["import", "--out", ".."], 3, "no include matches"),
}


@pytest.mark.parametrize(("arguments", "code", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_contacts_nobody(repository, capsys, arguments, code, said):
    assert main.run(arguments) == code
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""


def test_where_no_cluster_is_read_nothing_is_called_absent(repository, capsys, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/dev/null")
    wanted = ["init", "newer", "--from", 'it\'s: "odd"', "--app", "web=x", "--app", "shop=y"]
    assert main.run(wanted) == 1
    told = capsys.readouterr()
    assert "Nothing to import was found in the clusters that were read" in told.out
    assert "web was not read" in told.err
    assert main.run(["validate", "newer"]) == 0
    assert main.run(wanted) == 3
    assert "already there" in capsys.readouterr().err

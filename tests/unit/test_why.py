"""`klutchctl why` of a snapshot: how it ends. And a beginning where nothing is read."""

import pytest

from klutchctl import main
from reconciler.core.live import dump_live
from tests.support.scenes import applied, binding, cluster, fleet, fleet_head, plane

FLEET = fleet_head() + plane() + cluster() + binding()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A fleet in which one unit is bound, and a snapshot of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    read = fleet(plane(), cluster(), binding())
    (tmp_path / "live.json").write_bytes(dump_live(applied().live(read)))
    return tmp_path


def why(*arguments):
    return main.run(["why", *arguments, "--snapshot", "live.json"])


def test_a_cluster_of_which_the_snapshot_knows_nothing_was_not_read(repository, capsys):
    (repository / "fleet.yaml").write_text(FLEET + cluster("new").replace("---\n", "---\n", 1))
    assert why("new/postgresqlinstances") == 5
    assert "it was not read" in capsys.readouterr().out
    assert why("new/postgresqlinstances", "--allow-unreachable") == 0


def test_a_name_that_is_nowhere(repository, capsys):
    assert why("shop/x") == 3
    assert "Known:" in capsys.readouterr().err


def test_where_no_cluster_is_read_nothing_is_called_absent(repository, capsys, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/dev/null")
    wanted = ["init", "newer", "--from", 'it\'s: "odd"', "--app", "web=x", "--app", "shop=y"]
    assert main.run(wanted) == 1
    output = capsys.readouterr()
    assert "Nothing to import was found in the clusters that were read" in output.out
    assert "web was not read" in output.err
    assert main.run(["validate", "newer"]) == 0
    assert main.run(wanted) == 3
    assert "already there" in capsys.readouterr().err

"""`klutchctl status` and `why`: their exit codes, and what was written before."""

import json
from datetime import UTC, datetime

import pytest

from klutchctl import main
from klutchctl.commands.status import exit_code
from klutchctl.render import status, status_document
from reconciler.core.live import dump_live
from reconciler.fleet.values import UnitKey
from reconciler.health.board import Board, BoundUnit, ClusterHealth, PlaneHealth
from reconciler.health.verdict import State, UnitHealth
from reconciler.planning.changes import UnseenCluster
from reconciler.watch.fleet_state import FleetState, SourceView
from tests.golden import values
from tests.support.scenes import applied, binding, cluster, fleet, fleet_head, plane

KEY = UnitKey("shop", "shop.example", "databases")
UNREAD = UnseenCluster("shop", "it hung up")


def of(state, *, whole=None, leaving=False):
    return ClusterHealth("shop", "eu", (BoundUnit("db", UnitHealth(KEY, state), leaving),), whole)


READ, NOT_READ = of(State.READY), of(State.UNKNOWN, whole=State.UNKNOWN)
CASES = {
    # clusters, unread, code, --allow-unreachable
    "nothing at all": ((), (), 0, 0),
    "all Ready": ((READ,), (), 0, 0),
    "Progressing may still become Ready": ((of(State.PROGRESSING),), (), 0, 0),
    "Degraded": ((of(State.DEGRADED),), (), 9, 9),
    "a silent konnector": ((of(State.UNKNOWN),), (), 9, 9),
    "what left the files is not asked for": ((of(State.DEGRADED, leaving=True),), (), 0, 0),
    "held back, without any unit": ((ClusterHealth("shop", "eu", state=State.DEGRADED),), (), 9, 9),
    "suspended is meant": ((of(State.SUSPENDED, whole=State.SUSPENDED),), (), 0, 0),
    "released is meant": ((ClusterHealth("shop", "eu", state=State.RELEASED),), (), 0, 0),
    "one of two not read": ((READ, NOT_READ), (UNREAD,), 5, 0),
    "one Degraded, one not read": ((of(State.DEGRADED), NOT_READ), (UNREAD,), 5, 9),
    "none read": ((NOT_READ,), (UNREAD,), 1, 1),
    "none read but one suspended": (
        (NOT_READ, of(State.SUSPENDED, whole=State.SUSPENDED)),
        (UNREAD,),
        1,
        1,
    ),
    "a control plane that nothing is behind": ((), (UNREAD,), 1, 1),
}


def test_the_sum_names_what_is_not_well_beside_units():
    planes = (PlaneHealth("eu", State.DEGRADED, "BackendStopped", "it stopped"),)
    bare = ClusterHealth("bare", "eu", state=State.DEGRADED)
    board = Board("acme", "", datetime(2026, 11, 21, tzinfo=UTC), (READ, bare), (), planes)
    said = "Status: 1 Ready, cluster bare Degraded, control plane eu Degraded."
    assert status.text(board).splitlines()[-1] == said


@pytest.mark.parametrize(
    ("clusters", "unread", "code", "lenient"), CASES.values(), ids=CASES.keys()
)
def test_the_exit_code(clusters, unread, code, lenient):
    board = Board("acme", "", datetime(2026, 11, 21, tzinfo=UTC), clusters, unread)
    assert exit_code(board, allow_unreachable=False) == code
    assert exit_code(board, allow_unreachable=True) == lenient


def written(tmp_path, state):
    file = tmp_path / "status.json"
    file.write_text(status_document.dump(state.board, state=state))
    return file


OPERATED = FleetState(name="acme", board=values.board(), suspended="audit")
ALONE = FleetState(name="acme", source=SourceView(revision="4c1e9d2"), board=values.board())
FORMATS = {
    "text": status.text(values.board()),
    "json": status_document.dump(values.board(), state=OPERATED),
    "jsonl": status.events(values.board()),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_written_status_is_printed_in_any_format(name, tmp_path, capsys):
    file = written(tmp_path, OPERATED)
    assert main.run(["status", "--from", str(file), "-o", name]) == exit_code(
        values.board(), allow_unreachable=False
    )
    assert capsys.readouterr().out == FORMATS[name]


def test_a_status_that_no_controller_wrote_is_printed_as_it_was(tmp_path, capsys):
    file = written(tmp_path, ALONE)
    main.run(["status", "--from", str(file), "-o", "json"])
    assert capsys.readouterr().out == file.read_text()
    assert json.loads(file.read_text())["operation"] is None


NARROWED = {
    "one that is Ready": (["--cluster", "shop-1"], 0),
    "one that is Degraded": (["--cluster", "shop-2"], 9),
    "one that was not read": (["--cluster", "shop-3"], 1),
    "two": (["--cluster", "shop-1", "--cluster", "shop-3"], 5),
    "two, and one need not be read": (
        ["--cluster", "shop-1", "--cluster", "shop-3", "--allow-unreachable"],
        0,
    ),
    "one that is not there": (["--cluster", "shop-9"], 3),
    "labels, which the document does not have": (["-l", "env=prod"], 64),
    "again and again": (["--watch"], 64),
}


@pytest.mark.parametrize(("options", "code"), NARROWED.values(), ids=NARROWED.keys())
def test_a_written_status_is_narrowed_as_a_live_one(options, code, tmp_path, capsys):
    assert main.run(["status", "--from", str(written(tmp_path, ALONE)), *options]) == code


def test_a_file_that_is_no_status_is_refused(tmp_path, capsys):
    file = tmp_path / "plan.json"
    file.write_text('{"format": "klutchctl.dev/plan"}')
    assert main.run(["status", "--from", str(file)]) == 3
    assert f"{file}: not a status document, as it" in capsys.readouterr().err


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
    assert "acme: 1 control plane" in capsys.readouterr().out
    assert main.run(wanted) == 3
    assert "already there" in capsys.readouterr().err

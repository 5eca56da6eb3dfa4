"""U6: `apply` tells each step once: as it is done; then what failed, what waits, and the sums."""

import io
from dataclasses import replace

import pytest

from klutchctl.commands import apply
from klutchctl.render import apply_report
from klutchctl.settings import Settings, parse_outputs
from reconciler.apply import NotReady, Outcome, Report, Status
from reconciler.planning.changes import Action, Plan, UnseenCluster
from tests.golden import values

REPORT = values.report()


def read(*options):
    return Settings({}, verbose="-v" in options)


def test_a_run_that_went_well_is_one_line():
    good = Report(Plan("acme", "", "", (), {}), REPORT.outcomes[:2])
    assert apply_report.text(good, whole=False) == "Applied: 1 done, 1 unchanged.\n"
    assert apply_report.text(replace(good, outcomes=())) == "Applied: nothing to do.\n"


def test_what_was_not_done_stands_by_its_cause_once():
    away = "without the lock of its control plane nothing is done: connect timeout"
    lines = [values.line(f"s{n}") for n in range(5)]
    far = [replace(one, cluster=f"edge-{n}") for n, one in enumerate(lines)]
    failed = [Outcome(one, Status.FAILED, away) for one in far]
    odd = Outcome(replace(lines[0], subject="space"), Status.STALE, "it is not what the plan saw")
    report = Report(Plan("acme", "", "", (), {}), (*failed, odd))
    assert apply_report.text(report, whole=False).splitlines() == [
        "Not done",
        f"  failed       {away}",
        "               edge-0   create   orders   Secret s0",
        "               edge-1   create   orders   Secret s1",
        "               edge-2   create   orders   Secret s2",
        "               and 2 lines more in 2 clusters: -v lists all",
        "  stale        it is not what the plan saw",
        "               shop     create   space    Secret s0",
        "",
        "Applied: 1 stale, 5 failed.",
    ]


def test_what_is_blocked_or_not_read_counts_where_nothing_is_to_be_done():
    blocked = values.line("x", Action.BLOCKED, "no template")
    plan = Plan("acme", "", "", (blocked,), {})
    assert apply_report.summary(Report(plan, ())) == "Applied: nothing to do; 1 blocked."
    unseen = replace(plan, unseen=(UnseenCluster("web", "connect timeout"),))
    done = Report(unseen, REPORT.outcomes[:1])
    assert apply_report.summary(done) == "Applied: 1 done; 1 blocked, 1 cluster not read."


def test_what_is_blocked_alike_in_many_clusters_is_one_line():
    blocked = values.line("x", Action.BLOCKED, "no template")
    many = [replace(blocked, cluster=f"edge-{n}") for n in range(9)]
    plan = Plan("acme", "", "", (*many, replace(blocked, subject="db")), {})
    assert apply_report.text(Report(plan, ()), whole=False).splitlines() == [
        "Blocked",
        "  orders   dbs.g.example: no template   in edge-0, edge-1, edge-2 and 6 more",
        "  db       dbs.g.example: no template   in shop",
        "",
        "Applied: nothing to do; 10 blocked.",
    ]


def test_what_many_units_wait_for_is_cut_but_not_where_all_is_asked_for():
    late = tuple(NotReady(f"shop/u{n}", "no heartbeat") for n in range(50))
    report = Report(Plan("acme", "", "", (), {}), (), not_ready=late)
    lines = apply_report.text(report, whole=False).splitlines()
    assert lines[20:22] == ["  shop/u19: no heartbeat", "  and 30 more: -v lists all"]
    assert "shop/u49" in apply_report.text(report)


def test_more_with_v_and_in_files(capsys, tmp_path):
    file = tmp_path / "report.txt"
    apply.show(REPORT, parse_outputs(["text", f"text={file}"], known=("text",)), read())
    assert "went-well" not in capsys.readouterr().out
    assert "went-well" in file.read_text()
    apply.show(REPORT, parse_outputs(["text"], known=("text",)), read("-v"))
    assert "went-well" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_each_step_stays_on_a_terminal_too():
    stream = Terminal()
    with apply_report.progress(stream) as shown:
        shown.stage("writing")
        for one in REPORT.outcomes:
            shown.outcome(one)
    output = stream.getvalue()
    for name in ("went-well", "was-so", "broke"):
        assert f"Secret {name}" in output


def test_each_step_is_a_line_of_a_log():
    stream = io.StringIO()
    with apply_report.progress(stream) as shown:
        for one in REPORT.outcomes:
            shown.outcome(one)
    assert stream.getvalue().splitlines()[0] == "shop: done: create orders Secret went-well"
    assert len(stream.getvalue().splitlines()) == len(REPORT.outcomes)


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_what_a_wait_is_for_is_shown_as_it_is_and_acts_on_nothing(stream):
    """It is the message of a condition, which an app cluster may have written."""
    shown = stream()
    with apply_report.progress(shown) as progress:
        progress.stage("waiting for shop/x: [/bold]\x1b[2J ##[error]")
    assert "waiting for shop/x: [/bold]\\x1b[2J ## [error] ..." in shown.getvalue()

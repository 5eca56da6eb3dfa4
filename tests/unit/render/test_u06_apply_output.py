"""U6: `apply` tells each step once: as it is done; then what failed, what waits, and the sums."""

import io
import re
from dataclasses import replace

import pytest

from klutchctl import main
from klutchctl.commands import apply
from klutchctl.render import apply_report, plan_formats, problems
from klutchctl.render.problems import Findings
from klutchctl.render.terminal import visible, visible_lines
from klutchctl.settings import Settings, parse_outputs
from reconciler.apply import NotReady, Outcome, Report, Status
from reconciler.core.decision import FieldChange
from reconciler.core.errors import Origin, Problem
from reconciler.planning.changes import Action, Plan, UnseenCluster
from tests.golden import values
from tests.golden.plans import PLANS
from tests.support.fleet_texts import BINDING, GOOD

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
    plan = Plan("acme", "", "", (values.line("x", Action.BLOCKED, "no template"),), {})
    assert apply_report.summary(Report(plan, ())) == "Applied: nothing to do; 1 blocked."
    unseen = replace(plan, unseen=(UnseenCluster("web", "connect timeout", "Look there"),))
    done = Report(unseen, REPORT.outcomes[:1])
    assert apply_report.summary(done) == "Applied: 1 done; 1 blocked, 1 cluster not read."
    assert "\nNot read\n  web: connect timeout. Look there\n" in apply_report.text(done)


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


COMMANDS = [
    "##[set-env name=PATH]/evil",
    "##vso[task.setvariable variable=x]y",
    "a ###[group]b",
    "##[add-mask]0##[error]1",
]
# Runners look for these anywhere in a line, and for `::` where one begins.
ACTS = re.compile(r"##\w*\[|^\s*::", re.MULTILINE)


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_is_broken_up(text):
    assert not ACTS.search(visible(text))
    assert visible(text).replace("## ", "##") == text


UNTOUCHED = ["## a heading", "#[x]", "[::1]:443", "a ## b [c]", "::1"]


@pytest.mark.parametrize("text", UNTOUCHED)
def test_what_is_none_stays(text):
    assert visible(text) == text


def test_a_line_does_not_begin_as_one():
    assert not ACTS.search(visible_lines("Error: x\n::set-output name=a::b\n  ::error::c"))


@pytest.mark.parametrize("text", COMMANDS)
def test_github(text):
    found = Problem(Origin(f"{text}.yaml", 1, 2), "unknown-key", text, hint=text)
    shown = problems.github(Findings([found]))
    assert shown.startswith("::error file=")
    assert not ACTS.search(shown.removeprefix("::"))


def test_the_name_of_a_file_in_text():
    found = Problem(Origin("::warning::x.yaml", 1, 2), "unknown-key", "x")
    assert not ACTS.search(problems.text(Findings([found])))


@pytest.mark.parametrize("text", COMMANDS)
@pytest.mark.parametrize("render", [plan_formats.comment, plan_formats.text])
def test_a_plan(render, text):
    plan = PLANS["everything"]
    changes = tuple(
        replace(one, reason=text, fields=(FieldChange(f"/{text}", text, {text: text}),))
        for one in plan.changes
    )
    assert not ACTS.search(render(replace(plan, changes=changes, warnings=(text,))))


def test_a_key_of_a_pull_request(tmp_path, capsys):
    for path, content in GOOD.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    wrong = BINDING.replace("{template", '{"##[warning]::x": 1, template')
    (tmp_path / "bindings/db.yaml").write_text(wrong)
    for form in ("github", "text"):
        assert main.run(["validate", str(tmp_path), "-o", form]) == 3
        assert "##[" not in capsys.readouterr().out

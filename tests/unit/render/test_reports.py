"""A report for people, for programs and for build servers: all from one value."""

import json
from typing import Any
from xml.etree import ElementTree

from klutchctl.render import report
from reconciler.apply.outcomes import NotReady, Outcome, Report, Status
from reconciler.core.refs import SECRET, Ref
from reconciler.fleet.values import UnitKey
from reconciler.planning.changes import Action, Change, Held, Plan, UnseenCluster

UNIT = UnitKey("shop", "g.example", "databases")
HOSTILE = "evil\x1b[31m\nline"


def line(name, action=Action.CREATE, reason="new"):
    return Change("shop", "orders", Ref("shop", SECRET, "ns", name), action, reason, unit=UNIT)


REPORT = Report(
    plan=Plan(
        "acme",
        "",
        "",
        (line("blocked", Action.BLOCKED, "no template"),),
        {"shop": "eu"},
        held=(Held("max-deletes", "3 units would be released"),),
        unseen=(UnseenCluster("web", "no route"),),
    ),
    outcomes=(
        Outcome(line("a"), Status.DONE),
        Outcome(line("b"), Status.FAILED, HOSTILE),
        Outcome(line("c"), Status.SKIPPED, "after b"),
    ),
    not_ready=(NotReady("shop/x", "Degraded: no heartbeat"),),
    ready=2,
)


def test_text_tells_every_line_and_what_was_not_done():
    text = report.text(REPORT)
    for said in (
        "done",
        "failed",
        "skipped",
        "after b",
        "3 units would be released",
        "no template",
        "web: no route",
        "shop/x: Degraded: no heartbeat",
        "Applied: 1 done, 1 failed, 1 skipped, 2 of 3 units Ready.",
    ):
        assert said in text
    assert "\x1b" not in text
    assert text.endswith("\n")


def test_json_holds_the_same():
    found = json.loads(report.as_json(REPORT))
    assert [one["status"] for one in found["outcomes"]] == ["done", "failed", "skipped"]
    assert found["outcomes"][1]["unit"] == "databases.g.example"
    assert found["blocked"][0]["reason"] == "no template"
    assert found["held"][0]["guard"] == "max-deletes"
    assert found["notReady"] == [{"unit": "shop/x", "reason": "Degraded: no heartbeat"}]
    assert found["unseen"] == [{"name": "web", "reason": "no route"}]


def test_junit_counts_failures_and_what_was_skipped():
    root: Any = ElementTree.fromstring(report.junit(REPORT))
    suite = root.find("testsuite[@name='shop']")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    (failure,) = suite.iter("failure")
    assert "failed" in failure.get("message")
    assert root.find("testsuite[@name='Ready']").get("failures") == "1"


def test_an_empty_report_says_so():
    empty = Report(Plan("acme", "", "", (), {}), ())
    assert report.text(empty) == "Applied: nothing to do.\n"

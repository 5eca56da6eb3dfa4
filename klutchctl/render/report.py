"""What an apply did: for people, as JUnit XML, and as a versioned document for programs.

Of the document, a new minor version adds fields, a major breaks.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final
from xml.etree import ElementTree

from klutchctl.render import plan_rows, terminal
from klutchctl.render.terminal import Style, visible
from reconciler.apply import Outcome, Report, Status
from reconciler.apply.outcomes import GOOD
from reconciler.planning.changes import Action, Change

FORMAT: Final = "klutchctl.dev/report"
VERSION: Final = "1.0"

_WIDTH: Final = max(map(len, Status))
# Printed when they came, and by the plan: what a guard holds stands there too.
_SHOWN_BEFORE: Final = GOOD | {Status.HELD}
_SKIPPED: Final = frozenset({Status.HELD, Status.SKIPPED, Status.INTERRUPTED})
_STYLES: Final[Mapping[Status, Style]] = {
    Status.DONE: Style.GREEN,
    Status.STALE: Style.RED,
    Status.HELD: Style.YELLOW,
    Status.FAILED: Style.RED,
    Status.SKIPPED: Style.YELLOW,
    Status.UNCONFIRMED: Style.YELLOW,
    Status.INTERRUPTED: Style.YELLOW,
}


def text(report: Report, *, whole: bool = True, color: bool = False) -> str:
    """Return what failed, what waits, and one line of sums, as text that ends in a newline.

    Not `whole`: without the lines that were done, and those that a guard holds, which it tells.
    """
    outcomes = [one for one in report.outcomes if whole or one.status not in _SHOWN_BEFORE]
    plan = report.plan
    blocked = [plan_rows.row(one) for one in plan.changes if one.action is Action.BLOCKED]
    remarks = (
        ("Held back", [visible(one.message) for one in plan.held]),
        ("Blocked", [f"{row.subject}   {row.what}   {row.origin}" for row in blocked]),
        ("Not read", [f"{visible(o.name)}: {visible(o.reason)}" for o in plan.unseen]),
        ("Not Ready", [f"{visible(o.unit)}: {visible(o.reason)}" for o in report.not_ready]),
    )
    return terminal.paragraphs(
        [
            *(
                terminal.block(f"Cluster {visible(name)}", _lines(some, color=color), color=color)
                for name, some in groupby(outcomes, key=lambda one: one.change.cluster)
            ),
            *(
                terminal.block(title, [f"  {line}" for line in lines], color=color)
                for title, lines in remarks
                if lines
            ),
            terminal.block(summary(report), color=color),
        ]
    )


def summary(report: Report) -> str:
    """Return the last sentence: what was done, and what was not."""
    counted = Counter(one.status for one in report.outcomes)
    parts = [f"{counted[status]} {status.value}" for status in Status if counted[status]]
    if report.ready or report.not_ready:
        parts.append(f"{report.ready} of {report.ready + len(report.not_ready)} units Ready")
    ended = f" The run was stopped: {visible(report.ended)}." if report.ended else ""
    return f"Applied: {', '.join(parts) or 'nothing to do'}.{ended}"


def _lines(outcomes: Iterator[Outcome], *, color: bool) -> Iterator[str]:
    for outcome in outcomes:
        row = plan_rows.row(outcome.change)
        word = f"{outcome.status.value:<{_WIDTH}}"
        shown = terminal.styled(word, _STYLES.get(outcome.status), color=color)
        yield f"  {shown}  {row.action.value:<7}  {row.subject}   {row.what}"
        if outcome.message:
            yield f"  {'':<{_WIDTH}}  {visible(outcome.message)}"


def as_json(report: Report) -> str:
    """Return the report as one JSON object and a newline."""
    plan = report.plan
    document = {
        "format": FORMAT,
        "version": VERSION,
        "fleet": plan.fleet,
        "plan": plan.id,
        "revision": plan.revision,
        "outcomes": [_outcome(one) for one in report.outcomes],
        "notReady": [{"unit": one.unit, "reason": one.reason} for one in report.not_ready],
        "ready": report.ready,
        "ended": report.ended,
        "held": [{"guard": one.guard, "message": one.message} for one in plan.held],
        "blocked": [
            {**_subject(one), "reason": one.reason}
            for one in plan.changes
            if one.action is Action.BLOCKED
        ],
        "unseen": [{"name": one.name, "reason": one.reason} for one in plan.unseen],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _subject(change: Change) -> dict[str, Any]:
    return {
        "cluster": change.cluster,
        "subject": change.subject,
        "unit": None if change.unit is None else change.unit.name,
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    change = outcome.change
    return {
        **_subject(change),
        "action": change.action.value,
        "kind": change.ref.kind.kind,
        "namespace": change.ref.namespace,
        "name": change.ref.name,
        "status": outcome.status.value,
        "message": outcome.message,
    }


def junit(report: Report) -> str:
    """Return a JUnit suite for each app cluster, with a case for each line.

    What was held, skipped or cut short is `skipped`, the rest `failure`.
    """
    root = ElementTree.Element("testsuites", name=f"klutchctl apply {visible(report.plan.fleet)}")
    for name, some in groupby(report.outcomes, key=lambda one: one.change.cluster):
        outcomes = list(some)
        suite = _suite(root, name, outcomes)
        suite.set("failures", str(sum(map(_failed, outcomes))))
        suite.set("skipped", str(sum(one.status in _SKIPPED for one in outcomes)))
        for outcome in outcomes:
            _case(suite, outcome)
    if report.not_ready:
        suite = _suite(root, "Ready", report.not_ready)
        suite.set("failures", str(len(report.not_ready)))
        for unit in report.not_ready:
            case = ElementTree.SubElement(
                suite, "testcase", classname="Ready", name=visible(unit.unit)
            )
            ElementTree.SubElement(case, "failure", message=visible(unit.reason))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, name: str, cases: Sequence[object]) -> ElementTree.Element:
    return ElementTree.SubElement(root, "testsuite", name=visible(name), tests=str(len(cases)))


def _case(suite: ElementTree.Element, outcome: Outcome) -> None:
    change = outcome.change
    row = plan_rows.row(change)
    name = f"{row.action.value} {row.subject}: {row.what}"
    case = ElementTree.SubElement(suite, "testcase", classname=visible(change.cluster), name=name)
    if outcome.status in _SKIPPED:
        reason = outcome.message or outcome.status.value
        ElementTree.SubElement(case, "skipped", message=visible(reason))
    elif _failed(outcome):
        reason = f"{outcome.status.value}: {outcome.message}"
        ElementTree.SubElement(case, "failure", message=visible(reason))


def _failed(outcome: Outcome) -> bool:
    return outcome.status not in GOOD and outcome.status not in _SKIPPED

"""What an apply did as JUnit XML: a suite for each app cluster, a case for each line."""

from itertools import groupby
from xml.etree import ElementTree

from klutchctl.render import plan_rows
from klutchctl.render.visible import visible
from reconciler.apply import Outcome, Report, Status
from reconciler.apply.outcomes import GOOD

_SKIPPED = frozenset({Status.HELD, Status.SKIPPED, Status.INTERRUPTED})


def render(report: Report) -> str:
    """Return the document. What was held, skipped or cut short is `skipped`, the rest `failure`."""
    root = ElementTree.Element("testsuites", name=f"klutchctl apply {visible(report.plan.fleet)}")
    for name, found in groupby(report.outcomes, key=lambda one: one.change.cluster):
        outcomes = list(found)
        suite = ElementTree.SubElement(
            root, "testsuite", name=visible(name), tests=str(len(outcomes))
        )
        suite.set("failures", str(sum(_failed(one) for one in outcomes)))
        suite.set("skipped", str(sum(one.status in _SKIPPED for one in outcomes)))
        for outcome in outcomes:
            _case(suite, outcome)
    if report.not_ready:
        late = ElementTree.SubElement(
            root, "testsuite", name="Ready", tests=str(len(report.not_ready))
        )
        late.set("failures", str(len(report.not_ready)))
        for unit in report.not_ready:
            case = ElementTree.SubElement(
                late, "testcase", classname="Ready", name=visible(unit.unit)
            )
            ElementTree.SubElement(case, "failure", message=visible(unit.reason))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, outcome: Outcome) -> None:
    change = outcome.change
    row = plan_rows.row(change)
    name = f"{row.action.value} {row.subject}: {row.what}"
    case = ElementTree.SubElement(suite, "testcase", classname=visible(change.cluster), name=name)
    if outcome.status in _SKIPPED:
        ElementTree.SubElement(
            case, "skipped", message=visible(outcome.message or outcome.status.value)
        )
    elif _failed(outcome):
        said = f"{outcome.status.value}: {outcome.message}"
        ElementTree.SubElement(case, "failure", message=visible(said))


def _failed(outcome: Outcome) -> bool:
    return outcome.status not in GOOD and outcome.status not in _SKIPPED

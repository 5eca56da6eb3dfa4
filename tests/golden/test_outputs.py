"""What people and programs see, to the byte."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from klutchctl.render import apply_report, doctor, plan_formats, problems, status, status_document
from klutchctl.sandbox import report as sandbox
from reconciler.doctor.rights import Task
from reconciler.planning import planfile
from reconciler.planning.changes import Plan
from tests.golden import values
from tests.golden.plans import PLANS

FORMATS = {
    "txt": plan_formats.text,
    "color.txt": lambda plan: plan_formats.text(plan, color=True, seconds=0.44, steps=True),
    "json": plan_formats.as_json,
    "md": plan_formats.comment,
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("extension", FORMATS)
def test_a_plan(golden, name, extension):
    golden(FORMATS[extension](PLANS[name]), f"{name}.{extension}")


EMPTY = planfile.identified(Plan("acme", "", "", changes=(), sections={}, clusters_total=0))
OF_PLANNER: dict[str, Any] = {"path": "my fleet", "task": Task.PLAN}
OUTPUTS: dict[str, tuple[Callable[..., Any], Callable[[Any], str]]] = {
    "status.txt": (values.board, status.text),
    "status.color.txt": (values.board, partial(status.text, color=True)),
    "status.json": (values.board, status_document.dump),
    "status.jsonl": (values.board, status.events),
    "status.changes.txt": (values.board, lambda made: status.changes(values.nothing(), made)),
    "report.txt": (values.report, apply_report.text),
    "report.color.txt": (values.report, partial(apply_report.text, color=True)),
    "report.short.txt": (values.report, partial(apply_report.text, whole=False)),
    "report.json": (values.report, apply_report.as_json),
    "report.xml": (values.report, apply_report.junit),
    "doctor.txt": (values.examinations, partial(doctor.text, **OF_PLANNER)),
    "doctor.color.txt": (values.examinations, partial(doctor.text, color=True, **OF_PLANNER)),
    "doctor.json": (values.examinations, partial(doctor.as_json, **OF_PLANNER)),
    "problems.txt": (values.findings, problems.text),
    "problems.color.txt": (values.findings, partial(problems.text, color=True)),
    "problems.json": (values.findings, problems.as_json),
    "problems.sarif.json": (values.findings, partial(problems.sarif, version="1")),
    "problems.github.txt": (values.findings, problems.github),
    "sandbox.txt": (values.sandbox, lambda made: sandbox.as_text(*made, now=1007.5)),
    "sandbox.json": (values.sandbox, lambda made: sandbox.as_json(*made)),
    "pull-request.txt": (values.against, lambda made: plan_formats.text(EMPTY, against=made)),
    "pull-request.json": (values.against, lambda made: plan_formats.as_json(EMPTY, against=made)),
    "pull-request.md": (values.against, lambda made: plan_formats.comment(EMPTY, against=made)),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output(golden, name):
    build, render = OUTPUTS[name]
    golden(render(build()), name)


@pytest.mark.parametrize("name", [name for name in OUTPUTS if not re.search("color|sandbox", name)])
def test_what_others_wrote_cannot_act_on_a_terminal(name):
    build, render = OUTPUTS[name]
    shown = render(build(values.HOSTILE))
    assert "evil" in shown
    assert "\nnext" not in shown
    assert all(line.isprintable() for line in shown.split("\n"))


@pytest.mark.parametrize("name", [name for name in OUTPUTS if "color" in name])
def test_colour_only_adds(name):
    build, render = OUTPUTS[name]
    plain, shown = OUTPUTS[name.replace("color.", "")][1](build()), render(build())
    for code in ("0", "1", "31", "32", "33"):
        shown = shown.replace(f"\x1b[{code}m", "")
    assert shown == plain

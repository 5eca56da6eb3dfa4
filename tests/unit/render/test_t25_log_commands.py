"""T25: nothing that a file or a cluster says is a command to the runner that logs it."""

import re
from dataclasses import replace

import pytest

from klutchctl import main
from klutchctl.render import plan_formats, problems
from klutchctl.render.problems import Findings
from klutchctl.render.terminal import visible, visible_lines
from reconciler.core.decision import FieldChange
from reconciler.core.errors import Origin, Problem
from tests.golden.plans import PLANS
from tests.support.fleet_texts import BINDING, GOOD

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

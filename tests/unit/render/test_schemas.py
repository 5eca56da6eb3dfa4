"""The schemas of plans and statuses: up to date, true of what is written, and of nothing else."""

import json
from copy import deepcopy
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from klutchctl import main
from klutchctl.render import plan_formats, status_document
from reconciler.planning import planfile
from tests.golden import values
from tests.golden.plans import PLANS
from tests.unit.render.test_status import OPERATED

FOLDER = Path(__file__).parents[3] / "schemas"


@cache
def validator(name):
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(schema, format_checker=checker)


def problems(name, document):
    """Return the places of what the schema `plan` or `status` does not allow."""
    return [error.json_path for error in validator(name).iter_errors(document)]


PLAN = json.loads(plan_formats.as_json(PLANS["everything"], against=values.against()))
STATUS = json.loads(status_document.dump(values.board(), state=OPERATED))


@pytest.mark.parametrize("name", ["plan", "status"])
def test_the_file_is_what_the_types_make(name, capsys):
    assert main.run(["schema", name, str(FOLDER / f"{name}.schema.json"), "--check"]) == 0
    assert main.run(["schema", name]) == 0
    assert capsys.readouterr().out == (FOLDER / f"{name}.schema.json").read_text()


def test_the_schema_of_another_document_is_reported_apart(capsys):
    file = FOLDER / "plan.schema.json"
    assert main.run(["schema", "status", str(file), "--check"]) == 3
    assert f"`klutchctl schema status {file}` writes it" in capsys.readouterr().err
    assert main.run(["schema", "plans", str(file)]) == 64


@pytest.mark.parametrize("name", PLANS)
def test_plans_are_valid_printed_saved_and_shown(name, tmp_path, capsys):
    file = tmp_path / "saved"
    file.write_bytes(planfile.dump(PLANS[name]))
    assert problems("plan", json.loads(plan_formats.as_json(PLANS[name]))) == []
    assert problems("plan", json.loads(file.read_bytes())) == []
    assert main.run(["show", str(file), "-o", "json"]) == 0
    assert problems("plan", json.loads(capsys.readouterr().out)) == []


def test_the_plan_of_a_pull_request_is_valid():
    assert problems("plan", PLAN) == []


@pytest.mark.parametrize("board", [values.board(), values.board(values.HOSTILE), values.nothing()])
def test_statuses_are_valid(board):
    assert problems("status", json.loads(status_document.dump(board))) == []


def test_the_status_of_a_controller_is_valid():
    assert problems("status", STATUS) == []


def test_later_minor_versions_stay_valid():
    assert problems("plan", {**PLAN, "version": "1.9", "gates": []}) == []
    assert problems("status", {**STATUS, "version": "1.9", "gates": []}) == []


GONE = object()
BROKEN = {
    "another document": ("plan", "/format", "klutchctl.dev/status"),
    "the next major": ("plan", "/version", "2.0"),
    "an action that there is not": ("plan", "/changes/0/action", "destroy"),
    "a line without its object": ("plan", "/changes/0/ref", GONE),
    "a line whose count is text": ("plan", "/changes/0/instances", "many"),
    "no guards": ("plan", "/held", GONE),
    "a count that is missing": ("plan", "/summary/delete", GONE),
    "an edit of no kind": ("plan", "/summary/against/edits/0/kind", GONE),
    "a status of no time": ("status", "/time", GONE),
    "a time that is none": ("status", "/time", 1.5),
    "a state that there is not": ("status", "/clusters/2/units/0/state", "Fine"),
    "a unit without its place": ("status", "/clusters/2/units/0/origin", GONE),
    "a cluster without units": ("status", "/clusters/0/units", None),
    "a source without its problem": ("status", "/operation/source/problem", GONE),
    "a round that was due to nothing": ("status", "/operation/history/0/trigger", "whim"),
    "a waiting line of no action": ("status", "/operation/waiting/lines/0/change/action", GONE),
}


@pytest.mark.parametrize(("name", "place", "value"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_broken_is_not_valid(name, place, value):
    document = deepcopy(PLAN if name == "plan" else STATUS)
    *steps, last = place.split("/")[1:]
    there = document
    for step in steps:
        there = there[int(step) if step.isdigit() else step]
    if value is GONE:
        del there[last]
    else:
        there[last] = value
    assert problems(name, document) != []

"""The JSON Schema as an editor uses it: what is right has no mark, most of what is wrong has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # a real validator, not one of ours
import pytest
import yaml

from klutchctl import scaffold
from reconciler.fleet import models
from reconciler.source import disk
from tests.support.bad_fleets import FORMS
from tests.support.fleet_texts import ACB_CONTROL_PLANE, GOOD, POLICY

ROOT = Path(__file__).parents[3]
FILE = ROOT / "schemas" / "fleet.schema.json"
EXAMPLE = disk.read_folder(ROOT / "fleet-example", check_owner=False).files


def test_the_file_is_what_the_models_make():
    assert FILE.read_text("utf-8") == json.dumps(models.schema(), indent=2) + "\n"


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(FILE.read_text("utf-8"))
    found = jsonschema.validators.validator_for(schema)
    assert found is jsonschema.Draft7Validator
    found.check_schema(schema)
    return found(schema)


def marks(validator: Any, text: str | bytes) -> Iterator[str]:
    for document in yaml.safe_load_all(text):
        yield from (error.message for error in validator.iter_errors(document))


WRITTEN = {
    **GOOD,
    "a policy": POLICY,
    "the other mode": ACB_CONTROL_PLANE,
    "a long text with a reference": GOOD["bindings/db.yaml"].replace(
        "template: pg", f"template: '${{vars.{'x' * 60}}}'"
    ),
}


@pytest.mark.parametrize("text", [*EXAMPLE.values(), *WRITTEN.values()], ids=[*EXAMPLE, *WRITTEN])
def test_what_is_right_has_no_mark(validator, text):
    assert list(marks(validator, text)) == []


# What JSON Schema cannot say, or only in words that nobody understands.
BEYOND = {
    "a label value",
    "a path that leaves the repository",
    "all and some names",
    "an absolute path",
    "an endpoint with a password",
    "an endpoint without TLS",
    "an infinite parameter",
    "an operator without values",
}


@pytest.mark.parametrize("name", FORMS)
def test_what_is_wrong_in_its_form_has_a_mark(validator, name):
    changes: Any = FORMS[name]
    marked = any(list(marks(validator, text)) for text in changes.values() if text is not None)
    assert marked == (name not in BEYOND)


# YAML takes each of these names for something else where it is not in quotes.
INITIAL = scaffold.files(
    FILE.read_text("utf-8"),
    fleet="on",
    plane="12",
    context="eu: a, b",
    apps={"no": "1e3", "app-2": "app-2"},
    team="null",
)


@pytest.mark.parametrize("path", [path for path in INITIAL if path.endswith(".yaml")])
def test_what_init_writes_leads_to_the_schema_and_has_no_mark(validator, path, tmp_path):
    first, _, _ = INITIAL[path].partition("\n")
    found = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert found
    # An editor resolves it from the file's folder.
    leads_to = (tmp_path / path).parent.joinpath(found[1]).resolve().relative_to(tmp_path)
    assert INITIAL[str(leads_to)] == FILE.read_text("utf-8")
    assert list(marks(validator, INITIAL[path])) == []

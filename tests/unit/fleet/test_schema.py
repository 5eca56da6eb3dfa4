"""The JSON Schema for editors."""

import json
from pathlib import Path

from reconciler.fleet.documents.models import KINDS
from reconciler.fleet.documents.models import schema as generate

FILE = Path(__file__).parents[3] / "schemas" / "fleet.schema.json"


def schema():
    return json.loads(json.dumps(generate()))


def test_the_file_is_what_the_models_make():
    assert FILE.read_text("utf-8") == json.dumps(schema(), indent=2) + "\n"


def test_each_kind_has_its_branch():
    branches = schema()["allOf"]
    kinds = [branch["if"]["properties"]["kind"]["const"] for branch in branches]
    assert kinds == list(KINDS)
    for branch in branches:
        name = branch["then"]["$ref"].removeprefix("#/definitions/")
        definition = schema()["definitions"][name]
        assert definition["additionalProperties"] is False
        assert definition["description"]


def nodes(value):
    yield value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from nodes(item)


def test_every_reference_leads_somewhere_and_null_is_nowhere():
    whole = schema()
    references = [
        node["$ref"] for node in nodes(whole) if isinstance(node, dict) and "$ref" in node
    ]
    assert references
    for reference in references:
        assert reference.removeprefix("#/definitions/") in whole["definitions"]
    assert not any(isinstance(node, dict) and node.get("type") == "null" for node in nodes(whole))

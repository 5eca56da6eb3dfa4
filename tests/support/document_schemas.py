"""The published schemas of what klutchctl writes, and a real validator for them."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

FOLDER = Path(__file__).parents[2] / "schemas"


@cache
def _validator(name: str) -> Any:
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(schema, format_checker=checker)


def problems(name: str, document: Any) -> Iterator[str]:
    """Yield what the schema `plan` or `status` does not allow, each with its place."""
    for error in _validator(name).iter_errors(document):
        yield f"{error.json_path}: {error.message}"

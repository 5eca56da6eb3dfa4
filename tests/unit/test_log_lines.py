"""Each record of a log is one line, with its fields."""

import json
import logging

import pytest

from klutchctl.render.terminal import Lines
from reconciler.controller.process import Json, Text


def record(message: str = "the sentence", **fields: object) -> logging.LogRecord:
    made = {"name": "bind", "levelname": "WARNING", "created": 0.0, "msecs": 7.0, "msg": message}
    return logging.makeLogRecord(made | fields)


LINES = {
    "a sentence alone": (record(), "1970-01-01T00:00:00.007Z WARNING the sentence"),
    "fields are quoted": (
        record(key="a b", error='say "no"'),
        '1970-01-01T00:00:00.007Z WARNING the sentence key="a b" error="say \\"no\\""',
    ),
    "numbers are not": (record(tries=3), "1970-01-01T00:00:00.007Z WARNING the sentence tries=3"),
    "a line stays one": (record("a\nb"), "1970-01-01T00:00:00.007Z WARNING a\\nb"),
}


@pytest.mark.parametrize(("said", "line"), LINES.values(), ids=LINES.keys())
def test_a_line_of_text(said, line):
    assert Text().format(said) == line


def test_a_line_of_json():
    assert json.loads(Json().format(record(key="a\nb"))) == {
        "time": "1970-01-01T00:00:00.007Z",
        "level": "warning",
        "logger": "bind",
        "message": "the sentence",
        "key": "a\nb",
    }


def test_a_field_cannot_take_the_place_of_what_is_always_reported():
    assert json.loads(Json().format(record(level="info")))["level"] == "warning"


def test_an_exception_is_reported_by_its_type_alone():
    error = ValueError("a secret")
    output = record(exc_info=(type(error), error, None))
    assert "a secret" not in Text().format(output) + Json().format(output)
    assert json.loads(Json().format(output))["error"] == "ValueError"


def test_a_warning_of_a_command_says_what_it_is_about():
    lines = Lines("%(levelname)s %(name)s: %(message)s")
    level = logging.WARNING
    said = record(
        "the API server warns", levelno=level, ref="eu: Queue a/b", warning="it is old\x1b"
    )
    assert lines.format(said) == (
        r"WARNING bind: the API server warns ref=eu: Queue a/b warning=it is old\x1b"
    )

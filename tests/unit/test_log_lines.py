"""Each record of a log is one line, with its fields."""

import json
import logging
from typing import Any

import pytest
from hpack import Encoder

from klutchctl.render.terminal import Lines
from reconciler.controller import process
from reconciler.controller.controller import ObjectReconciler
from reconciler.controller.process import Json, Text
from reconciler.core.errors import Oversized
from reconciler.core.manifest import stub_of
from reconciler.core.refs import CONFIG_MAP
from reconciler.kube.store import Store


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
    "a sentence steers nothing": (
        record("\x1b[2J\x9b"),
        r"1970-01-01T00:00:00.007Z WARNING \u001b[2J\u009b",
    ),
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


def test_a_debug_log_has_no_header_of_a_request(capsys, monkeypatch):
    """A library encodes them, and would log what it has encoded."""
    for one in (logging.root, logging.getLogger("konnector")):
        monkeypatch.setattr(one, "level", one.level)
    monkeypatch.setattr(logging.root, "handlers", [])
    process.to_stderr("text", debug=True)
    Encoder().encode([("authorization", "Bearer secret")])
    logging.getLogger("konnector").debug("ours")
    logged = capsys.readouterr().err
    assert (logged.count("\n"), "DEBUG ours" in logged) == (1, True)


def test_a_warning_of_a_command_says_what_it_is_about():
    lines = Lines("%(levelname)s %(name)s: %(message)s")
    level = logging.WARNING
    said = record(
        "the API server\r warns", levelno=level, ref="eu: Queue a/b", warning="it is old\x1b"
    )
    assert lines.format(said) == (
        r"WARNING bind: the API server\r warns ref=eu: Queue a/b warning=it is old\x1b"
    )


class Recorded:
    """A recorder, and the executor that has it."""

    docs = ""

    def __init__(self) -> None:
        self.recorder, self.notes = self, list[Any]()

    def record(self, about: Any, live: Any, note: Any) -> None:
        self.notes.append((about.object, live["metadata"]["uid"], note.reason, note.type))


class Settings(ObjectReconciler[str, Any]):
    def __init__(self, executor: Any, view: Store) -> None:
        super().__init__(executor)
        self.view = view

    subscribe = decide = None  # type: ignore[assignment]

    async def look(self, key: str) -> Any:
        return self.view.get("ns", key)


async def test_an_event_names_it() -> None:
    view, executor = Store(CONFIG_MAP, cluster="c"), Recorded()
    view.put(stub_of({"metadata": {"namespace": "ns", "name": "a", "uid": "u"}}))
    with pytest.raises(Oversized):
        await Settings(executor, view).reconcile("a")
    assert executor.notes == [("ConfigMap ns/a", "u", "TooLarge", "Warning")]
    assert await Settings(executor, view).reconcile("b") is None

"""How programs that run for long write their log: a line of text, or of JSON, for each record.

A record is a constant sentence and fields (`extra`); both forms show the fields, so that one
object can be followed through a log.
"""

import json
import logging
import sys
import time
from typing import Final, Literal

_USUAL: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def to_stderr(form: Literal["text", "json"], *, debug: bool) -> None:
    """Write the log of this process to stderr in that form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == "json" else Text())
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler])
    if not debug:
        # Event loops log tracebacks of connections that were cut; the calls tell that themselves.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)


class Text(logging.Formatter):
    """`2026-11-22T03:04:05.678Z WARNING the sentence field="value"`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        fields = "".join(f" {name}={_quoted(value)}" for name, value in _fields(record).items())
        return f"{_time(record)} {record.levelname} {_line(record.getMessage())}{fields}"


class Json(logging.Formatter):
    """`{"time": …, "level": …, "logger": …, "message": …, field: …}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        known = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps({**_fields(record), **known}, default=str)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    said = {name: value for name, value in record.__dict__.items() if name not in _USUAL}
    if record.exc_info and record.exc_info[1] is not None:
        # The text of an unknown exception may tell values.
        said["error"] = type(record.exc_info[1]).__name__
    return said


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _quoted(value: object) -> str:
    return str(value) if isinstance(value, int | float) else json.dumps(str(value))


def _line(text: str) -> str:
    return text.replace("\n", "\\n")

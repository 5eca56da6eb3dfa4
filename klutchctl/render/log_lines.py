"""Formats records of a log for people at a terminal."""

import logging
from typing import Final

from klutchctl.render.terminal import visible

_USUAL: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "taskName"}


class Lines(logging.Formatter):
    """Adds the fields of a warning to its line; below it stands a traceback, if there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as it is called
        fields = record.__dict__.items() if record.levelno >= logging.WARNING else ()
        shown = (f" {key}={visible(str(value))}" for key, value in fields if key not in _USUAL)
        return super().formatMessage(record) + "".join(shown)

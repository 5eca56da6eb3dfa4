"""Sets up a long-running process: signals, liveness, memory, log, and its exit code.

A record of the log is a constant sentence and fields (`extra`). Both forms, text and JSON, show
the fields, so that one object can be followed through a log.
"""

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, Final, Literal

from reconciler.controller import log_context
from reconciler.controller.tasks import Clock
from reconciler.core.documents import one_line
from reconciler.core.errors import KlutchError, origin
from reconciler.kube import host

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_BEAT: Final = 1.0  # seconds between two signs of life of the event loop
SILENCE: Final = 30.0  # seconds without one after which it counts as stuck
_THRESHOLDS: Final = (10_000, 20, 20)
# Of mallopt(3), where the C library is glibc, which raises sizes by itself, without end, as soon
# as a large block is freed. A lower M_TRIM_THRESHOLD costs system calls all the time.
_MALLOC: Final = {
    -1: 4 * 1024 * 1024,  # M_TRIM_THRESHOLD
    -3: 256 * 1024,  # M_MMAP_THRESHOLD
    -8: 1,  # M_ARENA_MAX; threads have heaps of their own otherwise
}


class SignalHandler:
    """The first signal asks the program to stop, the second ends the process at once.

    Heard also while the event loop is busy, where a handler of the loop itself would wait.
    """

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop, self._loop, self._asked = stop, asyncio.get_running_loop(), False

    def listen(self) -> None:
        """Take both signals from now on."""
        for number in _SIGNALS:
            signal.signal(number, self._hear)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked:
            os._exit(1)
        self._asked = True
        self._loop.call_soon_threadsafe(self._stop.set)


class Liveness:
    """Notes that the event loop turns. `ailment` may be asked from another thread.

    `else_wrong` is what else is wrong with the process, without names of objects, or "".
    """

    def __init__(self, clock: Clock, else_wrong: Callable[[], str]) -> None:
        self._clock, self._else_wrong = clock, else_wrong
        self._beat_at = clock.monotonic()

    async def run(self) -> None:
        while True:
            self._beat_at = self._clock.monotonic()
            await self._clock.sleep(_BEAT)

    def ailment(self) -> str:
        """Return why the process is not healthy; "" if it is."""
        silent = self._clock.monotonic() - self._beat_at
        if silent > SILENCE:
            return f"the event loop has been stuck for {silent:.0f} s"
        return self._else_wrong()


def exit_code(program: str, run: Callable[[], None]) -> int:
    """Run, and return 0; or print a sentence for each failure to stderr, and return 1."""
    code = 0
    try:
        run()
    except* Exception as errors:
        for sentence in sentences(errors, program):
            print(f"Error: {one_line(sentence)}", file=sys.stderr)
        code = 1
    return code


def until_signal(serve: Callable[..., Coroutine[Any, Any, None]], settings: object) -> None:
    """Serve by these settings until the event `stop` is set, which the first signal does.

    Many connections may be open. Raises what `serve` raises.
    """
    tune_memory()
    host.allow_open_files(host.MANY_FILES)
    import uvloop  # what is heavy comes once the flags are known to be good

    async def run() -> None:
        stop = asyncio.Event()
        SignalHandler(stop).listen()
        await serve(settings, os.environ, host.home_directory(), stop=stop)

    uvloop.run(run())


def sentences(errors: BaseExceptionGroup[Exception], program: str) -> Iterator[str]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from sentences(error, program)
        else:
            yield _sentence(error, program)


def _sentence(error: Exception, program: str) -> str:
    if isinstance(error, KlutchError):
        return str(error)
    # The text of an unknown exception may tell values, so only its type and origin are shown.
    return f"unexpected {type(error).__name__} at {origin(error)}. This is a defect of {program}"


def tune_memory() -> None:
    """Collect cycles seldom, and give back freed memory; to be called before threads start.

    Decoded JSON goes with its last use, and is most of what a controller makes. To look through
    it as often as Python does took 8 % of a konnector's CPU time, and saved no memory. But lists
    and large objects leave holes: 400 requests of 1.3 MB cost a backend 156 MiB, and 12 MiB with
    this; a list of 16,000 claims and their copies cost a konnector 5 MiB more.
    """
    import ctypes

    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)


_USUAL: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def to_stderr(form: Literal["text", "json"], *, debug: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == "json" else Text())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    log_context.set_levels(debug=debug)


class Text(logging.Formatter):
    """`2026-11-22T03:04:05.678Z WARNING the sentence field="value"`."""

    def format(self, record: logging.LogRecord) -> str:
        shown = {
            name: value if isinstance(value, int | float) else json.dumps(str(value))
            for name, value in _fields(record).items()
        }
        fields = "".join(f" {name}={value}" for name, value in shown.items())
        message = json.dumps(record.getMessage())[1:-1]
        return f"{_time(record)} {record.levelname} {message}{fields}"


class Json(logging.Formatter):
    """`{"time": …, "level": …, "logger": …, "message": …, field: …}`."""

    def format(self, record: logging.LogRecord) -> str:
        known = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps({**_fields(record), **known}, default=str)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = {name: str(value) for name, value in log_context.current().items()}
    fields |= {name: value for name, value in record.__dict__.items() if name not in _USUAL}
    if record.exc_info and record.exc_info[1] is not None:
        # The text of an unknown exception may tell values.
        fields["error"] = type(record.exc_info[1]).__name__
    return fields


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"

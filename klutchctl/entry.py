"""Starts and ends a run of `klutchctl`: signals, exit codes, and the sentence of a failure.

No other module has the numbers of exit codes. Imports take a good part of a second, so functions
import heavy modules themselves.
"""

import gc
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    from reconciler.apply import Report
    from reconciler.planning.changes import Plan

_Result = TypeVar("_Result")


class ExitCode(IntEnum):
    """The exit codes. If several hold, the first in this order wins."""

    TERMINATED = 143
    INTERRUPTED = 130
    USAGE = 64
    INVALID = 3  # what a person wrote is wrong; nothing was contacted
    DENIED = 4  # by a Policy, or for want of a signature
    STALE = 7  # the plan does not match what is there
    LOCKED = 8  # by another run
    HELD_BACK = 6  # needs approval, or a guard tripped
    FAILED = 1  # unexpected error, I/O, every cluster unreachable
    PARTIAL = 5  # some clusters done, some not
    UNHEALTHY = 9  # applied, but not healthy in time
    CHANGES = 2  # success, and there are changes; only with --detailed-exitcode
    SUCCESS = 0


PRECEDENCE: Final = tuple(ExitCode)
# As in the table of the book, which also says what a pipeline does then.
MEANINGS: Final[Mapping[ExitCode, str]] = {
    ExitCode.SUCCESS: "success",
    ExitCode.FAILED: "unexpected error, no cluster reachable, or a program or file is missing",
    ExitCode.CHANGES: "success, and there are changes",
    ExitCode.INVALID: "a file, an option or an argument is invalid",
    ExitCode.DENIED: "denied by a Policy, or not signed as --verify asks",
    ExitCode.PARTIAL: "some clusters could not be read or changed",
    ExitCode.HELD_BACK: "a guard stopped changes, a unit is blocked, or nobody approved",
    ExitCode.STALE: "the clusters or files changed since the plan",
    ExitCode.LOCKED: "another run holds the lock",
    ExitCode.UNHEALTHY: "a unit is not healthy, or not Ready in time",
    ExitCode.USAGE: "usage error",
}
_OF_EVERY_COMMAND: Final = (ExitCode.SUCCESS, ExitCode.FAILED, ExitCode.INVALID, ExitCode.USAGE)
# The files say so themselves: what is meant is no failure.
_MEANT: Final = frozenset({"report", "suspended"})
COMPLETION: Final = "_KLUTCHCTL_COMPLETE"  # a variable
_MAY_ACT: Final = re.compile(r"[^\n\t -~]")
_MANY_FILES: Final = 8192  # for all clusters that are reached at once
_CODES: Final = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


def meanings(*codes: ExitCode) -> dict[ExitCode, str]:
    """Return the exit codes of every command and these, with their usual meanings, in order."""
    return {code: MEANINGS[code] for code in sorted({*_OF_EVERY_COMMAND, *codes})}


def codes_help(own: Mapping[ExitCode, str]) -> str:
    """Return the exit codes for a help text. `own`: the meanings of those of the command."""
    texts = {**meanings(*own), **own}
    return f"Exit codes: {'; '.join(f'{int(code)} {text}' for code, text in texts.items())}."


def end_after(run: Callable[[list[str]], int]) -> NoReturn:
    """Run the command line, write out its output, and end the process with its exit code."""
    from reconciler.kube import host

    # To read 500 clusters and to plan them makes two million objects, and no cycle: to look for
    # cycles took a tenth of it. A cluster that fails leaves about a hundred.
    gc.set_threshold(3_000_000, 50, 50)
    host.allow_open_files(_MANY_FILES)
    _replace_closed_streams()
    status: int = ExitCode.SUCCESS
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # what reads our output, such as `head`, has enough
        status = ExitCode.FAILED
    except OSError as error:
        if not status:  # else it has a sentence already
            print(f"Error: {sentence(error)}", file=sys.stderr)
        status = status or ExitCode.FAILED
    finally:
        _drop_unwritten()
    sys.exit(status)


def _replace_closed_streams() -> None:
    """Put /dev/null in the place of a closed standard stream, which Python shows as None.

    In the order of their numbers: a new file gets the lowest free one, so that no file that
    we write can become the stream 1 or 2. Warnings and progress go on without a reader.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    notes = io.BufferedWriter(_Notes(sys.stderr.fileno(), "w", closefd=False))
    plain = io.TextIOWrapper(notes, "utf-8", errors="backslashreplace", line_buffering=True)
    sys.stdout, sys.stderr = _Shown(sys.stdout), _Shown(plain)


class _Shown(io.TextIOWrapper):
    """A stream on which no text of others acts, cleaned or not. What draws uses `plain`."""

    def __init__(self, plain: Any) -> None:
        at_once = plain.line_buffering, plain.write_through
        super().__init__(plain.buffer, plain.encoding, plain.errors, None, *at_once)
        self.plain = plain

    def write(self, text: str, /) -> int:
        if "##" in text or _MAY_ACT.search(text):  # each by itself, for speed
            from klutchctl.render.terminal import harmless

            text = harmless(text)
        return super().write(text)


class _Notes(io.FileIO):
    """A stream that drops a text that cannot be written: no run ends for want of a reader."""

    def write(self, text: Any, /) -> int:
        try:
            return super().write(text) or len(text)  # None where it would block
        except OSError:  # later ones are tried: a disk is full for a time
            return len(text)


def _drop_unwritten() -> None:
    """Drop output that stdout refused: the interpreter would retry it at its end, and exit 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def ending_quietly() -> Iterator[None]:
    """Let Ctrl-C end the process at once and in silence, for the length of the block.

    For imports: nothing is begun yet, and an exception would show where it found them. A
    parent that started us with SIGINT ignored, as shells do in the background, means it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(ExitCode.INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ending(end: Callable[[str], None]) -> Iterator[list[ExitCode]]:
    """Let SIGINT and SIGTERM call `end` with the reason, for the length of the block.

    The run ends in order then, with a true report. Yields the exit codes of those that came. Use
    it inside a running event loop. Cycles are looked for from now on, as it may last.
    """
    import asyncio

    gc.set_threshold(100_000, 50, 50)
    loop = asyncio.get_running_loop()
    received: list[ExitCode] = []

    def caught(number: signal.Signals) -> None:
        received.append(_CODES[number])
        end(f"ended by {number.name}")

    for number in _CODES:
        loop.add_signal_handler(number, caught, number)
    try:
        yield received
    finally:
        for number in _CODES:
            loop.remove_signal_handler(number)


def awaited(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine to its end, in an event loop of its own."""
    import uvloop

    return uvloop.run(work)


def first(codes: Iterable[ExitCode]) -> ExitCode:
    """Return the code that wins where several hold; SUCCESS where none does."""
    return min(codes, key=PRECEDENCE.index, default=ExitCode.SUCCESS)


def exit_code(plan: "Plan", *, detailed: bool, allow_unreachable: bool) -> ExitCode:
    """Return the exit code of a finished plan. `detailed`: changes have a code of their own.

    A plan that does not know every cluster is never a success, unless `allow_unreachable`; one
    that knows none never is.
    """
    from reconciler.planning.changes import Action

    actions = {change.action for change in plan.changes}
    codes = [
        reading_code(
            partial=bool(plan.unseen) or Action.UNKNOWN in actions,
            nothing=_knows_nothing(plan),
            allow_unreachable=allow_unreachable,
        )
    ]
    if Action.BLOCKED in actions or any(one.guard not in _MEANT for one in plan.held):
        codes.append(ExitCode.HELD_BACK)
    if detailed and actions - {Action.NOOP}:
        codes.append(ExitCode.CHANGES)
    return first(codes)


def reading_code(*, partial: bool, nothing: bool, allow_unreachable: bool) -> ExitCode:
    """Return the exit code of a reading. `partial` may be allowed, `nothing` never is."""
    if nothing:
        return ExitCode.FAILED
    return ExitCode.PARTIAL if partial and not allow_unreachable else ExitCode.SUCCESS


def apply_code(
    report: "Report", *, allow_unreachable: bool, signalled: ExitCode | None
) -> ExitCode:
    """Return the exit code of an apply: undone lines of its plan count as well."""
    from reconciler.apply import GOOD, Status

    # What was skipped or cut short is explained by what caused it.
    codes_of = {
        Status.STALE: ExitCode.STALE,
        Status.HELD: ExitCode.HELD_BACK,
        Status.FAILED: ExitCode.PARTIAL,
        Status.UNCONFIRMED: ExitCode.UNHEALTHY,
    }
    planned = exit_code(report.plan, detailed=False, allow_unreachable=allow_unreachable)
    codes = {
        codes_of.get(one.status, ExitCode.SUCCESS)
        for one in report.outcomes
        if not (one.change.held and _MEANT.issuperset(one.change.held))
    }
    failed = {one.change.cluster for one in report.outcomes if one.status is Status.FAILED}
    done = any(one.status in GOOD for one in report.outcomes)
    if failed and not done and failed >= report.plan.sections.keys():
        codes.add(ExitCode.FAILED)
    if report.not_ready:
        codes.add(ExitCode.UNHEALTHY)
    if report.lock_lost:
        codes.add(ExitCode.LOCKED)
    if signalled is not None:
        codes.add(signalled)
    return first({planned, *codes})


def _knows_nothing(plan: "Plan") -> bool:
    """Return whether there are clusters and none was read; those behind control planes count."""
    unseen = {one.name for one in plan.unseen}
    if plan.sections:
        return plan.sections.keys() <= unseen
    return bool(unseen) and len(unseen) >= plan.clusters_total


def sentence(error: BaseException) -> str:
    """Return the sentence about `error` for people."""
    from reconciler.core.errors import KlutchError, origin

    if isinstance(error, KlutchError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{place}"
    # Its text may hold anything, so only its type and origin are shown.
    return (
        f"unexpected {type(error).__name__} at {origin(error)}. This is a defect of klutchctl;"
        " run the command again as `klutchctl -v ...` for the details that a report needs"
    )


def code_of(error: BaseException) -> ExitCode:
    """Return the exit code that `error` stands for."""
    from reconciler.core.errors import ConfigError, InvalidRepository, Locked, StalePlan
    from reconciler.source.signature import Unverified

    if isinstance(error, StalePlan):
        return ExitCode.STALE
    if isinstance(error, Locked):
        return ExitCode.LOCKED
    if isinstance(error, Unverified) or (
        isinstance(error, InvalidRepository) and not error.invalid
    ):
        return ExitCode.DENIED
    if isinstance(error, ConfigError):
        return ExitCode.INVALID
    return getattr(error, "exit_code", ExitCode.FAILED)  # of a command's own errors


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group, or the one."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error

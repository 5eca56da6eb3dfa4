"""Asks for the approval of a plan and applies it, for every command that writes to clusters."""

import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from klutchctl import outputs
from klutchctl.entry import ExitCode, apply_code, ending
from klutchctl.settings import Settings

if TYPE_CHECKING:
    from reconciler.apply import Report
    from reconciler.fleet.values import Fleet
    from reconciler.observe import Clusters
    from reconciler.planning.changes import Plan

FORMATS: Final = ("text", "json", "junit")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What the options of a command that writes say. `wait_timeout` is in seconds.

    `outputs`: in which formats its report is wanted.
    """

    outputs: tuple[outputs.Output, ...]
    auto_approve: bool
    wait_timeout: float
    force: bool
    break_lock: bool
    wait: bool = False


def is_approved(plan: "Plan", options: WriteOptions, *, question: str, color: bool) -> bool:
    """Show what would be done, and ask for approval where there is a terminal.

    A plan in which nothing would be done needs none.
    """
    if not any(one.acts and not one.held for one in plan.changes):
        return True
    stream = show_plan(plan, options.outputs, color=color)
    if options.auto_approve or not sys.stdin.isatty():
        return options.auto_approve
    return _answer(f"{question} Only `yes` does. ", stream) == "yes"


def show_plan(plan: "Plan", wanted: tuple[outputs.Output, ...], *, color: bool) -> TextIO:
    """Print what is going to be done, and return where."""
    from klutchctl.render import plan_formats

    # Standard output may be for a program; then a person reads the plan beside it.
    quiet = any(one.path is None and one.format != "text" for one in wanted)
    stream = sys.stderr if quiet else sys.stdout
    # At once: the steps that follow are on the other stream, and a log has both.
    print(plan_formats.text(plan, color=color and stream.isatty()), file=stream, flush=True)
    return stream


def _answer(question: str, stream: TextIO) -> str:
    """Ask, and return the line that comes. Raises KeyboardInterrupt at the first Ctrl-C.

    The handler of a running event loop would only cancel what waits, and this does not: the read
    goes on after a signal (PEP 475).
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(question, end="", file=stream, flush=True)
        return sys.stdin.readline().strip()
    finally:
        signal.signal(signal.SIGINT, before)


async def apply(
    fleet: "Fleet",
    approved: "Plan",
    clusters: "Clusters",
    settings: Settings,
    options: WriteOptions,
) -> ExitCode:
    """Apply a plan, show how far it is and what was done, and return the exit code.

    Raises Locked.
    """
    from klutchctl.render.apply_report import progress
    from reconciler.apply import Observer, Options, run
    from reconciler.controller.fence import WriteFence
    from reconciler.controller.lease import holder_here

    fence = WriteFence()
    how = Options(
        holder=holder_here(),
        now=lambda: datetime.now(UTC),
        pace=settings.pace(),
        wait=options.wait,
        wait_seconds=options.wait_timeout,
        force=options.force,
        break_lock=options.break_lock,
    )
    with ending(fence.close) as received, progress(sys.stderr) as shown:
        observer = Observer(outcome=shown.outcome, stage=shown.stage)
        report = await run.apply(
            fleet, approved, clusters, options=how, fence=fence, observer=observer
        )
    printed = show(report, options.outputs, settings)
    signalled = received[0] if received else None
    allowed = settings.allow_unreachable
    return apply_code(report, allow_unreachable=allowed, signalled=signalled) or printed


def show(report: "Report", wanted: tuple[outputs.Output, ...], settings: Settings) -> ExitCode:
    """Print what was done, in the formats that were asked for; FAILED where one cannot be had.

    On standard output, text leaves out what went well: each step was printed when it was done.
    """
    from klutchctl.render import apply_report as rendering

    def text(path: Path | None) -> str:
        watched = outputs.on_terminal(path)
        whole = path is not None or settings.verbose
        return rendering.text(report, whole=whole, color=settings.color and watched)

    try:
        outputs.write(
            wanted,
            {
                "text": text,
                "json": lambda _: rendering.as_json(report),
                "junit": lambda _: rendering.junit(report),
            },
        )
    except ExceptionGroup as failed:
        for error in failed.exceptions:
            print(f"Error: the report could not be written: {error}", file=sys.stderr)
        return ExitCode.FAILED
    return ExitCode.SUCCESS

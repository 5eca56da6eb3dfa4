"""`klutchctl apply`: a plan becomes the state of the clusters."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl import outputs, reach
from klutchctl.exit_codes import ExitCode
from klutchctl.reach import Reach
from klutchctl.settings import Settings

if TYPE_CHECKING:
    from reconciler.apply import Gate, Report
    from reconciler.fleet.values import Fleet
    from reconciler.observe import Clusters
    from reconciler.planning.changes import Plan

_FORMATS: Final = ("text", "json", "junit")
_DOCUMENTS: Final = (".yaml", ".yml")
_COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_NOT_APPROVED: Final = (
    "Nothing was applied: nobody approved the plan. Give --auto-approve where there is no "
    "terminal, or apply a plan that was saved with `klutchctl plan --out`."
)
_SIGNALS: Final = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the options of this command say. `wait_timeout` is in seconds."""

    auto_approve: bool
    wait: bool
    wait_timeout: float
    force: bool
    break_lock: bool


def apply(  # noqa: PLR0913, PLR0917 - each is an option
    context: typer.Context,
    target: Annotated[
        Path, typer.Argument(metavar="[PATH|PLANFILE]", help="The fleet repository, or a plan.")
    ] = Path(),
    auto_approve: Annotated[
        bool, typer.Option("--auto-approve", help="Do not ask; needed without a terminal.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="End when all units are Ready.")] = False,
    wait_timeout: Annotated[
        float,
        typer.Option(
            min=0.1, max=86_400, metavar="SECONDS", help="For each wait for a peer, and for Ready."
        ),
    ] = 120.0,
    break_lock: Annotated[
        bool, typer.Option("--break-lock", help="Take the lock over from a run that is dead.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Release without the proof that sync has stopped.")
    ] = False,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="FORMAT[=PATH]", help=", ".join(_FORMATS)),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Follow the files until interrupted, and repair drift. It never asks: what no "
            "guard holds back is approved by this option.",
        ),
    ] = False,
    git: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="With --watch: PATH of a Git repository on a server (https or ssh). The files "
            "named by KLUTCHCTL_GIT_TOKEN_FILE and KLUTCHCTL_GIT_SSH_KEY_FILE open it.",
        ),
    ] = None,
    ref: Annotated[
        str | None,
        typer.Option(metavar="REF", help="With --watch: a branch or tag, not the work tree."),
    ] = None,
    poll: Annotated[
        float,
        typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="With --watch: between looks."),
    ] = 10.0,
    interval: Annotated[
        float,
        typer.Option(
            min=1, max=86_400, metavar="SECONDS", help="With --watch: between repairs of drift."
        ),
    ] = 300.0,
    listen: Annotated[
        str | None,
        typer.Option(metavar="ADDR:PORT", help="With --watch: serve /metrics and /healthz."),
    ] = None,
) -> int:
    """Apply a saved plan exactly, or plan, confirm and apply. Safe to repeat."""
    wanted = outputs.parse(output or [], known=_FORMATS)
    import uvloop

    if watch:
        from klutchctl.commands import watch as watching

        options = watching.Options(
            path=target,
            url=watching.url(git),
            ref=ref,
            poll=poll,
            interval=interval,
            listen=watching.address(listen),
            wait_timeout=wait_timeout,
        )
        refused = {"--wait": wait, "--break-lock": break_lock, "--force": force, "-o": output}
        return watching.run(context, options, refused=refused)
    if any(one is not None for one in (git, ref, listen)):
        raise typer.BadParameter("--git, --ref and --listen need --watch")
    settings = context.obj
    assert isinstance(settings, Settings)
    terms = Terms(
        auto_approve=auto_approve,
        wait=wait,
        wait_timeout=wait_timeout,
        force=force,
        break_lock=break_lock,
    )
    return uvloop.run(_run(target, reach.of(context), settings, terms, wanted))


async def _run(
    target: Path,
    how: Reach,
    settings: Settings,
    terms: Terms,
    wanted: tuple[outputs.Output, ...],
) -> int:
    from klutchctl import live_plan, repository
    from klutchctl.outcome import apply_code
    from reconciler.apply import Locked
    from reconciler.kube import registry

    if _is_plan(target):
        fleet, saved = _saved(target, settings)
    else:
        fleet, saved = repository.fleet_in(target, check_owner=settings.git_owner_check), None
    async with registry.of(fleet, reach.surroundings(how, settings)) as clusters:
        if saved is None:
            only = repository.chosen(fleet, how)
            approved, _ = await live_plan.made(fleet, clusters, how, only=only)
            if not _is_approved(approved, terms, wanted, color=settings.color):
                print(_NOT_APPROVED, file=sys.stderr)
                return ExitCode.HELD_BACK
        else:
            approved = saved
        try:
            report, signalled = await _applied(fleet, approved, clusters, how, terms)
        except Locked as error:
            print(f"Error: {error}", file=sys.stderr)
            return ExitCode.LOCKED
    _print(report, wanted, color=settings.color)
    return apply_code(report, allow_unreachable=how.allow_unreachable, signalled=signalled)


def _is_plan(target: Path) -> bool:
    return target.is_file() and target.suffix not in _DOCUMENTS


def _saved(target: Path, settings: Settings) -> "tuple[Fleet, Plan]":
    """Return a saved plan, and the fleet that it was made from. Raises StalePlan."""
    from klutchctl import repository
    from reconciler.core.errors import StalePlan
    from reconciler.planning import planfile

    plan = planfile.parse(target.read_bytes(), str(target))
    here = Path(plan.repository) if plan.repository else Path()
    fleet = repository.fleet_in(here, check_owner=settings.git_owner_check)
    if fleet.digest != plan.digest and _COMMIT.fullmatch(plan.revision):
        # It may have been made from a commit that is not checked out.
        owner = settings.git_owner_check
        fleet = repository.fleet_in(here, ref=plan.revision, check_owner=owner)
    if fleet.digest != plan.digest:
        raise StalePlan(
            f"{target}: the fleet repository in {here.resolve()} is not the one that the plan was "
            "made from, or has changed since. Plan again"
        )
    return fleet, plan


def _is_approved(
    plan: "Plan", terms: Terms, wanted: tuple[outputs.Output, ...], *, color: bool
) -> bool:
    """Show what would be done, and ask where there is somebody to ask."""
    from klutchctl.render import plan_text

    if not any(one.acts and not one.held for one in plan.changes):
        return True
    asks = not terms.auto_approve and sys.stdin.isatty()
    # Standard output may be for a program; then a person reads the plan beside it.
    quiet = any(one.path is None and one.format != "text" for one in wanted)
    stream = sys.stderr if quiet else sys.stdout
    print(plan_text.render(plan, color=color and stream.isatty()), file=stream)
    if asks:
        print("Apply this? Only `yes` does. ", end="", file=stream, flush=True)
        return sys.stdin.readline().strip() == "yes"
    return terms.auto_approve


async def _applied(
    fleet: "Fleet", approved: "Plan", clusters: "Clusters", how: Reach, terms: Terms
) -> "tuple[Report, ExitCode | None]":
    import socket

    from klutchctl.render.apply_progress import progress
    from reconciler import apply as applying

    gate = applying.Gate()
    options = applying.Options(
        holder=f"{socket.gethostname()}-{os.getpid()}",
        now=lambda: datetime.now(UTC),
        pace=reach.pace(how),
        wait=terms.wait,
        wait_seconds=terms.wait_timeout,
        force=terms.force,
        break_lock=terms.break_lock,
    )
    with _ended_by_signals(gate) as received, progress(sys.stderr) as shown:
        ears = applying.Ears(outcome=shown.outcome, stage=shown.stage)
        report = await applying.apply(
            fleet, approved, clusters, options=options, gate=gate, ears=ears
        )
    return report, received[0] if received else None


@contextmanager
def _ended_by_signals(gate: "Gate") -> Iterator[list[ExitCode]]:
    """Let SIGINT and SIGTERM close the gate: what was sent is waited for and told."""
    import asyncio

    loop = asyncio.get_running_loop()
    received: list[ExitCode] = []

    def end(number: signal.Signals) -> None:
        received.append(_SIGNALS[number])
        gate.close(f"ended by {number.name}")

    for number in _SIGNALS:
        loop.add_signal_handler(number, end, number)
    try:
        yield received
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _print(report: "Report", wanted: tuple[outputs.Output, ...], *, color: bool) -> None:
    from klutchctl.render import report_json, report_junit, report_text

    def text(path: Path | None) -> str:
        watched = path is None and sys.stdout.isatty()
        return report_text.render(report, color=color and watched)

    outputs.write(
        wanted,
        {
            "text": text,
            "json": lambda _: report_json.render(report),
            "junit": lambda _: report_junit.render(report),
        },
    )

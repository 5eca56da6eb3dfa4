"""`klutchctl apply` and `release`: a plan becomes the state of clusters; bindings are let go.

Each plan is shown and approved before anything is written.
"""

import re
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO, TypeAlias

import typer

from klutchctl.entry import ExitCode, apply_code, ending
from klutchctl.settings import (
    Output,
    Settings,
    columns,
    of,
    output_option,
    parse_outputs,
    write_outputs,
)

if TYPE_CHECKING:
    from reconciler.apply import Report
    from reconciler.fleet.values import Fleet
    from reconciler.observe import Clusters
    from reconciler.planning.changes import Plan
    from reconciler.reports.partial_plans import Target

_DOCUMENTS: Final = (".yaml", ".yml")
_COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_NOT_APPROVED: Final = (
    "Nothing was applied: nobody approved the plan. Give --auto-approve where there is no "
    "terminal, or apply a plan that was saved with `klutchctl plan --out`."
)
_NOT_RELEASED: Final = (
    "Nothing was released: nobody approved it. Give --auto-approve where there is no terminal."
)
_FORMATS: Final = ("text", "json", "junit")
_TARGETS: Final = (
    "CLUSTER/BINDING or CLUSTER/plural.group; PATH is the fleet repository, as `.` or `./fleet`."
)

_AutoApprove: TypeAlias = Annotated[
    bool, typer.Option("--auto-approve", help="Do not ask; needed without a terminal.")
]
_BreakLock: TypeAlias = Annotated[
    bool, typer.Option("--break-lock", help="Take the lock over from a run that is dead.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What the options of a command that writes say. `wait_timeout` is in seconds.

    `outputs`: in which formats its report is wanted.
    """

    outputs: tuple[Output, ...]
    auto_approve: bool
    wait_timeout: float
    force: bool
    break_lock: bool
    wait: bool = False


def apply(  # noqa: PLR0913, PLR0917 - each is an option
    context: typer.Context,
    target: Annotated[
        Path, typer.Argument(metavar="[PATH|PLANFILE]", help="The fleet repository, or a plan.")
    ] = Path(),
    auto_approve: _AutoApprove = False,
    wait: Annotated[bool, typer.Option("--wait", help="End when all units are Ready.")] = False,
    wait_timeout: Annotated[
        float,
        typer.Option(
            min=0.1, max=86_400, metavar="SECONDS", help="For each wait for a peer, and for Ready."
        ),
    ] = 120.0,
    break_lock: _BreakLock = False,
    force: Annotated[
        bool, typer.Option("--force", help="Skip the proof that sync stopped or an address works.")
    ] = False,
    repository: Annotated[
        Path | None,
        typer.Option(
            "--repository",
            metavar="PATH",
            help="With a saved plan: where the fleet repository is, whatever the plan says.",
        ),
    ] = None,
    output: Annotated[list[str] | None, output_option(_FORMATS)] = None,
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
    wanted = parse_outputs(output, known=_FORMATS)
    import uvloop

    if watch:
        from klutchctl.commands import watch as watching
        from klutchctl.controller.sources import Followed, git_url

        watch_options = watching.Options(
            source=Followed(path=target, url=git_url(git), ref=ref, poll=poll),
            interval=interval,
            listen=watching.address(listen),
            wait_timeout=wait_timeout,
        )
        refused = {
            "--wait": wait,
            "--break-lock": break_lock,
            "--force": force,
            "--repository": repository,
            "-o": output,
        }
        return watching.run(context, watch_options, refused=refused)
    if any(one is not None for one in (git, ref, listen)):
        raise typer.BadParameter("--git, --ref and --listen need --watch")
    settings = of(context)
    if repository is not None and not _is_plan(target):
        raise typer.BadParameter("--repository needs a saved plan")
    if _is_plan(target) and (settings.clusters or settings.selector):
        raise typer.BadParameter(
            f"{target} is a saved plan, which is applied as a whole: narrow the plan instead, with "
            "--cluster or --selector and `plan --out`"
        )
    options = WriteOptions(
        outputs=wanted,
        auto_approve=auto_approve,
        wait_timeout=wait_timeout,
        force=force,
        break_lock=break_lock,
        wait=wait,
    )
    return uvloop.run(_run(target, repository, options, settings))


async def _run(
    target: Path, repository: Path | None, options: WriteOptions, settings: Settings
) -> ExitCode:
    """Apply a saved plan, or plan and ask. `repository`: where the files of a saved plan are."""
    from klutchctl.repository import chosen, fleet_in
    from reconciler import run
    from reconciler.kube import registry

    if _is_plan(target):
        fleet, approved = _saved(target, repository, settings)
        _show_plan(approved, options.outputs, color=settings.color)
    else:
        fleet = fleet_in(target, check_owner=settings.git_owner_check)
        approved = None
    async with registry.of(fleet, settings.surroundings()) as clusters:
        if approved is None:
            only = chosen(fleet, settings)
            look = await run.look(
                fleet, clusters, only=only, credentials=True, pace=settings.pace()
            )
            approved = look.plan
            if not _is_approved(approved, options, question="Apply this?", color=settings.color):
                print(_NOT_APPROVED, file=sys.stderr)
                return ExitCode.HELD_BACK
        return await _applied(fleet, approved, clusters, settings, options)


def _is_plan(target: Path) -> bool:
    return target.is_file() and target.suffix not in _DOCUMENTS


def _saved(target: Path, where: Path | None, settings: Settings) -> "tuple[Fleet, Plan]":
    """Return a saved plan, and the fleet that it was made from. Raises StalePlan."""
    from klutchctl import files, repository
    from reconciler.core.errors import ConfigError, StalePlan
    from reconciler.planning import planfile

    plan = planfile.parse(files.read(target, hint=planfile.HINT), str(target))
    here = where or Path(plan.repository)  # that of "" is the current folder
    # It may have been made from a commit that is not checked out, or is being edited.
    places = [None, plan.revision] if _COMMIT.fullmatch(plan.revision) else [None]
    broken: list[ConfigError] = []
    for ref in places:
        try:
            fleet = repository.fleet_in(here, ref=ref, check_owner=settings.git_owner_check)
        except ConfigError as error:
            broken.append(error)
            continue
        if fleet.digest == plan.digest:
            return fleet, plan
    if len(broken) == len(places):
        raise broken[-1]
    raise StalePlan(
        f"{target}: the fleet repository in {here.resolve()} is not the one that the plan was "
        f"made from, or has changed since. Plan again{''.join(f' ({one})' for one in broken)}"
    )


def release(  # noqa: PLR0913, PLR0917 - each is an option
    context: typer.Context,
    target: Annotated[
        list[str],
        typer.Argument(metavar="TARGET... [PATH]", help=_TARGETS),
    ],
    fleet: Annotated[Path | None, typer.Option(metavar="PATH", help="The same as PATH.")] = None,
    auto_approve: _AutoApprove = False,
    wait_timeout: Annotated[
        float,
        typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="For each wait for a peer."),
    ] = 120.0,
    break_lock: _BreakLock = False,
    force: Annotated[
        bool, typer.Option("--force", help="Without the proof that sync has stopped.")
    ] = False,
    output: Annotated[list[str] | None, output_option(_FORMATS)] = None,
) -> int:
    """Let go of bindings that left the files; data and Secrets stay."""
    wanted = parse_outputs(output, known=_FORMATS)
    import uvloop

    from klutchctl import repository
    from reconciler.reports import partial_plans

    settings = of(context)
    named, path = partial_plans.targets_and_path(target)
    if path and fleet is not None:
        raise typer.BadParameter(f"{path} and --fleet {fleet}: name the repository once")
    read = repository.fleet_in(fleet or Path(path), check_owner=settings.git_owner_check)
    partial_plans.check(read, named)
    options = WriteOptions(
        outputs=wanted,
        auto_approve=auto_approve,
        wait_timeout=wait_timeout,
        force=force,
        break_lock=break_lock,
    )
    return uvloop.run(_release(read, named, options, settings))


async def _release(
    fleet: "Fleet", named: "list[Target]", options: WriteOptions, settings: Settings
) -> ExitCode:
    """Plan, ask, apply and report; return the exit code."""
    from reconciler import run
    from reconciler.kube import registry
    from reconciler.reports import partial_plans
    from reconciler.reports.imports import unmanaged_units

    asked, only = partial_plans.letting_go(fleet), {one.cluster for one in named}
    async with registry.of(fleet, settings.surroundings()) as clusters:
        look = await run.look(asked, clusters, only=only, credentials=True, pace=settings.pace())
        foreign = unmanaged_units(asked, look.live, only=only)
        plan = partial_plans.releases(fleet, look.plan, named, foreign=foreign)
        if not _is_approved(plan, options, question="Release this?", color=settings.color):
            print(_NOT_RELEASED, file=sys.stderr)
            return ExitCode.HELD_BACK
        free = partial_plans.without_budgets(fleet)
        return await _applied(free, plan, clusters, settings, options)


def _is_approved(plan: "Plan", options: WriteOptions, *, question: str, color: bool) -> bool:
    """Show what would be done, and ask for approval where there is a terminal.

    A plan in which nothing would be done needs none.
    """
    if not any(one.acts and not one.held for one in plan.changes):
        return True
    stream = _show_plan(plan, options.outputs, color=color)
    if options.auto_approve or not sys.stdin.isatty():
        return options.auto_approve
    return _answer(f"{question} Only `yes` does. ", stream) == "yes"


def _show_plan(plan: "Plan", wanted: tuple[Output, ...], *, color: bool) -> TextIO:
    """Print what is going to be done, and return where."""
    from klutchctl.render import plan_formats

    # Standard output may be for a program; then a person reads the plan beside it.
    quiet = any(one.path is None and one.format != "text" for one in wanted)
    stream = sys.stderr if quiet else sys.stdout
    text = plan_formats.text(plan, color=color and stream.isatty(), columns=columns(stream))
    print(text, file=stream, flush=True)  # the steps that follow are on the other stream
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


async def _applied(
    fleet: "Fleet",
    approved: "Plan",
    clusters: "Clusters",
    settings: Settings,
    options: WriteOptions,
) -> ExitCode:
    """Apply a plan, show how far it is and what was done, and return the exit code.

    Raises Locked.
    """
    from klutchctl.render.apply_report import ends, progress
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

    def end(why: str) -> None:
        fence.close(why)
        shown.note(ends(why, fence.sent))

    with progress(sys.stderr) as shown, ending(end) as received:
        observer = Observer(outcome=shown.outcome, stage=shown.stage)
        report = await run.apply(
            fleet, approved, clusters, options=how, fence=fence, observer=observer
        )
    printed = show(report, options.outputs, settings)
    signalled = received[0] if received else None
    allowed = settings.allow_unreachable
    return apply_code(report, allow_unreachable=allowed, signalled=signalled) or printed


def show(report: "Report", wanted: tuple[Output, ...], settings: Settings) -> ExitCode:
    """Print what was done, in the formats that were asked for; FAILED where one cannot be had.

    On standard output, text leaves out what went well: each step was printed when it was done.
    """
    from klutchctl.render import apply_report as rendering

    def text(path: Path | None) -> str:
        whole = path is not None or settings.verbose
        return rendering.text(report, whole=whole, color=settings.colored(path))

    try:
        write_outputs(
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

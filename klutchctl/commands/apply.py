"""`klutchctl apply` and `release`: carry out plans, and release bindings by name.

Each plan is shown and approved before anything is written.
"""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from klutchctl.entry import ExitCode, apply_code, awaited, ending, exit_code
from klutchctl.options import Place, flag, option, seconds
from klutchctl.settings import (
    Output,
    Settings,
    answer,
    columns,
    output_option,
    parse_outputs,
    write_outputs,
)
from reconciler.core.errors import ConfigError, StalePlan

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
    "CLUSTER/BINDING or CLUSTER/plural.group. The last one may be the fleet repository: ./fleet."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a command that writes. `wait_timeout` is in seconds."""

    auto_approve: Annotated[
        bool, flag("--auto-approve", "Do not ask; needed without a terminal.")
    ] = False
    wait_timeout: Annotated[
        float, seconds("Limit for each wait: for another program, or for Ready.")
    ] = 120.0
    break_lock: Annotated[bool, flag("--break-lock", "Take over the lock of a dead run.")] = False
    force: Annotated[
        bool, flag("--force", "Skip the check that the sync stopped or an address works.")
    ] = False
    output: Annotated[tuple[str, ...], output_option(_FORMATS)] = ()
    dry_run: bool = False
    wait: bool = False

    def __post_init__(self) -> None:
        """Refuse outputs that cannot be written, before anything is done."""
        parse_outputs(self.output, known=_FORMATS)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return parse_outputs(self.output, known=_FORMATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions(WriteOptions):
    """Those of an apply."""

    dry_run: Annotated[bool, flag("--dry-run", "Print the plan, and stop.")] = False
    wait: Annotated[bool, flag("--wait", "Wait until all units are Ready.")] = False


def apply(  # noqa: PLR0913, PLR0917 - each is an option
    settings: Settings,
    place: Place,
    options: ApplyOptions,
    repository: Annotated[
        Path | None,
        option(
            "PATH",
            "With a saved plan: the fleet repository, instead of the plan's own path.",
            "--repository",
        ),
    ] = None,
    watch: Annotated[
        bool,
        flag(
            "--watch",
            "Follow the files until interrupted, and repair drift. It never asks: what no "
            "guard holds back is approved by this option.",
        ),
    ] = False,
    poll: Annotated[float, seconds("--watch: pause between looks at files.")] = 10.0,
    interval: Annotated[
        float, seconds("--watch: pause between repairs of drift.", least=1)
    ] = 300.0,
    listen: Annotated[
        str | None, option("ADDR:PORT", "With --watch: serve /metrics and /healthz.")
    ] = None,
) -> int:
    """Apply a saved plan exactly, or plan, confirm and apply. Safe to repeat.

    PATH may be the file of a plan, too.
    """
    if watch:
        from klutchctl.commands import watch as watching
        from klutchctl.controller import options as parsed
        from klutchctl.controller.sources import of_place

        watch_options = watching.Options(
            source=of_place(place, poll=poll),
            verification=parsed.verification(place),
            interval=interval,
            listen=None if listen is None else watching.address(listen),
            wait_timeout=options.wait_timeout,
        )
        refused = {
            "--dry-run": options.dry_run,
            "--wait": options.wait,
            "--break-lock": options.break_lock,
            "--force": options.force,
            "--repository": repository,
            "-o": options.output,
        }
        return watching.run(settings, watch_options, refused=refused)
    if listen is not None:
        raise typer.BadParameter("--listen needs --watch")
    if options.dry_run and options.output:
        raise typer.BadParameter("--dry-run prints text: `klutchctl plan -o` has other formats")
    if repository is not None and not _is_plan(place.path):
        raise typer.BadParameter("--repository needs a saved plan")
    if _is_plan(place.path) and (settings.clusters or settings.selector):
        raise typer.BadParameter(
            f"{place.path} is a saved plan, which is applied as a whole: narrow the plan instead, "
            "with --cluster or --selector and `plan --out`"
        )
    from klutchctl.repository import fleet_of

    if _is_plan(place.path):
        return awaited(_run(*_saved(place, repository, settings), options, settings))
    return awaited(_run(fleet_of(place, settings), None, place.path, options, settings))


async def _run(
    fleet: "Fleet", saved: "Plan | None", path: Path, options: WriteOptions, settings: Settings
) -> ExitCode:
    """Apply a saved plan, which somebody has approved, or plan and ask."""
    from klutchctl.repository import chosen
    from reconciler import run

    async with settings.registry(fleet) as clusters:
        if (plan := saved) is None:
            only, pace = chosen(fleet, settings), settings.pace()
            plan = (await run.look(fleet, clusters, only=only, credentials=True, pace=pace)).plan
        if saved or options.dry_run:
            _show_plan(plan, options.outputs, settings, whole=options.dry_run or settings.verbose)
        if options.dry_run:
            return exit_code(plan, detailed=False, allow_unreachable=settings.allow_unreachable)
        if not (saved or _is_approved(plan, options, settings, question="Apply this?")):
            print(_NOT_APPROVED, file=sys.stderr)
            return ExitCode.HELD_BACK
        return await _applied(fleet, plan, path, clusters, settings, options)


def _is_plan(target: Path) -> bool:
    return target.is_file() and target.suffix not in _DOCUMENTS


def _saved(
    place: Place, repository_path: Path | None, settings: Settings
) -> "tuple[Fleet, Plan, Path]":
    """Return the fleet that a saved plan was made from, the plan, and where. Raises StalePlan."""
    from klutchctl import files, repository
    from reconciler.planning import planfile

    target = place.path
    plan = planfile.parse(files.read(target, hint=planfile.HINT), str(target))
    here = repository_path or Path(plan.repository)  # that of "" is the current folder
    # It may have been made from a commit that is not checked out, or is being edited.
    refs = [place.ref, plan.revision] if _COMMIT.fullmatch(plan.revision) else [place.ref]
    broken: list[ConfigError] = []
    for ref in refs:
        try:
            fleet = repository.fleet_of(replace(place, path=here, ref=ref), settings)
        except ConfigError as error:
            broken.append(error)
            continue
        if fleet.digest == plan.digest:
            return fleet, plan, here
    if len(broken) == len(refs):
        raise broken[-1]
    where = here.resolve() if place.is_here else here
    raise StalePlan(
        f"{target}: the fleet repository in {where} is not the one that the plan was "
        f"made from, or has changed since. Plan again{''.join(f' ({one})' for one in broken)}"
    )


def release(
    settings: Settings,
    options: WriteOptions,
    target: Annotated[list[str], typer.Argument(metavar="TARGET", help=_TARGETS)],
    fleet: Annotated[Path | None, option("PATH", "The repository.")] = None,
) -> int:
    """Release bindings that left the files; all data stays."""
    from klutchctl import repository
    from reconciler.reports import partial_plans

    named, path = partial_plans.targets_and_path(target)
    if path and fleet is not None:
        raise typer.BadParameter(f"{path} and --fleet {fleet}: name the repository once")
    read = repository.fleet_in(fleet or Path(path), check_owner=settings.git_owner_check)
    partial_plans.check(read, named)
    return awaited(_release(read, named, fleet or Path(path), options, settings))


async def _release(
    fleet: "Fleet", named: "list[Target]", path: Path, options: WriteOptions, settings: Settings
) -> ExitCode:
    """Plan, ask, apply and report; return the exit code."""
    from reconciler import run
    from reconciler.reports import partial_plans
    from reconciler.reports.imports import unmanaged_units

    asked, only = partial_plans.letting_go(fleet), {one.cluster for one in named}
    async with settings.registry(fleet) as clusters:
        look = await run.look(asked, clusters, only=only, credentials=True, pace=settings.pace())
        foreign = unmanaged_units(asked, look.live, only=only)
        plan = partial_plans.releases(fleet, look.plan, named, foreign=foreign)
        if not _is_approved(plan, options, settings, question="Release this?"):
            print(_NOT_RELEASED, file=sys.stderr)
            return ExitCode.HELD_BACK
        free = partial_plans.without_budgets(fleet)
        return await _applied(free, plan, path, clusters, settings, options)


def _is_approved(plan: "Plan", options: WriteOptions, settings: Settings, *, question: str) -> bool:
    """Show the plan, and ask for approval where there is a terminal.

    A plan in which nothing would be done needs none.
    """
    if not any(one.acts and not one.held for one in plan.changes):
        return True
    stream = _show_plan(plan, options.outputs, settings)
    if options.auto_approve or not sys.stdin.isatty():
        return options.auto_approve
    return answer(f"{question} Only `yes` does. ", stream) == "yes"


def _show_plan(
    plan: "Plan", wanted: tuple[Output, ...], settings: Settings, *, whole: bool = True
) -> TextIO:
    """Print the plan, or only its sum, and return the stream."""
    from klutchctl.render import plan_formats, plan_rows

    # Standard output may be for a program; then a person reads the plan beside it.
    quiet = any(one.path is None and one.format != "text" for one in wanted)
    stream = sys.stderr if quiet else sys.stdout
    if whole:
        text = plan_formats.text(
            plan,
            color=settings.color and stream.isatty(),
            columns=columns(stream),
            steps=settings.verbose,
        )
    else:
        heading = f"{plan_rows.heading(plan)}, plan {plan.id[: plan_rows.ID_SHOWN]}"
        text = f"{heading}: {plan_rows.summary(plan)}."
    print(text, file=stream, flush=True)  # the steps that follow are on the other stream
    return stream


async def _applied(
    fleet: "Fleet",
    approved: "Plan",
    path: Path,
    clusters: "Clusters",
    settings: Settings,
    options: WriteOptions,
) -> ExitCode:
    """Apply a plan, show the progress and the results, and return the exit code.

    Raises Locked and StalePlan.
    """
    from klutchctl.render.apply_report import ends, progress
    from reconciler.apply import Observer, Options, run
    from reconciler.controller.fence import WriteFence
    from reconciler.controller.lease import holder_here
    from reconciler.controller.tasks import now_here
    from reconciler.source import git

    fence = WriteFence()
    how = Options(
        holder=holder_here(),
        now=now_here,
        pace=settings.pace(),
        wait=options.wait,
        wait_seconds=options.wait_timeout,
        force=options.force,
        break_lock=options.break_lock,
        ancestors=git.ancestors(path, fleet.revision, check_owner=settings.git_owner_check),
    )

    def end(why: str) -> None:
        fence.close(why)
        shown.note(ends(why, fence.sent))

    with progress(sys.stderr) as shown, ending(end) as received:
        observer = Observer(outcome=shown.outcome, stage=shown.stage)
        report = await run.apply(
            fleet, approved, clusters, options=how, fence=fence, observer=observer
        )
    printed, allowed = show(report, options.outputs, settings), settings.allow_unreachable
    signalled = received[0] if received else None
    return apply_code(report, allow_unreachable=allowed, signalled=signalled) or printed


def show(report: "Report", wanted: tuple[Output, ...], settings: Settings) -> ExitCode:
    """Print the report in the formats of --output; FAILED where one cannot be had.

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

"""`klutchctl plan`: what would change on all clusters. Never writes to any of them."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl import outputs, reach
from klutchctl.reach import Reach
from klutchctl.settings import Settings

if TYPE_CHECKING:
    from reconciler.core.live import Live
    from reconciler.fleet.values import Fleet
    from reconciler.planning.changes import Plan

_FORMATS: Final = ("text", "json", "markdown")


def plan(  # noqa: PLR0913, PLR0917 - each is an option
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="The fleet repository.")] = Path(),
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Save it, to be applied exactly.")
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(
            "--snapshot", metavar="FILE", help="Plan against a snapshot; contact no cluster."
        ),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME", help="Only these app clusters."),
    ] = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 where there are changes.")
    ] = False,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="FORMAT[=PATH]", help=", ".join(_FORMATS)),
    ] = None,
) -> int:
    """Show what would change on all clusters. Nothing is written to any of them."""
    wanted = outputs.parse(output or [], known=_FORMATS)
    import uvloop

    from klutchctl import files, repository
    from klutchctl.outcome import exit_code
    from reconciler.planning import planfile, planner

    settings = context.obj
    assert isinstance(settings, Settings)
    how = reach.of(context)
    fleet = repository.fleet_in(path, check_owner=settings.git_owner_check)
    chosen = repository.chosen(fleet, cluster or ())
    seconds: float | None = None
    if snapshot is None:
        made, seconds = uvloop.run(_planned(fleet, how, settings, chosen))
    else:
        made = planner.plan(fleet, _from_file(snapshot), only=chosen)
    _print(made, wanted, seconds=seconds, color=settings.color)
    if out is not None:
        files.write(out, planfile.dump(made))
    return exit_code(made, detailed=detailed_exitcode, allow_unreachable=how.allow_unreachable)


def _from_file(path: Path) -> "Live":
    from reconciler.core import livefile

    return livefile.parse(path.read_bytes(), str(path))


async def _planned(
    fleet: "Fleet", how: Reach, settings: Settings, chosen: frozenset[str] | None
) -> "tuple[Plan, float]":
    """Read the clusters, and what planning asks beyond the usual; return how long that took."""
    from reconciler.kube import registry
    from reconciler.observe import answer, observe
    from reconciler.planning import planner

    pace = reach.pace(how)
    began = time.monotonic()
    async with registry.of(fleet, reach.surroundings(how, settings)) as clusters:
        live = await observe(fleet, clusters, only=chosen, pace=pace)
        read = time.monotonic()
        decided = planner.decide(fleet, live, only=chosen)
        if not (decided.questions.in_use or decided.questions.bodies):
            return decided.plan, read - began
        live = await answer(fleet, live, clusters, decided.questions, pace=pace)
        return planner.plan(fleet, live, only=chosen), time.monotonic() - began


def _print(
    made: "Plan", wanted: tuple[outputs.Output, ...], *, seconds: float | None, color: bool
) -> None:
    from klutchctl.render import plan_json, plan_markdown, plan_text

    def text(path: Path | None) -> str:
        # In a file or pipe, the same plan is the same bytes.
        watched = path is None and sys.stdout.isatty()
        return plan_text.render(made, seconds=seconds if watched else None, color=color and watched)

    outputs.write(
        wanted,
        {
            "text": text,
            "json": lambda _: plan_json.render(made),
            "markdown": lambda _: plan_markdown.render(made),
        },
    )

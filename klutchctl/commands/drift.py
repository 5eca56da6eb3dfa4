"""`klutchctl drift`: what would have to be repaired. Never writes to any cluster."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl import outputs, reach
from klutchctl.reach import Reach
from klutchctl.settings import Settings, of

if TYPE_CHECKING:
    from reconciler.fleet.values import Fleet
    from reconciler.planning.changes import Plan

_FORMATS: Final = ("text", "json", "markdown")


def drift(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="The fleet repository.")] = Path(),
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 where there is drift.")
    ] = False,
    credentials: Annotated[
        bool,
        typer.Option(
            "--credentials",
            help="Read the Secrets with kubeconfigs as well; needs the rights to apply.",
        ),
    ] = False,
    output: Annotated[
        list[str] | None,
        outputs.option(_FORMATS),
    ] = None,
) -> int:
    """Show what is ours and differs from the files; not what is new or leaves."""
    wanted = outputs.parse(output, known=_FORMATS)
    import uvloop

    from klutchctl import repository
    from klutchctl.outcome import exit_code
    from reconciler.reports import drift as repairs

    settings = of(context)
    how = reach.of(context)
    fleet = repository.fleet_in(path, check_owner=settings.git_owner_check)
    chosen = repository.chosen(fleet, how)
    made, seconds = uvloop.run(_planned(fleet, how, settings, chosen, credentials=credentials))
    found = repairs.drift(made)
    _print(found, seconds, wanted, color=settings.color)
    return exit_code(found, detailed=detailed_exitcode, allow_unreachable=how.allow_unreachable)


async def _planned(
    fleet: "Fleet",
    how: Reach,
    settings: Settings,
    chosen: frozenset[str] | None,
    *,
    credentials: bool,
) -> "tuple[Plan, float]":
    from klutchctl import looking
    from reconciler.kube import registry

    async with registry.of(fleet, reach.surroundings(how, settings)) as clusters:
        found = await looking.look(fleet, clusters, how, only=chosen, credentials=credentials)
        return found.plan, found.seconds


def _print(
    plan: "Plan", seconds: float, wanted: tuple[outputs.Output, ...], *, color: bool
) -> None:
    from klutchctl.render import plan_json, plan_markdown, plan_text

    def text(path: Path | None) -> str:
        # In a file or pipe, the same drift is the same bytes.
        watched = path is None and sys.stdout.isatty()
        return plan_text.render(plan, seconds=seconds if watched else None, color=color and watched)

    outputs.write(
        wanted,
        {
            "text": text,
            "json": lambda _: plan_json.render(plan),
            "markdown": lambda _: plan_markdown.render(plan),
        },
    )

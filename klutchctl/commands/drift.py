"""`klutchctl drift`: what would have to be repaired. Never writes to any cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klutchctl import cluster_options, outputs
from klutchctl.cluster_options import ClusterOptions
from klutchctl.commands.plan import FORMATS, print_plan
from klutchctl.settings import Settings, of

if TYPE_CHECKING:
    from reconciler.fleet.values import Fleet
    from reconciler.planning.changes import Plan


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
    output: Annotated[list[str] | None, outputs.option(FORMATS)] = None,
) -> int:
    """Show what is ours and differs from the files; not what is new or leaves."""
    wanted = outputs.parse(output, known=FORMATS)
    import uvloop

    from klutchctl import repository
    from klutchctl.exit_status import exit_code
    from reconciler.reports import drift as repairs

    settings = of(context)
    options = cluster_options.of(context)
    fleet = repository.fleet_in(path, check_owner=settings.git_owner_check)
    chosen = repository.chosen(fleet, options)
    made, seconds = uvloop.run(_planned(fleet, options, settings, chosen, credentials=credentials))
    found = repairs.drift(made)
    print_plan(found, wanted, color=settings.color, seconds=seconds)
    return exit_code(found, detailed=detailed_exitcode, allow_unreachable=options.allow_unreachable)


async def _planned(
    fleet: "Fleet",
    options: ClusterOptions,
    settings: Settings,
    chosen: frozenset[str] | None,
    *,
    credentials: bool,
) -> "tuple[Plan, float]":
    from reconciler import run
    from reconciler.kube import registry

    async with registry.of(fleet, options.surroundings(settings)) as clusters:
        found = await run.look(
            fleet, clusters, only=chosen, credentials=credentials, pace=options.pace()
        )
        return found.plan, found.seconds

"""`klutchctl release`: lets go of live bindings. Their data stays."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klutchctl import applying, outputs
from klutchctl.exit_codes import ExitCode
from klutchctl.settings import Settings, of

if TYPE_CHECKING:
    from reconciler.fleet.values import Fleet
    from reconciler.reports.targets import Target

_NOT_APPROVED = (
    "Nothing was released: nobody approved it. Give --auto-approve where there is no terminal."
)


def release(  # noqa: PLR0913, PLR0917 - each is an option
    context: typer.Context,
    target: Annotated[
        list[str], typer.Argument(metavar="CLUSTER/BINDING...", help="Or CLUSTER/plural.group.")
    ],
    fleet: Annotated[
        Path, typer.Option("--fleet", metavar="PATH", help="The fleet repository.")
    ] = Path(),
    auto_approve: Annotated[
        bool, typer.Option("--auto-approve", help="Do not ask; needed without a terminal.")
    ] = False,
    wait_timeout: Annotated[
        float,
        typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="For each wait for a peer."),
    ] = 120.0,
    break_lock: Annotated[
        bool, typer.Option("--break-lock", help="Take the lock over from a run that is dead.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Without the proof that sync has stopped.")
    ] = False,
    output: Annotated[list[str] | None, outputs.option(applying.FORMATS)] = None,
) -> int:
    """Let go of bindings that the files name no more: sync stops, data and Secrets stay."""
    wanted = outputs.parse(output, known=applying.FORMATS)
    import uvloop

    from klutchctl import repository
    from reconciler.reports import release_plan, targets

    settings = of(context)
    named = [targets.parse(one) for one in target]
    read = repository.fleet_in(fleet, check_owner=settings.git_owner_check)
    release_plan.check(read, named)
    options = applying.WriteOptions(
        outputs=wanted,
        auto_approve=auto_approve,
        wait_timeout=wait_timeout,
        force=force,
        break_lock=break_lock,
    )
    return uvloop.run(_run(read, named, options, settings))


async def _run(
    fleet: "Fleet", named: "list[Target]", options: applying.WriteOptions, settings: Settings
) -> ExitCode:
    """Plan, ask, apply and report; return the exit code."""
    from reconciler import run
    from reconciler.kube import registry
    from reconciler.reports import release_plan
    from reconciler.reports.unmanaged import unmanaged_bindings

    asked, only = release_plan.letting_go(fleet), {one.cluster for one in named}
    async with registry.of(fleet, settings.surroundings()) as clusters:
        look = await run.look(asked, clusters, only=only, credentials=True, pace=settings.pace())
        foreign = [one.unit for one in unmanaged_bindings(asked, look.live, only=only)]
        plan = release_plan.releases(fleet, look.plan, named, foreign=foreign)
        question, color = "Release this?", settings.color
        if not applying.is_approved(plan, options, question=question, color=color):
            print(_NOT_APPROVED, file=sys.stderr)
            return ExitCode.HELD_BACK
        free = release_plan.without_budgets(fleet)
        return await applying.apply(free, plan, clusters, settings, options)

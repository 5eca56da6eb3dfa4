"""`klutchctl why`: where a binding in a cluster comes from, and what becomes of it. Only reads."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl import outputs
from klutchctl.entry import ExitCode
from klutchctl.settings import Settings, of

if TYPE_CHECKING:
    from reconciler.fleet.load import Loaded
    from reconciler.health import UnitHealth
    from reconciler.observe import Clusters, Pace
    from reconciler.reports.partial_plans import Target
    from reconciler.reports.why import Explanation
    from reconciler.run import Look

_FORMATS: Final = ("text", "json")


def why(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="CLUSTER/BINDING", help="Or CLUSTER/plural.group.")
    ],
    path: Annotated[Path, typer.Argument(help="The fleet repository.")] = Path(),
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", metavar="FILE", help="By a snapshot; contact no cluster."),
    ] = None,
    output: Annotated[list[str] | None, outputs.option(_FORMATS)] = None,
) -> int:
    """Show which lines of the files make a binding, what a plan does with it, and how it is."""
    wanted = outputs.parse(output, known=_FORMATS)
    import uvloop

    from klutchctl import repository
    from klutchctl.render import why as rendering
    from reconciler.reports.partial_plans import parse_target

    settings = of(context)
    named = parse_target(target)
    tree = repository.snapshot_in(path, ref=None, check_owner=settings.git_owner_check)
    loaded = repository.documents(tree)
    if snapshot is None:
        answer = uvloop.run(_asked(loaded, named, settings))
    else:
        answer = _from_file(loaded, named, snapshot), ()
    explanation, health = answer

    def text(file: Path | None) -> str:
        color = settings.color and outputs.on_terminal(file)
        return rendering.text(explanation, health, color=color)

    outputs.write(wanted, {"text": text, "json": lambda _: rendering.as_json(explanation, health)})
    unread = explanation.plan.unseen and not settings.allow_unreachable
    return ExitCode.PARTIAL if unread else ExitCode.SUCCESS


def _from_file(loaded: "Loaded", target: "Target", path: Path) -> "Explanation":
    from reconciler.core.live import parse_live
    from reconciler.planning import planner
    from reconciler.reports import why

    live = parse_live(path.read_bytes(), str(path))
    plan = planner.plan(why.watching(loaded.fleet), live)
    return why.explained(loaded, live, plan, target)


async def _asked(
    loaded: "Loaded", target: "Target", settings: Settings
) -> "tuple[Explanation, tuple[UnitHealth, ...]]":
    """Return the explanation by what is live, and how the units are."""
    from reconciler import run
    from reconciler.kube import registry
    from reconciler.reports import why

    fleet = why.watching(loaded.fleet)
    async with registry.of(fleet, settings.surroundings()) as clusters:
        seen = await run.look(fleet, clusters, only={target.cluster}, pace=settings.pace())
        explanation = why.explained(loaded, seen.live, seen.plan, target)
        if explanation.prunes:
            # Whether it is held back depends on all that the whole fleet would prune.
            seen = await run.look(fleet, clusters, only=None, pace=settings.pace())
            explanation = why.explained(loaded, seen.live, seen.plan, target)
        health = await _health(loaded, seen, explanation, clusters, settings.pace())
        return explanation, health


async def _health(
    loaded: "Loaded", seen: "Look", found: "Explanation", clusters: "Clusters", pace: "Pace"
) -> "tuple[UnitHealth, ...]":
    """Return how the units are, by what was seen and the CRDs that only the cluster can tell."""
    from reconciler.health import board, survey

    name = found.target.cluster
    if name not in loaded.fleet.clusters:
        return ()
    view = board.view_of(loaded.fleet, seen.live, only={name})
    made = await survey.judged(view, clusters, now=lambda: datetime.now(UTC), pace=pace)
    return tuple(one.health for one in made.units if one.health.unit in found.units)

"""`klutchctl snapshot`: the live state of a fleet, without secrets, as a file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klutchctl import cluster_options
from klutchctl.cluster_options import ClusterOptions
from klutchctl.exit_codes import ExitCode
from klutchctl.settings import Settings, of

if TYPE_CHECKING:
    from reconciler.core.live import ClusterState, Live
    from reconciler.fleet.values import Fleet


def snapshot(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write it.")],
    path: Annotated[Path, typer.Argument(help="The fleet repository.")] = Path(),
) -> int:
    """Write what is live to a file: for offline planning, and for reports of defects.

    It holds no credentials, and digests in the place of Secret values. No cluster is changed.
    """
    import asyncio

    from klutchctl import files, repository
    from reconciler.core import livefile

    settings = of(context)
    options = cluster_options.of(context)
    fleet = repository.fleet_in(path, check_owner=settings.git_owner_check)
    live = asyncio.run(_observe(fleet, options, settings, repository.chosen(fleet, options)))
    files.write(out, livefile.dump(live))
    return _report(fleet, live, out, allow_unreachable=options.allow_unreachable)


async def _observe(
    fleet: "Fleet", options: ClusterOptions, settings: Settings, chosen: frozenset[str] | None
) -> "Live":
    from reconciler.kube import registry
    from reconciler.observe import answer, observe
    from reconciler.observe.read_scope import follow_up_reads

    pace = options.pace()
    async with registry.of(fleet, options.surroundings(settings)) as clusters:
        live = await observe(fleet, clusters, only=chosen, pace=pace)
        return await answer(fleet, live, clusters, follow_up_reads(fleet, live), pace=pace)


def _report(fleet: "Fleet", live: "Live", out: Path, *, allow_unreachable: bool) -> ExitCode:
    """Say what the file holds, and what it lacks. A suspended cluster is not missed."""
    from reconciler.core.live import Unavailable

    verdicts: dict[str, ClusterState | Unavailable] = {
        **{f"control plane {name}": each for name, each in live.control_planes.items()},
        **{
            f"cluster {name}": each
            for name, each in live.clusters.items()
            if fleet.clusters[name].suspended is None
        },
        **{f"leaving cluster {name}": each for name, each in live.leaving.items()},
    }
    unseen = {name: each for name, each in verdicts.items() if isinstance(each, Unavailable)}
    for name, each in unseen.items():
        print(f"Unseen: {name}: {each.reason}. {each.remedy}", file=sys.stderr)
    seen = len(verdicts) - len(unseen)
    typer.echo(f"Snapshot of {seen} of {len(verdicts)} clusters: {out}")
    if unseen and not seen:
        return ExitCode.FAILED
    return ExitCode.PARTIAL if unseen and not allow_unreachable else ExitCode.SUCCESS

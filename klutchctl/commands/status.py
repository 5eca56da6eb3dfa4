"""`klutchctl status`, `why` and `snapshot`: print or save the state of bindings.

None writes to any cluster.
"""

import gc
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl.entry import ExitCode, awaited, first, reading_code
from klutchctl.options import Place, flag, option, seconds
from klutchctl.settings import Output, Settings, output_option, parse_outputs, usable, write_outputs
from reconciler.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.core.live import ClusterState, Live
    from reconciler.fleet.load import Loaded
    from reconciler.fleet.values import Fleet
    from reconciler.health.board import Board
    from reconciler.health.verdict import UnitHealth
    from reconciler.observe import Clusters, Pace
    from reconciler.reports.partial_plans import Target
    from reconciler.reports.why import Explanation
    from reconciler.run import Look
    from reconciler.watch.fleet_state import FleetState


_FORMATS: Final = ("text", "json", "jsonl", "html")
_WATCHED: Final = ("text", "jsonl")
_OF_WHY: Final = ("text", "json")


def status(
    settings: Settings,
    place: Place,
    watch: Annotated[bool, flag("--watch", "Repeat until interrupted.")] = False,
    every: Annotated[float, seconds("--watch: pause between looks.", least=1)] = 10.0,
    source: Annotated[
        Path | None, option("FILE", "Show a file of -o json; contact no cluster.", "--from")
    ] = None,
    output: Annotated[list[str] | None, output_option(_FORMATS)] = None,
) -> int:
    """Show the state of each binding in each cluster."""
    wanted = parse_outputs(output, known=_WATCHED if watch else _FORMATS)
    if watch and (len(wanted) > 1 or wanted[0].path is not None):
        raise typer.BadParameter("--watch prints one format, to standard output")
    if source is not None:
        if watch:
            raise typer.BadParameter("--watch looks at clusters, and --from at none")
        return _written(source, wanted, settings)
    from klutchctl import repository

    fleet = repository.fleet_of(place, settings)
    chosen = repository.chosen(fleet, settings)
    show = _watcher(wanted[0], settings) if watch else _printer(wanted, settings)
    board = awaited(_look(fleet, settings, chosen, show=show, every=every if watch else None))
    return exit_code(board, allow_unreachable=settings.allow_unreachable)


def _written(file: Path, wanted: tuple[Output, ...], settings: Settings) -> ExitCode:
    """Print a status document, and return the exit code of a status like it."""
    from klutchctl import files
    from klutchctl.render import status_document

    if settings.selector is not None:
        raise typer.BadParameter("--from has no labels of clusters for --selector to look at")
    state = status_document.parse(files.read(file, hint=status_document.HINT), str(file))
    assert state.board is not None
    board = _narrowed(state.board, settings.clusters)
    _printer(wanted, settings, state)(board)
    return exit_code(board, allow_unreachable=settings.allow_unreachable)


def _narrowed(board: "Board", names: tuple[str, ...]) -> "Board":
    """Return a board of some clusters; of all without names. Raises ConfigError."""
    if not names:
        return board
    kept = tuple(one for one in board.clusters if one.name in names)
    unknown = sorted(set(names) - {one.name for one in kept})
    if unknown:
        raise ConfigError(f"no such cluster there: {', '.join(unknown)}", where="--cluster")
    near = {name for one in kept for name in one.way}
    unread = tuple(one for one in board.unread if one.name in near)
    return replace(board, clusters=kept, unread=unread)


def _watcher(output: Output, settings: Settings) -> "Callable[[Board], None]":
    if output.format == "text" and sys.stdout.isatty():
        return _screen(color=settings.color)
    return _log(as_json=output.format == "jsonl")


def exit_code(board: "Board", *, allow_unreachable: bool) -> ExitCode:
    """Return 9 where a unit that is wanted is not healthy, 5 where a cluster was not read.

    What is Progressing may still become Ready in time. `allow_unreachable` forgives what was not
    read, unless that is everything (1).
    """
    from reconciler.health.verdict import State

    not_read = (State.UNKNOWN, State.SUSPENDED)
    nothing = all(cluster.state in not_read for cluster in board.clusters)
    read = reading_code(
        partial=bool(board.unread),
        nothing=bool(board.unread) and nothing,
        allow_unreachable=allow_unreachable,
    )
    units = {
        one.health.state
        for cluster in board.clusters
        if cluster.state is not State.UNKNOWN
        for one in cluster.units
        if not one.leaving
    }
    whole = {one.state for one in board.clusters} | {one.state for one in board.planes}
    ill = units & {State.DEGRADED, State.UNKNOWN} | whole & {State.DEGRADED}
    return first([read, *([ExitCode.UNHEALTHY] if ill else [])])


async def _look(
    fleet: "Fleet",
    settings: Settings,
    chosen: frozenset[str] | None,
    *,
    show: "Callable[[Board], None]",
    every: float | None,
) -> "Board":
    """Look at the clusters and show the results; again and again with `every`."""
    from asyncio import sleep

    from reconciler.controller.tasks import now_here
    from reconciler.health.survey import survey
    from reconciler.watch.fleet_state import remembering

    pace = settings.pace()
    before: Board | None = None
    async with settings.registry(fleet) as clusters:
        while True:
            board = await survey(fleet, clusters, now=now_here, only=chosen, pace=pace)
            board = board if before is None else remembering(before, board)
            show(board)
            if every is None:
                return board
            gc.set_threshold(100_000, 50, 50)  # as `ending` does, as it may last
            before = board
            await sleep(every)


def _printer(
    wanted: tuple[Output, ...], settings: Settings, state: "FleetState | None" = None
) -> "Callable[[Board], None]":
    """Return a printer of boards; `state` is known beside them."""
    from klutchctl.render import status, status_document

    def show(board: "Board") -> None:
        write_outputs(
            wanted,
            {
                "text": lambda path: status.text(
                    board, color=settings.colored(path), docs=settings.docs
                ),
                "json": lambda _: status_document.dump(board, state=state),
                "jsonl": lambda _: status.events(board),
                "html": lambda _: _html(board),
            },
        )

    return show


def _html(board: "Board") -> str:
    """Return one page that needs nothing beside itself."""
    from klutchctl.web.board import rendering
    from klutchctl.web.board.index import index_of
    from klutchctl.web.board.overview import file
    from reconciler.watch.fleet_state import FleetState

    return rendering.file(file(index_of(0, FleetState(name=board.fleet, board=board))))


def _screen(*, color: bool) -> "Callable[[Board], None]":
    """Draw each look over the one before. Lines that do not fit are cut, with a note."""
    from klutchctl.render import status

    def show(board: "Board") -> None:
        text = status.text(board, color=color)
        lines, room = text.splitlines(), shutil.get_terminal_size().lines - 1
        if len(lines) > room > 2:
            cut = len(lines) - room + 2
            lines = [*lines[: room - 2], f"... {cut} more lines", lines[-1]]
        typer.echo("\x1b[H\x1b[2J", file=getattr(sys.stdout, "plain", sys.stdout), nl=False)
        typer.echo("\n".join(lines))

    return show


def _log(*, as_json: bool) -> "Callable[[Board], None]":
    """Write the first look as it is, and the changes of each later one."""
    from klutchctl.render import status

    before: Board | None = None

    def show(board: "Board") -> None:
        nonlocal before
        if before is None:
            text = status.events(board) if as_json else status.text(board)
        elif as_json:
            text = status.events(board, before=before)
        else:
            text = status.changes(before, board)
        before = board
        if text:
            typer.echo(text, nl=False)

    return show


def snapshot(
    settings: Settings,
    out: Annotated[Path, option("FILE", "The file to write.", "--out")],
    path: Annotated[Path, typer.Argument(help="The fleet repository.")] = Path(),
) -> int:
    """Save the live state of all clusters to a file.

    For plans without access to clusters, and for bug reports.

    The file has no credentials: values of Secrets are digests. Changes no cluster.
    """
    usable("--out", out)
    from klutchctl import files, repository
    from reconciler.core.live import dump_live

    fleet = repository.fleet_in(path, check_owner=settings.git_owner_check)
    live = awaited(_observe(fleet, settings, repository.chosen(fleet, settings)))
    files.write(out, dump_live(live))
    return _report(fleet, live, out, allow_unreachable=settings.allow_unreachable)


async def _observe(fleet: "Fleet", settings: Settings, chosen: frozenset[str] | None) -> "Live":
    from reconciler.observe import answer, observe
    from reconciler.observe.read_scope import follow_up_reads

    pace = settings.pace()
    async with settings.registry(fleet) as clusters:
        live = await observe(fleet, clusters, only=chosen, pace=pace)
        return await answer(fleet, live, clusters, follow_up_reads(fleet, live), pace=pace)


def _report(fleet: "Fleet", live: "Live", out: Path, *, allow_unreachable: bool) -> ExitCode:
    """Print the content of the file, and the missing parts, apart from suspended clusters."""
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
    return reading_code(
        partial=bool(unseen),
        nothing=bool(unseen) and not seen,
        allow_unreachable=allow_unreachable,
    )


def why(
    settings: Settings,
    target: Annotated[
        str, typer.Argument(metavar="CLUSTER/BINDING", help="A unit; or CLUSTER/plural.group.")
    ],
    path: Annotated[Path, typer.Argument(help="The fleet repository.")] = Path(),
    snapshot: Annotated[
        Path | None, option("FILE", "Use a snapshot; contact no cluster.", "--snapshot")
    ] = None,
    output: Annotated[list[str] | None, output_option(_OF_WHY)] = None,
) -> int:
    """Explain a binding by the files, the plan and its state."""
    wanted = parse_outputs(output, known=_OF_WHY)
    from klutchctl import repository
    from klutchctl.render import why as rendering
    from reconciler.reports.partial_plans import parse_target

    named = parse_target(target)
    tree = repository.snapshot_in(path, check_owner=settings.git_owner_check)
    loaded = repository.documents(tree)
    explanation, health = (
        awaited(_asked(loaded, named, settings))
        if snapshot is None
        else (_from_file(loaded, named, snapshot), ())
    )
    write_outputs(
        wanted,
        {
            "text": lambda file: rendering.text(
                explanation, health, color=settings.colored(file), docs=settings.docs
            ),
            "json": lambda _: rendering.as_json(explanation, health),
        },
    )
    unread = explanation.plan.unseen and not settings.allow_unreachable
    return ExitCode.PARTIAL if unread else ExitCode.SUCCESS


def _from_file(loaded: "Loaded", target: "Target", path: Path) -> "Explanation":
    from klutchctl import files
    from reconciler.core import live
    from reconciler.planning import planner
    from reconciler.reports import why

    known = live.parse_live(files.read(path, hint=live.HINT), str(path))
    plan = planner.plan(why.watching(loaded.fleet), known)
    return why.explained(loaded, known, plan, target)


async def _asked(
    loaded: "Loaded", target: "Target", settings: Settings
) -> "tuple[Explanation, tuple[UnitHealth, ...]]":
    from reconciler import run
    from reconciler.reports import why

    fleet = why.watching(loaded.fleet)
    async with settings.registry(fleet) as clusters:
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
    """Return the health of the units, by the look and the CRDs that only the cluster has."""
    from reconciler.controller.tasks import now_here
    from reconciler.health import board, survey

    name = found.target.cluster
    if name not in loaded.fleet.clusters:
        return ()
    view = board.view_of(loaded.fleet, seen.live, only={name})
    made = await survey.judged(view, clusters, now=now_here, pace=pace)
    return tuple(one.health for one in made.units if one.health.unit in found.units)

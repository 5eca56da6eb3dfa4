"""`klutchctl status` and `snapshot`: how every binding is, and all that is live, as a file.

Neither writes to any cluster.
"""

import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl import outputs
from klutchctl.entry import ExitCode, first, reading_code
from klutchctl.settings import Settings, of

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.core.live import ClusterState, Live
    from reconciler.fleet.values import Fleet
    from reconciler.health.board import Board

_FORMATS: Final = ("text", "json", "jsonl")
_WATCHED: Final = ("text", "jsonl")
_CLEAR: Final = "\x1b[H\x1b[2J"


def status(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="The fleet repository.")] = Path(),
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again and again, until interrupted.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(min=1, max=86_400, metavar="SECONDS", help="With --watch: from look to look."),
    ] = 10.0,
    output: Annotated[list[str] | None, outputs.option(_FORMATS)] = None,
) -> int:
    """Show clusters x bindings: state, age, reason. Exit code 9: some are not healthy."""
    wanted = outputs.parse(output, known=_WATCHED if watch else _FORMATS)
    if watch and (len(wanted) > 1 or wanted[0].path is not None):
        raise typer.BadParameter("--watch prints one format, to standard output")
    import uvloop

    from klutchctl import repository

    settings = of(context)
    fleet = repository.fleet_in(path, check_owner=settings.git_owner_check)
    chosen = repository.chosen(fleet, settings)
    show = _watcher(wanted[0], settings) if watch else _printer(wanted, color=settings.color)
    pause = every if watch else None
    board = uvloop.run(_look(fleet, settings, chosen, show=show, every=pause))
    return exit_code(board, allow_unreachable=settings.allow_unreachable)


def _watcher(output: outputs.Output, settings: Settings) -> "Callable[[Board], None]":
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
    whole = {cluster.state for cluster in board.clusters} & {State.DEGRADED}
    ill = (units | whole) & {State.DEGRADED, State.UNKNOWN}
    return first([read, *([ExitCode.UNHEALTHY] if ill else [])])


async def _look(
    fleet: "Fleet",
    settings: Settings,
    chosen: frozenset[str] | None,
    *,
    show: "Callable[[Board], None]",
    every: float | None,
) -> "Board":
    """Look at the clusters and show what was seen; again and again where `every` says so."""
    from asyncio import sleep

    from reconciler.health.board import remembering
    from reconciler.health.survey import survey
    from reconciler.kube import registry

    def now() -> datetime:
        return datetime.now(UTC)

    pace = settings.pace()
    before: Board | None = None
    async with registry.of(fleet, settings.surroundings()) as clusters:
        while True:
            board = await survey(fleet, clusters, now=now, only=chosen, pace=pace)
            board = board if before is None else remembering(before, board)
            show(board)
            if every is None:
                return board
            before = board
            await sleep(every)


def _printer(wanted: tuple[outputs.Output, ...], *, color: bool) -> "Callable[[Board], None]":
    from klutchctl.render import status

    def show(board: "Board") -> None:
        outputs.write(
            wanted,
            {
                "text": lambda path: status.text(board, color=color and outputs.on_terminal(path)),
                "json": lambda _: status.as_json(board),
                "jsonl": lambda _: status.events(board),
            },
        )

    return show


def _screen(*, color: bool) -> "Callable[[Board], None]":
    """Draw each look over the one before. What does not fit is cut, and said to be."""
    from klutchctl.render import status

    def show(board: "Board") -> None:
        text = status.text(board, color=color)
        lines, room = text.splitlines(), shutil.get_terminal_size().lines - 1
        if len(lines) > room > 2:
            cut = len(lines) - room + 2
            lines = [*lines[: room - 2], f"... {cut} more lines", lines[-1]]
        typer.echo(_CLEAR + "\n".join(lines))

    return show


def _log(*, as_json: bool) -> "Callable[[Board], None]":
    """Write the first look as it is, and of each later one what changed."""
    from klutchctl.render import status

    before: Board | None = None

    def show(board: "Board") -> None:
        nonlocal before
        if before is None:
            text = status.events(board) if as_json else status.text(board)
        elif as_json:
            text = status.events(board, only=status.changed(before, board))
        else:
            text = status.changes(before, board)
        before = board
        if text:
            typer.echo(text, nl=False)

    return show


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
    from reconciler.core.live import dump_live

    settings = of(context)
    fleet = repository.fleet_in(path, check_owner=settings.git_owner_check)
    live = asyncio.run(_observe(fleet, settings, repository.chosen(fleet, settings)))
    files.write(out, dump_live(live))
    return _report(fleet, live, out, allow_unreachable=settings.allow_unreachable)


async def _observe(fleet: "Fleet", settings: Settings, chosen: frozenset[str] | None) -> "Live":
    from reconciler.kube import registry
    from reconciler.observe import answer, observe
    from reconciler.observe.read_scope import follow_up_reads

    pace = settings.pace()
    async with registry.of(fleet, settings.surroundings()) as clusters:
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
    return reading_code(
        partial=bool(unseen),
        nothing=bool(unseen) and not seen,
        allow_unreachable=allow_unreachable,
    )

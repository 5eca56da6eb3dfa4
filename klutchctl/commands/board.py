"""`klutchctl board`: serves the state of a fleet as web pages. Writes to no cluster."""

import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klutchctl.entry import awaited, ending
from klutchctl.options import flag, option, seconds
from klutchctl.settings import Settings
from reconciler.core.errors import ConfigError

if TYPE_CHECKING:
    from klutchctl.web.board.overview import Explain
    from reconciler.fleet.values import Fleet
    from reconciler.planning.changes import Plan
    from reconciler.watch.fleet_state import FleetState, Waiting
    from reconciler.watch.loop import States


def board(  # noqa: PLR0913, PLR0917 - each is an option
    settings: Settings,
    path: Annotated[
        Path | None, typer.Argument(help="The fleet repository.", show_default=".")
    ] = None,
    given: Annotated[
        Path | None, option("STATUS.json", "Show a file of `status -o json`.", "--from")
    ] = None,
    plan: Annotated[
        Path | None, option("PLAN.json", "With --from: the plan of the same fleet.", "--plan")
    ] = None,
    listen: Annotated[str, option("ADDR:PORT", "Address of the board.")] = "127.0.0.1:8080",
    behind_proxy: Annotated[
        bool, flag("--behind-proxy", "An authenticating proxy is in front of --listen.")
    ] = False,
    host: Annotated[
        list[str] | None, option("NAME", "Host name that the proxy uses; repeatable.")
    ] = None,
    every: Annotated[float, seconds("Pause between looks.", least=1)] = 10.0,
) -> int:
    """Serve the state of bindings as web pages.

    It reads the files once. It has no login, so everybody who can connect sees everything.
    """
    if given is not None and path is not None:
        raise typer.BadParameter("--from shows a file, so it takes no PATH")
    if given is not None and (settings.clusters or settings.selector is not None):
        raise typer.BadParameter(
            "--from shows all of a file: --cluster and --selector narrow looks"
        )
    if plan is not None and given is None:
        raise typer.BadParameter("--plan needs --from: of live clusters, the plan is made")
    from klutchctl.commands import watch
    from klutchctl.web.board.server import reached_by_others

    address = watch.address(listen)
    if reached_by_others(
        address, behind_proxy=behind_proxy, option="--listen", permit="--behind-proxy"
    ):
        print(
            f"Warning: who reaches {address[0] or 'this machine'} port {address[1]} past the "
            "proxy reads all of this without a login",
            file=sys.stderr,
        )
    hosts = tuple(host or ())
    if given is None:
        return awaited(_live((path or Path()).resolve(), settings, address, hosts, every))
    from asyncio import Event

    from reconciler.watch.loop import States

    return awaited(_served(States(_read(given, plan)), settings, address, hosts, Event().wait))


def _read(given: Path, plan: Path | None) -> "FleetState":
    """Return the fleet and its state by files. Raises ConfigError."""
    from klutchctl import files
    from klutchctl.render import status_document
    from reconciler.planning import planfile

    state = status_document.parse(files.read(given, hint=status_document.HINT), str(given))
    if plan is None:
        return state
    found = planfile.parse(files.read(plan, hint=planfile.HINT), str(plan))
    if found.fleet != state.name:
        raise ConfigError(f"the plan is of fleet {found.fleet}, not {state.name}", where=str(plan))
    return replace(state, waiting=_waiting(found))


def _waiting(plan: "Plan") -> "Waiting":
    from reconciler.planning.changes import Action
    from reconciler.watch.fleet_state import Waiting

    lines = tuple((one, None) for one in plan.changes if one.action is not Action.NOOP)
    return Waiting(lines, plan.held, plan.unseen, plan.id)


async def _live(
    path: Path, settings: Settings, address: tuple[str, int], hosts: tuple[str, ...], every: float
) -> int:
    """Serve the state of each look."""
    from klutchctl import repository
    from klutchctl.web.board.server import Explaining
    from reconciler.watch.fleet_state import FleetState, SourceView
    from reconciler.watch.loop import States

    tree = repository.snapshot_in(path, check_owner=settings.git_owner_check)
    fleet = repository.documents(tree).fleet
    source = SourceView(url=str(path), revision=fleet.revision)
    states = States(FleetState(name=fleet.name, source=source, fleet=fleet))
    looks = partial(_looks, states, fleet, settings, every)
    return await _served(states, settings, address, hosts, looks, Explaining(lambda: tree))


async def _looks(states: "States", fleet: "Fleet", settings: Settings, every: float) -> None:
    """Look at the clusters again and again, and publish the health of units and waiting lines."""
    from asyncio import sleep

    from klutchctl import repository
    from reconciler import run
    from reconciler.controller.tasks import now_here
    from reconciler.health import board, survey
    from reconciler.watch import fleet_state

    pace, chosen = settings.pace(), repository.chosen(fleet, settings)
    async with settings.registry(fleet) as clusters:
        while True:
            found = await run.look(fleet, clusters, only=chosen, pace=pace)
            view = board.view_of(fleet, found.live, only=chosen)
            seen = await survey.judged(view, clusters, now=now_here, pace=pace)
            state = fleet_state.board_seen(states.now, seen, None)
            states.put(replace(state, waiting=_waiting(found.plan)))
            await sleep(every)


async def _served(
    states: "States",
    settings: Settings,
    address: tuple[str, int],
    hosts: tuple[str, ...],
    work: Callable[[], Coroutine[Any, Any, Any]],
    explain: "Explain" = lambda _: None,
) -> int:
    """Serve these states until a signal, or the failure of what works on them."""
    from asyncio import Event

    from klutchctl.web.board.server import serving
    from reconciler.controller.tasks import unless

    stop = Event()
    with ending(lambda _: stop.set()) as received:
        async with serving(address, states, hosts=hosts, explain=explain, docs=settings.docs) as (
            host,
            port,
        ):
            typer.echo(f"The board is at http://{f'[{host}]' if ':' in host else host}:{port}/")
            await unless(stop, work())
    return received[0]

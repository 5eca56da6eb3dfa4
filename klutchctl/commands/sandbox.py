"""`klutchctl sandbox`: runs the API servers of a fleet on one machine."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from klutchctl.commands import Command, end_of_help
from klutchctl.entry import ExitCode
from klutchctl.options import flag, option, with_options
from klutchctl.settings import Settings
from reconciler.core.errors import ConfigError, HostError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klutchctl.sandbox.report import Progress
    from klutchctl.sandbox.state import Layout, State, Wanted

_STATUS_CODES = {ExitCode.FAILED: "there is no such sandbox, or a part of it does not run"}
app = typer.Typer(
    help="Run real control planes on this machine.", rich_markup_mode=None, no_args_is_help=True
)


def _checked(name: str) -> str:
    from klutchctl.sandbox.state import check_name

    try:
        check_name(name)
    except ConfigError as error:
        raise typer.BadParameter(f"{error.message}. {error.hint}") from error
    return name


def _without_nodes(asked: object) -> None:
    if asked:
        raise typer.BadParameter("A sandbox has no nodes: use kind to run the manifests as pods")


_Name: TypeAlias = Annotated[
    str, typer.Option("--name", callback=_checked, help="Name of the sandbox; several can run.")
]


class Crossplane(StrEnum):
    """The lines of releases that the sandbox runs."""

    FIRST = "1.20"
    SECOND = "2.4"


class Format(StrEnum):
    """The format of `status`."""

    TEXT = "text"
    JSON = "json"


@app.command(
    cls=Command, epilog=end_of_help("sandbox up --app-clusters 2 --services --programs", {})
)
@with_options
def up(  # noqa: PLR0913, PLR0917 - each is an option
    settings: Settings,
    name: _Name = "default",
    app_clusters: Annotated[
        int | None, option("NUMBER", "Default: 2 for a new sandbox, else unchanged.", min=0)
    ] = None,
    fleet: Annotated[
        Path | None,
        option("PATH", "A cluster for each ControlPlane and Cluster of this fleet repository."),
    ] = None,
    services: Annotated[
        bool | None,
        typer.Option(
            "--services/--no-services",
            show_default=False,
            help="Run services: of --fleet, of the fleet in this folder, or of the example."
            " Default: none in a new sandbox, else unchanged.",
        ),
    ] = None,
    crossplane: Annotated[
        Crossplane | None,
        typer.Option(
            show_default=False,
            help="Version of Crossplane for --services. There is no way back from 2.4 to 1.20."
            " Default: 2.4 in a new sandbox, else unchanged.",
        ),
    ] = None,
    programs: Annotated[
        bool | None,
        typer.Option(
            "--programs/--no-programs",
            show_default=False,
            help="Run klutch-bind for each control plane, and a konnector for each app cluster."
            " Default: no in a new sandbox, else unchanged.",
        ),
    ] = None,
    oidc: Annotated[
        bool | None,
        typer.Option(
            "--oidc/--no-oidc",
            show_default=False,
            help="Run a Keycloak with users, groups and clients, for a front door."
            " Default: no in a new sandbox, else unchanged.",
        ),
    ] = None,
    monitoring: Annotated[
        bool | None,
        typer.Option(
            "--monitoring/--no-monitoring",
            show_default=False,
            help="Run a Prometheus with the alerts for a fleet."
            " Default: no in a new sandbox, else unchanged.",
        ),
    ] = None,
    _nodes: Annotated[
        bool, typer.Option("--nodes", hidden=True, is_eager=True, callback=_without_nodes)
    ] = False,
    _images: Annotated[
        Path | None, typer.Option("--images", hidden=True, is_eager=True, callback=_without_nodes)
    ] = None,
    download: Annotated[
        bool, flag("--download", "Fetch official binaries instead of building.")
    ] = False,
    reassign_ports: Annotated[
        bool, flag("--reassign-ports", "Replace ports that another program uses.")
    ] = False,
) -> int:
    """Start the clusters, or repair them. Safe to repeat."""
    if fleet is not None and app_clusters is not None:
        raise typer.BadParameter("--fleet and --app-clusters exclude each other")
    from klutchctl.sandbox import addons, binaries, lifecycle, processes, recipes
    from klutchctl.sandbox.addons.addon import Request
    from klutchctl.sandbox.state import layout_of

    chosen = processes.port_range(settings.environ.get(processes.PORTS_VARIABLE, ""))
    place = layout_of(name, state_home=settings.state_home)
    wanted = _wanted(settings, fleet, app_clusters)
    lifecycle.check(place, wanted)
    request = Request(
        place,
        settings,
        lifecycle.load(place),
        {"services": services, "keycloak": oidc, "monitoring": monitoring, "agents": programs},
        fleet=fleet,
        crossplane=crossplane,
    )
    # What is missing here is told before minutes go into a build.
    kits = addons.find(request)
    progress = _progress(settings)
    try:
        release = recipes.of()
        shop = request.workshop(release.recipe, "controlplane")
        downloads = binaries.OFFICIAL if download else None
        executables = binaries.provide(release, shop, downloads=downloads, progress=progress)
        plan = lifecycle.Plan(
            executables,
            wanted,
            reassign_ports=reassign_ports,
            ports=chosen,
            addons=addons.provide(kits, request, progress),
            crds=True,
        )
        state = lifecycle.up(place, plan, progress=progress)
    except (KeyboardInterrupt, SystemExit):
        print(
            "Interrupted. Nothing is lost: the same command continues,"
            f" {place.command('down')} stops what runs",
            file=sys.stderr,
        )
        raise
    _announce(place, state)
    return ExitCode.SUCCESS


@app.command(cls=Command, epilog=end_of_help("sandbox down --delete", {}))
@with_options
def down(
    settings: Settings,
    name: _Name = "default",
    delete: Annotated[
        bool, flag("--delete", "Also remove the sandbox's folder, with all data.")
    ] = False,
) -> int:
    """Stop the clusters. Their data stays, unless you add --delete."""
    from klutchctl.sandbox import lifecycle
    from klutchctl.sandbox.state import layout_of

    place = layout_of(name, state_home=settings.state_home)
    stopped = lifecycle.down(place, delete=delete, progress=_progress(settings))
    ended = f"{stopped} processes stopped" if stopped else "no process to stop"
    typer.echo(f"Sandbox {name}: {ended}")
    if delete:
        typer.echo(f"Removed {place.root}")
    return ExitCode.SUCCESS


@app.command(cls=Command, epilog=end_of_help("sandbox status --name foundry", _STATUS_CODES))
@with_options
def status(
    settings: Settings,
    name: _Name = "default",
    output: Annotated[Format, typer.Option("--output", "-o", help="Format.")] = Format.TEXT,
) -> int:
    """Show the clusters and their health."""
    import time

    from klutchctl.sandbox import lifecycle, report
    from klutchctl.sandbox.state import layout_of

    place = layout_of(name, state_home=settings.state_home)
    found = lifecycle.status(place)
    if found is None:
        raise HostError(
            f"there is no sandbox {name!r} in {place.root.parent}",
            hint=f"{place.command('up')} makes one",
        )
    if output is Format.JSON:
        typer.echo(report.as_json(place, found))
    else:
        typer.echo(report.as_text(place, found, now=time.time()))
    return ExitCode.SUCCESS if found.healthy else ExitCode.FAILED


def _progress(settings: Settings) -> "Progress":
    from klutchctl.sandbox.report import Lines, Terminal

    return Terminal(sys.stderr, color=settings.color) if sys.stderr.isatty() else Lines(sys.stderr)


def _wanted(
    settings: Settings, fleet: Path | None, app_clusters: int | None
) -> "Sequence[Wanted] | None":
    """Return the clusters that the options ask for; None keeps those that are there."""
    from klutchctl import repository
    from klutchctl.sandbox import state

    if fleet is not None:
        return state.of_fleet(repository.fleet_in(fleet, check_owner=settings.git_owner_check))
    return None if app_clusters is None else state.app_clusters(app_clusters)


def _announce(place: "Layout", state: "State") -> None:
    from shlex import quote

    from klutchctl.sandbox import addons

    contexts = [member.context for member in state.members]
    example = f"kubectl --kubeconfig {quote(str(place.kubeconfig))} --context {quote(contexts[-1])}"
    typer.echo(f"Sandbox {place.root.name} is ready: {', '.join(contexts)}")
    summaries = (addon.summary(state) for addon in addons.of(state))
    details = (line for addon in addons.of(state) for line in addon.details(place, state))
    for line in (*filter(None, summaries), *details):
        typer.echo(line)
    typer.echo(f"Kubeconfig: {place.kubeconfig}")
    typer.echo(f"Try: {example} get crd")

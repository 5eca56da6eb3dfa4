"""`klutchctl sandbox`: a whole real fleet on one machine."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from klutchctl.entry import ExitCode, codes_help
from klutchctl.settings import Settings, of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klutchctl.sandbox.components import Kit
    from klutchctl.sandbox.keycloak.server import KeycloakKit
    from klutchctl.sandbox.monitoring.server import MonitoringKit
    from klutchctl.sandbox.report import Progress
    from klutchctl.sandbox.servers import Program
    from klutchctl.sandbox.state import Layout, State, Wanted
    from klutchctl.sandbox.suite import Suite

app = typer.Typer(
    help="Real control planes (kube-apiserver, etcd, kube-controller-manager) on this machine.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


def _checked(name: str) -> str:
    from klutchctl.sandbox.state import check_name
    from reconciler.core.errors import ConfigError

    try:
        check_name(name)
    except ConfigError as error:
        raise typer.BadParameter(f"{error.message}. {error.hint}") from error
    return name


_Name: TypeAlias = Annotated[
    str, typer.Option("--name", callback=_checked, help="Which sandbox; several can run.")
]


class Format(StrEnum):
    """How `status` answers."""

    TEXT = "text"
    JSON = "json"


@app.command(epilog=codes_help({}))
def up(  # noqa: PLR0913, PLR0917 - each is an option
    context: typer.Context,
    name: _Name = "default",
    app_clusters: Annotated[
        int | None,
        typer.Option(
            min=0, help="App clusters beside the control plane: 2 at first, then those there are."
        ),
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Instead: a cluster per ControlPlane and Cluster of this fleet repository.",
        ),
    ] = None,
    services: Annotated[
        bool | None,
        typer.Option(
            "--services/--no-services",
            show_default=False,
            help="Also run the services of --fleet, or of the fleet here; else of the example;"
            " or no more. Without: none at first, then those there are.",
        ),
    ] = None,
    programs: Annotated[
        bool | None,
        typer.Option(
            "--programs/--no-programs",
            show_default=False,
            help="Also run klutch-bind on each control plane and a konnector for each app cluster;"
            " or no more. Without: none at first, then as it is.",
        ),
    ] = None,
    oidc: Annotated[
        bool | None,
        typer.Option(
            "--oidc/--no-oidc",
            show_default=False,
            help="Also run a Keycloak with people, groups and machines to sign in as; or no more."
            " Without: none at first, then as it is.",
        ),
    ] = None,
    monitoring: Annotated[
        bool | None,
        typer.Option(
            "--monitoring/--no-monitoring",
            show_default=False,
            help="Also run a Prometheus with the alerts for a fleet; or no more."
            " Without: none at first, then as it is.",
        ),
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch official binaries instead of building.")
    ] = False,
    reassign_ports: Annotated[
        bool, typer.Option("--reassign-ports", help="Replace ports that another program holds.")
    ] = False,
) -> int:
    """Start the clusters, or repair them. Safe to repeat: what runs is left alone."""
    if fleet is not None and app_clusters is not None:
        raise typer.BadParameter("--fleet and --app-clusters exclude each other")
    from klutchctl.sandbox import lifecycle, processes
    from klutchctl.sandbox import services as beside
    from klutchctl.sandbox.agents import starting as agents
    from klutchctl.sandbox.keycloak import starting
    from klutchctl.sandbox.monitoring import starting as prometheus
    from klutchctl.sandbox.state import layout_of

    settings = of(context)
    chosen = processes.port_range(settings.environ.get(processes.PORTS_VARIABLE, ""))
    place = layout_of(name, state_home=settings.state_home)
    wanted = _wanted(settings, fleet, app_clusters)
    if wanted is not None:
        lifecycle.check(place, wanted)
    suite = None if services is False else _suite(place, fleet, chosen=services is True)
    # What is missing here is told before minutes go into a build.
    kit = beside.find(place, suite, settings.environ) if suite else None
    java = _java(place, settings, chosen=oidc)
    metered = _prometheus(place, settings, chosen=monitoring)
    progress = _progress(settings)
    try:
        executables = _executables(settings, progress, official=download)
        kit = _built(kit, settings, progress) if kit else None
        plan = lifecycle.Plan(
            executables,
            wanted,
            reassign_ports=reassign_ports,
            kit=kit,
            without_services=services is False,
            ports=chosen,
            keycloak=_keycloak(java, settings, progress) if java else None,
            without_keycloak=oidc is False,
            monitoring=metered,
            without_monitoring=monitoring is False,
            agents=programs,
        )
        state = lifecycle.up(place, plan, progress=progress)
        _install_crds(place, state, progress)
        if kit is not None:
            beside.up(place, kit, progress=progress)
        if plan.keycloak is not None:
            starting.up(place, plan.keycloak, progress=progress)
        if metered is not None:
            prometheus.up(place, metered, progress=progress)
        if state.agents is not None:
            agents.up(place, progress=progress)
    except (KeyboardInterrupt, SystemExit):
        print(
            "Interrupted. Nothing is lost: the same command goes on,"
            f" {place.command('down')} stops what runs",
            file=sys.stderr,
        )
        raise
    _announce(place, state, kit)
    return ExitCode.SUCCESS


@app.command(epilog=codes_help({}))
def down(
    context: typer.Context,
    name: _Name = "default",
    delete: Annotated[
        bool, typer.Option("--delete", help="Also remove the sandbox's folder, with all data.")
    ] = False,
) -> int:
    """Stop the clusters. Their data stays, unless you say --delete."""
    from klutchctl.sandbox import lifecycle
    from klutchctl.sandbox.state import layout_of

    settings = of(context)
    place = layout_of(name, state_home=settings.state_home)
    stopped = lifecycle.down(place, delete=delete, progress=_progress(settings))
    ended = f"{stopped} processes stopped" if stopped else "no process to stop"
    typer.echo(f"Sandbox {name}: {ended}")
    if delete:
        typer.echo(f"Removed {place.root}")
    return ExitCode.SUCCESS


@app.command(epilog=codes_help({ExitCode.FAILED: "there is none, or not all of it runs"}))
def status(
    context: typer.Context,
    name: _Name = "default",
    output: Annotated[Format, typer.Option("--output", "-o", help="Format.")] = Format.TEXT,
) -> int:
    """Show the clusters and their health."""
    import time

    from klutchctl.sandbox import lifecycle, report
    from klutchctl.sandbox.state import layout_of
    from reconciler.core.errors import HostError

    place = layout_of(name, state_home=of(context).state_home)
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

    if sys.stderr.isatty():
        return Terminal(sys.stderr, color=settings.color)
    return Lines(sys.stderr)


def _wanted(
    settings: Settings, fleet: Path | None, app_clusters: int | None
) -> "Sequence[Wanted] | None":
    """Return the clusters that the options ask for; None keeps those that are there."""
    from klutchctl import repository
    from klutchctl.sandbox import state

    if fleet is not None:
        named = repository.fleet_in(fleet, check_owner=settings.git_owner_check)
        return state.of_fleet(named)
    return None if app_clusters is None else state.app_clusters(app_clusters)


def _suite(place: "Layout", fleet: Path | None, *, chosen: bool) -> "Suite | None":
    """Return the services to run: `chosen` now, or those that the sandbox remembers."""
    from klutchctl.sandbox import lifecycle, suite

    if chosen:
        return suite.read(suite.folder_of(fleet))
    state = lifecycle.load(place)
    remembered = state.services if state else None
    return suite.read(Path(remembered.folder)) if remembered else None


def _java(place: "Layout", settings: Settings, *, chosen: bool | None) -> Path | None:
    """Return the Java for a Keycloak that is `chosen` now, or that the sandbox remembers."""
    from klutchctl.sandbox import lifecycle
    from klutchctl.sandbox.keycloak import distribution

    if chosen is None:
        state = lifecycle.load(place)
        chosen = state is not None and state.keycloak is not None
    return distribution.find_java(settings.environ) if chosen else None


def _prometheus(
    place: "Layout", settings: Settings, *, chosen: bool | None
) -> "MonitoringKit | None":
    """Return the Prometheus that is `chosen` now, or that the sandbox remembers."""
    from klutchctl.sandbox import lifecycle
    from klutchctl.sandbox.monitoring import starting

    if chosen is None:
        state = lifecycle.load(place)
        chosen = state is not None and state.monitoring is not None
    return starting.find(settings.environ) if chosen else None


def _keycloak(java: Path, settings: Settings, progress: "Progress") -> "KeycloakKit":
    from klutchctl.sandbox.keycloak import distribution
    from klutchctl.sandbox.keycloak.server import KeycloakKit

    environ = settings.environ
    folder = distribution.provide(settings.cache_home, java, environ=environ, progress=progress)
    return KeycloakKit(java, folder)


def _executables(
    settings: Settings, progress: "Progress", *, official: bool
) -> "Mapping[Program, Path]":
    from klutchctl.sandbox import binaries, recipes

    own = recipes.of()
    where = binaries.workshop(
        own.recipe, "controlplane", cache_home=settings.cache_home, environ=settings.environ
    )
    downloads = binaries.OFFICIAL if official else None
    return binaries.provide(own, where, downloads=downloads, progress=progress)


def _built(kit: "Kit", settings: Settings, progress: "Progress") -> "Kit":
    """Return the kit with what has to be built for it."""
    from dataclasses import replace

    from klutchctl.sandbox import binaries, recipes, services

    if not services.needs_crossplane(kit.suite):
        return kit
    recipe = recipes.of_services()
    workshop = binaries.workshop(
        recipe, "services", cache_home=settings.cache_home, environ=settings.environ
    )
    return replace(kit, crossplane=binaries.provide_built(workshop, recipe, progress=progress))


def _install_crds(place: "Layout", state: "State", progress: "Progress") -> None:
    import asyncio

    from klutchctl.sandbox import lifecycle, manifests

    connections = [(lifecycle.connection(place, m), m.role) for m in state.members]
    with progress.step("installing the CRDs"):
        asyncio.run(manifests.install_everywhere(connections))


def _announce(place: "Layout", state: "State", kit: "Kit | None") -> None:
    from shlex import quote

    from klutchctl.sandbox import report

    contexts = [member.context for member in state.members]
    example = f"kubectl --kubeconfig {quote(str(place.kubeconfig))} --context {quote(contexts[-1])}"
    typer.echo(f"Sandbox {place.root.name} is ready: {', '.join(contexts)}")
    if kit is not None:
        names = sorted([*kit.suite.components, *(one.name for one in kit.suite.programs)])
        typer.echo(f"Services of {kit.suite.folder}: {', '.join(names)}")
    if state.agents is not None:
        typer.echo("Programs: klutch-bind on control planes, a konnector for each app cluster")
    if state.keycloak is not None:
        typer.echo("\n".join(report.sign_in(place, state.keycloak)))
    if state.monitoring is not None:
        typer.echo("\n".join(report.metrics(state.monitoring)))
    typer.echo(f"Kubeconfig: {place.kubeconfig}")
    typer.echo(f"Try: {example} get crd")

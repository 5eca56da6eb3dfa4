"""`klutchctl sandbox`: a whole real fleet on one machine."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from klutchctl.entry import ExitCode, codes_help
from klutchctl.settings import Settings, of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klutchctl.sandbox.components import Kit
    from klutchctl.sandbox.lifecycle import Plan
    from klutchctl.sandbox.nodes.images import Archive
    from klutchctl.sandbox.report import Progress
    from klutchctl.sandbox.state import Layout, State, Wanted

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
    nodes: Annotated[
        bool,
        typer.Option(
            "--nodes",
            help="Also run a node for each cluster, so that its Deployments become pods: as root on"
            " Linux, for a new sandbox. Without: none at first, then as it is.",
        ),
    ] = False,
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Bring the OCI archives (*.tar) of this folder into all nodes."
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
    from klutchctl.sandbox import binaries, lifecycle, processes, provision
    from klutchctl.sandbox import services as beside
    from klutchctl.sandbox.nodes import images as oci
    from klutchctl.sandbox.state import layout_of

    settings = of(context)
    chosen = processes.port_range(settings.environ.get(processes.PORTS_VARIABLE, ""))
    place = layout_of(name, state_home=settings.state_home)
    wanted = _wanted(settings, fleet, app_clusters)
    lifecycle.check(place, wanted, nodes=nodes, agents=programs is True)
    plugins = provision.find_plugins(place, chosen=nodes)
    if images is not None and plugins is None:
        raise typer.BadParameter("--images is for a sandbox with --nodes")
    archives = oci.read_folder(images) if images else ()
    suite = (
        None if services is False else provision.find_suite(place, fleet, chosen=services is True)
    )
    # What is missing here is told before minutes go into a build.
    kit = beside.find(place, suite, settings.environ) if suite else None
    java = provision.find_java(place, settings, chosen=oidc)
    metered = provision.find_prometheus(place, settings, chosen=monitoring)
    progress = _progress(settings)
    try:
        downloads = binaries.OFFICIAL if download else None
        executables = provision.control_plane(settings, progress, downloads=downloads)
        kit = provision.complete(kit, settings, progress) if kit else None
        plan = lifecycle.Plan(
            executables,
            wanted,
            reassign_ports=reassign_ports,
            kit=kit,
            without_services=services is False,
            ports=chosen,
            keycloak=provision.keycloak(java, settings, progress) if java else None,
            without_keycloak=oidc is False,
            monitoring=metered,
            without_monitoring=monitoring is False,
            agents=programs,
            nodes=provision.nodes(plugins, settings, progress, downloads=downloads)
            if plugins
            else None,
        )
        state = lifecycle.up(place, plan, progress=progress)
        _install_crds(place, state, progress)
        _start_beside(place, plan, state, archives, progress)
    except (KeyboardInterrupt, SystemExit):
        print(
            "Interrupted. Nothing is lost: the same command goes on,"
            f" {place.command('down')} stops what runs",
            file=sys.stderr,
        )
        raise
    _announce(place, state, kit)
    return ExitCode.SUCCESS


def _start_beside(
    place: "Layout",
    plan: "Plan",
    state: "State",
    archives: "Sequence[Archive]",
    progress: "Progress",
) -> None:
    """Start what needs clusters that run."""
    from klutchctl.sandbox import services
    from klutchctl.sandbox.agents import starting as agents
    from klutchctl.sandbox.keycloak import starting as keycloak
    from klutchctl.sandbox.monitoring import starting as prometheus
    from klutchctl.sandbox.nodes import starting as nodes

    if plan.kit is not None:
        services.up(place, plan.kit, progress=progress)
    if plan.keycloak is not None:
        keycloak.up(place, plan.keycloak, progress=progress)
    if plan.monitoring is not None:
        prometheus.up(place, plan.monitoring, progress=progress)
    if state.agents is not None:
        agents.up(place, progress=progress)
    if plan.nodes is not None:
        nodes.up(place, plan.nodes, archives, progress=progress)


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


def _install_crds(place: "Layout", state: "State", progress: "Progress") -> None:
    import asyncio

    from klutchctl.sandbox import lifecycle, manifests

    connections = [(lifecycle.connection(place, m), m.role) for m in state.members]
    with progress.step("installing the CRDs"):
        asyncio.run(manifests.install_everywhere(connections))


def _announce(place: "Layout", state: "State", kit: "Kit | None") -> None:
    from shlex import quote

    from klutchctl.sandbox import report
    from klutchctl.sandbox.nodes import server as machines

    contexts = [member.context for member in state.members]
    example = f"kubectl --kubeconfig {quote(str(place.kubeconfig))} --context {quote(contexts[-1])}"
    typer.echo(f"Sandbox {place.root.name} is ready: {', '.join(contexts)}")
    if kit is not None:
        names = sorted([*kit.suite.components, *(one.name for one in kit.suite.programs)])
        typer.echo(f"Services of {kit.suite.folder}: {', '.join(names)}")
    if state.agents is not None:
        typer.echo("Programs: klutch-bind on control planes, a konnector for each app cluster")
    if state.nodes is not None:
        names = [f"{machines.name_of(one)} of {one.context}" for one in state.members]
        typer.echo(f"Nodes: {', '.join(names)}")
    if state.keycloak is not None:
        typer.echo("\n".join(report.sign_in(place, state.keycloak)))
    if state.monitoring is not None:
        typer.echo("\n".join(report.metrics(state.monitoring)))
    typer.echo(f"Kubeconfig: {place.kubeconfig}")
    typer.echo(f"Try: {example} get crd")

"""What a sandbox needs of this machine, found or built: what is asked for, and what it had."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from klutchctl.sandbox import binaries, lifecycle, recipes, services, suite
from klutchctl.sandbox.components import Kit
from klutchctl.sandbox.keycloak import distribution
from klutchctl.sandbox.keycloak.server import KeycloakKit
from klutchctl.sandbox.monitoring import starting as prometheus
from klutchctl.sandbox.monitoring.server import MonitoringKit
from klutchctl.sandbox.nodes import machine
from klutchctl.sandbox.nodes.server import NodesKit
from klutchctl.sandbox.recipes import Recipe
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.servers import Program
from klutchctl.sandbox.state import Layout
from klutchctl.sandbox.suite import Suite
from klutchctl.settings import Settings


def find_suite(place: Layout, fleet: Path | None, *, chosen: bool) -> Suite | None:
    """Return the services to run: `chosen` now, or those that the sandbox remembers."""
    if chosen:
        return suite.read(suite.folder_of(fleet))
    state = lifecycle.load(place)
    remembered = state.services if state else None
    return suite.read(Path(remembered.folder)) if remembered else None


def find_java(place: Layout, settings: Settings, *, chosen: bool | None) -> Path | None:
    """Return the Java for a Keycloak that is `chosen` now, or that the sandbox remembers."""
    wanted = _remembered(place, "keycloak") if chosen is None else chosen
    return distribution.find_java(settings.environ) if wanted else None


def find_prometheus(
    place: Layout, settings: Settings, *, chosen: bool | None
) -> MonitoringKit | None:
    """Return the Prometheus that is `chosen` now, or that the sandbox remembers."""
    wanted = _remembered(place, "monitoring") if chosen is None else chosen
    return prometheus.find(settings.environ) if wanted else None


def find_plugins(place: Layout, *, chosen: bool) -> Path | None:
    """Return the CNI plugins, for nodes `chosen` now or that the sandbox has."""
    if not (chosen or _remembered(place, "nodes")):
        return None
    machine.check(chosen=chosen)
    return machine.find_plugins()


def _remembered(place: Layout, part: str) -> bool:
    return getattr(lifecycle.load(place), part, None) is not None


def control_plane(
    settings: Settings, progress: Progress, *, downloads: binaries.Origins | None
) -> Mapping[Program, Path]:
    """Return the executables of control planes."""
    own = recipes.of()
    where = _workshop(own.recipe, "controlplane", settings)
    return binaries.provide(own, where, downloads=downloads, progress=progress)


def complete(kit: Kit, settings: Settings, progress: Progress) -> Kit:
    """Return the kit with what has to be built for it."""
    if not services.needs_crossplane(kit.suite):
        return kit
    return replace(kit, crossplane=_built(recipes.of_services(), "services", settings, progress))


def keycloak(java: Path, settings: Settings, progress: Progress) -> KeycloakKit:
    """Return what runs a Keycloak."""
    environ = settings.environ
    folder = distribution.provide(settings.cache_home, java, environ=environ, progress=progress)
    return KeycloakKit(java, folder)


def nodes(
    plugins: Path,
    settings: Settings,
    progress: Progress,
    *,
    downloads: binaries.Origins | None = None,
) -> NodesKit:
    """Return what runs nodes."""
    own = recipes.of_nodes()
    where = _workshop(own.recipe, "nodes", settings)
    programs = binaries.provide_whole(own, where, downloads=downloads, progress=progress)
    return NodesKit(programs, plugins)


def _built(recipe: Recipe, folder: str, settings: Settings, progress: Progress) -> Path:
    return binaries.provide_built(_workshop(recipe, folder, settings), recipe, progress=progress)


def _workshop(recipe: Recipe, folder: str, settings: Settings) -> binaries.Workshop:
    home = settings.cache_home
    return binaries.workshop(recipe, folder, cache_home=home, environ=settings.environ)

"""Runs services beside the control plane: Crossplane, PostgreSQL, and programs."""

import asyncio
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from klutchctl import files
from klutchctl.sandbox import binaries, credentials, manifests, processes, recipes
from klutchctl.sandbox.addons import crossplane, postgresql
from klutchctl.sandbox.addons.addon import Addon, Request, Run, outline
from klutchctl.sandbox.addons.postgresql import PostgresqlPlace
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.servers import Launch, LifeProbe, PostgresqlProbe, Probe, Server
from klutchctl.sandbox.state import LOOPBACK, Component, Layout, NewPorts, Services, State, assigned
from reconciler.api import osb
from reconciler.core.errors import HostError
from reconciler.core.manifest import get_text
from reconciler.kube import crds
from reconciler.kube.client import KubeCluster

_POSTGRESQL: Final = "postgresql"
_PURPOSES: Final = {**crossplane.PURPOSES, Component.POSTGRESQL: (_POSTGRESQL,)}
# The order to start in: what goes before is needed by what comes after.
_ORDER: Final = (
    Component.POSTGRESQL,
    Component.FUNCTION,
    Component.CROSSPLANE,
    Component.PROVIDER_KUBERNETES,
)
_PROGRAM_SETTLED: Final = 1.0
_OF_CROSSPLANE: Final = frozenset(_ORDER[1:])


@dataclass(frozen=True, slots=True)
class ServicesKit:
    """The parts of the services on this machine; None for unused ones."""

    suite: manifests.Suite
    built: Mapping[Component, Path]  # the folder that the recipe of each made
    postgresql: PostgresqlPlace | None
    crossplane: str = max(recipes.CROSSPLANES)
    path: str = os.defpath  # on which programs find others


def find(request: Request) -> ServicesKit:
    """Return the services that are chosen now, else those that the sandbox remembers.

    Raises HostError where PostgreSQL or the SDK of the function is not there, and for files with
    mistakes.
    """
    known = request.known.services if request.known else None
    chosen = request.chosen.get("services") or known is None
    folder = manifests.folder_of(request.fleet) if chosen or known is None else Path(known.folder)
    found = manifests.read(folder)
    wanted = Component.POSTGRESQL in found.components
    place = postgresql.find(request.layout, request.settings.environ) if wanted else None
    if Component.FUNCTION in found.components and not importlib.util.find_spec("crossplane"):
        raise HostError(
            f"{Component.FUNCTION} needs crossplane-function-sdk-python, which is not installed",
            hint="`pip install '.[sandbox]'` in a checkout of klutchctl brings it",
        )
    remembered = known.crossplane if known else max(recipes.CROSSPLANES)
    path = request.settings.environ.get("PATH", os.defpath)
    return ServicesKit(found, {}, place, request.crossplane or remembered, path)


def provide(kit: ServicesKit, request: Request, progress: Progress) -> ServicesKit:
    built = {
        component: binaries.provide_built(
            request.workshop(recipe, "services"), recipe, progress=progress
        )
        for component, recipe in (
            (Component.CROSSPLANE, recipes.of_crossplane(kit.crossplane)),
            (Component.PROVIDER_KUBERNETES, recipes.of_provider()),
        )
        if component in kit.suite.components
    }
    return replace(kit, built=built)


def extend(state: State, kit: ServicesKit, new_ports: NewPorts) -> State:
    """Return the state with these services, and with their ports; known ones stay."""
    known = state.services.ports if state.services else {}
    purposes = (purpose for one in kit.suite.components for purpose in _PURPOSES[one])
    wanted = Services(
        folder=str(kit.suite.folder),
        components=kit.suite.components,
        programs=tuple(program.name for program in kit.suite.programs),
        ports=assigned(known, purposes, new_ports),
        crossplane=kit.crossplane,
    )
    return replace(state, services=wanted)


def address(port: int, password: str) -> str:
    """Return how a superuser reaches PostgreSQL."""
    return f"postgresql://postgres:{password}@{LOOPBACK}:{port}/postgres"


def servers(layout: Layout, state: State, kit: ServicesKit | None) -> tuple[Server, ...]:
    """Return the servers in the order in which they can start."""
    services = state.services
    assert services is not None
    known = tuple(_outlines(layout, services))
    if kit is None:
        return known
    # What their files say: where the control plane is, and PostgreSQL.
    reads = (state.members[0].server, str(services.ports.get(_POSTGRESQL)))
    programs = {program.name: program for program in kit.suite.programs}
    whole = []
    for one in known:
        if one.program in programs:
            launch, arguments = _program(layout, programs[one.program], kit)
        else:
            launch, arguments = _component(layout, Component(one.program), services.ports, kit)
        launch = replace(launch, reads=reads)
        whole.append(replace(one, arguments=tuple(arguments), launch=launch))
    return tuple(whole)


def _outlines(layout: Layout, services: Services) -> Iterator[Server]:
    ports = services.ports
    probes: Mapping[Component, Probe] = {
        **crossplane.probes(ports),
        Component.POSTGRESQL: PostgresqlProbe(ports.get(_POSTGRESQL, 0)),
    }
    for one in _ORDER:
        if one in services.components:
            own = (ports[purpose] for purpose in _PURPOSES[one])
            yield outline(layout, one, own, probes[one])
    for name in services.programs:
        yield outline(layout, name, (), LifeProbe(_PROGRAM_SETTLED))


def _component(
    layout: Layout, component: Component, ports: Mapping[str, int], kit: ServicesKit
) -> tuple[Launch, Sequence[str]]:
    if component is Component.POSTGRESQL:
        assert kit.postgresql is not None
        return _postgresql(kit.postgresql, ports[_POSTGRESQL])
    return crossplane.launch(layout, component, ports, kit.built)


def _postgresql(place: PostgresqlPlace, port: int) -> tuple[Launch, Sequence[str]]:
    settings = {
        "listen_addresses": LOOPBACK,
        "port": port,
        "unix_socket_directories": "",
        "shared_buffers": "32MB",
        # In the data folder: of what it takes elsewhere, a killed server leaves some for ever.
        "dynamic_shared_memory_type": "mmap",
        "max_connections": 100,
        "max_wal_size": "128MB",
        "logging_collector": "off",
    }
    arguments = ["-D", str(place.data)]
    for name, value in settings.items():
        arguments += ["-c", f"{name}={value}"]
    return (Launch(place.binaries / "postgres", place.data.parent, owner=place.owner), arguments)


def _program(
    layout: Layout, program: manifests.Program, kit: ServicesKit
) -> tuple[Launch, Sequence[str]]:
    meant = {
        "kubeconfig": str(layout.services_kubeconfig),
        "data": str(layout.program_data(program.name)),
        "python": sys.executable,
        "postgresql": str(layout.postgresql_address),
        "binaries": str(kit.postgresql.binaries) if kit.postgresql else "",
    }
    words = [
        re.sub(r"\$\{([a-z]+)\}", lambda found: meant[found[1]], word) for word in program.command
    ]
    # A bare name is one on PATH.
    executable = kit.suite.folder / words[0] if "/" in words[0] else Path(words[0])
    # What others keep at home, such as the cache of kubectl, stays out of the fleet's repository.
    environment = {"HOME": meant["data"], "PATH": kit.path}
    return Launch(executable, kit.suite.folder, environment), words[1:]


def start(run: Run, kit: ServicesKit) -> None:
    """Start the missing services, apply the manifests, and return when everything works.

    Raises HostError for a server that does not start and for manifests that do not stick.
    """
    _write_files(run, kit)
    wanted = servers(run.layout, run.state, kit)
    if kit.built:
        asyncio.run(_install(run, kit))
    needed = [one for one in wanted if one.program in kit.suite.components]
    if kit.postgresql is not None:
        database = processes.identity(run.layout, _POSTGRESQL)
        if all(one.identity != database for one in processes.observe(run.layout)):
            # It names a server that was killed, or another's process by now.
            (kit.postgresql.data / "postmaster.pid").unlink(missing_ok=True)
    run.start(needed)
    with run.progress.step("applying the manifests of the services"):
        asyncio.run(_apply(run, kit))
    run.start([one for one in wanted if one not in needed])


def _write_files(run: Run, kit: ServicesKit) -> None:
    layout, services = run.layout, run.state.services
    assert services is not None
    files.private_folder(layout.services)
    files.write(layout.services_kubeconfig, credentials.kubeconfig(layout, run.state.members[:1]))
    for component in _OF_CROSSPLANE.intersection(services.components):
        files.private_folder(layout.services / component)
    for name in services.programs:
        files.private_folder(layout.program_data(name))
    if not _OF_CROSSPLANE.isdisjoint(services.components):
        credentials.ensure_component(crossplane.tls_folder(layout))
    if kit.postgresql is not None:
        password = postgresql.ensure_data(layout, kit.postgresql, progress=run.progress)
        line = f"{address(services.ports[_POSTGRESQL], password)}\n"
        files.write(layout.postgresql_address, line.encode())


async def _install(run: Run, kit: ServicesKit) -> None:
    async with _plane(run) as cluster:
        await crossplane.install(run, cluster, kit.built)


async def _apply(run: Run, kit: ServicesKit) -> None:
    async with _plane(run) as cluster:
        versions = {get_text(one.manifest, "apiVersion") for one in kit.suite.manifests}
        if osb.SERVICE_BROKER.api_version in versions:
            await manifests.install_all(cluster, crds.load(*crds.BROKERS))
        known = [
            one for one in kit.suite.manifests if crossplane.knows(kit.crossplane, one.manifest)
        ]
        await manifests.apply(cluster, known)


def _plane(run: Run) -> KubeCluster:
    return KubeCluster(credentials.connection(run.layout, run.state.members[0]))


def _summary(state: State) -> str:
    services = state.services
    assert services is not None
    names = sorted([*services.components, *services.programs])
    return f"Services of {services.folder}: {', '.join(names)}"


ADDON: Final = Addon("services", find, extend, servers, start, provide, summary=_summary)

"""The servers beside the clusters of a sandbox, with their arguments. Pure: starts nothing."""

import re
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from klutchctl.sandbox.nodes import server as nodes
from klutchctl.sandbox.processes import identity
from klutchctl.sandbox.servers import (
    HttpProbe,
    Launch,
    LifeProbe,
    Owner,
    PostgresqlProbe,
    Probe,
    Server,
)
from klutchctl.sandbox.state import Component, Layout, Services
from klutchctl.sandbox.suite import Program, Suite

NAMESPACE: Final = "crossplane-system"
_LOOPBACK: Final = "127.0.0.1"
_METRICS, _HEALTH, _PROVIDER, _WEBHOOK, _POSTGRESQL = (
    "crossplane-metrics",
    "crossplane-health",
    "provider-kubernetes-health",
    "provider-kubernetes-webhook",
    "postgresql",
)
_PURPOSES: Final = {
    Component.CROSSPLANE: (_METRICS, _HEALTH),
    Component.PROVIDER_KUBERNETES: (_PROVIDER, _WEBHOOK),
    Component.POSTGRESQL: (_POSTGRESQL,),
}
# The order to start in: what goes before is needed by what comes after.
_ORDER: Final = (Component.POSTGRESQL, Component.CROSSPLANE, Component.PROVIDER_KUBERNETES)
_PROGRAM_SETTLED: Final = 1.0


@dataclass(frozen=True, slots=True)
class PostgresqlPlace:
    """Where PostgreSQL's data and executables are, and who it runs as if not this user."""

    data: Path
    binaries: Path
    owner: Owner | None


@dataclass(frozen=True, slots=True)
class Kit:
    """What services need of this machine; None for what the suite has no use for."""

    suite: Suite
    crossplane: Path | None  # the folder that the recipe of Crossplane made
    postgresql: PostgresqlPlace | None


def purposes(components: Iterable[Component]) -> tuple[str, ...]:
    """Return what the components need ports for."""
    return tuple(purpose for one in components for purpose in _PURPOSES[one])


def outlines(layout: Layout, services: Services) -> tuple[Server, ...]:
    """Return the servers as far as the state knows them: how to recognise and to probe them.

    In the order in which they can start.
    """
    ports = services.ports
    probes: Mapping[Component, Probe] = {
        Component.CROSSPLANE: HttpProbe(ports.get(_HEALTH, 0), "/readyz"),
        Component.PROVIDER_KUBERNETES: HttpProbe(ports.get(_PROVIDER, 0), "/readyz"),
        Component.POSTGRESQL: PostgresqlProbe(ports.get(_POSTGRESQL, 0)),
    }
    settled = LifeProbe(_PROGRAM_SETTLED)
    return (
        *(
            _outline(layout, one, (ports[purpose] for purpose in _PURPOSES[one]), probes[one])
            for one in _ORDER
            if one in services.components
        ),
        *(_outline(layout, name, (), settled) for name in services.programs),
    )


def servers(layout: Layout, services: Services, kit: Kit) -> tuple[Server, ...]:
    """Return the servers with their whole commands, in the order in which they can start."""
    programs = {program.name: program for program in kit.suite.programs}
    whole = []
    for outline in outlines(layout, services):
        if outline.program in programs:
            program = programs[outline.program]
            launch, arguments = _program(layout, program, kit)
        else:
            launch, arguments = _component(layout, Component(outline.program), services.ports, kit)
        whole.append(replace(outline, arguments=tuple(arguments), launch=launch))
    return tuple(whole)


def stopping_order(identities: Iterable[str], layout: Layout) -> list[str]:
    """Return the identities of marked processes, each once, in the order in which they can stop."""
    needed = [identity(layout, one) for one in _ORDER]
    programs = sorted({*identities}.difference(needed))
    return [*programs, *(one for one in reversed(needed) if one in {*identities})]


def goodbye(marked: str, layout: Layout) -> signal.Signals:
    """Return the signal that asks the process with this identity to end."""
    if nodes.is_node(marked):
        return signal.SIGKILL  # nothing else reaches the first process of namespaces
    # PostgreSQL: SIGTERM waits until every client has gone, SIGINT sends them away.
    return signal.SIGINT if marked == identity(layout, Component.POSTGRESQL) else signal.SIGTERM


def tls_folder(layout: Layout) -> Path:
    """Return the folder that holds ca.crt, tls.crt and tls.key of Crossplane and its provider."""
    return layout.services / "tls"


def data_folder(layout: Layout, component: Component) -> Path:
    """Return the working folder of a component."""
    return layout.services / component


def address(port: int, password: str) -> str:
    """Return how a superuser reaches PostgreSQL."""
    return f"postgresql://postgres:{password}@{_LOOPBACK}:{port}/postgres"


def webhook_address(services: Services) -> str:
    """Return where the API server reaches the conversion webhook of the provider, or ""."""
    port = services.ports.get(_WEBHOOK)
    return f"https://{_LOOPBACK}:{port}/convert" if port else ""


def postgresql_port(services: Services) -> int:
    """Return where PostgreSQL listens."""
    return services.ports[_POSTGRESQL]


def _outline(layout: Layout, name: str, ports: Iterable[int], probe: Probe) -> Server:
    return Server(
        name=name,
        program=name,
        cluster_id="",
        arguments=(),
        identity=identity(layout, name),
        log=layout.logs / f"{name}.log",
        ports=tuple(ports),
        probe=probe,
    )


def _component(
    layout: Layout, component: Component, ports: Mapping[str, int], kit: Kit
) -> tuple[Launch, Sequence[str]]:
    if component is Component.POSTGRESQL:
        assert kit.postgresql is not None
        return _postgresql(kit.postgresql, ports[_POSTGRESQL])
    assert kit.crossplane is not None
    kubeconfig = {"KUBECONFIG": str(layout.services_kubeconfig)}
    if component is Component.CROSSPLANE:
        arguments, environment = _crossplane(layout, ports), kubeconfig
    else:
        certificates = {"TLS_SERVER_CERTS_DIR": str(tls_folder(layout))}
        arguments, environment = _provider(ports), kubeconfig | certificates
    folder = data_folder(layout, component)
    return Launch(kit.crossplane / component, folder, environment), arguments


def _crossplane(layout: Layout, ports: Mapping[str, int]) -> Sequence[str]:
    folder = data_folder(layout, Component.CROSSPLANE)
    tls = tls_folder(layout)
    return (
        "core",
        "start",
        f"--namespace={NAMESPACE}",
        f"--cache-dir={folder}",
        f"--xfn-cache-dir={folder}",
        f"--tls-server-certs-dir={tls}",
        f"--tls-client-certs-dir={tls}",
        f"--metrics-port={ports[_METRICS]}",
        f"--health-probe-port={ports[_HEALTH]}",
        "--enable-webhooks=false",
        # What people wait for in front of a screen.
        "--poll-interval=10s",
    )


def _provider(ports: Mapping[str, int]) -> Sequence[str]:
    return (
        "--poll=10s",
        "--enable-watches",
        f"--health-probe-bind-addr={_LOOPBACK}:{ports[_PROVIDER]}",
        f"--webhook-port={ports[_WEBHOOK]}",
    )


def _postgresql(place: PostgresqlPlace, port: int) -> tuple[Launch, Sequence[str]]:
    settings = {
        "listen_addresses": _LOOPBACK,
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
    launch = Launch(
        place.binaries / "postgres",
        place.data.parent,
        owner=place.owner,
    )
    return launch, arguments


def _program(layout: Layout, program: Program, kit: Kit) -> tuple[Launch, Sequence[str]]:
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
    return Launch(executable, kit.suite.folder), words[1:]

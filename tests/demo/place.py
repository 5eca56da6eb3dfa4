"""The sandbox of the demo: its clusters, and the programs of ours that serve them."""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from klutchctl import files
from klutchctl.sandbox import lifecycle, processes, startup
from klutchctl.sandbox.keycloak import server as keycloak
from klutchctl.sandbox.report import Lines
from klutchctl.sandbox.servers import HttpProbe, Launch, Server
from klutchctl.sandbox.state import KeycloakPorts, Layout, Member, Role, State
from reconciler.core import names
from reconciler.kube.client import KubeCluster

NAME: Final = "demo"
FLEET: Final = "fleet-example"
DIRECT: Final = f"{FLEET}/services/direct"  # what binds the operator's own kinds, too
BROKER: Final = f"{FLEET}/services/osb"  # what a service broker offers, and what binds that
SHOP: Final = "shop-eu-1"
OTHER: Final = "shop-eu-2"
PIPELINE: Final = "ci-eu-1"  # in no file of the fleet
TEAM: Final = "team-a"
BACKEND: Final = "klutch-bind"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the demo happens."""

    layout: Layout
    _ports: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    @property
    def reach(self) -> tuple[str, str]:
        """The option by which klutchctl finds the clusters."""
        return "--kubeconfig", str(self.layout.kubeconfig)

    @property
    def changed_fleet(self) -> Path:
        """A copy of the fleet, with the changes that the demo makes. It goes with the sandbox."""
        return self.layout.root / FLEET

    def plane(self) -> KubeCluster:
        """Return the control plane, as its administrator sees it."""
        return KubeCluster(lifecycle.connection(self.layout, self._members()[0]))

    def app_cluster(self, context: str) -> KubeCluster:
        """Return an app cluster, as its administrator sees it."""
        (found,) = [one for one in self._members() if one.context == context]
        return KubeCluster(lifecycle.connection(self.layout, found))

    @property
    def has_a_front_door(self) -> bool:
        """Whether there is a Keycloak, so that people and machines can sign in."""
        return self._state().keycloak is not None

    def serve_the_control_plane(self, *, door: bool = False) -> None:
        """Start klutch-bind, and return once it has read all of it."""
        plane = self._members()[0]
        where = ("--kubeconfig", str(self.layout.kubeconfig), "--context", plane.context)
        more = ("--control-plane-mode", "--lease-namespace", "default")
        flags = keycloak.door_flags(self.layout, self._keycloak()) if door else ()
        self._run([self._program(BACKEND, BACKEND, *where, *more, *flags)])

    def open_the_front_door(self) -> None:
        """Start klutch-bind anew, with the flags by which people and machines can sign in."""
        mark = processes.guest_identity(self.layout, BACKEND)
        old = [one for one in processes.observe(self.layout) if one.identity == mark]
        processes.stop(old, grace=startup.STOP_GRACE)
        self.serve_the_control_plane(door=True)

    def serve_the_app_clusters(self) -> None:
        """Start a konnector for each app cluster, and return once all have read theirs."""
        self.serve(*(one.context for one in self._members() if one.role is Role.APP_CLUSTER))

    def serve(self, *contexts: str) -> None:
        """Start a konnector for each of these app clusters."""
        self._run([self._konnector(one) for one in contexts])

    def catalogue(self) -> str:
        """Say where a person finds what is offered, and who that may be."""
        facts = keycloak.facts(self.layout, self._keycloak())
        return f"{facts['door']}/ as alice, whose password is in {facts['alicePasswordFile']}"

    def machine(self) -> Sequence[str]:
        """Return the door's URL, and the options of a machine that signs in and binds there."""
        facts = keycloak.facts(self.layout, self._keycloak())
        return (
            facts["door"],
            *("--client-id", facts["machineClientID"]),
            *("--client-secret-file", facts["machineClientSecretFile"]),
            *("--resource", "postgresqlinstances.anynines.com"),
            *("--resource", "servicebindings.anynines.com"),
            *("--claims", "required", "--accept", "secrets", "--skip-konnector"),
        )

    def _konnector(self, context: str) -> Server:
        where = ("--kubeconfig", str(self._kubeconfig(context)))
        return self._program(f"konnector-{context}", "konnector", *where)

    def _run(self, servers: Sequence[Server]) -> None:
        for one in servers:
            assert one.launch is not None
            print(f"$ {shlex.join((one.launch.executable.name, *one.arguments))}", flush=True)
        startup.ensure_running(self.layout, servers, {}, progress=Lines(sys.stdout))

    def _program(self, name: str, executable: str, *arguments: str) -> Server:
        """Return one that goes with the sandbox: `klutchctl sandbox down` finds it by its mark."""
        identity = processes.guest_identity(self.layout, name)
        port = self._port(name, identity)
        return Server(
            name=name,
            program=executable,
            cluster_id="",
            arguments=(
                *arguments,
                *("--metrics-address", ""),
                *("--probe-address", f"127.0.0.1:{port}"),
            ),
            identity=identity,
            log=self.layout.logs / f"{name}.log",
            ports=(port,),
            probe=HttpProbe(port, "/readyz"),
            launch=Launch(
                executable=Path(sys.executable).with_name(executable),
                folder=self.layout.root,
                environment={"HOME": os.environ.get("HOME", "/")},
            ),
        )

    def _port(self, name: str, identity: str) -> int:
        """Return where a program answers probes, also one that another run has started."""
        for one in processes.observe(self.layout):
            if one.identity == identity and one.arguments:
                return int(one.arguments[-1].rpartition(":")[2])
        if name not in self._ports:
            within = processes.port_range(os.environ.get(processes.PORTS_VARIABLE, ""))
            avoid = (*self._ports.values(), *self._state().ports)  # also what waits for its server
            found = processes.free_ports(1, avoid=avoid, within=within)
            (self._ports[name],) = found
        return self._ports[name]

    def _kubeconfig(self, context: str) -> Path:
        """Write a kubeconfig that leads to one cluster."""
        whole = yaml.safe_load(self.layout.kubeconfig.read_text())
        path = self.layout.kubeconfig.with_name(f"kubeconfig-{context}")
        files.write(path, yaml.safe_dump({**whole, "current-context": context}).encode())
        return path

    def _members(self) -> Sequence[Member]:
        """Return the clusters, the control plane first."""
        return self._state().members

    def _keycloak(self) -> KeycloakPorts:
        ports = self._state().keycloak
        assert ports is not None
        return ports

    def _state(self) -> State:
        state = lifecycle.load(self.layout)
        assert state is not None
        return state


def space_of(cluster: str) -> str:
    """Return the binding space of an app cluster."""
    return names.direct_space("acme", cluster)


def home_of(cluster: str) -> str:
    """Return the service namespace of the team's app namespace in an app cluster."""
    return names.service_namespace(space_of(cluster), TEAM)

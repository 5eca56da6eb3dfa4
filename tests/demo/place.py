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
from klutchctl.sandbox.report import Lines
from klutchctl.sandbox.servers import HttpProbe, Launch, Server
from klutchctl.sandbox.state import Layout, Member, Role
from reconciler.core import names
from reconciler.kube.client import KubeCluster

FLEET: Final = "fleet-example"
DIRECT: Final = f"{FLEET}/services/direct"  # what binds the operator's own kinds, too
SHOP: Final = "shop-eu-1"
OTHER: Final = "shop-eu-2"
TEAM: Final = "team-a"


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

    def serve_the_control_plane(self) -> None:
        """Start klutch-bind, and return once it has read all of it."""
        plane = self._members()[0]
        where = ("--kubeconfig", str(self.layout.kubeconfig), "--context", plane.context)
        more = ("--control-plane-mode", "--lease-namespace", "default")
        self._run([self._program("klutch-bind", "klutch-bind", *where, *more)])

    def serve_the_app_clusters(self) -> None:
        """Start a konnector for each app cluster, and return once all have read theirs."""
        apps = [one for one in self._members() if one.role is Role.APP_CLUSTER]
        self._run([self._konnector(one.context) for one in apps])

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
            found = processes.free_ports(1, avoid=self._ports.values(), within=within)
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
        state = lifecycle.load(self.layout)
        assert state is not None
        return state.members


def space_of(cluster: str) -> str:
    """Return the binding space of an app cluster."""
    return names.direct_space("acme", cluster)


def home_of(cluster: str) -> str:
    """Return the service namespace of the team's app namespace in an app cluster."""
    return names.service_namespace(space_of(cluster), TEAM)

"""Describes the servers of a sandbox as values: commands, probes, files. Pure."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from klutchctl.sandbox.state import CONTROLLER_MANAGER_USER, LOOPBACK, Layout, Member, State

_AUDIT_MEGABYTES: Final = 4_096
# Without these no token Secret is filled, no namespace finishes deleting, nothing is collected.
# The others look after pods and nodes.
_CONTROLLERS: Final = (
    "namespace-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "garbage-collector-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
    "resourcequota-controller",
)


@dataclass(frozen=True, slots=True)
class HttpsProbe:
    """Ready once GET https://127.0.0.1:`port``path` answers 200."""

    port: int
    path: str
    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class HttpProbe:
    """Ready once GET http://127.0.0.1:`port``path` answers 200."""

    port: int
    path: str


@dataclass(frozen=True, slots=True)
class PostgresqlProbe:
    """Ready once the PostgreSQL server at 127.0.0.1:`port` lets clients log in."""

    port: int


@dataclass(frozen=True, slots=True)
class PortProbe:
    """Ready once something accepts connections at 127.0.0.1:`port`."""

    port: int


@dataclass(frozen=True, slots=True)
class LifeProbe:
    """Ready once the process has run for `seconds`: it has no probe of its own."""

    seconds: float


Probe: TypeAlias = HttpsProbe | HttpProbe | PostgresqlProbe | PortProbe | LifeProbe


@dataclass(frozen=True, slots=True)
class Owner:
    """The user and group to run as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Launch:
    """The start of a process that is known by a mark in its environment.

    It need not name a file of the sandbox in its arguments, and may run as another user: `owner`.
    `folder` is the working folder. Where other words stand for the contents of files that it
    `reads`, it is started again.
    """

    executable: Path
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    owner: Owner | None = None
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Server:
    """A process that should run, of a cluster or, with `cluster_id` "", for all of them.

    `identity` is an argument that no other process has; where the process has a mark, it is what
    the mark says. `launch` is None for the servers of the clusters, and where it is unknown.
    """

    name: str
    program: str
    cluster_id: str
    arguments: tuple[str, ...]
    identity: str
    log: Path
    ports: tuple[int, ...]
    probe: Probe
    launch: Launch | None = None

    @property
    def digest(self) -> str:
        """A text that changes with the whole command: it is "" for one without a mark."""
        if self.launch is None:
            return ""
        command = (str(self.launch.executable), *self.arguments)
        environment = sorted(self.launch.environment.items())
        facts = (command, str(self.launch.folder), environment, *self.launch.reads)
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


class Program(StrEnum):
    """The executables; the values are their file names."""

    ETCD = "etcd"
    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings for tests. `fsync` off loses data in a power cut.

    `api_server` are more arguments of each API server; `change` makes another server of each one.
    """

    fsync: bool = True
    audit: bool = False
    api_server: tuple[str, ...] = ()
    change: Callable[[Server], Server] = lambda server: server


NORMAL: Final = Tuning()


def of_clusters(layout: Layout, state: State, tuning: Tuning) -> tuple[Server, ...]:
    """Return every server of the sandbox, in the order in which they can start."""
    found = (
        _etcd(layout, state, tuning),
        *(_api_server(layout, state, member, tuning) for member in state.members),
        *(_controller_manager(layout, member) for member in state.members),
    )
    return tuple(map(tuning.change, found))


def audit_policy_file(layout: Layout, cluster_id: str) -> Path:
    return layout.cluster(cluster_id) / "audit-policy.yaml"


def audit_log(layout: Layout, cluster_id: str) -> Path:
    """Return the file that holds one JSON object per audited event."""
    return layout.logs / f"audit-{cluster_id}.jsonl"


def controller_manager_kubeconfig(layout: Layout, cluster_id: str) -> Path:
    return layout.cluster(cluster_id) / "controller-manager.kubeconfig"


# Both stages on purpose: RequestReceived is written before a request is handled, so a write
# that a client knows of is always in the log. A cluster's own servers are left out: they write a
# hundred times where a namespace goes.
AUDIT_POLICY: Final = f"""\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
  - level: None
    users: [system:apiserver, {CONTROLLER_MANAGER_USER}]
  - level: None
    verbs: [get, list, watch]
  - level: Metadata
"""


def _etcd(layout: Layout, state: State, tuning: Tuning) -> Server:
    client = f"https://127.0.0.1:{state.etcd_port}"
    peer = f"https://127.0.0.1:{state.etcd_peer_port}"
    pki = layout.etcd_pki
    identity = f"--data-dir={layout.etcd_data}"
    arguments = [
        "--name=sandbox",
        identity,
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=sandbox={peer}",
        *(
            f"--{prefix}{flag}={pki / file}"
            for prefix in ("", "peer-")
            for flag, file in (
                ("cert-file", "server.crt"),
                ("key-file", "server.key"),
                ("trusted-ca-file", "ca.crt"),
            )
        ),
        "--client-cert-auth",
        "--peer-client-cert-auth",
        # A sandbox that is used for weeks must not fill up with old revisions.
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=1h",
        "--log-level=warn",
    ]
    if not tuning.fsync:
        arguments.append("--unsafe-no-fsync")
    return Server(
        name="etcd",
        program=Program.ETCD,
        cluster_id="",
        arguments=tuple(arguments),
        identity=identity,
        log=layout.logs / "etcd.log",
        ports=(state.etcd_port, state.etcd_peer_port),
        probe=HttpsProbe(
            state.etcd_port, "/readyz", pki / "ca.crt", pki / "client.crt", pki / "client.key"
        ),
    )


def _api_server(layout: Layout, state: State, member: Member, tuning: Tuning) -> Server:
    pki = layout.pki(member.id)
    arguments = [
        f"--tls-cert-file={pki / 'server.crt'}",
        f"--tls-private-key-file={pki / 'server.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={member.port}",
        f"--etcd-servers=https://127.0.0.1:{state.etcd_port}",
        f"--etcd-cafile={layout.etcd_pki / 'ca.crt'}",
        f"--etcd-certfile={layout.etcd_pki / 'client.crt'}",
        f"--etcd-keyfile={layout.etcd_pki / 'client.key'}",
        f"--etcd-prefix=/{member.id}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        # Endpoints may not be loopback addresses, and no pod is there to use them.
        "--endpoint-reconciler-type=none",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--service-cluster-ip-range=10.0.0.0/24",
        *_audit_arguments(layout, member.id, tuning),
        *tuning.api_server,
    ]
    return _of_member(
        layout, member, Program.API_SERVER, arguments, ports=(member.port,), path="/readyz"
    )


def _audit_arguments(layout: Layout, cluster_id: str, tuning: Tuning) -> Sequence[str]:
    if not tuning.audit:
        return ()
    return (
        f"--audit-policy-file={audit_policy_file(layout, cluster_id)}",
        f"--audit-log-path={audit_log(layout, cluster_id)}",
        # One file: after 100 MB, which is what the server takes by itself, another would begin.
        f"--audit-log-maxsize={_AUDIT_MEGABYTES}",
    )


def _controller_manager(layout: Layout, member: Member) -> Server:
    pki = layout.pki(member.id)
    arguments = [
        f"--kubeconfig={controller_manager_kubeconfig(layout, member.id)}",
        f"--controllers={','.join(_CONTROLLERS)}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--service-account-private-key-file={pki / 'service-account.key'}",
        "--use-service-account-credentials=false",
        "--leader-elect=false",
        "--secure-port=0",
    ]
    # It serves nothing itself, so it is judged by its work.
    path = "/api/v1/namespaces/default/serviceaccounts/default"
    return _of_member(layout, member, Program.CONTROLLER_MANAGER, arguments, path=path)


def _of_member(
    layout: Layout,
    member: Member,
    program: Program,
    arguments: Sequence[str],
    *,
    ports: tuple[int, ...] = (),
    path: str,
) -> Server:
    """Return a server of one cluster, with a first argument that identifies it."""
    pki = layout.pki(member.id)
    return Server(
        name=f"{program} of {member.context}",
        program=program,
        cluster_id=member.id,
        arguments=tuple(arguments),
        identity=arguments[0],
        log=layout.logs / f"{program}-{member.id}.log",
        ports=ports,
        probe=HttpsProbe(
            member.port, path, *(pki / name for name in ("ca.crt", "admin.crt", "admin.key"))
        ),
    )

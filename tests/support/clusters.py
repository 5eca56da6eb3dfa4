"""Real clusters for tests: one sandbox per test run, and what its audit logs say."""

import json
import os
import resource
import signal
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import psutil

from klutchctl.sandbox import credentials, lifecycle, manifests, processes, servers
from klutchctl.sandbox.servers import Program, Tuning
from klutchctl.sandbox.state import Layout, Member, app_clusters
from reconciler.core.manifest import get_text
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from tests.support.quiet import Quiet

TUNING: Final = Tuning(fsync=False, audit=True)
# What no test makes, and each namespace that goes would be searched for, one request for each kind.
_NOT_SERVED: Final = (
    *("apps/v1/controllerrevisions", "apps/v1/daemonsets", "apps/v1/replicasets"),
    *("apps/v1/statefulsets", "autoscaling/v1", "autoscaling/v2"),
    *("certificates.k8s.io/v1", "resource.k8s.io/v1", "storage.k8s.io/v1/csistoragecapacities"),
)
# A test's few requests need no fair queues either. Together a fifth of the CPU time of the servers.
_LEAN: Final = replace(
    TUNING,
    api_server=(
        f"--runtime-config={','.join(f'{one}=false' for one in _NOT_SERVED)}",
        "--enable-priority-and-fairness=false",
        # As OpenShift has it: who may not delete an object may not change its owners.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
    ),
)
_NOT_STORED: Final = frozenset({"authorization.k8s.io", "authentication.k8s.io"})


@dataclass(frozen=True, slots=True)
class Write:
    """One write that an API server was asked for, dry runs excluded.

    A create has no `name` where the object's body holds it alone.
    """

    verb: str
    user: str
    resource: str
    namespace: str
    name: str
    agent: str = ""  # the User-Agent


@dataclass(frozen=True, slots=True)
class AuditLog:
    """What one API server was asked to write, by anyone but its own controllers."""

    path: Path

    def mark(self) -> int:
        """Return the place in the log that is now its end; it may be inside of a line."""
        return self.path.stat().st_size

    def events_since(self, mark: int) -> list[Any]:
        """Return what is told of requests that came after `mark`."""
        with self.path.open("rb") as log:
            log.seek(max(mark - 1, 0))
            if mark:
                log.readline()  # one that had begun, or its end
            return [json.loads(line) for line in log if line.endswith(b"\n")]

    def answers_since(self, mark: int, agent: str = "") -> list[Any]:
        """Return how requests ended that came after `mark`, in the order of their ends.

        All requests, or those of one client. An end is told a little after the write can be seen,
        so it may follow a mark that the request did not follow. Fails as long as one of those
        requests has no end.
        """
        events = [one for one in self.events_since(mark) if agent in ("", one.get("userAgent"))]
        came = {event["auditID"] for event in events if event["stage"] == "RequestReceived"}
        ended = [event for event in events if event["stage"] != "RequestReceived"]
        assert came <= {event["auditID"] for event in ended}
        return [event for event in ended if event["auditID"] in came]

    def conflicts_since(self, mark: int, agent: str) -> list[tuple[str, str]]:
        """Return the namespaces and resources of what a client wrote that met another state.

        Of what it wrote after `mark`. Fails as `answers_since` does.
        """
        return [
            (get_text(event, "objectRef", "namespace"), get_text(event, "objectRef", "resource"))
            for event in self.answers_since(mark, agent)
            if event["responseStatus"]["code"] == 409
        ]

    def writes_since(self, mark: int, *, namespace: str | None = None) -> list[Write]:
        """Return the writes after `mark`, of all namespaces or of one.

        A request is in the log before the server handles it, so none is missing that a client
        has an answer to.
        """
        writes = [_write(event) for event in self.events_since(mark) if _counts(event)]
        return [w for w in writes if namespace is None or w.namespace == namespace]


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """One real cluster with its CRDs. `connection` is that of an administrator."""

    name: str
    context: str
    kubeconfig: Path
    connection: Connection
    cluster: KubeCluster
    audit: AuditLog


def start(layout: Layout, programs: Mapping[Program, Path]) -> tuple[Member, ...]:
    """Start a control plane and an app cluster, unless they run, and return both."""
    wanted = None if lifecycle.load(layout) else app_clusters(1)  # a second one goes on as well
    plan = lifecycle.Plan(programs, wanted, tuning=_LEAN)
    return lifecycle.up(layout, plan, progress=Quiet()).members[:2]


def add_app_cluster(layout: Layout, programs: Mapping[Program, Path]) -> Member:
    """Start a second app cluster beside what runs, and return it."""
    plan = lifecycle.Plan(programs, app_clusters(2), tuning=_LEAN)
    return lifecycle.up(layout, plan, progress=Quiet()).members[-1]


def kill(layout: Layout, context: str, program: Program) -> None:
    """Kill a server of a cluster, as a machine that fails does, and etcd as its full disk does."""
    state = lifecycle.load(layout)
    assert state is not None
    (server,) = (
        one
        for one in servers.of_clusters(layout, state, _LEAN)
        if one.name in {f"{program} of {context}", program}
    )
    process = processes.running(server, processes.observe(layout))
    assert process is not None
    if program is Program.ETCD:  # of all clusters: its next write is the last
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, 0))
    else:
        os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(process.pid)], timeout=30)


def alarm(layout: Layout, action: str) -> None:
    """Begin or end etcd's alarm that it is full, at which it takes no more writes."""
    state, pki = lifecycle.load(layout), layout.etcd_pki
    assert state is not None
    trusting = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    trusting.load_cert_chain(pki / "client.crt", pki / "client.key")
    body = json.dumps({"action": action, "alarm": "NOSPACE"}).encode()
    asked = Request(f"https://127.0.0.1:{state.etcd_port}/v3/maintenance/alarm", body)
    urlopen(asked, context=trusting, timeout=30).close()


def repair(layout: Layout, programs: Mapping[Program, Path]) -> None:
    """Start again what does not run any more."""
    lifecycle.up(layout, lifecycle.Plan(programs, tuning=_LEAN), progress=Quiet())


async def connect(layout: Layout, member: Member) -> LiveCluster:
    """Return the cluster with its CRDs installed. Close its `cluster` at the end."""
    connection = credentials.connection(layout, member)
    cluster = KubeCluster(connection)
    await manifests.install(cluster, member.role)
    return LiveCluster(
        name=cluster.name,
        context=member.context,
        kubeconfig=layout.kubeconfig,
        connection=connection,
        cluster=cluster,
        audit=AuditLog(servers.audit_log(layout, member.id)),
    )


def _counts(event: Mapping[str, object]) -> bool:
    target = event.get("objectRef")
    return (
        event["stage"] == "RequestReceived"
        and isinstance(target, dict)
        and target.get("apiGroup", "") not in _NOT_STORED
        and "dryRun=All" not in str(event["requestURI"])
    )


def _write(event: Mapping[str, object]) -> Write:
    target, user = event["objectRef"], event["user"]
    assert isinstance(target, dict)
    assert isinstance(user, dict)
    return Write(
        verb=str(event["verb"]),
        user=user["username"],
        resource=target["resource"],
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        agent=str(event.get("userAgent", "")),
    )

"""T18: which Pods namespace `klutch-bind` lets in, what they reach, and who reaches them.

No network plugin runs beside these API servers: that one keeps NetworkPolicies is Kubernetes' part.
What they say is read here from the API server, which has filled in what was left out.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import konnector
from bind import program
from bind.settings import Settings
from reconciler.blueprints.objects import build
from reconciler.controller import flags
from reconciler.controller.program import Term
from reconciler.controller.tasks import SystemClock
from reconciler.core import names
from reconciler.core.errors import Forbidden
from reconciler.core.manifest import get_map, get_texts, ref_of
from reconciler.core.refs import CLUSTER_ROLE, DEPLOYMENT, NAMESPACE, RESOURCE_QUOTA, Kind, Ref
from reconciler.kube.client import KubeCluster
from tests.support import deployed, removal
from tests.support.bound_scenes import Scene
from tests.support.clusters import LiveCluster
from tests.support.deployed import FOLDER, NETWORK_POLICY, PDB
from tests.support.eventually import eventually
from tests.support.replicas import BACKEND, replicas
from tests.support.web import fetch

_POD: Final = Kind("", "v1", "Pod", "pods")
_UNLABELLED: Final[Mapping[str, None]] = {
    f"pod-security.kubernetes.io/{mode}": None for mode in ("enforce", "audit", "warn")
}
_METADATA_PORT: Final = 80  # of 169.254.169.254, which gives the node's credentials away


class Shipped(NamedTuple):
    """A folder, and which of the clusters it is for."""

    folder: Path
    of_backend: bool


SHIPPED: Final = {
    "klutch-bind": Shipped(FOLDER, of_backend=True),
    "konnector": Shipped(Path(konnector.__file__).parent / "deploy" / "minimal", of_backend=False),
}
ATTACKS: Final[Mapping[str, Mapping[str, Any]]] = {
    "root": {"containers": [{"name": "a", "image": "a", "securityContext": {"runAsUser": 0}}]},
    "with the network of its node": {
        "hostNetwork": True,
        "containers": [{"name": "a", "image": "a"}],
    },
    "with the disk of its node": {
        "volumes": [{"name": "node", "hostPath": {"path": "/"}}],
        "containers": [{"name": "a", "image": "a"}],
    },
    "that is no user of its own": {"containers": [{"name": "a", "image": "a"}]},
}


@pytest.fixture(params=SHIPPED)
async def shipped(
    request: pytest.FixtureRequest, control_plane: LiveCluster, app_cluster: LiveCluster
) -> AsyncIterator[tuple[LiveCluster, list[Any]]]:
    """Yield a cluster with all of a folder but the workload, and that folder's manifests."""
    folder, of_backend = SHIPPED[request.param]
    live = control_plane if of_backend else app_cluster
    made = deployed.built(folder)
    applied = [one for one in made if one["kind"] not in (DEPLOYMENT.kind, PDB.kind)]
    try:
        await deployed.apply(live.cluster, applied)
        yield live, made
    finally:
        for one in applied:
            if one["kind"] != NAMESPACE.kind:
                await removal.remove_manifest(live.cluster, deployed.KINDS[one["kind"]], one)
        patch = {"metadata": {"labels": dict(_UNLABELLED)}}
        ref = Ref(live.name, NAMESPACE, "", names.KLUTCH_NAMESPACE)
        await live.cluster.merge_patch(ref, patch, manager="tests")


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_other_pod_gets_in(shipped: tuple[LiveCluster, list[Any]], attack: str) -> None:
    """Not even by an administrator, who may have taken the manifest of somebody else."""
    live, _ = shipped
    with pytest.raises(Forbidden, match=r"restricted|PodSecurity"):
        await run(live, {**ATTACKS[attack], "serviceAccountName": "default"})


async def test_what_is_shipped_gets_in(shipped: tuple[LiveCluster, list[Any]]) -> None:
    live, made = shipped
    await run(live, get_map(deployed.only(DEPLOYMENT, made), "spec", "template", "spec"))


async def run(live: LiveCluster, spec: Mapping[str, Any]) -> None:
    pod = {**build(_POD, "p", namespace=names.KLUTCH_NAMESPACE), "spec": dict(spec)}
    await live.cluster.create(pod, _POD, manager="tests", dry_run=True)


async def test_nobody_reaches_it_and_it_reaches_api_servers_only(
    shipped: tuple[LiveCluster, list[Any]],
) -> None:
    live, made = shipped
    own = deployed.only(NETWORK_POLICY, made)
    policy: Any = await live.cluster.get(ref_of(live.name, NETWORK_POLICY, own))
    assert policy is not None
    selected = get_map(policy, "spec", "podSelector", "matchLabels")
    deployment = deployed.only(DEPLOYMENT, made)
    assert selected == get_map(deployment, "spec", "template", "metadata", "labels")
    assert {*get_texts(policy, "spec", "policyTypes")} == {"Ingress", "Egress"}
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    served = (flags.METRICS[1], *(one["containerPort"] for one in container["ports"]))
    # Probes come from the node itself, which no policy holds up.
    assert not [port for port in served if passes(policy, "ingress", "TCP", port)]
    for protocol, port in (("UDP", 53), ("TCP", 53), ("TCP", 443), ("TCP", 6443)):
        assert passes(policy, "egress", protocol, port)
    for port in (_METADATA_PORT, 22, 2379, 5432, 10250, flags.METRICS[1]):
        assert not passes(policy, "egress", "TCP", port)


def passes(policy: Any, way: str, protocol: str, port: int) -> bool:
    """Return whether a policy lets a connection through, whatever is at its other end."""
    for rule in policy["spec"].get(way, ()):
        assert {*rule} <= {"ports"}
        ports = [(one["protocol"], one["port"]) for one in rule.get("ports", ())]
        if not ports or (protocol, port) in ports:
            return True
    return False


async def test_a_backend_with_the_role_of_0_1_0_says_what_it_lacks(
    control_plane: LiveCluster, caplog: pytest.LogCaptureFixture
) -> None:
    made = deployed.built(FOLDER)
    own = deployed.only(CLUSTER_ROLE, made, name="klutch-bind-own")
    own["rules"] = [one for one in own["rules"] if one["resources"] != [RESOURCE_QUOTA.plural]]
    async with (
        deployed.installed(control_plane.cluster, control_plane.connection, made) as way,
        KubeCluster(way) as cluster,
        working_in_vain(cluster) as backend,
    ):

        def reported() -> str:
            said = backend.manager.unready()
            return "" if "not answered yet" in said else said

        said = await eventually(reported)
        assert said.startswith("not read yet: control-plane: list ResourceQuota: ")
        assert "cannot list resource" in said
        assert ";" not in said  # nothing else is missing
        assert said.endswith(f". {program.ADVICE}")
        # Probes tell the same: `/readyz` is this sentence.
        await eventually(lambda: said in [getattr(one, "why", "") for one in caplog.records])


@asynccontextmanager
async def working_in_vain(cluster: KubeCluster) -> AsyncIterator[Term]:
    made = program.wired(
        Settings(leader_election=False),
        cluster,
        leases=cluster,
        deployments_served=True,
        lease_namespace=names.KLUTCH_NAMESPACE,
        clock=SystemClock(),
    )
    stop = asyncio.Event()
    running = asyncio.create_task(made.manager.run(stop))
    try:
        yield made
    finally:
        stop.set()
        await running


PROGRAMS = {"klutch-bind": BACKEND, "konnector": (sys.executable, "-m", "konnector")}


@pytest.mark.parametrize("program", PROGRAMS)
async def test_metrics_are_not_served_beside_the_probes(
    scene: Scene, namespace: str, program: str, tmp_path: Path
) -> None:
    of_backend = program == "klutch-bind"
    live = scene.plane if of_backend else scene.app
    where = namespace if of_backend else scene.app_namespace
    async with replicas(live, where, tmp_path, command=PROGRAMS[program]) as made:
        only = await made.start()
        await made.leader(only)
        assert (await only.ask("/metrics"))[0] == 200
        reported = {one["message"]: one for one in only.lines()}
        probes = f"http://127.0.0.1:{reported['probes are served']['port']}"
        metrics = f"http://127.0.0.1:{reported['metrics are served']['port']}"
        status, _ = await asyncio.to_thread(fetch, f"{probes}/metrics")
        assert status == 404
        status, _ = await asyncio.to_thread(fetch, f"{metrics}/healthz")
        assert status == 404


def test_metrics_are_for_loopback_unless_an_address_is_given() -> None:
    assert flags.address(flags.METRICS_ADDRESS, "--metrics-address") == flags.METRICS
    assert flags.METRICS[0] == "127.0.0.1"

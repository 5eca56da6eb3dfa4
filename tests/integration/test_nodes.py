"""What is shipped, as pods, from a claim to a database and back.

The example of a fleet and its services, on a control plane and app clusters with a node each. The
images are those of `make images`.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pygit2
import pytest

from klutchctl import repository as fleets
from klutchctl.sandbox import addons, processes
from klutchctl.sandbox.addons.addon import Request
from klutchctl.sandbox.lifecycle import Plan
from klutchctl.sandbox.servers import Program
from klutchctl.sandbox.state import of_fleet
from klutchctl.settings import Settings
from tests.demo.developer import BINDING, INSTANCE, Developer, ask
from tests.images import __main__ as make_images
from tests.nodes import machine as node_machine
from tests.nodes import running
from tests.support import git_server, signing
from tests.support.eventually import eventually
from tests.support.fleet_texts import binding, cluster, control_plane, document, one_file
from tests.support.programs import Machine, furnished
from tests.support.quiet import Quiet
from tests.support.shells import ran

ROOT = Path(__file__).parents[2]
FLEET = ROOT / "fleet-example"
EXAMPLE = {str(one.relative_to(FLEET)): one.read_bytes() for one in FLEET.rglob("*.yaml")}
PLANE, SHOP, OTHER, ANALYTICS, LAB = "cp-eu", "shop-eu-1", "shop-eu-2", "analytics-eu-1", "lab-1"
BIND = "klutch-bind"
USER = "65532"
SPACE = "klutch-bind-lab-lab-1"  # of the AppClusterBinding lab/lab-1
KONNECTOR = "registry.example.com/klutchctl/konnector:0.1.0"
ENV = "env:\n        - {{name: SSL_CERT_FILE, value: {}/ca.crt}}\n"
GIT = "https://git.example.com/platform/fleet.git"
LONG = 300.0
# A fleet of its own, whose konnector klutch-bind deploys beside itself.
LAB_FLEET = one_file(
    document("Fleet", "lab", "{}"),
    control_plane(at=PLANE, more=", mode: AppClusterBinding, namespace: lab"),
    cluster(LAB, more=f", konnector: {{deploy: true, image: {KONNECTOR}}}"),
    binding("lab-databases", group="anynines.com", plural="postgresqlinstances", clusters=LAB),
    binding(
        "lab-credentials",
        group="anynines.com",
        plural="servicebindings",
        clusters=LAB,
        more=", claims: [{resource: secrets, version: v1, owner: Provider, state: Accepted}]",
    ),
)
# What a process of a container finds, by the Python of its image.
LOOK = """\
import json, os, pathlib
lines = open("/proc/1/status").read().splitlines()
status = dict(one.split(":\\t", 1) for one in lines if ":\\t" in one)
def writes(path):
    try:
        pathlib.Path(path, "x").write_text("")
    except OSError as error:
        return os.strerror(error.errno)
    return "written"
keys = "Uid Gid Groups NoNewPrivs Seccomp CapEff CapBnd".split()
found = {key: status[key].split() for key in keys}
limits = [*pathlib.Path("/sys/fs/cgroup").glob("memory*/memory.limit_in_bytes")]
limits += [*pathlib.Path("/sys/fs/cgroup").glob("memory.max")]
found["limits"] = [one.read_text().strip() for one in limits]
found["writes"] = [writes(path) for path in ("/", "/tmp", "/app")]
print(json.dumps(found))
"""


pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(bool(node_machine.missing()), reason=node_machine.missing() or "they run"),
    pytest.mark.timeout(1800),
]


@dataclass(frozen=True)
class Nodes:
    """A machine with a sandbox whose clusters have nodes."""

    machine: Machine
    running: running.Nodes
    jobs: list[Any] = field(default_factory=list)  # the pods of those that were complete

    @property
    def kubeconfig(self) -> Path:
        return self.running.kubeconfig

    async def kubectl(self, context: str, *arguments: str) -> str:
        """Run kubectl, which has to succeed, and return what it prints."""
        at = (f"--kubeconfig={self.kubeconfig}", f"--context={context}")
        done = await asyncio.to_thread(ran, ["kubectl", *at, *arguments])
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    async def get(self, context: str, *arguments: str) -> Any:
        return json.loads(await self.kubectl(context, "get", "-o", "json", *arguments))

    async def available(self, context: str, deployment: str, namespace: str = BIND) -> None:
        """Wait until all pods of a Deployment, and no others, are as it says."""
        way = ("-n", namespace, "rollout", "status", f"deployment/{deployment}")
        await self.kubectl(context, *way, f"--timeout={LONG:.0f}s")

    async def pods(self, context: str, app: str, namespace: str = BIND) -> list[Any]:
        found = await self.get(context, "-n", namespace, "pods", "-l", f"app={app}")
        return [one for one in found["items"] if "deletionTimestamp" not in one["metadata"]]

    async def installed(self) -> None:
        """Apply what is shipped, as its READMEs say, and wait for it."""
        await self.kubectl(PLANE, "apply", "-k", str(ROOT / "bind/deploy/control-plane-mode"))
        for context in (SHOP, OTHER):
            await self.kubectl(context, "apply", "-k", str(ROOT / "konnector/deploy/minimal"))
        await self.available(PLANE, BIND)
        for context in (SHOP, OTHER):
            await self.available(context, "konnector")

    async def applied(self) -> None:
        """Let the Job of the example apply its fleet, as a sync of Argo CD does, and one beside."""
        folder = self.machine.home / "git"
        await self.kubectl(PLANE, "create", "namespace", "klutchctl")
        with self.pushed(folder, EXAMPLE) as (url, _):
            await self.made("secret generic", "fleet-access", f"kubeconfig={self.kubeconfig}")
            await self.made("secret generic", "fleet-git", f"{folder}/token", f"{folder}/ca.crt")
            await self.apply("fleet-example/pipelines", {GIT: url, "env:\n": ENV.format("/git")})
            done = ("wait", "job/fleet", "--for=condition=complete", f"--timeout={LONG:.0f}s")
            await self.kubectl(PLANE, "-n", "klutchctl", *done)
        self.jobs[:] = (await self.get(PLANE, "-n", "klutchctl", "pods"))["items"]
        (self.machine.home / "lab").mkdir(exist_ok=True)
        (self.machine.home / "lab/fleet.yaml").write_text(LAB_FLEET)
        lab = ("apply", str(self.machine.home / "lab"), "--auto-approve", "--wait")
        answer = await self.machine.klutchctl(f"--kubeconfig={self.kubeconfig}", *lab)
        assert answer.code == 0, answer.out + answer.err

    async def controlled(self, at: Path, url: str) -> None:
        """Install the controller as its book says; what it mounts is in a folder, or our own."""
        await self.made("secret generic", "klutchctl-kubeconfig", f"kubeconfig={self.kubeconfig}")
        await self.made("secret generic", "klutchctl-git", f"{at}/token")
        await self.made("configmap", "klutchctl-trust", f"{at}/allowed_signers", f"{at}/ca.crt")
        more = {"--fleet=prod": "--fleet=acme", "env:\n": ENV.format("/etc/klutchctl/trust")}
        await self.apply("klutchctl/deploy/controller", {GIT: url, **more})
        await self.available(PLANE, "klutchctl-controller", "klutchctl")

    async def made(self, kind: str, name: str, *files: str) -> None:
        """Make a Secret or ConfigMap of files beside the programs that read it."""
        content = (f"--from-file={one}" for one in files)
        await self.kubectl(PLANE, "-n", "klutchctl", "create", *kind.split(), name, *content)

    async def apply(self, folder: str, changes: Mapping[str, str]) -> None:
        """Apply what is shipped in a folder, with each of these texts exchanged."""
        text = await self.kubectl(PLANE, "kustomize", str(ROOT / folder))
        for old, new in changes.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        (self.machine.home / "shipped.yaml").write_text(text)
        await self.kubectl(PLANE, "apply", "-f", str(self.machine.home / "shipped.yaml"))

    @contextmanager
    def pushed(self, folder: Path, files: Mapping[str, bytes], key: Any = None) -> Iterator[Any]:
        """Serve a commit of these files to pods, with a token and a CA: yield URL and commit."""
        repository = pygit2.init_repository(str(folder / "root/fleet.git"), bare=True)
        commit = signing.signed_commit(repository, files, key)
        host = self.running.network.gateway
        with git_server.served(folder / "root", folder, host=host) as server:
            server.token = "of-the-secret"
            (folder / "token").write_text(server.token)
            yield f"{server.url}/fleet.git", commit

    async def road(self, context: str, database: str) -> None:
        """Claim a database, and use it by the credentials that arrive."""
        async with self.machine.connect(context) as cluster:
            developer = Developer(cluster, database)
            await developer.claim_a_database()
            for kind in (INSTANCE, BINDING):
                await developer.is_ready(kind)
            assert await ask(await developer.credentials(), "SELECT 42") == ["42"]


@pytest.fixture(scope="module")
def furnished_nodes(
    tmp_path_factory: pytest.TempPathFactory, programs: Mapping[Program, Path]
) -> Iterator[Nodes]:
    machine = furnished(tmp_path_factory.mktemp("nodes"), programs)
    cache = Settings(os.environ).cache_home / "klutchctl"
    (machine.home / "cache/klutchctl").mkdir(parents=True)
    for name in ("nodes", "services"):
        (cache / name).mkdir(parents=True, exist_ok=True)
        (machine.home / "cache/klutchctl" / name).symlink_to(cache / name)
    shutil.copytree(FLEET, machine.home / "fleet")
    (machine.home / "fleet/clusters/lab").mkdir()
    (machine.home / "fleet/clusters/lab/lab.yaml").write_text(cluster(LAB))
    images = machine.home / "images"
    assert make_images.main(["--output", str(images)]) == 0
    named = {
        f"registry.example.com/klutchctl/{name}:0.1.0": images / f"{name}.oci.tar"
        for name in ("klutchctl", BIND, "konnector")
    }
    layout, settings, fleet = machine.layout(), Settings(machine.environ), machine.home / "fleet"
    request = Request(layout, settings, None, {"services": True}, fleet=fleet)
    kits = addons.provide(addons.find(request), request, Quiet())
    wanted = of_fleet(fleets.fleet_in(fleet, check_owner=False))
    plan = Plan(programs, addons=kits, crds=True)
    with running.sandbox(layout, wanted, plan, named) as made:
        yield Nodes(machine, made)


@pytest.fixture
async def nodes(furnished_nodes: Nodes) -> Nodes:
    """The sandbox, whole, with the agents and the fleet of the example."""
    await furnished_nodes.installed()
    if not (await furnished_nodes.get(SHOP, "apiservicebindings", "-A"))["items"]:
        await furnished_nodes.applied()
    return furnished_nodes


async def test_the_road_from_a_claim_to_a_database_is_one_of_pods(nodes):
    """The fleet was applied by its Job, as a pod; konnectors and klutch-bind are pods, too."""
    assert "Succeeded" in [one["status"]["phase"] for one in nodes.jobs]
    ours = {"klutchctl", "konnector", BIND}
    observed = {one.identity.partition(" ")[0] for one in processes.observe(nodes.running.layout)}
    assert not ours & {one.partition(":")[0] for one in observed}
    await nodes.available(ANALYTICS, "konnector")  # of the fleet itself
    for context in (SHOP, OTHER, ANALYTICS):
        await nodes.road(context, "road")


async def test_klutch_bind_deploys_a_konnector_that_is_a_pod_beside_it(nodes):
    await nodes.available(PLANE, "konnector-lab-1", SPACE)
    images = {
        one["spec"]["containers"][0]["image"] for one in await nodes.pods(PLANE, "konnector", SPACE)
    }
    assert images == {KONNECTOR}
    await nodes.road(LAB, "lab")


RUNNING = {
    "klutch-bind": (PLANE, BIND, "klutch-bind", "klutch-bind"),
    "a konnector by its manifest": (SHOP, BIND, "konnector", "konnector"),
    "a konnector of a fleet": (ANALYTICS, BIND, "konnector", "konnector"),
    "a konnector of an AppClusterBinding": (PLANE, SPACE, "konnector", "klutch-binder"),
}


@pytest.mark.parametrize("title", RUNNING)
async def test_a_process_has_no_more_rights_than_its_manifest_says(nodes, title):
    context, namespace, app, account = RUNNING[title]
    found_pods = await nodes.pods(context, app, namespace)
    assert len(found_pods) == 2
    for pod in found_pods:
        name = pod["metadata"]["name"]
        look = ("exec", "-n", namespace, name, "--", "/app/bin/python", "-c", LOOK)
        found = json.loads(await nodes.kubectl(context, *look))
        assert set(found["Uid"]) == set(found["Gid"]) == {USER}
        assert set(found["Groups"]) <= {USER}
        assert (found["NoNewPrivs"], found["Seccomp"]) == (["1"], ["2"])
        assert int(found["CapEff"][0], 16) == int(found["CapBnd"][0], 16) == 0
        assert set(found["writes"]) == {"Read-only file system"}
        (container,) = pod["spec"]["containers"]
        megabytes = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
        assert found["limits"] == [str(megabytes * 1024 * 1024)]
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        assert all(f"{one}Probe" in container for one in ("startup", "liveness", "readiness"))
        assert pod["spec"]["serviceAccountName"] == account
        (sources,) = [one["projected"]["sources"] for one in pod["spec"]["volumes"]]
        assert any("serviceAccountToken" in one for one in sources)


async def test_no_token_is_mounted_where_none_is_needed(nodes):
    assert nodes.jobs
    for job in nodes.jobs:
        mounted = {one["name"] for one in job["spec"]["containers"][0]["volumeMounts"]}
        assert mounted == {"git", "access", "tmp"}


async def test_namespaces_refuse_a_pod_with_more_rights(nodes):
    for context, namespace in ((PLANE, BIND), (PLANE, SPACE), (PLANE, "klutchctl"), (SHOP, BIND)):
        run = ("-n", namespace, "run", "x", "--image=localhost/pause:1")
        with pytest.raises(AssertionError, match="violates PodSecurity"):
            await nodes.kubectl(context, *run)


async def test_work_goes_on_while_pods_are_deleted_rolled_and_drained(nodes):
    for context, app in ((PLANE, BIND), (SHOP, "konnector")):
        before = {one["metadata"]["name"] for one in await nodes.pods(context, app)}
        await nodes.kubectl(context, "-n", BIND, "delete", "pod", *before, "--wait=false")
        await nodes.available(context, app)
        assert not before & {one["metadata"]["name"] for one in await nodes.pods(context, app)}
    await nodes.road(SHOP, "deleted")
    for context, app in ((PLANE, BIND), (SHOP, "konnector")):
        await nodes.kubectl(context, "-n", BIND, "rollout", "restart", f"deployment/{app}")
    await nodes.road(SHOP, "rolled")
    for context, app in ((PLANE, BIND), (SHOP, "konnector")):
        await nodes.available(context, app)
    (node,) = (await nodes.get(SHOP, "nodes"))["items"]
    name = node["metadata"]["name"]
    # One of two may go; the other is what the PodDisruptionBudget keeps.
    with pytest.raises(AssertionError, match="disruption budget"):
        await nodes.kubectl(SHOP, "drain", name, "--ignore-daemonsets", "--timeout=15s")
    here = [one for one in await nodes.pods(SHOP, "konnector") if one["spec"].get("nodeName")]
    assert len(here) == 1
    await nodes.road(SHOP, "drained")
    await nodes.kubectl(SHOP, "uncordon", name)
    await nodes.available(SHOP, "konnector")


async def test_a_controller_keeps_the_fleet_as_signed_commits_say(nodes, tmp_path):
    """`klutchctl/deploy/controller`, with the repository and the fleet named in it."""
    key, name = signing.ed25519(), "clusters/analytics/analytics-eu-1.yaml"
    line, more = b"    overrides:\n", b"      env: [{name: SYNCED, value: yes it is}]\n"
    files = {**EXAMPLE, name: EXAMPLE[name].replace(line, line + more)}
    (tmp_path / "allowed_signers").write_text(f"{signing.ALICE} {key.line}\n")
    with nodes.pushed(tmp_path, files, key) as (url, commit):
        await nodes.controlled(tmp_path, url)

        async def synced() -> bool:
            made = await nodes.get(ANALYTICS, "-n", BIND, "deployment/konnector")
            (container,) = made["spec"]["template"]["spec"]["containers"]
            return "SYNCED" in {one["name"] for one in container.get("env", ())}

        await eventually(synced, within=LONG)

        async def verified() -> bool:
            fleet = await nodes.get(PLANE, "-n", "klutchctl", "fleetstatuses/acme")
            said = {one["type"]: one["status"] for one in fleet["status"]["conditions"]}
            return said["SourceVerified"] == "True" and commit in json.dumps(fleet["status"])

        await eventually(verified, within=LONG)
        (pod,) = await nodes.pods(PLANE, "klutchctl-controller", "klutchctl")
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        await nodes.kubectl(PLANE, "-n", "klutchctl", "delete", "deployment/klutchctl-controller")
    await nodes.available(ANALYTICS, "konnector")
    await nodes.road(ANALYTICS, "controlled")

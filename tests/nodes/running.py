"""Runs a sandbox with a node for each cluster for the length of a block.

Its API servers listen on loopback; `forward.py` leads there from addresses that pods reach, too.
"""

import asyncio
import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from klutchctl import files
from klutchctl.sandbox import binaries, credentials, lifecycle, processes, recipes, state
from klutchctl.sandbox.credentials import Use
from klutchctl.sandbox.lifecycle import Plan
from klutchctl.sandbox.servers import Program, Server
from klutchctl.sandbox.state import Layout, Member, Wanted
from klutchctl.settings import Settings
from tests.nodes import machine
from tests.nodes.machine import Network
from tests.support.eventually import eventually
from tests.support.quiet import Quiet

PAUSE_IMAGE: Final = "localhost/pause:1"
_HERE: Final = Path(__file__).parent
_SEEN: Final = "/run/klutchctl"  # where a node finds its folder and its programs
_BUILT: Final = ("kubelet", "kube-scheduler", "pause")
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_WITHIN: Final = 300.0
# Flags of API servers for clusters without pods.
_WITHOUT_PODS: Final = (
    "--endpoint-reconciler-type=",
    "--authorization-mode=",
    "--disable-admission-plugins=",
    "--service-cluster-ip-range=",
)


@dataclass(frozen=True)
class Nodes:
    """Clusters with nodes. `kubeconfig` has addresses that this machine and all pods reach."""

    layout: Layout
    network: Network
    members: Sequence[Member]
    programs: Path
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        return self.layout.root / "nodes.kubeconfig"

    def number(self, cluster_id: str) -> int:
        return [one.id for one in self.members].index(cluster_id) + 1

    def folder(self, member: Member) -> Path:
        return self.layout.root / "nodes" / member.id

    def reached(self, kubeconfig: bytes) -> bytes:
        for number, member in enumerate(self.members, 1):
            inner, outer = member.server, f"https://{self.network.server(number)}"
            kubeconfig = kubeconfig.replace(f"{inner}\n".encode(), f"{outer}\n".encode())
        return kubeconfig


@contextmanager
def sandbox(
    layout: Layout, wanted: Sequence[Wanted], plan: Plan, images: Mapping[str, Path]
) -> Iterator[Nodes]:
    """Run clusters with nodes that have these images, by their names; the end deletes all of it."""
    with ExitStack() as ended:
        network = ended.enter_context(machine.connected(len(wanted)))
        known = state.extend(None, wanted, new_ports=processes.free_ports)
        nodes = Nodes(layout, network, known.members, _provided())
        ended.callback(lifecycle.down, layout, delete=True, progress=Quiet())
        files.private_folder(layout.root)
        files.write(layout.state_file, lifecycle.dump(known))
        for number, member in enumerate(nodes.members, 1):
            address = network.server(number)
            pki, context = layout.pki(member.id), member.context
            credentials.ensure_cluster(pki, context=context, address=address)
        tuning = replace(plan.tuning, change=partial(_with_pods, nodes))
        lifecycle.up(layout, replace(plan, tuning=tuning), progress=Quiet())
        files.write(nodes.kubeconfig, nodes.reached(layout.kubeconfig.read_bytes()))
        ended.callback(_end, nodes)
        _start(nodes)
        archives = {**images, PAUSE_IMAGE: _pause(nodes)}
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            list(pool.map(partial(_bring, nodes, archives), nodes.members))
        yield nodes


def _provided() -> Path:
    """Return the folder with the programs of nodes, built the first time."""
    settings = Settings(os.environ)
    own = recipes.release(_HERE / "programs", "the programs of nodes", _BUILT).recipe
    where = binaries.workshop(own, "nodes", cache_home=settings.cache_home, environ=os.environ)
    return binaries.provide_built(where, own, progress=Quiet())


def _with_pods(nodes: Nodes, server: Server) -> Server:
    kept = [one for one in server.arguments if not one.startswith(_WITHOUT_PODS)]
    if server.program == Program.API_SERVER:
        pki = nodes.layout.pki(server.cluster_id)
        services = nodes.network.services(nodes.number(server.cluster_id))
        kept += [
            "--endpoint-reconciler-type=none",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={services}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            f"--kubelet-client-certificate={pki / 'admin.crt'}",
            f"--kubelet-client-key={pki / 'admin.key'}",
        ]
    if server.program == Program.CONTROLLER_MANAGER:
        kept.append("--controllers=*")
    return replace(server, arguments=tuple(kept))


def _start(nodes: Nodes) -> None:
    ways = [
        word
        for number, member in enumerate(nodes.members, 1)
        for word in (nodes.network.server(number), str(member.port))
    ]
    _run(nodes, "forward", sys.executable, str(_HERE / "forward.py"), *ways)
    for number, member in enumerate(nodes.members, 1):
        facts = _written(nodes, member, number)
        kubeconfig = nodes.folder(member) / "scheduler.kubeconfig"
        words = (f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0")
        _run(nodes, f"scheduler of {member.context}", str(nodes.programs / _BUILT[1]), *words)
        node = (sys.executable, "-I", "-S", str(_HERE / "node.py"), str(facts))
        _run(nodes, f"node of {member.context}", *node)
    for number, member in enumerate(nodes.members, 1):
        asyncio.run(eventually(partial(_is_ready, nodes, member, number), within=_WITHIN))


def _run(nodes: Nodes, name: str, *command: str) -> None:
    """Run a program that ends with this process, even where that is killed."""
    bound = ("setpriv", "--pdeathsig=KILL", "--", *command)
    with (nodes.layout.logs / f"{name.replace(' ', '-')}.log").open("wb") as log:
        nodes.running[name] = subprocess.Popen(bound, stdout=log, stderr=log)


def _end(nodes: Nodes) -> None:
    for process in nodes.running.values():
        process.kill()
        process.wait()


def _is_ready(nodes: Nodes, member: Member, number: int) -> bool:
    dead = [name for name, one in nodes.running.items() if one.poll() is not None]
    if dead:
        raise RuntimeError(f"{dead} ended; their logs are in {nodes.layout.logs}")
    asked = ("wait", f"node/node-{number}", "--for=condition=Ready", "--timeout=5s")
    way = (f"--kubeconfig={nodes.kubeconfig}", f"--context={member.context}")
    done = subprocess.run(("kubectl", *way, *asked), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return True


def _written(nodes: Nodes, member: Member, number: int) -> Path:
    """Write what a node reads, and return the file with the facts for node.py."""
    folder, pki, network = nodes.folder(member), nodes.layout.pki(member.id), nodes.network
    authority, now = credentials.authority_in(pki), datetime.now(UTC)
    node, name = f"system:node:node-{number}", f"node-{number}"
    issue = partial(credentials.issue, authority, now=now)
    kubelet = issue(node, organization="system:nodes", use=Use.CLIENT)
    served = issue(node, use=Use.SERVER, address=network.node(number))
    scheduler = issue("system:kube-scheduler", use=Use.CLIENT)
    files.private_folder(folder / "cni")
    files.write_folder(
        folder / "pki",
        {"ca.crt": authority.certificate_pem}
        | credentials.named("client", kubelet)
        | credentials.named("server", served)
        | credentials.named("scheduler", scheduler),
    )
    for user, file in (("client", "kubeconfig"), ("scheduler", "scheduler.kubeconfig")):
        own = credentials.kubeconfig(nodes.layout, [member], folder / "pki" / user)
        files.write(folder / file, nodes.reached(own))
    for path in (_HERE / "config").iterdir():
        files.write(folder / path.name, path.read_bytes())
    plugin = {"type": "bridge", "bridge": "cni0", "isGateway": True}
    ranges = [[{"subnet": network.pods(number)}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    cni = {"cniVersion": "1.0.0", "name": "klutchctl", "plugins": [{**plugin, "ipam": ipam}]}
    files.write(folder / "cni" / "10-klutchctl.conflist", json.dumps(cni).encode())
    facts = {
        "folder": str(folder),
        "programs": str(nodes.programs),
        "plugins": str(machine.plugins()),
        "hostname": name,
        "bridge": network.bridge,
        "link": f"{network.bridge}-{number}",
        "address": f"{network.node(number)}/24",
        "gateway": network.gateway,
        "containerd": ["containerd", f"--config={_SEEN}/node/containerd.toml"],
        "kubelet": [
            f"{_SEEN}/programs/kubelet",
            f"--config={_SEEN}/node/kubelet.yaml",
            f"--kubeconfig={_SEEN}/node/kubeconfig",
            f"--hostname-override={name}",
            f"--node-ip={network.node(number)}",
            f"--cgroup-root=/{network.cgroup(number)}",
        ],
    }
    files.write(folder / "facts.json", json.dumps(facts).encode())
    return folder / "facts.json"


def _pause(nodes: Nodes) -> Path:
    """Write an archive with the image that holds the namespaces of each pod, and return it."""
    layer, made = _tar({"pause": (nodes.programs / "pause").read_bytes()}), nodes.layout.root
    config = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    index = [{"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]
    contents = {"config.json": config, "manifest.json": index}
    texts = {name: json.dumps(content).encode() for name, content in contents.items()}
    files.write(made / "pause.tar", _tar({**texts, "layer.tar": layer}))
    return made / "pause.tar"


def _tar(contents: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def _bring(nodes: Nodes, archives: Mapping[str, Path], member: Member) -> None:
    """Import images into a node: the first process of its namespaces is below the one we know."""
    outer = psutil.Process(nodes.running[f"node of {member.context}"].pid)
    inside = ("nsenter", f"--target={outer.children()[0].pid}", "--mount", "--", "ctr")
    for name, path in archives.items():
        # Without a base it gets a second name, of today, by which nothing finds it.
        named = (f"--base-name={name.rpartition(':')[0]}", f"--index-name={name}")
        command = (*inside, "--namespace=k8s.io", "images", "import", *named, "-")
        with path.open("rb") as content:
            done = subprocess.run(command, stdin=content, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

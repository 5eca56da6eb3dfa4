"""Nodes and the schedulers of their clusters as servers of a sandbox, and what they read. Pure."""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from klutchctl.sandbox.nodes import addresses
from klutchctl.sandbox.nodes.addresses import Nodes
from klutchctl.sandbox.nodes.images import Archive
from klutchctl.sandbox.processes import LEFT, identity
from klutchctl.sandbox.recipes import KUBELET, SCHEDULER
from klutchctl.sandbox.servers import Launch, LifeProbe, Server, as_admin
from klutchctl.sandbox.state import Layout, Member, State

PAUSE_IMAGE: Final = "localhost/pause:1"
NODE: Final = "node"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROGRAM: Final = Path(__file__).parent / "node.py"
_CONFIG: Final = Path(__file__).parent / "config"
_FACTS: Final = "facts.json"
# Where a node finds its folder and its programs, whatever else its mounts hide.
_SEEN: Final = "/run/klutchctl"
_SETTLED: Final = 1.0


@dataclass(frozen=True, slots=True)
class NodesKit:
    """What nodes need: kubelet and kube-scheduler, the CNI plugins, and images to bring there."""

    programs: Path
    plugins: Path
    archives: Sequence[Archive] = ()


def name_of(member: Member) -> str:
    """Return the name of the node of a cluster."""
    return f"node-{addresses.number(member.address)}"


def digest(layout: Layout) -> str:
    """Return what tells what this sandbox makes on the machine from what others make."""
    return hashlib.sha256(str(layout.root).encode()).hexdigest()[:8]


def bridge(layout: Layout) -> str:
    """Return the network interface that this machine and the nodes share."""
    return f"kc-{digest(layout)}"


def cgroup(layout: Layout, member: Member | None = None) -> str:
    """Return the name of the cgroup of all pods of a node, or the pattern of all such names."""
    return f"klutchctl-{digest(layout)}-{addresses.number(member.address) if member else '*'}"


def servers(layout: Layout, state: State, kit: NodesKit | None) -> tuple[Server, ...]:
    """Return the schedulers and the nodes."""
    if state.nodes is None:
        return ()
    return (
        *(_scheduler(layout, member, kit) for member in state.members),
        *(_node(layout, state, member, kit) for member in state.members),
    )


def is_node(marked: str) -> bool:
    """Tell whether this is the identity of a node, or of what one has left."""
    return marked.removeprefix(LEFT).startswith(f"{NODE}:")


def scheduler_kubeconfig(layout: Layout, cluster_id: str) -> Path:
    """Return the kubeconfig that the scheduler of a cluster uses."""
    return layout.cluster(cluster_id) / f"{SCHEDULER}.kubeconfig"


def _outline(layout: Layout, member: Member, program: str) -> Server:
    path = f"/api/v1/nodes/{name_of(member)}"
    return Server(
        name=f"{program} of {member.context}",
        program=program,
        cluster_id=member.id,
        arguments=(),
        identity=identity(layout, f"{program}:{member.id}"),
        log=layout.logs / f"{program}-{member.id}.log",
        ports=(),
        probe=as_admin(layout, member, path, "Ready") if program == NODE else LifeProbe(_SETTLED),
    )


def _scheduler(layout: Layout, member: Member, kit: NodesKit | None) -> Server:
    outline = _outline(layout, member, SCHEDULER)
    if kit is None:
        return outline
    kubeconfig = scheduler_kubeconfig(layout, member.id)
    arguments = (f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0")
    launch = Launch(kit.programs / SCHEDULER, layout.root)
    return replace(outline, arguments=arguments, launch=launch)


def _node(layout: Layout, state: State, member: Member, kit: NodesKit | None) -> Server:
    """Return a node, which another content of its files makes another one."""
    outline = _outline(layout, member, NODE)
    if kit is None:
        return outline
    content = b"".join(contents(layout, state, member, kit).values())
    reads = (hashlib.sha256(content).hexdigest(),)
    return replace(
        outline,
        arguments=("-I", "-S", str(_PROGRAM), str(layout.node(member.id) / _FACTS)),
        launch=Launch(Path(sys.executable), layout.root, {"PATH": PATH}, reads=reads),
    )


def contents(layout: Layout, state: State, member: Member, kit: NodesKit) -> Mapping[str, bytes]:
    """Return the files that a node reads, by their names in its folder, but for credentials."""
    nodes = state.nodes
    assert nodes is not None
    own = {
        _FACTS: _facts(layout, nodes, member, kit),
        "cni/10-klutchctl.conflist": _network(nodes.pods(member.address)),
    }
    made = {name: json.dumps(content, indent=2).encode() for name, content in own.items()}
    return made | {path.name: path.read_bytes() for path in sorted(_CONFIG.iterdir())}


def _facts(layout: Layout, nodes: Nodes, member: Member, kit: NodesKit) -> Mapping[str, object]:
    """Return what node.py has to know."""
    address = nodes.node(member.address)
    return {
        "folder": str(layout.node(member.id)),
        "programs": str(kit.programs),
        "plugins": str(kit.plugins),
        "hostname": name_of(member),
        "bridge": bridge(layout),
        "link": f"{bridge(layout)}-{addresses.number(member.address)}",
        "address": f"{address}/24",
        "gateway": nodes.gateway,
        "containerd": ["containerd", f"--config={_SEEN}/node/containerd.toml"],
        "kubelet": [
            f"{_SEEN}/programs/{KUBELET}",
            f"--config={_SEEN}/node/kubelet.yaml",
            f"--kubeconfig={_SEEN}/node/kubeconfig",
            f"--hostname-override={name_of(member)}",
            f"--node-ip={address}",
            f"--cgroup-root=/{cgroup(layout, member)}",
        ],
    }


def _network(pods: str) -> Mapping[str, object]:
    """Return the network of pods, in the format of CNI."""
    way = {"ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    plugin = {"type": "bridge", "bridge": "cni0", "isGateway": True}
    plugins = [{**plugin, "ipam": {"type": "host-local", **way}}]
    return {"cniVersion": "1.0.0", "name": "klutchctl", "plugins": plugins}

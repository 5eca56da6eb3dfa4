"""A node for each cluster: its scheduler and the node itself started, and images brought there."""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Final

import psutil

from klutchctl import files
from klutchctl.sandbox import binaries, credentials, processes, recipes, startup
from klutchctl.sandbox.addons.addon import Addon, Request, Run
from klutchctl.sandbox.nodes import images, machine, server
from klutchctl.sandbox.nodes.images import MACHINES, Archive
from klutchctl.sandbox.nodes.server import NodesKit
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.servers import Server
from klutchctl.sandbox.state import Layout, Member, State

_VARIABLE: Final = "XDG_STATE_HOME"
_USER: Final = "system:kube-scheduler"


def find(request: Request) -> NodesKit:
    """Return the plugins and the images. Raises HostError, and ConfigError for what misfits."""
    beside = request.chosen.get("agents") is True
    machine.check_plan(request.layout, request.known, request.clusters, agents=beside)
    machine.check(chosen=request.chosen.get("nodes") is True)
    plugins = machine.find_plugins()
    archives = images.read_folder(request.images) if request.images else ()
    return NodesKit(Path(), plugins, archives)


def provide(kit: NodesKit, request: Request, progress: Progress) -> NodesKit:
    """Return the kit with kubelet and kube-scheduler."""
    own = recipes.of_nodes()
    where = request.workshop(own.recipe, "nodes")
    made = binaries.provide_whole(own, where, downloads=request.downloads, progress=progress)
    return replace(kit, programs=made)


def start(run: Run, kit: NodesKit) -> None:
    """Start what is missing, and return when all nodes are ready and have the images."""
    layout, state = run.layout, run.state
    for member in state.members:
        _write_files(layout, state, member, kit)
    wanted = server.servers(layout, state, kit)
    _clear(layout, state, wanted)
    run.start(wanted)
    archives = [_pause(layout), *kit.archives]
    with run.progress.step(f"bringing {len(archives)} images into nodes") as update:
        _import(layout, wanted, archives, update)


def _write_files(layout: Layout, state: State, member: Member, kit: NodesKit) -> None:
    own, pki = layout.node(member.id), layout.pki(member.id)
    assert state.nodes is not None
    for folder in (own, own / "cni"):
        files.private_folder(folder)
    credentials.ensure_node(
        own / "pki",
        pki,
        name=server.name_of(member),
        address=state.nodes.node(member.address),
        removal=layout.removal,
    )
    client = layout.cluster(member.id) / recipes.SCHEDULER
    credentials.ensure_client(client, pki, user=_USER, removal=layout.removal)
    for path, folder in (
        (own / "kubeconfig", own / "pki"),
        (server.scheduler_kubeconfig(layout, member.id), client),
    ):
        files.write(path, credentials.kubeconfig(layout, [member], folder / "client"))
    for name, content in server.contents(layout, state, member, kit).items():
        files.write(own / name, content)


def _clear(layout: Layout, state: State, wanted: Sequence[Server]) -> None:
    """End what nodes that run no more have left: processes, then cgroups, which are made anew."""
    observed = processes.observe(layout)
    left = [one for one in observed if one.identity.startswith(processes.LEFT)]
    processes.stop([one for one in left if server.is_node(one.identity)], grace=startup.STOP_GRACE)
    nodes = {one.cluster_id: one for one in wanted if one.program == server.NODE}
    for member in state.members:
        if not processes.running(nodes[member.id], observed):
            machine.remove(server.cgroup(layout, member))
            machine.make(server.cgroup(layout, member))


def _pause(layout: Layout) -> Archive:
    """Return the archive of the image that holds the namespaces of each pod, written anew."""
    path = layout.root / "nodes" / "pause.tar"
    files.write(path, images.pause(MACHINES[platform.machine()]))
    return replace(images.read(path), name=server.PAUSE_IMAGE)


def _import(
    layout: Layout,
    wanted: Sequence[Server],
    archives: Sequence[Archive],
    update: Callable[[str], None],
) -> None:
    """Import what each node lacks; nodes in parallel."""
    observed = processes.observe(layout)

    def bring(node: Server) -> None:
        process = processes.running(node, observed)
        if process is None:
            raise startup.failed(node, "has ended")
        ctr = partial(_ctr, layout, node, process.pid)
        has = ctr("images", "list")
        lines = [line.split() for line in has.splitlines()[1:]]
        there = {(words[0], words[2]) for words in lines if len(words) > 2}
        for archive in archives:
            if (archive.name, archive.digest) not in there:
                update(archive.name)
                # Without a base it gets a second name, of today, by which nothing finds it.
                base = f"--base-name={archive.name.rpartition(':')[0]}"
                named = (base, f"--index-name={archive.name}")
                with archive.path.open("rb") as content:
                    ctr("images", "import", *named, "-", stdin=content)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        list(pool.map(bring, (one for one in wanted if one.program == server.NODE)))


def _ctr(
    layout: Layout, node: Server, pid: int, *arguments: str, stdin: IO[bytes] | None = None
) -> str:
    """Ask the containerd of a node, whose outer process is `pid`. Raises HostError."""
    try:
        first = psutil.Process(pid).children()[0].pid
    except (psutil.Error, IndexError) as error:
        raise startup.failed(node, "has ended") from error
    nsenter = shutil.which("nsenter", path=server.PATH)
    assert nsenter is not None
    command = (nsenter, f"--target={first}", "--mount", "--", "ctr", "--namespace=k8s.io")
    done = subprocess.run(
        (*command, *arguments),
        env={"PATH": server.PATH},
        stdin=stdin or subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if files.says_full(done.stderr):
        raise files.full(layout.root, variable=_VARIABLE)
    if done.returncode != 0:
        said = f"`ctr {' '.join(arguments)}`: {done.stderr.strip()}"
        raise startup.failed(node, f"does not take an image, says {said}")
    return done.stdout


def _summary(state: State) -> str:
    named = (f"{server.name_of(one)} of {one.context}" for one in state.members)
    return f"Nodes: {', '.join(named)}"


ADDON: Final = Addon(
    "nodes",
    find,
    lambda state, _kit, _new_ports: state,  # its network comes with its clusters
    server.servers,
    start,
    provide,
    summary=_summary,
)

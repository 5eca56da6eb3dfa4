"""Nodes of a sandbox, before any runs: addresses, refusals, images, cgroups, what they read."""

import asyncio
import gzip
import itertools
import json
import os
import platform
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import psutil
import pytest
import yaml

from klutchctl import main
from klutchctl.sandbox import (
    lifecycle,
    servers,
    startup,
    state,
)
from klutchctl.sandbox.nodes import (
    addresses,
    cgroups,
    images,
    machine,
    network,
    pause,
    server,
)
from klutchctl.sandbox.nodes.addresses import Nodes
from klutchctl.sandbox.nodes.server import NodesKit
from klutchctl.sandbox.servers import NORMAL, HttpsProbe, Program
from klutchctl.sandbox.state import Layout
from reconciler.core.errors import ConfigError, HostError
from tests.images import archive
from tests.support.eventually import eventually

LAYOUT = Layout(Path("/state/klutchctl/sandbox/default"))
NODES = Nodes("10.96.0.0/16")
KIT = NodesKit(Path("/cache/nodes/v1"), Path("/usr/lib/cni"))


def sandbox(app_clusters=2, nodes=NODES, known=None):
    ports = iter(range(20001, 21000))
    wanted = state.app_clusters(app_clusters)
    source = lambda count: [next(ports) for _ in range(count)]  # noqa: E731
    return state.extend(known, wanted, new_ports=source, nodes=nodes)


STATE = sandbox()


def test_every_cluster_has_addresses_that_no_other_has():
    full = sandbox(app_clusters=addresses.MOST - 1)
    whole = IPv4Network(NODES.network)
    networks = [IPv4Network(f"{NODES.gateway}/24", strict=False)]
    for member in full.members:
        networks += [IPv4Network(NODES.pods(member.address))]
        networks += [IPv4Network(NODES.services(member.address))]
        # Kubernetes gives the Service `kubernetes` the first address of all.
        assert IPv4Address(member.address) == networks[-1][1]
        assert IPv4Address(NODES.node(member.address)) in networks[0]
    assert len(full.members) == addresses.MOST
    assert all(one.subnet_of(whole) for one in networks)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(networks, 2))
    own = {NODES.node(one.address) for one in full.members}
    assert len(own - {NODES.gateway}) == addresses.MOST


def test_clusters_that_come_later_leave_the_others_where_they_are():
    more = sandbox(app_clusters=4, known=STATE, nodes=None)
    assert {*STATE.members} < {*more.members}
    assert len({one.address for one in more.members}) == len(more.members) == 5


def test_an_address_of_its_own_takes_no_port_of_the_machine():
    assert {member.server for member in STATE.members} == {
        f"https://10.96.{100 + number}.1:443" for number in (1, 2, 3)
    }
    assert STATE.ports == (STATE.etcd_port, STATE.etcd_peer_port)


CHOICES = {
    "the first, where nothing is taken": ([], "10.96.0.0/16"),
    "another, where a part of it is": (["10.96.7.0/24", "10.97.0.1"], "10.98.0.0/16"),
    "a VPN for the whole internet takes none": (["0.0.0.0/1", "128.0.0.0/1"], "10.96.0.0/16"),
    "a company that has all of 10": (["10.0.0.0/8"], "198.18.0.0/16"),
    "none": (["10.0.0.0/8", "198.18.0.0/15"], None),
}


@pytest.mark.parametrize(("taken", "network"), CHOICES.values(), ids=CHOICES.keys())
def test_the_network_is_one_that_nobody_has(taken, network):
    assert addresses.choose(taken) == network


MISFITS = {
    "of an old sandbox": (sandbox(nodes=None), 2, False, "has no nodes.*down --delete"),
    "of too many clusters": (None, 100, False, "100 clusters cannot have nodes, 99 can"),
    "with programs beside": (STATE, 2, True, "not with nodes.*kubectl apply"),
}


@pytest.mark.parametrize(
    ("known", "clusters", "agents", "says"), MISFITS.values(), ids=MISFITS.keys()
)
def test_what_nodes_do_not_go_with(known, clusters, agents, says):
    with pytest.raises(ConfigError, match=says):
        machine.check_plan(LAYOUT, known, clusters, agents=agents)


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


MACHINES = {
    "another user than root": ((os, "geteuid", lambda: 1000), "nodes need root: they mount"),
    "another system than Linux": ((platform, "system", lambda: "Darwin"), "and this is Darwin"),
    "another processor": ((platform, "machine", lambda: "s390x"), "aarch64, and this is s390x"),
}


def test_another_than_root_at_a_sandbox_with_nodes_learns_of_another_name(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostError, match="This sandbox has nodes; use another --name"):
        machine.check(chosen=False)


@pytest.mark.parametrize(("fact", "says"), MACHINES.values(), ids=MACHINES.keys())
def test_a_machine_that_cannot_says_so_before_anything_is_started(
    home, monkeypatch, capsys, fact, says
):
    monkeypatch.setattr(*fact)
    assert main.run(["sandbox", "up", "--nodes"]) == 1
    said = capsys.readouterr().err
    assert says in said
    assert "Leave --nodes out" in said
    assert not [*home.rglob("state.json")]


def test_images_are_for_a_sandbox_with_nodes(home, capsys):
    assert main.run(["sandbox", "up", "--images", str(home)]) == 64
    assert "--images is for a sandbox with --nodes" in capsys.readouterr().err


def test_all_that_is_missing_is_told_with_the_packages_that_have_it(tmp_path):
    for name in ("ip", "unshare", "nsenter", "ctr"):
        (tmp_path / name).touch(mode=0o755)
    with pytest.raises(HostError) as caught:
        machine.find_plugins(str(tmp_path), (tmp_path / "cni",))
    assert caught.value.message == (
        "nodes need containerd, runc, the CNI plugins, which are not here"
    )
    assert "recommends containerd containernetworking-plugins runc`" in caught.value.hint


PAUSE = images.pause(pause.MACHINES["x86_64"])


@pytest.mark.parametrize("name", pause.MACHINES)
def test_the_image_that_holds_namespaces_is_one_that_others_can_read(tmp_path, name):
    machine = pause.MACHINES[name]
    path = tmp_path / "pause.tar"
    path.write_bytes(images.pause(machine))
    found = archive.read(path)
    assert found.files(lambda name: True) == {"/pause": machine.program()}
    assert found.config["architecture"] == machine.architecture
    assert found.config["config"]["Entrypoint"] == ["/pause"]
    assert images.pause(machine) == path.read_bytes()


@pytest.mark.skipif(platform.system() != "Linux", reason="it is a program of Linux")
async def test_the_program_of_that_image_waits_until_it_is_killed_and_leaves_no_zombie(tmp_path):
    program = tmp_path / "pause"
    program.write_bytes(pause.MACHINES[platform.machine()].program())
    program.chmod(0o755)
    # A shell becomes it, and leaves it a child.
    shell = await asyncio.create_subprocess_exec("sh", "-c", f"sleep 60 & exec {program}")
    try:
        waiting = psutil.Process(shell.pid)
        await eventually(lambda: waiting.name() == "pause")
        (child,) = waiting.children()
        child.kill()
        await eventually(lambda: not waiting.children())
        assert waiting.status() == psutil.STATUS_SLEEPING
    finally:
        shell.kill()
        assert await shell.wait() == -signal.SIGKILL


def ours(name):
    return f"registry.example.com/klutchctl/{name}"


NAMES = {
    "one of ours is named as manifests have it": ("konnector", ours("konnector:0.1.0")),
    "with a tag of its own": ("konnector:dev", ours("konnector:dev")),
    "by its file": (None, ours("x:0.1.0")),
    "a whole name stays": ("docker.io/library/a:1", "docker.io/library/a:1"),
    "and gets a tag": ("r.example:5000/a", "r.example:5000/a:latest"),
}


@pytest.mark.parametrize(("said", "name"), NAMES.values(), ids=NAMES.keys())
def test_the_name_of_an_image(tmp_path, said, name):
    annotations = {"org.opencontainers.image.ref.name": said} if said else {}
    index = {"manifests": [{"digest": "sha256:0", "annotations": annotations}]}
    content = {"index.json": (json.dumps(index).encode(), 0o644)}
    (tmp_path / "x.tar").write_bytes(images._tar(content))
    assert images.read(tmp_path / "x.tar").name == name


NAMELESS = images._tar({"index.json": (b'{"manifests": [{}]}', 0o644)})
FOLDERS = {
    "without an image": ({}, "holds no image"),
    "with a part of a compressed one": ({"x.tar": gzip.compress(PAUSE)[:-50]}, "no OCI archive"),
    "with two of one name": ({"a.tar": NAMELESS, "a.b.tar": NAMELESS}, "same image as .*a.b.tar"),
    "with another tar": ({"x.tar": images._tar({"a": (b"", 0o644)})}, "no OCI archive with one"),
    "with something else": ({"x.tar": b"PK"}, "no OCI archive with one image"),
}


@pytest.mark.parametrize(("files", "says"), FOLDERS.values(), ids=FOLDERS.keys())
def test_a_folder_that_is_none_of_images(tmp_path, files, says):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        images.read_folder(tmp_path)
    with pytest.raises(ConfigError, match="is no folder"):
        images.read_folder(tmp_path / "absent")


def hierarchy(folder, has="", gives=""):
    """Make the first cgroup of a hierarchy."""
    folder.mkdir(exist_ok=True)
    (folder / "cgroup.procs").touch()
    (folder / "cgroup.controllers").write_text(has)
    (folder / "cgroup.subtree_control").write_text(gives)


HIERARCHIES = {"version 2": ("",), "version 1": ("cpuset", "memory")}


@pytest.mark.parametrize("names", HIERARCHIES.values(), ids=HIERARCHIES.keys())
def test_cgroups_are_made_in_each_hierarchy_and_removed_with_all_below(tmp_path, names):
    for name in names:
        hierarchy(tmp_path / name)
    (tmp_path / "link").symlink_to("cpuset")
    made = [tmp_path / name / "klutchctl-1-1" for name in names]
    cgroups.make("klutchctl-1-1", tmp_path)
    (made[0] / "kubepods" / "burstable").mkdir(parents=True)
    cgroups.make("klutchctl-2-1", tmp_path)
    cgroups.remove("klutchctl-1-*", tmp_path)
    assert not [one for one in made if one.exists()]
    assert (tmp_path / names[0] / "klutchctl-2-1").is_dir()


def test_cgroups_of_version_2_give_a_kubelet_the_controllers_that_it_asks_for(tmp_path):
    hierarchy(tmp_path, has="cpuset cpu io memory hugetlb misc", gives="cpu memory")
    cgroups.make("klutchctl-1-1", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpuset +hugetlb"


def flag(arguments, name):
    (value,) = [one.partition("=")[2] for one in arguments if one.startswith(f"--{name}=")]
    return value


def test_an_api_server_with_pods_gives_a_node_the_rights_of_its_node_alone():
    for one in servers.of_clusters(LAYOUT, STATE, NORMAL):
        if one.program is not Program.API_SERVER:
            continue
        assert flag(one.arguments, "authorization-mode") == "Node,RBAC"
        assert flag(one.arguments, "enable-admission-plugins") == "NodeRestriction"
        assert not [word for word in one.arguments if "disable-admission" in word]
        address = flag(one.arguments, "bind-address")
        services = IPv4Network(flag(one.arguments, "service-cluster-ip-range"))
        assert str(services[1]) == address
        assert isinstance(one.probe, HttpsProbe)
        assert one.probe.host == address
        assert one.ports == ()


def test_strangers_get_nothing_from_a_kubelet_and_it_sets_nothing_of_the_machine():
    (config,) = {
        content
        for member in STATE.members[:1]
        for name, content in server.contents(LAYOUT, STATE, member, KIT).items()
        if name == "kubelet.yaml"
    }
    kubelet = yaml.safe_load(config)
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert kubelet["authorization"] == {"mode": "Webhook"}
    assert kubelet["readOnlyPort"] == kubelet["healthzPort"] == 0
    assert kubelet["protectKernelDefaults"] is True


def test_a_node_is_another_one_when_its_files_are():
    found = {one.name: one for one in server.servers(LAYOUT, STATE, KIT)}
    other = server.servers(LAYOUT, STATE, replace(KIT, plugins=Path("/opt/cni/bin")))
    changed = {one.name for one in other if one.digest != found[one.name].digest}
    assert changed == {"node of control-plane", "node of app-1", "node of app-2"}
    assert len({one.identity for one in found.values()}) == 6


def test_what_a_sandbox_makes_on_the_machine_bears_its_own_name():
    other = Layout(Path("/state/klutchctl/sandbox/other"))
    assert server.bridge(LAYOUT) != server.bridge(other)
    link = f"{server.bridge(LAYOUT)}-{addresses.MOST}"
    assert len(link) <= 15  # the most that Linux takes
    assert Path(server.cgroup(LAYOUT, STATE.members[0])).match(server.cgroup(LAYOUT))
    assert not Path(server.cgroup(LAYOUT, STATE.members[0])).match(server.cgroup(other))


STARTED = time.time()


def node_saying(status, ago):
    heard = datetime.fromtimestamp(STARTED, UTC) - timedelta(seconds=ago)
    said = {"type": "Ready", "status": status, "lastHeartbeatTime": f"{heard:%Y-%m-%dT%H:%M:%SZ}"}
    return {"status": {"conditions": [said]}}


SAID = {
    "ready, since it started": (node_saying("True", ago=0), True),
    "ready, before it started": (node_saying("True", ago=5), False),
    "not ready": (node_saying("False", ago=0), False),
    "nothing": ({}, False),
}


@pytest.mark.parametrize(("live", "ready"), SAID.values(), ids=SAID.keys())
def test_a_node_is_ready_when_it_has_said_so_since_it_started(live, ready):
    assert startup._is_said(live, "Ready", STARTED) is ready


@pytest.fixture
def ip(tmp_path, monkeypatch):
    """A machine without networks, as far as `ip` goes, which takes its time."""
    routes: list[dict[str, str]] = []

    def run(*arguments):
        match arguments:
            case ("-4", "-json", "route", *_):
                found = json.dumps(routes)
                time.sleep(0.05)
                return found
            case ("addr", "add", address, "dev", bridge):
                routes.append({"dst": address, "dev": bridge})
        return ""

    monkeypatch.setattr(network, "_INTERFACES", tmp_path)
    monkeypatch.setattr(network, "_ip", run)
    return routes


def with_clusters(tmp_path, name):
    plan = lifecycle.Plan({}, state.app_clusters(1), addons={"nodes": KIT})
    layout, ports = Layout(tmp_path / name), lambda count: range(20001, 20001 + count)
    return lifecycle._with_clusters(layout, None, plan, ports)


def test_sandboxes_that_choose_a_network_at_once_choose_two(tmp_path, ip, monkeypatch):
    monkeypatch.setattr(network, "_check_port", lambda nodes: None)
    with ThreadPoolExecutor() as pool:
        made = [*pool.map(partial(with_clusters, tmp_path), ("one", "other"))]
    assert {one.nodes.network for one in made} == {"10.96.0.0/16", "10.97.0.0/16"}


def test_a_network_that_another_interface_has_meanwhile_is_refused(tmp_path, ip):
    ip.append({"dst": "10.96.7.0/24", "type": "blackhole"})
    with pytest.raises(HostError, match=r"reaches 10\.96\.7\.0/24 by a route of type blackhole"):
        network.ensure(Layout(tmp_path / "x"), STATE)

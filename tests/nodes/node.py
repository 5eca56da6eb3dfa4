"""Be the node of a cluster: containerd and a kubelet, with all pods, in namespaces of their own.

Run as a file, without any package of ours: `python node.py FACTS`, as root on Linux. The process
that was started waits for the first one of the namespaces, and its end, in whatever way, ends all
that runs there; so does the end of containerd or of the kubelet. Mounts and the network interface
go with the namespaces. Nothing of the machine is changed: what would be is hidden under mounts.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

_HERE: Final = Path("/run/klutchctl")
_SOCKET: Final = Path("/run/containerd/containerd.sock")
_DEADLINE: Final = 60.0
_POLL: Final = 0.05
# What a kubelet wants of the kernel, by the names below /proc/sys; nobody else gets it.
_KERNEL: Final = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


def outside(facts_file: str) -> NoReturn:
    """Become `unshare`, which runs this file again in new namespaces."""
    machine = os.open("/proc/self/ns/net", os.O_RDONLY)
    os.set_inheritable(machine, True)
    # Kernel calls that make namespaces are not in the library of Python 3.11.
    options = ("--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child")
    again = (sys.executable, "-I", "-S", __file__, facts_file, str(machine))
    os.execvp("unshare", ("unshare", *options, "--mount-proc", "--", *again))


def inside(facts_file: str, machine: str) -> None:
    """Make the node and keep it until one of its programs ends."""
    os.umask(0o022)  # what is unpacked is for users of containers; the folder around it is not
    facts: Mapping[str, Any] = json.loads(Path(facts_file).read_bytes())
    socket.sethostname(facts["hostname"])
    _mount(facts)
    _join(facts, machine)
    os.close(int(machine))
    programs = {"containerd": subprocess.Popen(facts["containerd"])}
    _wait_for_containerd(programs["containerd"])
    programs["kubelet"] = subprocess.Popen(facts["kubelet"])
    pids = {program.pid: name for name, program in programs.items()}
    while True:
        pid, status = os.wait()  # also for what lost its parent
        if pid in pids:
            sys.exit(f"error: {pids[pid]} ended with {os.waitstatus_to_exitcode(status)}")


def _mount(facts: Mapping[str, Any]) -> None:
    """Show the node what is its own, in the places where programs look for it."""
    node = Path(facts["folder"])
    places = {node / name: Path("/var/lib") / name for name in ("containerd", "kubelet", "cni")}
    places[node / "log"] = Path("/var/log")
    for folder in places:
        folder.mkdir(exist_ok=True)
    # A mount below may hide any of them.
    places |= {node: _HERE / "node"}
    places |= {Path(facts[name]): _HERE / name for name in ("programs", "plugins")}
    opened = {os.open(path, os.O_PATH): place for path, place in places.items()}
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    # What is made in /var/lib, to mount on, is in memory.
    for made in ("netns", "containerd", "klutchctl/upper", "klutchctl/work", "klutchctl/sys"):
        (Path("/run") / made).mkdir(parents=True)
    layers = f"lowerdir=/var/lib,upperdir={_HERE}/upper,workdir={_HERE}/work"
    _run("mount", "-t", "overlay", "-o", layers, "overlay", "/var/lib")
    for source, place in opened.items():
        place.mkdir(exist_ok=True)
        _run("mount", "--bind", f"/proc/self/fd/{source}", str(place), keep=source)
        os.close(source)
    for index, (name, value) in enumerate(_KERNEL.items()):
        shown = _HERE / "sys" / str(index)
        shown.write_text(f"{value}\n")
        _run("mount", "--bind", str(shown), f"/proc/sys/{name}")


def _join(facts: Mapping[str, Any], machine: str) -> None:
    """Connect the node with the bridge of the machine, whose namespace is open as `machine`."""
    outer = ("nsenter", f"--net=/proc/self/fd/{machine}", "ip", "link")
    namespace = int(machine)
    link = facts["link"]
    # One of a node that was killed goes when the kernel comes to it.
    _run(*outer, "del", link, keep=namespace, may_fail=True)
    peer = ("peer", "name", link, "netns", f"/proc/self/fd/{machine}")
    _run("ip", "link", "add", "eth0", "type", "veth", *peer, keep=namespace)
    _run(*outer, "set", link, "master", facts["bridge"], "up", keep=namespace)
    for line in (
        "link set lo up",
        f"addr add {facts['address']} dev eth0",
        "link set eth0 up",
        f"route add default via {facts['gateway']}",
    ):
        _run("ip", *line.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _wait_for_containerd(process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _DEADLINE
    while not _SOCKET.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit("error: containerd did not start")
        time.sleep(_POLL)


def _run(*command: str, keep: int | None = None, may_fail: bool = False) -> None:
    """Run a command, which inherits the descriptor `keep`."""
    done = subprocess.run(
        command, pass_fds=() if keep is None else (keep,), capture_output=True, text=True
    )
    if done.returncode != 0 and not may_fail:
        sys.exit(f"error: {' '.join(command)}: {done.stderr.strip()}")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        outside(sys.argv[1])
    inside(*sys.argv[1:])

"""What nodes need of this machine: programs, a bridge to connect them, and a cgroup for each."""

import asyncio
import contextlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.images import base
from tests.support.eventually import eventually

_SECOND: Final = 96
_CGROUPS: Final = Path("/sys/fs/cgroup")
_INHERITED: Final = ("cpuset.cpus", "cpuset.mems")  # of version 1: a new one has none
# Of version 2: without one of these that the machine has, a kubelet does not start.
_CONTROLLERS: Final = frozenset({"cpu", "cpuset", "hugetlb", "memory", "pids"})
_PROGRAMS: Final = ("containerd", "ctr", "runc", "ip", "unshare", "nsenter", "setpriv", "kubectl")
_PLUGIN_FOLDERS: Final = tuple(map(Path, ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni")))
_PACKAGES: Final = "containerd runc containernetworking-plugins iproute2 util-linux"


def missing() -> str:
    """Return the first lack that keeps our images from running as pods here; "" for none."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        return "nodes run on Linux, as root"
    absent = [one for one in _PROGRAMS if shutil.which(one) is None]
    if absent or plugins() is None:
        return f"no {', '.join(absent) or 'CNI plugins'} for nodes: `apt-get install {_PACKAGES}`"
    return base.missing() if hierarchies() else "nodes need cgroups at /sys/fs/cgroup"


def plugins() -> Path | None:
    return next((one for one in _PLUGIN_FOLDERS if (one / "bridge").is_file()), None)


@dataclass(frozen=True, slots=True)
class Network:
    """The network of a sandbox, 10.96.0.0/16. Its clusters count from 1.

    The first address of a cluster's Services is that of its API server: nothing translates.
    """

    @property
    def gateway(self) -> str:
        return self._at(0, 1)

    @property
    def bridge(self) -> str:
        """Return the network interface that this machine shares with the nodes."""
        return f"kc-{_SECOND}"

    def server(self, number: int) -> str:
        """Return the address where pods reach the API server of a cluster."""
        return self._at(100 + number, 1)

    def node(self, number: int) -> str:
        return self._at(0, 10 + number)

    def services(self, number: int) -> str:
        return f"{self._at(100 + number, 0)}/24"

    def pods(self, number: int) -> str:
        return f"{self._at(number, 0)}/24"

    def cgroup(self, number: int | str) -> str:
        """Return the name of the cgroup of all pods of a cluster, or a pattern."""
        return f"klutchctl-{_SECOND}-{number}"

    def _at(self, third: int, fourth: int) -> str:
        return f"10.{_SECOND}.{third}.{fourth}"


@contextlib.contextmanager
def connected(clusters: int) -> Iterator[Network]:
    """Give the block a network, with a bridge and cgroups."""
    numbers = range(1, clusters + 1)
    network = Network()
    ip("link", "add", network.bridge, "type", "bridge")
    try:
        for address in (f"{network.gateway}/24", *(f"{network.server(n)}/32" for n in numbers)):
            ip("addr", "add", address, "dev", network.bridge)
        ip("link", "set", network.bridge, "up")
        for number in numbers:
            way = ("via", network.node(number), "dev", network.bridge)
            ip("route", "add", network.pods(number), *way)
            _make_cgroup(network.cgroup(number))
        yield network
    finally:
        ip("link", "del", network.bridge)
        # Of a pod that was killed a moment ago it goes a little later.
        asyncio.run(eventually(partial(_removed, network.cgroup("*"))))


def ip(*arguments: str) -> str:
    """Run `ip`, and return what it prints."""
    done = subprocess.run(("ip", *arguments), capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def hierarchies() -> tuple[Path, ...]:
    """Return the folder of each hierarchy of cgroups: of version 2 there is one."""
    if (_CGROUPS / "cgroup.procs").is_file():
        return (_CGROUPS,)
    folders = sorted(_CGROUPS.iterdir()) if _CGROUPS.is_dir() else ()
    return tuple(
        one for one in folders if (one / "cgroup.procs").is_file() and not one.is_symlink()
    )


def _make_cgroup(name: str) -> None:
    for hierarchy in hierarchies():
        made = hierarchy / name
        if hierarchy == _CGROUPS:
            shared = hierarchy / "cgroup.subtree_control"
            has = _CONTROLLERS.intersection((hierarchy / "cgroup.controllers").read_text().split())
            shared.write_text(" ".join(f"+{one}" for one in sorted(has)))
        made.mkdir(exist_ok=True)
        for file in _INHERITED:
            if (hierarchy / "tasks").is_file() and (made / file).is_file():
                (made / file).write_text((hierarchy / file).read_text())


def _removed(pattern: str) -> bool:
    """Remove cgroups, those inside before those around them; tell whether none is left."""
    found = [one for root in hierarchies() for one in root.glob(pattern)]
    for folder, _, _ in (step for one in found for step in os.walk(one, topdown=False)):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return not found

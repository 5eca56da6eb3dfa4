"""Checks whether this machine can run nodes, finds what they need, and makes their cgroups.

All pods of a node are in one cgroup. Pods that are killed with their node leave empty ones.
"""

import contextlib
import os
import platform
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klutchctl.sandbox.nodes import server
from klutchctl.sandbox.nodes.addresses import MOST
from klutchctl.sandbox.nodes.images import MACHINES
from klutchctl.sandbox.state import Layout, State
from reconciler.core.errors import ConfigError, HostError

HINT: Final = "In a container, start that with its own cgroups, writable"
_ROOT: Final = Path("/sys/fs/cgroup")
_INHERITED: Final = ("cpuset.cpus", "cpuset.mems")  # of version 1: a new one has none
# Of version 2: without one of these that the machine has, a kubelet does not start.
_CONTROLLERS: Final = frozenset({"cpu", "cpuset", "hugetlb", "memory", "pids"})
_DEADLINE: Final = 20.0
_POLL: Final = 0.1


def hierarchies(root: Path = _ROOT) -> tuple[Path, ...]:
    """Return the folder of each hierarchy: of version 2 there is one."""
    if (root / "cgroup.procs").is_file():
        return (root,)
    folders = sorted(one for one in root.iterdir() if not one.is_symlink()) if root.is_dir() else ()
    return tuple(one for one in folders if (one / "cgroup.procs").is_file())


def make(name: str, root: Path = _ROOT) -> None:
    """Make the cgroup of a node in every hierarchy, with all that its parent has.

    Raises HostError.
    """
    try:
        for hierarchy in hierarchies(root):
            made = hierarchy / name
            if hierarchy == root:
                _enable_controllers(root)
            made.mkdir(exist_ok=True)
            for file in _INHERITED:
                if (made / file).is_file() and (hierarchy / "tasks").is_file():
                    (made / file).write_text((hierarchy / file).read_text())
    except OSError as error:
        raise HostError(
            f"the cgroup {made} of a node cannot be made: {error.strerror}",
            hint=f"{HINT}. Of version 2, all its processes have to be in cgroups below the first",
        ) from error


def _enable_controllers(root: Path) -> None:
    """Give cgroups below the root of version 2 what a kubelet asks for."""
    shared = root / "cgroup.subtree_control"
    has, gives = (root / "cgroup.controllers").read_text().split(), shared.read_text().split()
    if lacking := _CONTROLLERS.intersection(has).difference(gives):
        shared.write_text(" ".join(f"+{one}" for one in sorted(lacking)))


def remove(pattern: str, root: Path = _ROOT) -> None:
    """Remove all cgroups of nodes with such a name.

    Nothing runs there any more, but what was killed a moment ago. Raises HostError.
    """
    deadline = time.monotonic() + _DEADLINE
    while left := [*_found(pattern, root)]:
        for folder in left:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            raise HostError(
                f"{left[-1]} cannot be removed: something runs in it",
                hint="`cgroup.procs` in that folder or below it names the processes",
            )
        time.sleep(_POLL)


def _found(pattern: str, root: Path) -> Iterator[Path]:
    """Yield folders, those inside before those around them."""
    for hierarchy in hierarchies(root):
        for top in sorted(hierarchy.glob(pattern)):
            for folder, _, _ in os.walk(top, topdown=False):
                yield Path(folder)


# By the program that is looked for: the package of Debian that it is in.
_PACKAGES: Final = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
_PLUGINS: Final = ("bridge", "host-local", "loopback")
_PLUGIN_FOLDERS: Final = tuple(map(Path, ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni")))
_PLUGIN_PACKAGE: Final = "containernetworking-plugins"


def check(*, chosen: bool) -> None:
    """Raise HostError where nodes cannot be: elsewhere than on Linux, and as another than root.

    They are `chosen` now, or those that the sandbox has.
    """
    way = "Leave --nodes out" if chosen else "This sandbox has nodes; use another --name"
    hint = f"{way}: a sandbox without nodes runs everywhere, and its clusters take all but pods"
    if platform.system() != "Linux":
        message = f"nodes are containers of a Linux kernel, and this is {platform.system()}"
        raise HostError(message, hint=hint)
    if platform.machine() not in MACHINES:
        message = f"nodes run on {' and '.join(MACHINES)}, and this is {platform.machine()}"
        raise HostError(message, hint=hint)
    if os.geteuid() != 0:
        message = "nodes need root: they mount, and make network interfaces and cgroups"
        raise HostError(message, hint=f"Run it as root. {hint}")


def check_plan(layout: Layout, known: State | None, clusters: int, *, agents: bool) -> None:
    """Raise ConfigError where a sandbox cannot have nodes with what is asked for beside."""
    if known is not None and known.nodes is None:
        raise ConfigError(
            "the sandbox has no nodes, and its clusters were made for that",
            where="--nodes",
            hint=f"Use another --name; {layout.removal}",
        )
    if clusters > MOST:
        raise ConfigError(f"{clusters} clusters cannot have nodes, {MOST} can", where="--nodes")
    if agents:
        raise ConfigError(
            "not with nodes: there klutch-bind and konnectors are pods",
            where="--programs",
            hint="`kubectl apply -k` starts them, as bind/deploy and konnector/deploy say",
        )


def find_plugins(path: str = server.PATH, folders: tuple[Path, ...] = _PLUGIN_FOLDERS) -> Path:
    """Return the folder of the CNI plugins. Raises HostError with all that is missing here."""
    absent = {name: _PACKAGES[name] for name in _PACKAGES if shutil.which(name, path=path) is None}
    plugins = next(
        (one for one in folders if all((one / name).is_file() for name in _PLUGINS)), None
    )
    if plugins is None:
        absent["the CNI plugins"] = _PLUGIN_PACKAGE
    if absent:
        packages = sorted({*absent.values()})
        raise HostError(
            f"nodes need {', '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not here",
            hint="Install what has them: on Debian or Ubuntu, `apt-get install"
            f" --no-install-recommends {' '.join(packages)}`. A service of containerd need not run",
        )
    if not hierarchies():
        raise HostError(
            "nodes need cgroups, and nothing is mounted on /sys/fs/cgroup",
            hint=HINT,
        )
    assert plugins is not None
    return plugins

"""Whether this machine can run nodes, and where what they need is. Starts nothing."""

import os
import platform
import shutil
from pathlib import Path
from typing import Final

from klutchctl.sandbox.nodes import cgroups, server
from klutchctl.sandbox.nodes.addresses import MOST
from klutchctl.sandbox.nodes.pause import MACHINES
from klutchctl.sandbox.state import Layout, State
from reconciler.core.errors import ConfigError, HostError

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
    if not cgroups.hierarchies():
        raise HostError(
            "nodes need cgroups, and nothing is mounted on /sys/fs/cgroup",
            hint=cgroups.HINT,
        )
    assert plugins is not None
    return plugins

"""Start Prometheus beside the clusters: found on this machine, with the rules of this package."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from klutchctl import files
from klutchctl.sandbox import lifecycle, startup
from klutchctl.sandbox.monitoring import server
from klutchctl.sandbox.monitoring.server import MonitoringKit
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.state import Layout, MonitoringPorts
from reconciler.core.errors import HostError

_VARIABLE: Final = "PROMETHEUS"
_RULES: Final = Path(__file__).parents[2] / "deploy" / "monitoring" / "rules.yaml"


def find(environ: Mapping[str, str]) -> MonitoringKit:
    """Return what PROMETHEUS names, else the `prometheus` of PATH. Raises HostError."""
    wanted = environ.get(_VARIABLE, "") or server.NAME
    found = shutil.which(wanted, path=environ.get("PATH", ""))
    if found is None:
        missing = f"{_VARIABLE} names no program: {wanted}" if wanted != server.NAME else ""
        raise HostError(
            missing or "there is no prometheus on PATH",
            hint="Install one: as root on Debian or Ubuntu, `apt-get install"
            " --no-install-recommends prometheus`, and `systemctl disable --now prometheus` where"
            f" its own service is not wanted. Or name a binary in {_VARIABLE}",
        )
    groups = yaml.safe_load(_RULES.read_bytes())["spec"]["groups"]
    return MonitoringKit(Path(found).absolute(), groups)


def up(layout: Layout, kit: MonitoringKit, *, progress: Progress) -> None:
    """Start Prometheus if it does not run, and return once it answers.

    `lifecycle.up` was told of `kit`. Raises HostError for one that does not start.
    """
    with lifecycle.locked(layout, progress):
        state = lifecycle.load(layout)
        if state is None or state.monitoring is None:
            raise HostError(
                "the sandbox was changed meanwhile", hint="Run the command again for Prometheus"
            )
        ensure_files(layout, state.monitoring, kit)
        stage = [server.server(layout, state.monitoring, kit)]
        startup.ensure_running(layout, stage, {}, progress=progress)


def ensure_files(layout: Layout, ports: MonitoringPorts, kit: MonitoringKit) -> None:
    """Write what Prometheus reads, and the flags of programs; older configurations go."""
    wanted = server.contents(layout, ports, kit)
    folders = {path.parent for path in wanted}
    for folder in (layout.monitoring, server.data_folder(layout), *folders):
        files.private_folder(folder)
    for path, content in wanted.items():
        files.write(path, content)
    for old in layout.monitoring.glob("config-*"):
        if old not in folders:
            shutil.rmtree(old)
    for name in ports.programs:
        files.write(server.flag_file(layout, name), f"{server.flag(ports, name)}\n".encode())

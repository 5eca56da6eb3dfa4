"""Runs this machine's Prometheus beside the clusters, with our alert rules."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from klutchctl import files
from klutchctl.sandbox.addons.addon import Addon, Request, Run, outline
from klutchctl.sandbox.servers import HttpProbe, Launch, Server
from klutchctl.sandbox.state import (
    LOOPBACK,
    Layout,
    Member,
    MonitoringPorts,
    NewPorts,
    Role,
    State,
    assigned,
)
from reconciler.core.errors import HostError

NAME: Final = "prometheus"
_VARIABLE: Final = "PROMETHEUS"
_SHIPPED: Final = Path(__file__).parents[2] / "deploy" / "monitoring" / "rules.yaml"
CONTROLLER: Final = "klutchctl"
_AGENTS: Final = ("klutch-bind", "klutch-osb")
_RULES: Final = "rules.yaml"
_LIMITS: Final = ("--storage.tsdb.retention.time=7d", "--storage.tsdb.retention.size=256MB")


@dataclass(frozen=True, slots=True)
class MonitoringKit:
    """The executable of this machine, the groups of rules, and how often programs are asked."""

    executable: Path
    groups: Sequence[Any]
    interval: str = "15s"


def find(request: Request) -> MonitoringKit:
    """Return the program that PROMETHEUS names, else the `prometheus` of PATH. Raises HostError."""
    environ = request.settings.environ
    wanted = environ.get(_VARIABLE, "") or NAME
    found = shutil.which(wanted, path=environ.get("PATH", ""))
    if found is None:
        missing = f"{_VARIABLE} names no program: {wanted}" if wanted != NAME else ""
        raise HostError(
            missing or "there is no prometheus on PATH",
            hint="Install one: as root on Debian or Ubuntu, `apt-get install"
            " --no-install-recommends prometheus`, and `systemctl disable --now prometheus` where"
            f" its own service is not wanted. Or name a binary in {_VARIABLE}",
        )
    groups = yaml.safe_load(_SHIPPED.read_bytes())["spec"]["groups"]
    return MonitoringKit(Path(found).absolute(), groups)


def extend(state: State, _kit: MonitoringKit, new_ports: NewPorts) -> State:
    """Return the state with ports of Prometheus and of all that may show metrics."""
    known = state.monitoring
    http = known.http if known else new_ports(1)[0]
    asked = assigned(known.programs if known else {}, programs(state.members), new_ports)
    return replace(state, monitoring=MonitoringPorts(http, asked))


def programs(members: Iterable[Member]) -> Iterator[str]:
    """Yield the names of programs that may show metrics: a konnector for each app cluster."""
    yield from (CONTROLLER, *_AGENTS)
    yield from (f"konnector-{one.id}" for one in members if one.role is Role.APP_CLUSTER)


def url(ports: MonitoringPorts) -> str:
    """Return where a person looks at Prometheus."""
    return f"http://{LOOPBACK}:{ports.http}"


def flag(ports: MonitoringPorts, program: str) -> str:
    """Return the flag with which a program shows its metrics where Prometheus asks."""
    name = "--listen" if program == CONTROLLER else "--metrics-address"
    return f"{name}={LOOPBACK}:{ports.programs[program]}"


def contents(layout: Layout, ports: MonitoringPorts, kit: MonitoringKit) -> dict[Path, bytes]:
    """Return the files of Prometheus; their names change with their content."""
    rules = json.dumps({"groups": kit.groups}, indent=1).encode()
    settings = {
        "global": {"scrape_interval": kit.interval, "evaluation_interval": kit.interval},
        "rule_files": [_RULES],
        "scrape_configs": [
            {
                "job_name": name,
                # The label `cluster` of our metrics is one of theirs.
                "honor_labels": True,
                "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}],
            }
            for name, port in ports.programs.items()
        ],
    }
    configuration = json.dumps(settings, indent=1).encode()
    folder = layout.monitoring / f"config-{hashlib.sha256(configuration + rules).hexdigest()[:8]}"
    return {folder / "prometheus.yaml": configuration, folder / _RULES: rules}


def data_folder(layout: Layout) -> Path:
    return layout.monitoring / "data"


def servers(layout: Layout, state: State, kit: MonitoringKit | None) -> tuple[Server]:
    """Return the one server, with another command where it has another configuration."""
    ports = state.monitoring
    assert ports is not None
    known = outline(layout, NAME, (ports.http,), HttpProbe(ports.http, "/-/ready"), "Prometheus")
    if kit is None:
        return (known,)
    configuration, _ = contents(layout, ports, kit)
    arguments = (
        f"--config.file={configuration}",
        f"--storage.tsdb.path={data_folder(layout)}",
        *_LIMITS,
        f"--web.listen-address={LOOPBACK}:{ports.http}",
        "--log.level=warn",
    )
    launch = Launch(kit.executable, layout.monitoring)
    return (replace(known, arguments=arguments, launch=launch),)


def start(run: Run, kit: MonitoringKit) -> None:
    """Start Prometheus if it does not run; its older configurations go."""
    assert run.state.monitoring is not None
    ensure_files(run.layout, run.state.monitoring, kit)
    run.start(servers(run.layout, run.state, kit))


def ensure_files(layout: Layout, ports: MonitoringPorts, kit: MonitoringKit) -> None:
    """Write the files of Prometheus, and the flags of programs."""
    wanted = contents(layout, ports, kit)
    folders = {path.parent for path in wanted}
    for folder in (layout.monitoring, data_folder(layout), *folders):
        files.private_folder(folder)
    for path, content in wanted.items():
        files.write(path, content)
    for old in layout.monitoring.glob("config-*"):
        if old not in folders:
            shutil.rmtree(old)
    for name in ports.programs:
        # For a shell: `konnector $(cat konnector-app-1.flags)`.
        files.write(layout.monitoring / f"{name}.flags", f"{flag(ports, name)}\n".encode())


def details(_layout: Layout, state: State) -> Sequence[str]:
    """Return where to look at metrics, and how programs show theirs."""
    ports = state.monitoring
    assert ports is not None
    asked = (f"{name} {flag(ports, name)}" for name in ports.programs)
    return (f"Prometheus: {url(ports)}", f"It asks: {', '.join(asked)}")


def facts(layout: Layout, state: State) -> dict[str, Any]:
    """Return the facts by which a program looks, and is asked."""
    ports = state.monitoring
    assert ports is not None
    flags = {name: flag(ports, name) for name in ports.programs}
    return {"monitoring": {"url": url(ports), "flags": flags, "folder": str(layout.monitoring)}}


ADDON: Final = Addon("monitoring", find, extend, servers, start, details=details, facts=facts)

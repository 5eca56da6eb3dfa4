"""Prometheus as a server of a sandbox: its command, its configuration, whom it asks. Pure."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from klutchctl.sandbox.processes import identity
from klutchctl.sandbox.servers import HttpProbe, Launch, Server
from klutchctl.sandbox.state import Layout, Member, MonitoringPorts, Role

NAME: Final = "prometheus"
CONTROLLER: Final = "klutchctl"
_AGENTS: Final = ("klutch-bind", "klutch-osb")
_KONNECTOR: Final = "konnector-"
_RULES: Final = "rules.yaml"
_LOOPBACK: Final = "127.0.0.1"
_LIMITS: Final = ("--storage.tsdb.retention.time=7d", "--storage.tsdb.retention.size=256MB")


@dataclass(frozen=True, slots=True)
class MonitoringKit:
    """The executable of this machine, the groups of rules, and how often programs are asked."""

    executable: Path
    groups: Sequence[Any]
    interval: str = "15s"


def programs(members: Iterable[Member]) -> Iterator[str]:
    """Yield the names of programs that may show metrics: a konnector for each app cluster."""
    yield from (CONTROLLER, *_AGENTS)
    yield from (f"{_KONNECTOR}{one.id}" for one in members if one.role is Role.APP_CLUSTER)


def url(ports: MonitoringPorts) -> str:
    """Return where a person looks at Prometheus."""
    return f"http://{_LOOPBACK}:{ports.http}"


def flag(ports: MonitoringPorts, program: str) -> str:
    """Return the flag with which a program shows its metrics where Prometheus asks."""
    name = "--listen" if program == CONTROLLER else "--metrics-address"
    return f"{name}={_LOOPBACK}:{ports.programs[program]}"


def flag_file(layout: Layout, program: str) -> Path:
    """Return the file with the flag, for a shell: `konnector $(cat konnector-app-1.flags)`."""
    return layout.monitoring / f"{program}.flags"


def contents(layout: Layout, ports: MonitoringPorts, kit: MonitoringKit) -> dict[Path, bytes]:
    """Return what Prometheus reads, by files whose names change with what is in them."""
    rules = json.dumps({"groups": kit.groups}, indent=1).encode()
    scraped = [_job(name, port) for name, port in ports.programs.items()]
    settings = {
        "global": {"scrape_interval": kit.interval, "evaluation_interval": kit.interval},
        "rule_files": [_RULES],
        "scrape_configs": scraped,
    }
    configuration = json.dumps(settings, indent=1).encode()
    folder = layout.monitoring / f"config-{hashlib.sha256(configuration + rules).hexdigest()[:8]}"
    return {folder / "prometheus.yaml": configuration, folder / _RULES: rules}


def data_folder(layout: Layout) -> Path:
    """Return the folder with the series."""
    return layout.monitoring / "data"


def outline(layout: Layout, ports: MonitoringPorts) -> Server:
    """Return the server as far as the state knows it: how to recognise and to probe it."""
    return Server(
        name="Prometheus",
        program=NAME,
        cluster_id="",
        arguments=(),
        identity=identity(layout, NAME),
        log=layout.logs / f"{NAME}.log",
        ports=(ports.http,),
        probe=HttpProbe(ports.http, "/-/ready"),
    )


def server(layout: Layout, ports: MonitoringPorts, kit: MonitoringKit) -> Server:
    """Return the server with its whole command: another one where its configuration is."""
    configuration, _ = contents(layout, ports, kit)
    arguments = (
        f"--config.file={configuration}",
        f"--storage.tsdb.path={data_folder(layout)}",
        *_LIMITS,
        f"--web.listen-address={_LOOPBACK}:{ports.http}",
        "--log.level=warn",
    )
    launch = Launch(kit.executable, layout.monitoring)
    return replace(outline(layout, ports), arguments=arguments, launch=launch)


def facts(layout: Layout, ports: MonitoringPorts) -> dict[str, Any]:
    """Return what a program needs to look, and to be asked."""
    flags = {name: flag(ports, name) for name in ports.programs}
    return {"url": url(ports), "flags": flags, "folder": str(layout.monitoring)}


def _job(name: str, port: int) -> dict[str, Any]:
    targets = {"targets": [f"{_LOOPBACK}:{port}"]}
    # The label `cluster` of our metrics is one of theirs.
    return {"job_name": name, "honor_labels": True, "static_configs": [targets]}

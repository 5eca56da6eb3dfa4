"""Prometheus and promtool, as Debian has them, and the rules that this repository ships."""

import copy
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from klutchctl import files
from klutchctl.sandbox import lifecycle
from klutchctl.sandbox.addons import monitoring
from klutchctl.sandbox.addons.addon import Run
from klutchctl.sandbox.addons.monitoring import MonitoringKit
from klutchctl.sandbox.state import MonitoringPorts, State, layout_of
from tests.support.books import ROOT
from tests.support.quiet import Quiet
from tests.support.shells import ran

FOLDER: Final = ROOT / "klutchctl" / "deploy" / "monitoring"
DASHBOARDS: Final = tuple(sorted((FOLDER / "dashboards").iterdir()))
# What Grafana puts into a query, for those who have no Grafana.
_VARIABLES: Final = {"$__rate_interval": "5m", "$control_plane": ".*", "$job": ".*"}
_TIMEOUT: Final = 60.0


def rule_groups() -> list[dict[str, Any]]:
    document = yaml.safe_load((FOLDER / "rules.yaml").read_text("utf-8"))
    groups: list[dict[str, Any]] = copy.deepcopy(document["spec"]["groups"])
    return groups


def rules() -> list[dict[str, Any]]:
    return [rule for group in rule_groups() for rule in group["rules"]]


def queries() -> Iterator[str]:
    """Yield each query of the rules and the dashboards, without variables."""
    yield from (rule["expr"] for rule in rules())
    yield from shown_queries()


def shown_queries() -> Iterator[str]:
    """Yield each query of the dashboards, without variables."""
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            for target in panel.get("targets", ()):
                query = target["expr"]
                for name, value in _VARIABLES.items():  # as Grafana does where all is chosen
                    query = query.replace(name, value)
                yield query


def alerts() -> list[dict[str, Any]]:
    """Return the rules that are alerts; two may have one name."""
    return [rule for rule in rules() if "alert" in rule]


def hastened() -> list[dict[str, Any]]:
    """Return the groups as they are where minutes, hours and days are seconds.

    Windows of up to six hours last four seconds, and those of days 40.
    """
    groups = rule_groups()
    for group in groups:
        group["interval"] = "300ms"
        for rule in group["rules"]:
            rule["expr"] = hastened_query(rule["expr"])
            if "for" in rule:
                rule["for"] = "1s"
    return groups


def hastened_query(query: str) -> str:
    query = re.sub(r"offset \d+h", "offset 2s", query)
    return re.sub(r"\[\d+([mhd])\]", lambda it: "[40s]" if it[1] == "d" else "[4s]", query)


@contextmanager
def served(state_home: Path, ports: MonitoringPorts) -> Iterator[str]:
    """Run Prometheus as a sandbox does, with hastened rules; yield its address."""
    layout = layout_of("monitoring", state_home=state_home)
    kit = MonitoringKit(found(monitoring.NAME), hastened(), interval="300ms")
    for folder in (layout.root.parent, layout.root, layout.logs):
        files.private_folder(folder)
    try:
        monitoring.start(Run(layout, State(1, 2, (), monitoring=ports), Quiet()), kit)
        yield monitoring.url(ports)
    finally:
        lifecycle.down(layout, delete=True, progress=Quiet())


def found(program: str) -> Path:
    """Return a program of the package; without it a test is skipped."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"there is no {program}: `apt-get install --no-install-recommends prometheus`")
    return Path(path)


def promtool(*arguments: str, folder: Path) -> str:
    """Run promtool in a folder; what it says where it fails, else ""."""
    command = (str(found("promtool")), *arguments)
    run = ran(command, cwd=folder, timeout=_TIMEOUT)
    return "" if run.returncode == 0 else run.stdout + run.stderr

"""Prometheus and promtool, as Debian has them, and the rules that this repository ships."""

import copy
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.books import ROOT

FOLDER: Final = ROOT / "klutchctl" / "deploy" / "monitoring"
DASHBOARDS: Final = tuple(sorted((FOLDER / "dashboards").iterdir()))
# What Grafana puts into a query, for those who have no Grafana.
_VARIABLES: Final = {"$__rate_interval": "5m", "$control_plane": ".*", "$job": ".*"}
_TIMEOUT: Final = 60.0


def rule_groups() -> list[dict[str, Any]]:
    """Return the groups of the PrometheusRule, as Prometheus itself reads them."""
    document = yaml.safe_load((FOLDER / "rules.yaml").read_text("utf-8"))
    groups: list[dict[str, Any]] = copy.deepcopy(document["spec"]["groups"])
    return groups


def rules() -> list[dict[str, Any]]:
    """Return the rules of all groups."""
    return [rule for group in rule_groups() for rule in group["rules"]]


def queries() -> Iterator[str]:
    """Yield each query of the rules and the dashboards, without variables."""
    for rule in rules():
        yield rule["expr"]
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            for target in panel.get("targets", ()):
                yield without_variables(target["expr"])


def without_variables(query: str) -> str:
    """Return the query of a dashboard as Grafana sends it where everything is chosen."""
    for name, value in _VARIABLES.items():
        query = query.replace(name, value)
    return query


def alerts() -> list[dict[str, Any]]:
    """Return the rules that are alerts; two may have one name."""
    return [rule for rule in rules() if "alert" in rule]


def found(program: str) -> Path:
    """Return a program of the package; without it a test is skipped."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"there is no {program}: `apt-get install --no-install-recommends prometheus`")
    return Path(path)


def promtool(*arguments: str, folder: Path) -> str:
    """Run promtool in a folder; what it says where it fails, else ""."""
    command = (str(found("promtool")), *arguments)
    run = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=_TIMEOUT
    )
    return "" if run.returncode == 0 else run.stdout + run.stderr

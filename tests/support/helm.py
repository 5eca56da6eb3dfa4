"""Helm, built as the servers of tests are: what it makes of charts, and does with them."""

import functools
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

import bind
import klutchctl
import konnector
from tests.support.go_programs import built
from tests.support.shells import ran

BACKEND: Final = Path(bind.__file__).parent / "deploy" / "chart"
KONNECTOR: Final = Path(konnector.__file__).parent / "deploy" / "chart"
CONTROLLER: Final = Path(klutchctl.__file__).parent / "deploy" / "chart"
CHARTS: Final = (BACKEND, KONNECTOR, CONTROLLER)
# What an operator has to say of each chart, here as the kustomizations have it.
_IMAGES: Final = "registry.example.com/klutchctl"
_AGENT: Final = {"konnectorImage": f"{_IMAGES}/konnector:0.1.0"}
_DOOR: Final = {
    "host": "bind.example.org",
    "issuerURL": "https://login.example.org/realms/main",
    "externalAddress": "https://api.example.org:6443",
}
GIVEN: Final[Mapping[str, Mapping[str, Any]]] = {
    "klutch-bind": {
        "image": {"repository": f"{_IMAGES}/klutch-bind"},
        "controlPlaneMode": _AGENT,
        "door": {**_AGENT, **_DOOR},
    },
    "konnector": {"image": {"repository": f"{_IMAGES}/konnector"}},
    "klutchctl-controller": {
        "image": {"repository": f"{_IMAGES}/klutchctl"},
        "fleet": {"name": "prod", "git": "https://git.example.com/platform/fleet.git"},
        "trust": "klutchctl-trust",
    },
}
VERSION: Final = "v4.3.1"
_MODULE: Final = Path(__file__).parent / "helm_module"
_TIMEOUT: Final = 120.0


@functools.cache
def program() -> Path:
    """Return the executable, built now if need be; without a Go, a test is skipped."""
    packages = {"helm": "helm.sh/helm/v4/cmd/helm"}
    return built(_MODULE, "Helm", VERSION, packages, cache="helm") / "helm"


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    return ran([program(), *arguments], env={**os.environ, **kept}, timeout=_TIMEOUT)


def helm(home: Path, *arguments: str) -> str:
    """Run helm, and return what it prints where it succeeds."""
    done = run(home, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def given(home: Path, chart: Path) -> str:
    """Return the flag with what an operator has to say of a chart, a folder or an archive."""
    name = yaml.safe_load(helm(home, "show", "chart", str(chart)))["name"]
    return f"--values={written(home / f'{name}.yaml', GIVEN[name])}"


def rendered(home: Path, chart: Path, values: Mapping[str, Any]) -> list[Any]:
    more = f"--values={written(home / 'values.yaml', values)}"
    text = helm(home, "template", "release", str(chart), given(home, chart), more)
    return [one for one in yaml.safe_load_all(text) if one]


def written(file: Path, values: Mapping[str, Any]) -> Path:
    file.write_text(json.dumps(values))
    return file

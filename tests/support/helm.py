"""Helm, built as the servers of tests are: what it makes of charts, and does with them."""

import functools
import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import bind
import klutchctl
import konnector
from klutchctl.sandbox import binaries
from klutchctl.sandbox.recipes import Recipe
from klutchctl.settings import Settings
from reconciler.core.errors import HostError
from tests.support.quiet import Quiet

BACKEND: Final = Path(bind.__file__).parent / "deploy" / "chart"
KONNECTOR: Final = Path(konnector.__file__).parent / "deploy" / "chart"
CONTROLLER: Final = Path(klutchctl.__file__).parent / "deploy" / "chart"
CHARTS: Final = (BACKEND, KONNECTOR, CONTROLLER)
VERSION: Final = "v4.3.1"
_MODULE: Final = Path(__file__).parent / "helm_module"
_TIMEOUT: Final = 120.0


@functools.cache
def program() -> Path:
    """Return the executable, built now if need be; without a Go, a test is skipped."""
    digest = hashlib.sha256((_MODULE / "go.sum").read_bytes()).hexdigest()[:8]
    recipe = Recipe(
        module=_MODULE,
        subject="Helm",
        versions=f"Helm {VERSION}",
        otherwise="",
        go=(1, 26),
        arguments=("-trimpath", "-ldflags=-s -w"),
        packages={"helm": "helm.sh/helm/v4/cmd/helm"},
        crds=(),
        patches=(),
        id=f"{VERSION}-{digest}",
    )
    shop = binaries.workshop(
        recipe, "helm", cache_home=Settings(os.environ).cache_home, environ=os.environ
    )
    try:
        return binaries.provide_built(shop, recipe, progress=Quiet()) / "helm"
    except HostError as error:
        pytest.skip(str(error))


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [program(), *arguments],
        env={**os.environ, **kept},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT,
    )


def helm(home: Path, *arguments: str) -> str:
    """Run helm, and return what it prints where it succeeds."""
    done = run(home, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(home: Path, chart: Path, values: Mapping[str, Any]) -> list[Any]:
    file = home / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    text = helm(home, "template", "release", str(chart), "--values", str(file))
    return [one for one in yaml.safe_load_all(text) if one]

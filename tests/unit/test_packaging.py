"""What a wheel holds, and what a fresh import costs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [path] = folder.glob("*.whl")
    return zipfile.ZipFile(path).namelist()


def test_a_wheel_has_our_four_packages_and_nothing_else_at_its_top(wheel):
    tops = {name.split("/")[0] for name in wheel if ".dist-info/" not in name}
    assert tops == {"klutchctl", "reconciler", "konnector", "bind"}


def test_a_wheel_carries_the_crds_and_the_sources_of_the_sandbox(wheel):
    crds = [name for name in wheel if name.startswith("reconciler/schemas/crds/")]
    assert len(crds) == 7
    assert "klutchctl/sandbox/controlplane/go.sum" in wheel
    assert "klutchctl/sandbox/crossplane/go.sum" in wheel
    assert "klutchctl/sandbox/launcher.py" in wheel
    assert "klutchctl/sandbox/controlplane/kube-apiserver/main.go" in wheel

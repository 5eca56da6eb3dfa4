"""The README works as printed: its commands run from top to bottom in a new home folder."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klutchctl import settings
from klutchctl.exit_codes import ExitCode

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
COMMANDS = [
    line.removeprefix("$ ").split("   #")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ ")
]


@pytest.fixture
def home(tmp_path, programs):
    """A new home folder; the executables, once made, are found where they are."""
    binaries = Path(sys.executable).parent
    environ = {
        "HOME": str(tmp_path),
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(settings.read(os.environ).cache_home),
    }
    if "KUBEBUILDER_ASSETS" in os.environ:
        environ["KUBEBUILDER_ASSETS"] = os.environ["KUBEBUILDER_ASSETS"]
    yield environ
    command = ["klutchctl", "sandbox", "down", "--delete"]
    subprocess.run(command, env=environ, check=True, capture_output=True)


def test_every_command_runs(home):
    ran = []
    for command in COMMANDS:
        program = command.split()[0]
        if program == "make" or (program == "kubectl" and shutil.which("kubectl") is None):
            continue
        done = subprocess.run(
            ["bash", "-c", command], env=home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        ran.append(program)
    assert ran.count("klutchctl") >= 3


def test_every_make_target_exists():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    named = {command.split()[1] for command in COMMANDS if command.startswith("make ")}
    assert named
    assert named <= set(targets)


def test_the_table_of_exit_codes_names_real_ones():
    rows = re.findall(r"^\| ([0-9, ]+) \|", README.split("## Exit codes")[1], re.MULTILINE)
    documented = {int(code) for row in rows for code in row.split(",")}
    assert documented
    assert documented <= {code.value for code in ExitCode}

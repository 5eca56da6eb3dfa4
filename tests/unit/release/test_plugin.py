"""The plug-in of kubectl that needs no pip: what is in its archive, and how it starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.release import plugin

ROOT = Path(__file__).parents[3]


@pytest.fixture
def installed(tmp_path):
    """Return the plug-in as krew has it: a link on PATH to a file beside the packages."""
    store = tmp_path / "store"
    (store / "packages" / "klutchctl").mkdir(parents=True)
    (store / "packages" / "klutchctl" / "__init__.py").touch()
    code = "import os, sys\ndef main(): print(sys.argv[1:], os.environ.get('PYTHONPATH'))\n"
    (store / "packages" / "klutchctl" / "entry.py").write_text(code)
    launcher = store / "kubectl-klutchctl"
    launcher.write_bytes((ROOT / "tests/release/kubectl-klutchctl.sh").read_bytes())
    launcher.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl-klutchctl").symlink_to(launcher)
    return tmp_path / "bin" / "kubectl-klutchctl"


def python(folder, name, version):
    """Put a Python of a version on a PATH: ours, and one that says to be another."""
    folder.mkdir(exist_ok=True)
    ours = f'exec "{sys.executable}" "$@"' if version is None else "exit 1"
    (folder / name).write_text(f"#!/bin/sh\n{ours}\n")
    (folder / name).chmod(0o755)


STARTS: dict[str, dict[str, str | None]] = {
    "the usual Python": {"python3": None},
    "one beside an old one": {"python3": "3.9", "python3.12": None},
}


@pytest.mark.parametrize("case", STARTS)
def test_it_starts_with_its_packages_and_gives_programs_none(case, installed, tmp_path):
    for name, version in STARTS[case].items():
        python(tmp_path / "pythons", name, version)
    done = run(installed, tmp_path / "pythons", "plan", "my fleet", "-o", "json")
    assert (done.stdout, done.stderr) == ("['plan', 'my fleet', '-o', 'json'] None\n", "")


def test_without_a_python_it_says_which_it_needs(installed, tmp_path):
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        python(tmp_path / "pythons", name, "3.9")
    done = run(installed, tmp_path / "pythons")
    assert done.returncode == 1
    assert done.stderr == "Error: klutchctl needs Python 3.11, 3.12 or 3.13 on PATH\n"


def run(program, pythons, *arguments):
    environ = {"PATH": f"{pythons}:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        [program, *arguments], env=environ, capture_output=True, text=True, check=False
    )


def test_it_says_the_versions_that_it_is_packed_for():
    said = (ROOT / "tests/release/kubectl-klutchctl.sh").read_text()
    first, last = plugin.PYTHONS[0], plugin.PYTHONS[-1]
    assert f"({first.replace('.', ', ')}) <= " in said
    assert f"< (3, {int(last.split('.')[1]) + 1})" in said
    for one in plugin.PYTHONS:
        assert f"python{one}" in said

"""The README works as printed: its commands run from top to bottom in a new home folder."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from klutchctl import exit_status, main, settings
from klutchctl.exit_codes import ExitCode
from klutchctl.sandbox import ports

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = ["README.md", "fleet-example/README.md"]


def commands(page):
    """Return (command, expected exit code) for every line of a page that starts with "$ "."""
    text = (ROOT / page).read_text("utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    for line in lines:
        command, _, comment = line.removeprefix("$ ").partition("   #")
        code = re.search(r"exit code (\d+)", comment)
        yield command.strip(), int(code[1]) if code else 0


@pytest.fixture
def home(tmp_path, programs):
    """A new home folder; the executables, once made, are found where they are."""
    binaries = Path(sys.executable).parent
    environ = {
        "HOME": str(tmp_path),
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(settings.read(os.environ).cache_home),
    }
    kept = ("KUBEBUILDER_ASSETS", ports.VARIABLE)
    environ |= {name: os.environ[name] for name in kept if name in os.environ}
    yield environ
    command = ["klutchctl", "sandbox", "down", "--delete"]
    subprocess.run(command, env=environ, check=True, capture_output=True)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_runs(page, home):
    script = []
    for command, code in commands(page):
        program = command.split()[0]
        if program == "make" or (program == "kubectl" and shutil.which("kubectl") is None):
            continue
        # In one shell, as a person would type it.
        check = f'[ $? -eq {code} ] || {{ echo "FAILED: {command}" >&2; exit 1; }}'
        script += [command, check]
    assert sum("klutchctl" in line for line in script) >= 3
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        env=home,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def spoken_of(page):
    """Return the klutchctl commands of a page that a reader is not told to run as they stand."""
    text = (ROOT / page).read_text("utf-8")
    for block in re.findall(r"```(?:sh|text)\n(.*?)```", text, re.DOTALL):
        yield from re.findall(r"^(?:\$ )?(klutchctl .*)$", block, re.MULTILINE)
    yield from re.findall(r"`(klutchctl [^`]+)`", text)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_is_spoken_of_exists_with_its_options(page, capsys):
    lines = [*spoken_of(page)]
    assert lines
    for line in lines:
        _, *arguments = shlex.split(line.partition(" > ")[0], comments=True)
        assert main.run([*arguments, "--help"]) == 0, line
        assert "Usage:" in capsys.readouterr().out


def yaml_blocks():
    return re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)


def test_the_fleet_that_is_shown_is_valid(tmp_path, capsys):
    (whole,) = [one for one in yaml_blocks() if "kind: Fleet" in one]
    (tmp_path / "fleet.yaml").write_text(whole)
    assert main.run(["validate", str(tmp_path)]) == 0
    assert "1 binding -> 1 unit" in capsys.readouterr().out


def test_the_overrides_that_are_shown_make_the_container_of_our_manifests(tmp_path, capsys):
    (whole,) = [one for one in yaml_blocks() if "kind: Fleet" in one]
    (shown,) = [one for one in yaml_blocks() if one.startswith("konnector:")]
    documents = [*yaml.safe_load_all(whole)]
    documents[0]["spec"] = yaml.safe_load(shown)
    documents[0]["spec"]["konnector"]["rbac"] = "Full"  # which adds nothing of this by itself
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump_all(documents))
    assert main.run(["render", str(tmp_path)]) == 0
    rendered = [*yaml.safe_load_all(capsys.readouterr().out)]
    made = yaml.safe_load_all((ROOT / "konnector/deploy/minimal/deployment.yaml").read_text())
    ours, ready = (
        one["spec"]["template"]["spec"]["containers"][0]
        for one in (*rendered, *made)
        if one and one["kind"] == "Deployment"
    )
    assert ours["resources"] == ready["resources"]
    assert ours["securityContext"].items() >= ready["securityContext"].items()
    assert ours["livenessProbe"]["httpGet"]["path"] == ready["livenessProbe"]["httpGet"]["path"]


def test_every_make_target_exists():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    named = {one.split()[1] for one, _ in commands("README.md") if one.startswith("make ")}
    assert named
    assert named <= set(targets)


def test_the_table_of_exit_codes_names_real_ones():
    rows = re.findall(r"^\| ([0-9, ]+) \|", README.split("## Exit codes")[1], re.MULTILINE)
    documented = {int(code) for row in rows for code in row.split(",")}
    assert documented == {code.value for code in ExitCode}


def test_the_order_of_exit_codes_is_the_programs():
    (listed,) = re.findall(r"Where several hold, the first of ([0-9, ]+) counts", README)
    assert [int(code) for code in listed.split(",")] == list(exit_status.PRECEDENCE)


def test_what_the_demo_is_said_to_print_is_what_it_does():
    told = README.split("## Five minutes")[1].split("```text\n")[1].split("```")[0]
    demo = (ROOT / "tests" / "demo" / "program.py").read_text("utf-8")
    titles = re.findall(r"^== (.*)$", told, re.MULTILINE)
    assert titles
    assert all(title in demo for title in titles)

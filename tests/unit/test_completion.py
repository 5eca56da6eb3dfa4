"""Completion in shells, `kubectl klutchctl`, and the page for man: all of the same commands."""

import os
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from klutchctl import main
from tests.release import manual
from tests.support import books
from tests.support.shells import ran

PROGRAMS = Path(sys.executable).parent
VERSION = tomllib.loads((books.ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def run(*command, **environ):
    """Run a program with ours on PATH, as after `pip install`."""
    path = os.pathsep.join([str(PROGRAMS), os.environ["PATH"]])
    return ran(command, env={**os.environ, **environ, "PATH": path})


COMPLETED = {
    "a command": ("klutchctl pla", ["plan"]),
    "a command of the sandbox": ("klutchctl sandbox u", ["up"]),
    "an option": ("klutchctl plan --detail", ["--detailed-exitcode"]),
    "a choice": ("klutchctl --git-owner-check o", ["on", "off"]),
    "a path: by the shell": ("klutchctl plan flee", []),
}
_ASK = 'source <(klutchctl completion bash); read -ra COMP_WORDS <<< "$1"; COMP_CWORD=$2'
_ASK += '; $(complete -p klutchctl | sed "s/.*-F \\([^ ]*\\).*/\\1/") klutchctl'
_ASK += '; printf "%s\\n" "${COMPREPLY[@]}"'


@pytest.mark.parametrize("case", COMPLETED)
def test_bash_completes(case):
    line, wanted = COMPLETED[case]
    done = run("bash", "-c", _ASK, "bash", line, str(line.count(" ")))
    assert (done.stdout.split(), done.stderr) == (wanted, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_that_a_shell_can_read(shell, capsys):
    assert main.run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_KLUTCHCTL_COMPLETE=complete_" + shell in script
    if shutil.which(shell):
        assert run(shell, "-n", "-c", script).returncode == 0


def test_another_shell_is_a_usage_error(capsys):
    assert main.run(["completion", "tcsh"]) == 64
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err


ASKED = {
    "a command": (["pla"], ["plan"]),
    "an option": (["plan", "--detail"], ["--detailed-exitcode"]),
    "after a path with a space": (["--chdir", "my fleet", "pla"], ["plan"]),
    "nothing: kubectl offers files": (["plan", ""], []),
}


@pytest.mark.parametrize("case", ASKED)
def test_kubectl_completes(case):
    words, wanted = ASKED[case]
    done = run("kubectl_complete-klutchctl", *words)
    assert (done.stdout.split(), done.stderr) == ([*wanted, ":0"], "")


def test_kubectl_finds_the_plug_in_by_its_name():
    done = run("kubectl-klutchctl", "version")
    assert (done.returncode, done.stdout) == (0, f"klutchctl {VERSION}\n")


def test_the_page_for_man_is_of_these_commands(request):
    path = books.ROOT / "klutchctl" / "klutchctl.1"
    page = manual.page(VERSION)
    if request.config.getoption("--update-golden"):
        path.write_text(page, "utf-8")
    assert path.read_text("utf-8") == page, f"run pytest {request.path} --update-golden"


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")
def test_the_page_for_man_is_good_roff():
    page = books.ROOT / "klutchctl" / "klutchctl.1"
    done = run("groff", "-man", "-Tutf8", "-P-cbou", "-ww", str(page))
    assert done.stderr == ""
    assert "klutchctl plan [OPTIONS] [path]" in done.stdout
    assert "--detailed-exitcode" in done.stdout


def test_text_is_no_request_of_roff():
    assert [*manual._lines(".so /etc/passwd \\fB -v")] == [r"\&.so /etc/passwd \efB \-v"]

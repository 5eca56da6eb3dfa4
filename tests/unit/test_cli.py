"""The command line: exit codes, sentences, and what a start costs."""

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest
import typer

from bind import settings as backend_settings
from bind.osb import settings as osb_settings
from klutchctl import main
from klutchctl.binding import kubectl
from klutchctl.commands import sandbox
from klutchctl.entry import ExitCode
from klutchctl.main import clashes
from klutchctl.sandbox.servers import Program
from klutchctl.settings import Settings
from konnector import detach
from konnector import settings as konnector_settings
from reconciler.core.errors import ConfigError, HostError
from reconciler.core.live import Live, dump_live
from tests.support.checkouts import Checkout
from tests.support.fleet_texts import GOOD
from tests.support.shells import ran

HEAVY = {
    "asyncio", "cryptography", "httptools", "kubernetes", "logging", "psutil", "pydantic", "rich",
    "ssl", "uvloop", "yaml",
}  # fmt: skip


@pytest.fixture
def home(tmp_path, monkeypatch):
    """XDG folders that are empty, so that no test meets a sandbox of the developer."""
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    return tmp_path


def test_help_imports_nothing_heavy():
    code = (
        "import sys, json\n"
        "from klutchctl import main\n"
        "status = main.run(['--help'])\n"
        "print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)"
    )
    answer = ran([sys.executable, "-c", code], check=True)
    status, modules = json.loads(answer.stderr)
    assert status == 0
    assert "Usage: klutchctl" in answer.stdout
    assert HEAVY & {module.partition(".")[0] for module in modules} == set()


CODES = {
    "validate": [0, 1, 3, 4, 64],
    "plan": [0, 1, 2, 3, 4, 5, 6, 64],
    "apply": [0, 1, 3, 4, 5, 6, 7, 8, 9, 64],
    "bind": [0, 1, 3, 4, 6, 9, 64],
    "status": [0, 1, 3, 5, 9, 64],
    "doctor": [0, 1, 3, 5, 6, 64],
}


@pytest.mark.parametrize("group", [(), ("sandbox",)])
def test_no_summary_of_a_command_is_cut(group, capsys):
    assert main.run([*group, "--help"]) == 0
    said = re.split("(?:Commands|Files of a fleet):\n", capsys.readouterr().out)[1]
    assert "..." not in said
    listed: Any = typer.main.get_command(sandbox.app if group else main.app)
    assert sorted(re.findall(r"^  (\w+) ", said, re.MULTILINE)) == sorted(listed.commands)


@pytest.mark.parametrize(("command", "codes"), CODES.items(), ids=CODES)
def test_help_gives_the_exit_codes(command, codes, capsys):
    assert main.run([command, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.partition("Exit codes: ")[2].split())
    assert [int(one.partition(" ")[0]) for one in said.split("; ")] == codes


def test_what_is_reported_of_a_sandbox_is_typed_for_that_one(capsys, home):
    assert main.run(["sandbox", "status", "--name", "tour"]) == 1
    assert "`klutchctl sandbox up --name tour` makes one" in capsys.readouterr().err
    tour = home / "XDG_STATE_HOME" / "klutchctl" / "sandbox" / "tour"
    tour.mkdir(parents=True)
    (tour / "state.json").write_text("{}")
    assert main.run(["sandbox", "status", "--name", "tour"]) == 1
    printed = capsys.readouterr().err
    assert "`klutchctl sandbox down --delete --name tour` removes the sandbox" in printed


def test_down_without_a_sandbox_is_fine(capsys, home):
    assert main.run(["sandbox", "down", "--delete"]) == 0
    assert "no process to stop" in capsys.readouterr().out


PROGRAMS = {
    "klutchctl": main.run,
    "kubectl bind": kubectl.run,
    "klutch-bind": backend_settings.parse,
    "klutch-osb": osb_settings.parse,
    "konnector": lambda arguments: konnector_settings.parse(arguments, {}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_tells_its_version(name, capsys):
    try:
        code = PROGRAMS[name](["--version"])
    except SystemExit as ended:
        code = ended.code
    assert (code, capsys.readouterr()) == (0, (f"{name} {metadata.version('klutchctl')}\n", ""))


def test_version_names_packages_that_another_distribution_overwrites():
    owners = {"bind": ["bind", "klutchctl"], "klutchctl": ["klutchctl"], "x": ["bind"]}
    assert [line.partition(":")[0] for line in clashes(owners)] == [
        "package bind is also installed by bind"
    ]


IN_A_DELETED_FOLDER = {
    "validate": ("validate", 3),
    "a plan": ("plan", 3),
    "a plan of a ref": ("plan --ref main", 1),
    "a plan that is to be saved": ("plan {fleet}/repo --snapshot {fleet}/live.json --out x", 1),
    "the board": ("board", 1),
    "a beginning": ("init x", 1),
}


@pytest.mark.parametrize(("line", "code"), IN_A_DELETED_FOLDER.values(), ids=IN_A_DELETED_FOLDER)
def test_a_deleted_folder_is_no_defect(line, code, tmp_path, monkeypatch, capsys):
    fleet, here = tmp_path / "fleet", tmp_path / "here"
    here.mkdir()
    Checkout(fleet).write(GOOD)
    (fleet / "live.json").write_bytes(dump_live(Live({}, {}, {})))
    monkeypatch.chdir(here)
    here.rmdir()
    assert main.run(line.format(fleet=fleet).split()) == code
    said = "".join(capsys.readouterr())
    assert said
    assert "unexpected" not in said


ERRORS = {
    "a configuration error": (
        ConfigError("no such context", where="file:3:1"), 3, "file:3:1: no such context",
    ),
    "a host error": (HostError("no Go", hint="Install it"), 1, "no Go. Install it"),
    "a file error": (
        PermissionError(errno.EACCES, "Permission denied", "/x"), 1, "Permission denied: /x",
    ),
    "several: the code that wins, not the largest wish": (
        ExceptionGroup("x", [HostError("a"), ExceptionGroup("y", [ConfigError("b", where="x")])]),
        3, "a|x: b",
    ),
}  # fmt: skip


def failing(monkeypatch, error):
    def fail(*_, **ignored):
        raise error

    monkeypatch.setattr(main, "_group", lambda: fail)


@pytest.mark.parametrize(("error", "code", "says"), ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_sentences(capsys, monkeypatch, error, code, says):
    failing(monkeypatch, error)
    assert main.run(["status"]) == code
    assert capsys.readouterr().err.splitlines() == [f"Error: {one}" for one in says.split("|")]


def test_a_defect_tells_its_place_and_where_the_details_are(capsys, monkeypatch):
    failing(monkeypatch, KeyError("hunter2"))
    assert main.run(["status"]) == 1
    assert "unexpected KeyError at tests.unit.test_cli:" in (error := capsys.readouterr().err)
    assert "klutchctl -v" in error
    assert not {"Traceback", "hunter2"} & set(error.split())
    main.run(["-v", "status"])
    assert "Traceback" in capsys.readouterr().err


def started(program, *arguments, **kwargs):
    command = [sys.executable, "-c", f"from klutchctl import __main__ as it; it.{program}()"]
    # Nobody has this variable at home; with it, nothing is left for the end of a run to write.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    streams = {"stderr": subprocess.PIPE, **kwargs}
    return subprocess.Popen([*command, *arguments], text=True, env=environ, **streams)


BOTH = ["main", "kubectl_bind"]


def unread():
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("program", BOTH)
def test_a_reader_that_has_enough_is_no_error(program):
    with os.fdopen(unread(), "w") as file, started(program, "--help", stdout=file) as process:
        _, errors = process.communicate()
    assert (process.returncode, errors) == (1, "")


def ended(program, *arguments, closed):
    """Return the exit code of a run that starts with these standard streams closed, by number."""
    close = {"preexec_fn": lambda: any(map(os.close, closed))}  # closes all
    with started(program, *arguments, stdout=subprocess.PIPE, **close) as process:
        _, errors = process.communicate()
    assert "Traceback" not in errors
    assert "defect" not in errors
    return process.returncode


CLOSED = {
    "no output": ((1,), ["version"], 0),
    "no output of a sandbox": ((1,), ["sandbox", "status"], 1),
    "no errors": ((2,), ["sandbox", "status"], 1),
    "no errors, and progress to show": ((2,), ["sandbox", "down"], 0),
    "a usage error that nobody sees": ((2,), ["plant"], 64),
    "nothing at all": ((0, 1, 2), ["sandbox", "down"], 0),
}


@pytest.mark.parametrize(("streams", "arguments", "code"), CLOSED.values(), ids=CLOSED.keys())
def test_a_closed_standard_stream_is_no_error(home, streams, arguments, code):
    # Else a file of ours gets the free number, and what is printed ends up in it.
    (home / "XDG_STATE_HOME" / "klutchctl" / "sandbox").mkdir(parents=True)
    assert ended(BOTH[0], *arguments, closed=streams) == code


@pytest.mark.parametrize("streams", [(1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--version"], 0), (["apiservice", "-f", "-", "--remote-kubeconfig", "absent"], 1)],
)
def test_a_closed_standard_stream_is_none_of_the_plugin(tmp_path, streams, arguments, code):
    (config := tmp_path / "empty").touch()
    assert ended(BOTH[1], *arguments, "--kubeconfig", str(config), closed=streams) == code


@pytest.mark.parametrize("program", BOTH)
@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_an_output_that_takes_nothing_is_a_sentence(program, arguments):
    with (
        open("/dev/full", "w", encoding="utf-8") as full,
        started(program, *arguments, stdout=full) as process,
    ):
        _, errors = process.communicate()
    assert (process.returncode, errors) == (1, "Error: No space left on device\n")


def slow():
    _, writing = os.pipe()
    os.set_blocking(writing, False)
    os.write(writing, bytes(2**20))  # as much as it takes
    return writing


FAILING = {"unread": unread, "full": lambda: os.open("/dev/full", os.O_WRONLY), "slow": slow}


@pytest.mark.parametrize("stream", FAILING.values(), ids=FAILING.keys())
def test_errors_that_cannot_be_written_change_no_exit_code(stream):
    with os.fdopen(stream(), "w") as file, started(BOTH[0], "--absent", stderr=file) as process:
        process.communicate()
    assert process.returncode == 64


OURS, OTHERS = "\x1b[31mé\x1b[0m\t", "\x1b]52;c;aGk=\x07\x9b2J\u202e\U000e0041\r##vso[x]"


def test_text_of_others_that_was_not_cleaned_acts_on_no_stream():
    code = (
        "import sys\nfrom klutchctl import entry\n"
        f"show = lambda one: print({OURS + OTHERS!r}, file=one)\n"
        "entry.end_after(lambda _: any(map(show, (sys.stdout, sys.stderr))))"
    )
    done = ran([sys.executable, "-c", code], check=True)
    shown = json.dumps(OTHERS)[1:-1].replace("##", r"#\u0023")
    assert done.stdout == done.stderr == f"{OURS}{shown}\n"


REFUSING = ["/sys", "/proc/nope", "/dev/null"]


@pytest.mark.parametrize("folder", REFUSING)
def test_a_state_folder_that_cannot_be_made_names_its_variable(
    capsys, home, monkeypatch, tmp_path, folder
):
    monkeypatch.setenv("XDG_STATE_HOME", folder)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    for program in Program:
        (tmp_path / program).symlink_to(sys.executable)
    assert main.run(["sandbox", "up"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"Error: {folder}/klutchctl/sandbox cannot be used: ")
    assert "XDG_STATE_HOME" in error


HOMELESS = {"empty": "", "relative": "dev"}


@pytest.mark.parametrize("value", HOMELESS.values(), ids=HOMELESS.keys())
def test_without_a_home_the_sandbox_says_what_to_set(capsys, monkeypatch, value):
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", value)
    assert main.run(["sandbox", "status"]) == 1
    error = capsys.readouterr().err
    assert f"HOME is {value!r}" in error
    assert "XDG_STATE_HOME" in error
    assert main.run(["version"]) == 0


SETTINGS = {
    "the defaults of XDG": ({}, False, True, ".local/state"),
    "NO_COLOR": ({"NO_COLOR": "1"}, False, False, ".local/state"),
    "an empty NO_COLOR counts as unset": ({"NO_COLOR": ""}, False, True, ".local/state"),
    "the flag": ({}, True, False, ".local/state"),
    "an absolute folder": ({"XDG_STATE_HOME": "/srv"}, False, True, "/srv"),
    "a relative folder counts as unset": ({"XDG_STATE_HOME": "x"}, False, True, ".local/state"),
}


@pytest.mark.parametrize(
    ("environ", "no_color", "color", "state"), SETTINGS.values(), ids=SETTINGS.keys()
)
def test_settings(monkeypatch, environ, no_color, color, state):
    monkeypatch.setenv("HOME", "/home/dev")
    got = Settings(environ, no_color=no_color)
    assert got.color is color
    assert str(got.state_home) == os.path.join("/home/dev", state)


def commands(group: str = ""):
    root: Any = typer.main.get_command(sandbox.app if group else main.app)
    return {group + name: command for name, command in root.commands.items() if name != "sandbox"}


@pytest.mark.parametrize("name", [*commands(), *commands("sandbox ")])
def test_help_has_a_short_summary_and_an_example_that_runs(name, capsys):
    command = (commands() | commands("sandbox "))[name]
    assert len(command.get_short_help_str(200)) < 60
    assert main.run([*name.split(), "--help"]) == 0
    said = capsys.readouterr().out
    assert "range>" not in said
    assert [one.name for one in command.params if not (one.help or one.hidden)] == []
    reads = any(name == one.name and ExitCode.PARTIAL in one.codes for one in main.COMMANDS)
    assert not reads or "--kubeconfig" in said
    example = said.partition("Example:\n")[2].splitlines()[0]
    program, *arguments = shlex.split(example)
    assert (program, arguments[: len(name.split())]) == ("klutchctl", name.split())
    assert main.run([*arguments, "--help"]) == 0  # its options exist


AGENTS = {
    "konnector": lambda given: konnector_settings.parse(given, {}),
    "konnector detach": detach.parse,
    "klutch-bind": backend_settings.parse,
    "klutch-osb": osb_settings.parse,
}


@pytest.mark.parametrize("name", AGENTS)
def test_the_help_of_an_agent_ends_with_an_example_that_is_taken(name, capsys):
    with pytest.raises(SystemExit):
        AGENTS[name](["--help"])
    example = capsys.readouterr().out.rpartition("Example:\n")[2]
    AGENTS[name](shlex.split(example.partition(name)[2]))


def test_help_shows_options_in_groups(capsys):
    assert main.run(["controller", "--help"]) == 0
    groups = re.findall(r"^(\S.*):$", capsys.readouterr().out, re.MULTILINE)
    assert groups[:3] == ["Arguments", "Options", "Source of the files"]
    assert {"Webhooks and notifications", "Lease and status"} <= {*groups}

"""`-o FORMAT=PATH`: what cannot be written is known before, or costs only itself."""

import importlib.metadata
import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from klutchctl.entry import ExitCode, ending_quietly
from klutchctl.settings import Output, parse_outputs, write_outputs

REFUSED = {
    "a folder that is not there": ("json=none/x.json", "there is no folder none"),
    "a folder": ("json=here", "here is a folder"),
    "a file that stands where a folder should": ("json=file/x.json", "there is no folder file"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("asked", "says"), REFUSED.values(), ids=REFUSED)
def test_a_place_that_cannot_be_written_is_refused_beforehand(asked: str, says: str) -> None:
    with pytest.raises(typer.BadParameter, match=says):
        parse_outputs([asked], known=["text", "json"])


def test_an_output_that_fails_keeps_no_other_from_being_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [Output("a", Path("gone/a")), Output("b", Path("b")), Output("c", None)]
    with pytest.raises(ExceptionGroup) as caught:
        write_outputs(wanted, {"a": lambda _: "a\n", "b": lambda _: "b\n", "c": lambda _: "c\n"})
    assert [type(one) for one in caught.value.exceptions] == [FileNotFoundError]
    assert (folder / "b").read_text() == "b\n"
    assert capsys.readouterr().out == "c\n"


class Unread(io.StringIO):
    """A pipe whose reader left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_left_keeps_no_file_from_being_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Unread())
    wanted = [Output("a", None), Output("b", Path("b"))]
    with pytest.raises(BrokenPipeError):
        write_outputs(wanted, {"a": lambda _: "a\n", "b": lambda _: "b\n"})
    assert (folder / "b").read_text() == "b\n"


INTERRUPTED_AT = """
import runpy
import signal
import sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[2]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
runpy.run_module(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("program", "imported"),
    [
        ("klutchctl", "klutchctl.main"),
        ("klutchctl", "typer"),
        ("tests.demo", "tests.demo.program"),
        ("tests.demo", "uvloop"),
    ],
)
def test_it_ends_in_silence(program, imported):
    command = (sys.executable, "-c", INTERRUPTED_AT, program, imported)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (ExitCode.INTERRUPTED, "", "")


def test_the_installed_program_begins_there():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="klutchctl")
    assert script.value == "klutchctl.__main__:main"


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_afterwards_all_is_as_before(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        with ending_quietly():
            inside = signal.getsignal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is handler
        assert (inside is handler) is (handler is signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGINT, before)

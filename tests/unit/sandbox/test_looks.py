"""What people and programs see: status, progress, last words, kubeconfig."""

import io
import os
import pty
import socket
import threading
from pathlib import Path

import psutil
import pytest

from klutchctl.sandbox import lifecycle, processes, report, servers, startup
from klutchctl.sandbox.report import Health, Lines, Status, Terminal
from klutchctl.sandbox.servers import NORMAL
from klutchctl.sandbox.state import Layout, Member, Role, State
from reconciler.core.errors import ConfigError, HostError

LAYOUT = Layout(Path("/state/default"))
STATE = State(20001, 20002, (Member("control-plane", Role.CONTROL_PLANE, 20003),))
ETCD, *_ = servers.of_clusters(LAYOUT, STATE, NORMAL)


AGES = {
    "seconds": (119, "119s"),
    "minutes": (120, "2m"),
    "hours": (3 * 3600 - 1, "2h"),
    "days": (50 * 3600, "2d"),
    "a clock that was set back": (-5, "0s"),
}


@pytest.mark.parametrize(("seconds", "text"), AGES.values(), ids=AGES.keys())
def test_ages(seconds, text):
    only = Status(STATE, (Health(ETCD, 11, 1000.0, ready=True),))
    row = report.as_text(LAYOUT, only, now=1000.0 + seconds).splitlines()[-1]
    assert row.split()[-1] == text


WORDS = {
    "the last errors": (
        "I0101 fine\nE0101 first\nI0101 fine\nE0101 00:00 second\nF0101 00:00 third\nI0101 bye\n",
        ["E0101 first", "E0101 00:00 second", "F0101 00:00 third"],
    ),
    "a command that does not know a flag": (
        "Usage: and so on\nError: unknown flag: --x\n",
        ["Error: unknown flag: --x"],
    ),
    "etcd writes JSON": (
        '{"level":"warn","msg":"w"}\n{"level":"fatal","msg":"no room"}\n',
        ['{"level":"fatal","msg":"no room"}'],
    ),
    "a stack trace in one line is cut": (f"E0101 {'x' * 1000}\n", [f"E0101 {'x' * 394}..."]),
    "the last lines where none looks like an error": ("a\nb\n\nc\n", ["a", "b", "c"]),
    "an empty log": ("", []),
}


@pytest.mark.parametrize(("log", "words"), WORDS.values(), ids=WORDS.keys())
def test_last_words(tmp_path, log, words):
    (tmp_path / "log").write_text(log)
    assert startup.last_words(tmp_path / "log") == words


def test_last_words_of_a_long_log_and_of_none(tmp_path):
    (tmp_path / "log").write_text("E0101 much too early\n" + "I0101 chatter\n" * 10000)
    assert startup.last_words(tmp_path / "log") == ["I0101 chatter"] * 5
    assert list(startup.last_words(tmp_path / "absent")) == []


def test_lines_report_start_end_and_now_and_then_how_far():
    stream, now = io.StringIO(), iter([0.0, 4.0, 12.0, 15.0, 20.0])
    with Lines(stream, clock=lambda: next(now)).step("building") as update:
        update("1 of 3")
        update("2 of 3")
        update("3 of 3")
    assert stream.getvalue().splitlines() == [
        "building",
        "building: 2 of 3, 12 s",
        "building: done, 20.0 s",
    ]


def test_lines_do_not_call_a_failure_done():
    stream = io.StringIO()
    with pytest.raises(OSError, match="x"), Lines(stream).step("building"):
        raise OSError("x")
    assert "done" not in stream.getvalue()


def test_the_terminal_shows_the_step_as_it_is_written(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen, os.fdopen(slave, "w") as stream:
        terminal = Terminal(stream, color=False)
        terminal.note("from [here]")
        with terminal.step("building [bold]x") as update:
            update("3 packages")
        print("the end", file=stream, flush=True)
        shown = ""
        while "the end" not in shown:  # a terminal gives what it has, in pieces
            shown += screen.read(65536).decode()
    assert "from [here]" in shown
    assert "building [bold]x" in shown
    assert "3 packages" in shown


def test_a_port_is_given_once_though_it_is_free_until_something_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("random.sample", lambda all_of_them, _count: list(all_of_them))
    new_ports = lifecycle._port_source(Layout(tmp_path / "box"))
    assert len({*new_ports(3), *new_ports(3)}) == 6


class TestTakenPorts:
    """Which ports keep a server from being started."""

    def test_a_port_that_a_process_listens_on_has_a_holder_at_once(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            holder = f"{psutil.Process().name()} (pid {os.getpid()})"
            assert processes.taken_ports([port], grace=60) == {port: holder}

    def test_a_port_of_no_process_is_free_in_a_moment(self):
        """As when a process that was killed has lost its command line, and has its sockets yet."""
        with socket.socket() as ending:
            ending.bind(("127.0.0.1", 0))
            port = ending.getsockname()[1]
            threading.Timer(0.2, ending.close).start()
            assert processes.taken_ports([port], grace=60) == {}

    def test_a_port_that_stays_taken_is_refused_when_the_grace_is_over(self):
        with socket.socket() as hidden:
            hidden.bind(("127.0.0.1", 0))
            port = hidden.getsockname()[1]
            assert processes.taken_ports([port], grace=0) == {port: "another program"}


def test_free_ports_are_different_and_avoid_those_of_others():
    first = processes.free_ports(20)
    assert len(set(first)) == 20
    assert not set(processes.free_ports(20, avoid=first)) & set(first)
    assert all(processes.is_port_free(port) for port in first)


def test_ports_can_be_chosen():
    within = processes.port_range("21000-21009")
    assert within is not None
    assert set(processes.free_ports(5, within=within)) < set(range(21000, 21010))
    with pytest.raises(HostError, match="no free port between 21000 and 21009"):
        processes.free_ports(11, within=within)
    assert processes.port_range("") is None


@pytest.mark.parametrize(
    "said",
    [
        "21000",
        "21000-",
        "a-b",
        "21000-20999",
        "80-90",
        "60000-70000",
        "²1000-21999",
        f"2000-{'9' * 5000}",
    ],
)
def test_what_are_no_ports_is_refused(said):
    with pytest.raises(ConfigError, match="KLUTCHCTL_SANDBOX_PORTS"):
        processes.port_range(said)

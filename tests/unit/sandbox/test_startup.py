"""When a server is ready, by stand-ins on real sockets; and one that ends, or never is."""

import os
import signal
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from klutchctl.sandbox import processes, startup
from klutchctl.sandbox.servers import HttpProbe, LifeProbe, PostgresqlProbe, Program
from klutchctl.sandbox.state import Layout
from reconciler.core.errors import HostError
from tests.support.eventually import eventually
from tests.support.quiet import Quiet
from tests.support.stand_ins import SLEEPS, stand_in


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path / "box")
    layout.root.mkdir()
    yield layout
    processes.stop(processes.observe(layout), grace=0.1)


def ensure(layout, stage, etcd):
    startup.ensure_running(layout, stage, {Program.ETCD: etcd}, progress=Quiet())


ENDS = {
    "its last error is shown": (
        "print('I0101 fine'); print('E0101 bad certificate'); raise SystemExit(1)",
        r"etcd ended while it started\. Its log .*/etcd\.log ends with:\n  E0101 bad certificate$",
    ),
    "a full disk is told as one": (
        'print(\'{"level":"fatal","error":"no space left on device"}\')',
        r"(?s)while it started\. Make room on the disk .*no space left",
    ),
}


@pytest.mark.parametrize(("code", "says"), ENDS.values(), ids=ENDS.keys())
def test_a_server_that_ends(layout, etcd, code, says):
    with pytest.raises(HostError, match=says):
        ensure(layout, [stand_in(layout, "etcd", code)], etcd)


def test_a_server_that_never_becomes_ready(layout, etcd, monkeypatch):
    monkeypatch.setattr(startup, "_START_DEADLINE", 0.3)
    with pytest.raises(HostError, match="was not ready after"):
        ensure(layout, [stand_in(layout, "etcd", SLEEPS)], etcd)


LOOKS = {
    "a moment without a command line, looked at twice": "seen missed missed seen",
    "moments that do not follow each other": "seen missed missed " * 3,
}


@pytest.mark.parametrize("script", LOOKS.values(), ids=LOOKS.keys())
def test_a_process_that_is_becoming_a_server_has_not_ended(layout, etcd, monkeypatch, script):
    looks, observe = script.split(), processes.observe
    monkeypatch.setattr(startup, "is_ready", lambda server, process: not looks)
    monkeypatch.setattr(startup, "_POLL", 0.0)
    monkeypatch.setattr(
        processes, "observe", lambda layout: observe(layout) if looks.pop(0) == "seen" else ()
    )
    ensure(layout, [stand_in(layout, "etcd", SLEEPS)], etcd)
    assert looks == []
    assert len(observe(layout)) == 1


async def test_a_server_that_hangs_is_restarted(layout, etcd, monkeypatch):
    monkeypatch.setattr(startup, "_RECOVERY_GRACE", 0.1)
    monkeypatch.setattr(startup, "_START_DEADLINE", 0.3)
    monkeypatch.setattr(startup, "STOP_GRACE", 0.1)
    hanging = stand_in(layout, "etcd", SLEEPS)
    processes.start(hanging, etcd)
    await eventually(lambda: "up" in hanging.log.read_text())
    (before,) = processes.observe(layout)
    os.kill(before.pid, signal.SIGSTOP)
    with pytest.raises(HostError, match="was not ready after"):
        ensure(layout, [hanging], etcd)
    # The new process may be between its fork and its program: without a command line of its own.
    await eventually(lambda: processes.observe(layout))
    (after,) = processes.observe(layout)
    assert after.pid != before.pid


STARTING = b"E\0\0\0\x20SFATAL\0C57P03\0Mstarting up\0\0"
NO_SUCH_USER = b"E\0\0\0\x20SFATAL\0C28000\0Mno\0\0"
ASKS = b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0"


@contextmanager
def answering(answer):
    """One connection is answered; what it said is kept."""
    said = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                said.append(connection.recv(4096))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], said
        thread.join()


def ready(probe, started=None):
    return startup.answers(probe, started=started, timeout=60.0)


POSTGRESQL = {
    "it asks for a password": (ASKS, True),
    "it knows nobody": (NO_SUCH_USER, True),
    "it starts or stops": (STARTING, False),
    "it hangs up": (b"", False),
    "something else listens": (b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
}


@pytest.mark.parametrize(("answer", "expected"), POSTGRESQL.values(), ids=POSTGRESQL.keys())
def test_postgresql(answer, expected):
    with answering(answer) as (port, said):
        assert ready(PostgresqlProbe(port)) is expected
    assert said[0][:8] == len(said[0]).to_bytes(4, "big") + b"\0\3\0\0"


HTTP = {
    "well": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
    "not yet": (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", False),
    "no HTTP": (ASKS, False),
}


@pytest.mark.parametrize(("answer", "expected"), HTTP.values(), ids=HTTP.keys())
def test_http(answer, expected):
    with answering(answer) as (port, said):
        assert ready(HttpProbe(port, "/readyz")) is expected
    assert said[0].startswith(b"GET /readyz HTTP/1.1\r\n")


def test_nobody_listens():
    [port] = processes.free_ports(1)
    assert not ready(HttpProbe(port, "/readyz"))
    assert not ready(PostgresqlProbe(port))


LIVES = {"gone": (None, False), "just started": (0.0, False), "settled": (60.0, True)}


@pytest.mark.parametrize(("age", "expected"), LIVES.values(), ids=LIVES.keys())
def test_a_process_that_says_nothing_is_judged_by_its_life(age, expected):
    started = None if age is None else time.time() - age
    assert ready(LifeProbe(30.0), started) is expected

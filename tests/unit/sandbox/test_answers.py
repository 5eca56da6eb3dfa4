"""When a server is ready, asked of stand-ins on real sockets."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest

from klutchctl.sandbox import ports, startup
from klutchctl.sandbox.servers import HttpProbe, LifeProbe, PostgresqlProbe

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
    [port] = ports.free(1)
    assert not ready(HttpProbe(port, "/readyz"))
    assert not ready(PostgresqlProbe(port))


LIVES = {"gone": (None, False), "just started": (0.0, False), "settled": (60.0, True)}


@pytest.mark.parametrize(("age", "expected"), LIVES.values(), ids=LIVES.keys())
def test_a_process_that_says_nothing_is_judged_by_its_life(age, expected):
    started = None if age is None else time.time() - age
    assert ready(LifeProbe(30.0), started) is expected

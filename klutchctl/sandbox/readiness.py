"""Is a server ready, and if it died, what did it say?"""

import http.client
import re
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from klutchctl.sandbox.servers import (
    HttpProbe,
    HttpsProbe,
    LifeProbe,
    PostgresqlProbe,
    Probe,
)

_LOOPBACK: Final = "127.0.0.1"
# PostgreSQL: Message Formats (StartupMessage, ErrorResponse), and its SQLSTATEs.
_PROTOCOL_3: Final = 196608
_LOGIN: Final = b"user\0postgres\0database\0postgres\0\0"
_CANNOT_CONNECT_NOW: Final = b"\0C57P03\0"
_LONGEST_ANSWER: Final = 4096

_TELLING = re.compile(
    r"^[EF]\d{4} |^(?:Error|error|panic|fatal)\b|\"level\":\"(?:error|fatal|panic)\""
)
_TAIL_BYTES: Final = 64 * 1024
_WIDEST: Final = 400  # etcd puts whole stack traces into one line


def is_ready(probe: Probe, *, started: float | None, timeout: float) -> bool:
    """Ask once. False covers refused, hanging, and 'not yet'.

    `started` is when the process began, in seconds since the epoch; None says that it is gone.
    """
    try:
        match probe:
            case HttpsProbe():
                return _https_ok(probe, timeout)
            case HttpProbe(port, path):
                return _ok(http.client.HTTPConnection(_LOOPBACK, port, timeout=timeout), path)
            case PostgresqlProbe(port):
                return _postgresql_ok(port, timeout)
            case LifeProbe(seconds):
                return started is not None and time.time() - started >= seconds
    except (OSError, http.client.HTTPException):
        return False


def _https_ok(probe: HttpsProbe, timeout: float) -> bool:
    context = ssl.create_default_context(cafile=probe.authority)
    context.load_cert_chain(probe.certificate, probe.key)
    connection = http.client.HTTPSConnection(
        _LOOPBACK, probe.port, timeout=timeout, context=context
    )
    return _ok(connection, probe.path)


def _ok(connection: http.client.HTTPConnection, path: str) -> bool:
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    finally:
        connection.close()


def _postgresql_ok(port: int, timeout: float) -> bool:
    """Begin to log in: a server that starts or stops says so in place of a question or a no."""
    with socket.create_connection((_LOOPBACK, port), timeout=timeout) as connection:
        connection.sendall(struct.pack("!ii", len(_LOGIN) + 8, _PROTOCOL_3) + _LOGIN)
        answer = connection.recv(_LONGEST_ANSWER)
    return answer[:1] in (b"R", b"E") and _CANNOT_CONNECT_NOW not in answer


def last_words(log: Path, *, count: int = 5) -> Sequence[str]:
    """Return the last error lines of a log, or its last lines where none looks like an error."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ()
    lines = [line.rstrip() for line in lines if line.strip()]
    last = ([line for line in lines if _TELLING.search(line)] or lines)[-count:]
    return [line if len(line) <= _WIDEST else f"{line[:_WIDEST]}..." for line in last]

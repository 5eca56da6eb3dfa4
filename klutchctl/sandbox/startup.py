"""Starts servers, waits until they are ready, and reports failures."""

import http.client
import re
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from klutchctl.sandbox import processes
from klutchctl.sandbox.report import Progress
from klutchctl.sandbox.servers import (
    HttpProbe,
    HttpsProbe,
    LifeProbe,
    PortProbe,
    PostgresqlProbe,
    Probe,
    Server,
)
from klutchctl.sandbox.state import LOOPBACK, Layout
from reconciler.core.errors import HostError

STOP_GRACE: Final = 20.0
PROBE_TIMEOUT: Final = 3.0
_MISSES: Final = 5
_START_DEADLINE: Final = 180.0  # a loaded machine with two cores takes a minute
_RECOVERY_GRACE: Final = 15.0  # for a server that ran before, when its etcd came back
_POLL: Final = 0.1

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


@dataclass(slots=True)
class _Pending:
    """A server that is not ready yet. `fresh`: this run has started it."""

    server: Server
    fresh: bool
    missed: int = 0  # times in a row that its process was not seen
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + (_START_DEADLINE if self.fresh else _RECOVERY_GRACE)


def ensure_running(
    layout: Layout, stage: Sequence[Server], programs: Mapping[str, Path], *, progress: Progress
) -> None:
    """Start missing servers, restart those that do not answer, return when all are ready.

    The servers of a stage do not depend on each other; `programs` has the executables of those
    without a `launch`. Raises HostError with a server's last
    words where one ends or stays silent.
    """
    observed = processes.observe(layout)
    absent = [server for server in stage if processes.running(server, observed) is None]
    with progress.step(_step_text(stage, absent)):
        for server in absent:
            _start(server, programs)
        pending = [_Pending(server, fresh=server in absent) for server in stage]
        while pending := [
            p for p in pending if not is_ready(p.server, processes.running(p.server, observed))
        ]:
            observed = processes.observe(layout)
            pending = [_waited(p, observed, programs) for p in pending]
            time.sleep(_POLL)


def is_ready(server: Server, process: processes.Observed | None) -> bool:
    """Ask once. `process` is the one that runs as `server`, as far as it was seen."""
    started = process.started if process else None
    return answers(server.probe, started=started, timeout=PROBE_TIMEOUT)


def _start(server: Server, programs: Mapping[str, Path]) -> None:
    launch = server.launch
    processes.start(server, launch.executable if launch else programs[server.program])


def _waited(
    pending: _Pending, observed: Sequence[processes.Observed], programs: Mapping[str, Path]
) -> _Pending:
    """Wait on, restart, or give up."""
    server = pending.server
    process = processes.running(server, observed)
    if process is None:
        # While a process is becoming another program, it has no command line for a moment.
        if pending.missed >= _MISSES:
            raise failed(server, "ended while it started")
        pending.missed += 1
        return pending
    pending.missed = 0
    if time.monotonic() < pending.deadline:
        return pending
    if pending.fresh:
        raise failed(server, f"was not ready after {_START_DEADLINE:.0f} s")
    processes.stop([process], grace=STOP_GRACE)
    _start(server, programs)
    return _Pending(server, fresh=True)


def _step_text(stage: Sequence[Server], absent: Sequence[Server]) -> str:
    servers = absent or stage
    counts = Counter(server.program for server in servers)
    subject = ", ".join(f"{n} x {program}" if n > 1 else program for program, n in counts.items())
    subject = servers[0].name if len(servers) == 1 else subject
    return f"{'starting' if absent else 'checking'} {subject}"


def failed(server: Server, fault: str) -> HostError:
    """Return the error for a server that failed, with its last words."""
    lines = last_words(server.log)
    text = "".join(f"\n  {line}" for line in lines)
    hint = f"Its log {server.log} ends with:{text}" if text else f"Its log {server.log} is empty"
    if "no space left on device" in hint or "disk quota exceeded" in hint.lower():
        hint = f"Make room on the disk and run the command again. {hint}"
    return HostError(f"{server.name} {fault}", hint=hint)


def answers(probe: Probe, *, started: float | None, timeout: float) -> bool:
    """Ask once. False covers refused, hanging, and 'not yet'.

    `started` is when the process began, in seconds since the epoch; None says that it is gone.
    """
    try:
        match probe:
            case HttpsProbe():
                return _https_ok(probe, timeout)
            case HttpProbe(port, path):
                return _ok(http.client.HTTPConnection(LOOPBACK, port, timeout=timeout), path)
            case PostgresqlProbe(port):
                return _postgresql_ok(port, timeout)
            case PortProbe(port):
                socket.create_connection((LOOPBACK, port), timeout=timeout).close()
                return True
            case LifeProbe(seconds):
                return started is not None and time.time() - started >= seconds
    except (OSError, http.client.HTTPException):
        return False


def _https_ok(probe: HttpsProbe, timeout: float) -> bool:
    context = ssl.create_default_context(cafile=probe.authority)
    context.load_cert_chain(probe.certificate, probe.key)
    connection = http.client.HTTPSConnection(LOOPBACK, probe.port, timeout=timeout, context=context)
    return _ok(connection, probe.path)


def _ok(connection: http.client.HTTPConnection, path: str) -> bool:
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    finally:
        connection.close()


def _postgresql_ok(port: int, timeout: float) -> bool:
    """Begin to log in: a server that starts or stops answers neither a question nor a no."""
    with socket.create_connection((LOOPBACK, port), timeout=timeout) as connection:
        connection.sendall(struct.pack("!ii", len(_LOGIN) + 8, _PROTOCOL_3) + _LOGIN)
        answer = connection.recv(_LONGEST_ANSWER)
    return answer[:1] in (b"R", b"E") and _CANNOT_CONNECT_NOW not in answer


def last_words(log: Path) -> Sequence[str]:
    """Return the last error lines of a log, or its last lines where none looks like an error."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ()
    lines = [line.rstrip() for line in lines if line.strip()]
    last = ([line for line in lines if _TELLING.search(line)] or lines)[-5:]
    return [line if len(line) <= _WIDEST else f"{line[:_WIDEST]}..." for line in last]

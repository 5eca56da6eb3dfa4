"""Start servers and wait until they work; say why where they do not."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from klutchctl.sandbox import disk, processes, readiness
from klutchctl.sandbox.layout import Layout
from klutchctl.sandbox.processes import Observed
from klutchctl.sandbox.progress import Progress
from klutchctl.sandbox.servers import Server
from reconciler.core.errors import HostError

STOP_GRACE: Final = 20.0
PROBE_TIMEOUT: Final = 3.0
_MISSES: Final = 5
_START_DEADLINE: Final = 180.0  # a loaded machine with two cores takes a minute
_RECOVERY_GRACE: Final = 15.0  # for a server that ran before, when its etcd came back
_POLL: Final = 0.1


@dataclass(slots=True)
class _Pending:
    """A server that is not ready yet. `fresh`: this run has started it."""

    server: Server
    fresh: bool
    missed: int = 0  # times in a row that its process was not seen
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        patience = _START_DEADLINE if self.fresh else _RECOVERY_GRACE
        self.deadline = time.monotonic() + patience


def ensure_running(
    layout: Layout,
    stage: Sequence[Server],
    programs: Mapping[str, Path],
    *,
    progress: Progress,
) -> None:
    """Start what does not run, restart what does not answer, return when all are ready.

    The servers of a stage do not depend on each other; `programs` has the executables of those
    without a `launch`. Raises HostError with a server's last
    words where one ends or stays silent.
    """
    observed = processes.observe(layout)
    absent = [server for server in stage if processes.running(server, observed) is None]
    with progress.step(_told(stage, absent)):
        for server in absent:
            _start(server, programs)
        pending = [_Pending(server, fresh=server in absent) for server in stage]
        while pending := [p for p in pending if not _is_ready(p.server, observed)]:
            observed = processes.observe(layout)
            pending = [_patient(p, observed, programs) for p in pending]
            time.sleep(_POLL)


def is_ready(server: Server, process: Observed | None) -> bool:
    """Ask once. `process` is the one that runs as `server`, as far as it was seen."""
    started = process.started if process else None
    return readiness.is_ready(server.probe, started=started, timeout=PROBE_TIMEOUT)


def _is_ready(server: Server, observed: Sequence[Observed]) -> bool:
    return is_ready(server, processes.running(server, observed))


def _start(server: Server, programs: Mapping[str, Path]) -> None:
    if server.launch is None:
        processes.start(server, programs[server.program])
    else:
        processes.start(server, server.launch.executable)


def _patient(
    pending: _Pending, observed: Sequence[Observed], programs: Mapping[str, Path]
) -> _Pending:
    """Wait on, restart, or give up."""
    server = pending.server
    process = processes.running(server, observed)
    if process is None:
        # While a process is becoming another program, it has no command line for a moment.
        if pending.missed >= _MISSES:
            raise _failed(server, "ended while it started")
        pending.missed += 1
        return pending
    pending.missed = 0
    if time.monotonic() < pending.deadline:
        return pending
    if pending.fresh:
        raise _failed(server, f"was not ready after {_START_DEADLINE:.0f} s")
    processes.stop([process], grace=STOP_GRACE)
    _start(server, programs)
    return _Pending(server, fresh=True)


def _told(stage: Sequence[Server], absent: Sequence[Server]) -> str:
    servers = absent or stage
    counts = Counter(server.program for server in servers)
    subject = ", ".join(f"{n} x {program}" if n > 1 else program for program, n in counts.items())
    subject = servers[0].name if len(servers) == 1 else subject
    return f"{'starting' if absent else 'checking'} {subject}"


def _failed(server: Server, what: str) -> HostError:
    lines = readiness.last_words(server.log)
    said = "".join(f"\n  {line}" for line in lines)
    hint = f"Its log {server.log} ends with:{said}" if said else f"Its log {server.log} is empty"
    if disk.says_full(hint):
        hint = f"Make room on the disk and run the command again. {hint}"
    return HostError(f"{server.name} {what}", hint=hint)

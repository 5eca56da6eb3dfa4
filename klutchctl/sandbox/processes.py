"""The servers as processes: recognise, start, stop.

A process is ours if it is one of our programs, runs as this user, and names a file in the
sandbox's folder in its arguments. There are no pid files: they lie after a crash, and pids
are used again.
"""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from klutchctl.sandbox.control_planes import Program, Server
from klutchctl.sandbox.layout import Layout
from reconciler.core.errors import HostError

_PROGRAMS: Final = frozenset(Program)
_POLL: Final = 0.05
# Nothing of the user's: etcd takes every ETCD_... variable as a flag, for one.
_ENVIRONMENT: Final = {"PATH": os.defpath}


@dataclass(frozen=True, slots=True)
class Observed:
    """A running process of a sandbox. `started` is in seconds since the epoch."""

    pid: int
    arguments: tuple[str, ...]
    started: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What to stop and then to start, so that exactly the wanted servers run."""

    stop: tuple[Observed, ...]
    start: tuple[Server, ...]


def decide(wanted: Sequence[Server], observed: Sequence[Observed]) -> Decision:
    """Compare by arguments. What runs with other arguments, twice, or for nothing is stopped."""
    kept: set[int] = set()
    start: list[Server] = []
    for server in wanted:
        same = [process for process in observed if process.arguments == server.arguments]
        if len(same) == 1:
            kept.add(same[0].pid)
        else:
            start.append(server)
    return Decision(tuple(p for p in observed if p.pid not in kept), tuple(start))


def running(server: Server, observed: Iterable[Observed]) -> Observed | None:
    """Return the process that is `server`, whatever its other arguments are."""
    return next((process for process in observed if server.identity in process.arguments), None)


def observe(layout: Layout) -> tuple[Observed, ...]:
    """Return the processes of the sandbox that run now, zombies excluded."""
    mark = f"={layout.root}{os.sep}"
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()  # empty for a zombie
            if not command or Path(command[0]).name not in _PROGRAMS:
                continue
            if process.uids().real == os.getuid() and any(mark in word for word in command[1:]):
                found.append(Observed(process.pid, tuple(command[1:]), process.create_time()))
        except psutil.Error:
            continue  # gone meanwhile, or not ours to look at
    return tuple(found)


def start(server: Server, program: Path) -> None:
    """Start `server` detached, in a session of its own, with its output in its log."""
    if server.log.exists():
        server.log.replace(server.log.with_suffix(".log.previous"))
    log_flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        os.posix_spawn(
            program,
            (str(program), *server.arguments),
            _ENVIRONMENT,
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(server.log), log_flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ),
            setsid=True,
            # Python ignores these; a server expects them at their default.
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
    except OSError as error:
        raise HostError(
            f"{program} does not start: {error.strerror}",
            hint=f"If the file is damaged, delete {program.parent} and run the command again",
        ) from error


def resume(processes: Iterable[Observed]) -> None:
    """Let those go on that somebody paused (SIGSTOP): they neither answer nor end."""
    for handle in filter(None, map(_handle, processes)):
        with contextlib.suppress(psutil.NoSuchProcess):
            handle.send_signal(signal.SIGCONT)


def stop(processes: Collection[Observed], *, grace: float) -> None:
    """Ask the processes to end, wait `grace` seconds, kill the rest. Returns when all are gone."""
    resume(processes)
    handles = [handle for process in processes if (handle := _handle(process))]
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for handle in handles:
            with contextlib.suppress(psutil.NoSuchProcess):
                handle.send_signal(signal_number)
        handles = _wait(handles, deadline=time.monotonic() + grace)
    if handles:
        pids = ", ".join(str(handle.pid) for handle in handles)
        raise HostError(
            f"the processes {pids} do not end, not even when killed",
            hint="Usually a disk does not answer; see `dmesg`",
        )


def _handle(process: Observed) -> psutil.Process | None:
    """Return a handle, unless the process is gone: its pid may be somebody else's by now."""
    try:
        handle = psutil.Process(process.pid)
        return handle if handle.create_time() == process.started else None
    except psutil.NoSuchProcess:
        return None


def _wait(handles: list[psutil.Process], *, deadline: float) -> list[psutil.Process]:
    """Return those that still run at the deadline."""
    while handles := [handle for handle in handles if not _is_gone(handle)]:
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    return handles


def _is_gone(handle: psutil.Process) -> bool:
    try:
        if handle.status() != psutil.STATUS_ZOMBIE:
            return False
        # It holds nothing any more. Collect it if it is our child; in a container whose first
        # process collects nothing, it stays what it is.
        with contextlib.suppress(psutil.TimeoutExpired):
            handle.wait(timeout=0)
    except psutil.NoSuchProcess:
        pass
    return True

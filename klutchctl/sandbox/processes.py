"""Recognises, starts and stops server processes, and chooses their loopback ports.

A process is ours if it is one of our programs, runs as this user, and names a file in the
sandbox's folder in its arguments; or if it has the mark of the sandbox in its environment, and
so have the processes that it started. There are no pid files: they lie after a crash, and pids
are used again.
"""

import contextlib
import errno
import os
import pwd
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from klutchctl.sandbox.servers import Owner, Program, Server
from klutchctl.sandbox.state import LOOPBACK, Layout
from reconciler.core.errors import ConfigError, HostError

_PROGRAMS: Final = frozenset(Program)
_POLL: Final = 0.05
# Nothing of the user's: etcd takes every ETCD_... variable as a flag, for one.
_ENVIRONMENT: Final = {"PATH": os.defpath}
# But for what Go reads alone, and which changes no answer: memory for CPU time. Tests set it.
_OF_GO: Final = ("GOGC", "GOMEMLIMIT")
_MARK: Final = "KLUTCHCTL_SANDBOX_PROCESS"
HEAD: Final = "KLUTCHCTL_SANDBOX_PID"  # of the process that was started; the launcher adds it
LEFT: Final = "left by "  # how the identity of what a process left begins
_UNPRIVILEGED: Final = ("postgres", "nobody")
_LAUNCHER: Final = Path(__file__).parent / "launcher.py"
# In the environment: from which ports a sandbox chooses, such as 21000-21999.
PORTS_VARIABLE: Final = "KLUTCHCTL_SANDBOX_PORTS"
_PORT_NUMBER: Final = re.compile("[0-9]{1,5}")
# Below the range that systems hand out to outgoing connections: a remembered port must still be
# free after a reboot.
USUAL_PORTS: Final = range(20000, 30000)
# Started by this process, and not collected yet.
_children: Final[dict[int, subprocess.Popen[bytes]]] = {}


@dataclass(frozen=True, slots=True)
class Observed:
    """A running process of a sandbox. `started` is in seconds since the epoch.

    `identity` and `digest` are those of the server in its mark, "" without one.
    """

    pid: int
    arguments: tuple[str, ...]
    started: float
    identity: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The servers to stop and then to start, so that exactly the wanted ones run."""

    stop: tuple[Observed, ...]
    start: tuple[Server, ...]


def decide(wanted: Sequence[Server], observed: Sequence[Observed]) -> Decision:
    """Compare the commands. Programs under another command, doubles and needless ones stop."""
    kept: set[int] = set()
    start: list[Server] = []
    for server in wanted:
        same = [process for process in observed if _is_same(server, process)]
        if len(same) == 1:
            kept.add(same[0].pid)
        else:
            start.append(server)
    unwanted = (process for process in observed if process.pid not in kept)
    return Decision(tuple(unwanted), tuple(start))


def _is_same(server: Server, process: Observed) -> bool:
    if server.launch is not None:
        return (process.identity, process.digest) == (server.identity, server.digest)
    return process.arguments == server.arguments


def running(server: Server, observed: Iterable[Observed]) -> Observed | None:
    """Return the process that is `server`, whatever its other arguments are."""
    for process in observed:
        if server.identity in process.arguments or server.identity == process.identity:
            return process
    return None


def identity(layout: Layout, name: str) -> str:
    """Return the identity of the process `name` of a sandbox that is known by its mark."""
    return f"{name} {layout.root}"


def observe(layout: Layout) -> tuple[Observed, ...]:
    """Return the processes of the sandbox that run now, zombies excluded.

    What a marked process started belongs to it as long as it runs; later it is shown as left.
    """
    owner = unprivileged_owner()
    users = {os.getuid(), *([owner.uid] if owner else [])}
    found = [seen for one in psutil.process_iter() if (seen := _seen(one, layout, users))]
    alive = {process.pid for _, process in found}
    return tuple(
        process if head == process.pid else replace(process, identity=f"{LEFT}{process.identity}")
        for head, process in found
        if head == process.pid or head not in alive
    )


def _seen(
    process: psutil.Process, layout: Layout, users: Collection[int]
) -> tuple[int, Observed] | None:
    """Return the process if it is one of the sandbox, and the pid of the one that it belongs to."""
    try:
        user, command = process.uids().real, process.cmdline()  # empty for a zombie
        if user not in users or not command:
            return None
        arguments, own = tuple(command[1:]), process.pid
        named = any(f"={layout.root}{os.sep}" in word for word in arguments)
        if named and Path(command[0]).name in _PROGRAMS and user == os.getuid():
            return own, Observed(own, arguments, process.create_time())
        environment = process.environ()
        digest, _, identity = environment.get(_MARK, "").partition(" ")
        if identity.partition(" ")[2] != str(layout.root):
            return None
        head = environment.get(HEAD, "")
        seen = Observed(own, arguments, process.create_time(), identity, digest)
        return int(head) if head.isdecimal() else own, seen
    except psutil.Error:
        return None  # gone since then, or not ours to look at


def start(server: Server, program: Path) -> None:
    """Start `server` detached, in a session of its own, with its output in its log."""
    if server.log.exists():
        server.log.replace(server.log.with_suffix(".log.previous"))
    command: tuple[str, ...] = (str(program), *server.arguments)
    environment = _environment()
    if server.launch is not None:
        environment = {**marked(server.identity, server.digest), **server.launch.environment}
        command = (*launcher(server.launch.folder, server.launch.owner), *command)
    try:
        with open(server.log, "ab", opener=partial(os.open, mode=0o600)) as log:
            child = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise HostError(
            f"{program} does not start: {error.strerror}",
            hint=f"If the file is damaged, delete {program.parent} and run the command again",
        ) from error
    _children[child.pid] = child


def marked(identity: str, digest: str = "") -> Mapping[str, str]:
    """Return the environment by which `observe` finds a process, and its children."""
    return {**_environment(), _MARK: f"{digest} {identity}"}


def _environment() -> Mapping[str, str]:
    return {**_ENVIRONMENT, **{name: os.environ[name] for name in _OF_GO if name in os.environ}}


def launcher(folder: Path, owner: Owner | None) -> tuple[str, ...]:
    """Return the words before a command that let it run in a folder, and as `owner`."""
    user = f"{owner.uid}:{owner.gid}" if owner else "-"
    return (sys.executable, "-I", "-S", str(_LAUNCHER), user, str(folder))


def finish(
    command: Sequence[str], environment: Mapping[str, str], subject: str, *, timeout: float
) -> None:
    """Run a program to its end. Raises HostError, with its last words, where it fails."""
    try:
        run = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{subject} has not ended after {timeout:.0f} s") from error
    if run.returncode != 0:
        ending = "".join(f"\n  {line}" for line in run.stdout.strip().splitlines()[-5:])
        raise HostError(f"{subject} failed with status {run.returncode}:{ending}")


def stop(
    processes: Collection[Observed],
    *,
    grace: float,
    goodbye: signal.Signals = signal.SIGTERM,
) -> None:
    """Ask the processes to end, wait `grace` seconds, kill the rest. Returns when all are gone."""
    handles = [handle for process in processes if (handle := _handle(process))]
    for signal_number in (goodbye, signal.SIGKILL):
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
    while handles := [handle for handle in handles if not _is_gone(handle)]:
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    return handles


def _is_gone(handle: psutil.Process) -> bool:
    child = _children.get(handle.pid)
    if child is not None and child.poll() is not None:
        _children.pop(handle.pid, None)
        return True
    try:
        # A zombie holds nothing any more, once its other threads have ended too. Its parent alone
        # may collect it; in a container whose first process collects nothing, it stays a zombie.
        return handle.status() == psutil.STATUS_ZOMBIE and handle.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True


def unprivileged_owner() -> Owner | None:
    """Return the user for programs that refuse to run as root.

    None where this user will do, or there is no other.
    """
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return Owner(user.pw_uid, user.pw_gid)
    return None


def port_range(text: str) -> range | None:
    """Return the ports of PORTS_VARIABLE, None for the usual ones. Raises ConfigError."""
    if not text:
        return None
    first, _, last = text.partition("-")
    if not all(_PORT_NUMBER.fullmatch(one) for one in (first, last)):
        raise ConfigError(f"{text!r} is not FIRST-LAST, such as 21000-21999", where=PORTS_VARIABLE)
    if not 1024 <= int(first) <= int(last) <= 65_535:
        raise ConfigError(f"{text!r} are no ports between 1024 and 65535", where=PORTS_VARIABLE)
    return range(int(first), int(last) + 1)


def free_ports(
    count: int, *, avoid: Collection[int] = (), within: range | None = None
) -> list[int]:
    """Return `count` different ports that nobody listens on now. Raises HostError."""
    within = USUAL_PORTS if within is None else within
    candidates = random.sample(within, len(within))
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in candidates:
            if len(ports) == count:
                break
            if port not in avoid and _listens(port, stack):
                ports.append(port)
    if len(ports) < count:
        raise HostError(
            f"no free port between {within[0]} and {within[-1]} on {LOOPBACK}",
            hint="Stop what listens there; `klutchctl sandbox down --name NAME` stops a sandbox",
        )
    return ports


def is_port_free(port: int) -> bool:
    """Return whether a server could listen on `port` now."""
    with contextlib.ExitStack() as stack:
        return _listens(port, stack)


def taken_ports(ports: Collection[int], *, grace: float) -> Mapping[int, str]:
    """Return the ports where no server could listen, and by which process each is held.

    A process that was killed keeps its ports for a moment after it is no longer observed: the
    kernel takes its command line first, then 200 MiB of memory, and its sockets last. So ports of
    no process that runs get `grace` seconds to become free.
    """
    deadline = time.monotonic() + grace
    while taken := [port for port in ports if not is_port_free(port)]:
        holders = {port: port_holder(port) for port in taken}
        if any(holders.values()) or time.monotonic() > deadline:
            return {port: holder or "another program" for port, holder in holders.items()}
        time.sleep(_POLL)
    return {}


def port_holder(port: int) -> str | None:
    """Return the process that runs and listens on `port`, as far as this user may see."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return None
    for connection in connections:
        if connection.status != psutil.CONN_LISTEN or connection.laddr[1:] != (port,):
            continue
        if connection.pid is not None:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(connection.pid)
                if process.cmdline():  # empty for a process that is ending
                    return f"{process.name()} (pid {connection.pid})"
    return None


def _listens(port: int, stack: contextlib.ExitStack) -> bool:
    listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    # As servers do: connections of a server that is gone do not keep its port.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return False
        raise
    return True

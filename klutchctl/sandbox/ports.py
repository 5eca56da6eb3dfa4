"""Loopback ports: which are free, and who holds one that is not."""

import errno
import random
import re
import socket
from collections.abc import Collection
from contextlib import ExitStack
from typing import Final

import psutil

from reconciler.core.errors import ConfigError, HostError

# In the environment: from which ports a sandbox chooses, such as 21000-21999.
VARIABLE: Final = "KLUTCHCTL_SANDBOX_PORTS"
_NUMBER: Final = re.compile("[0-9]{1,5}")
_LOOPBACK: Final = "127.0.0.1"
# Below the range that systems hand out to outgoing connections: a remembered port must still be
# free after a reboot.
_RANGE: Final = range(20000, 30000)


def chosen(said: str) -> range | None:
    """Return the ports that VARIABLE says, None for the usual ones. Raises ConfigError."""
    if not said:
        return None
    first, _, last = said.partition("-")
    if not all(_NUMBER.fullmatch(one) for one in (first, last)):
        raise ConfigError(f"{said!r} is not FIRST-LAST, such as 21000-21999", where=VARIABLE)
    if not 1024 <= int(first) <= int(last) <= 65_535:
        raise ConfigError(f"{said!r} are no ports between 1024 and 65535", where=VARIABLE)
    return range(int(first), int(last) + 1)


def free(count: int, *, avoid: Collection[int] = (), within: range | None = None) -> list[int]:
    """Return `count` different ports that nobody listens on now. Raises HostError."""
    within = _RANGE if within is None else within
    candidates = random.sample(within, len(within))
    ports: list[int] = []
    with ExitStack() as held:
        for port in candidates:
            if len(ports) == count:
                break
            if port not in avoid and _claim(port, held):
                ports.append(port)
    if len(ports) < count:
        raise HostError(
            f"no free port between {within[0]} and {within[-1]} on {_LOOPBACK}",
            hint="Stop what listens there; `klutchctl sandbox down --name NAME` stops a sandbox",
        )
    return ports


def is_free(port: int) -> bool:
    """Tell whether a server could listen on `port` now."""
    with ExitStack() as held:
        return _claim(port, held)


def holder(port: int) -> str:
    """Return the process that listens on `port`, as far as this user may see: for people."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        connections = []
    for connection in connections:
        if connection.status != psutil.CONN_LISTEN or connection.laddr[1:] != (port,):
            continue
        if connection.pid is not None:
            try:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
            except psutil.Error:
                return f"pid {connection.pid}"
    return "another program"


def _claim(port: int, held: ExitStack) -> bool:
    listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    # As servers do: connections of a server that is gone do not keep its port.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_LOOPBACK, port))
        listener.listen()
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return False
        raise
    return True

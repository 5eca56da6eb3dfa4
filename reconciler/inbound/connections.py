"""Connections that are open: what each is at, for how long, and which goes for another."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final

from reconciler.inbound.messages import Limits


class Phase(IntEnum):
    """What a connection is at, in the order in which it may be cut for another one."""

    HANDSHAKE = 0
    HEAD = 1
    BODY = 2
    TAKE = 3  # the client receives an answer
    ANSWER = 4  # a handler is at work, which is bounded elsewhere, and never cut


class Connection:
    """One accepted connection, which is cut when a phase takes too long."""

    def __init__(self, open_ones: "Connections", peer: str) -> None:
        self._open, self.peer = open_ones, peer
        self.phase = Phase.HANDSHAKE
        self._timer: asyncio.TimerHandle | None = None
        self._cut: Callable[[], object] = _nothing
        self._on_close: Callable[[], object] = _nothing

    def enter(self, phase: Phase) -> None:
        """Begin a phase, and its time."""
        self.phase = phase
        if self._timer is not None:
            self._timer.cancel()
        seconds = self._open.times.get(phase) if self in self._open else None
        loop = asyncio.get_running_loop()
        self._timer = None if seconds is None else loop.call_later(seconds, self.cut)

    def start(self, cut: Callable[[], object]) -> None:
        """Begin with what ends it for as long as no protocol has it."""
        self._cut = cut
        self.enter(Phase.HANDSHAKE)

    def cut_by(self, cut: Callable[[], object]) -> None:
        """Set what cuts the connection from now on."""
        self._cut = cut

    def on_close(self, call: Callable[[], object] | None) -> None:
        """Set what is called when the connection has ended; None for nothing."""
        self._on_close = call or _nothing

    def cut(self) -> None:
        """End the connection at once: what was not sent yet never is."""
        self._cut()

    def close(self) -> None:
        """Forget the connection, which has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._open.discard(self)
        self._on_close()


class Connections:
    """All that are open, at most `limits.connections`."""

    def __init__(self, limits: Limits) -> None:
        self._most = limits.connections
        self.times: Final[Mapping[Phase, float]] = {
            Phase.HANDSHAKE: limits.head_time,
            # The HTTP protocol closes connections that wait for a head in a more friendly way.
            Phase.HEAD: limits.head_time + 0.5,
            # A body that comes too slowly is answered first.
            Phase.BODY: limits.body_time + 0.5,
            Phase.TAKE: limits.take_time,
        }
        self._open: dict[Connection, None] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._open

    def admit(self, peer: str) -> Connection | None:
        """Take a new connection in, in place of another one where there are too many.

        Of those that may be cut, it is the oldest of the peer that has most of them. None where a
        handler is at work for each.
        """
        if len(self._open) >= self._most:
            victim = self._victim()
            if victim is None:
                return None
            victim.cut()
            victim.close()
        connection = Connection(self, peer)
        self._open[connection] = None
        return connection

    def discard(self, connection: Connection) -> None:
        """Forget a connection."""
        self._open.pop(connection, None)

    def cut_all(self, *, idle: bool = False) -> None:
        """Cut all of them; or those alone that wait for a request."""
        for connection in list(self._open):
            if not idle or connection.phase in (Phase.HANDSHAKE, Phase.HEAD):
                connection.cut()

    def _victim(self) -> Connection | None:
        able = [one for one in self._open if one.phase is not Phase.ANSWER]
        held = Counter(one.peer for one in able)
        return max(
            able, key=lambda one: (held[one.peer], -one.phase), default=None
        )  # the first of equals: the oldest


def _nothing() -> None:
    """Do nothing: there is no socket yet, or nothing to end."""

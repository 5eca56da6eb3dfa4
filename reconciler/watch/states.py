"""Publishes the state of a fleet to what shows it: each sees the newest one, at its own speed."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from reconciler.watch.fleet_state import FleetState

Listener: TypeAlias = Callable[[FleetState, FleetState], None]  # before, after


class States:
    """The present state. Use within one event loop.

    A subscriber of `next` that is slow skips what came between; nobody waits for it. Listeners are
    called at once for each state, and must be quick.
    """

    def __init__(self, first: FleetState) -> None:
        self._state, self._version = first, 0
        self._changed = asyncio.Event()
        self._listeners: list[Listener] = []

    @property
    def now(self) -> FleetState:
        """Return the newest state. May be read from any thread."""
        return self._state

    @property
    def version(self) -> int:
        """Return the number of the newest state, from 0."""
        return self._version

    def listen(self, listener: Listener) -> None:
        """Call `listener` with the state before and after, from now on."""
        self._listeners.append(listener)

    def put(self, state: FleetState) -> None:
        """Publish another state."""
        before, self._state = self._state, state
        self._version += 1
        for listener in self._listeners:
            listener(before, state)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def next(self, version: int) -> tuple[int, FleetState]:
        """Wait for a state after `version`, and return its number and it. May be cancelled."""
        while self._version <= version:
            await self._changed.wait()
        return self._version, self._state

"""Publishes the state of a fleet to what shows it: each sees the newest one, at its own speed."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from reconciler.core import errors
from reconciler.watch.fleet_state import FleetState

log = logging.getLogger(__name__)

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

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the state before and after, from now on; return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def put(self, state: FleetState) -> None:
        """Publish another state. A listener with a defect is in nobody's way."""
        before, self._state = self._state, state
        self._version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for listener in list(self._listeners):
            try:
                listener(before, state)
            except Exception as error:
                place = {"where": errors.origin(error), "error": type(error).__name__}
                log.error("a listener of the fleet's state has a defect", extra=place)

    async def next(self, version: int) -> tuple[int, FleetState]:
        """Wait for a state after `version`, and return its number and it. May be cancelled."""
        while self._version <= version:
            await self._changed.wait()
        return self._version, self._state

"""Sends messages: each sink has a queue of its own, so that one that hangs delays nothing."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from reconciler.controller.tasks import Clock
from reconciler.core.errors import ConfigError
from reconciler.outbound.http import Http, OutboundError
from reconciler.watch.fleet_state import FleetState
from reconciler.watch.notify import calls
from reconciler.watch.notify.calls import Fault
from reconciler.watch.notify.messages import Message, messages
from reconciler.watch.notify.sinks_file import Sink, secret_fault
from reconciler.watch.states import States

_log = logging.getLogger(__name__)
Counted: TypeAlias = Callable[[str, str], None]  # the name of a sink; sent, failed, ...

_PAUSES: Final = (2.0, 15.0)  # seconds between three tries
_TIMEOUT: Final = 10.0
_WAITING: Final = 100  # commits, of which a queue holds the newest message each


class Notifier:
    """Reports state changes to all sinks.

    `counted` gets what became of each message at each sink: sent, failed (after its tries),
    replaced (by a newer one about its commit), dropped (the queue was full).
    """

    def __init__(self, sinks: Iterable[Sink], clock: Clock, counted: Counted) -> None:
        self._outboxes = [_Outbox(sink, clock, counted) for sink in sinks]

    async def run(self, states: States) -> None:
        """Report how it is now, and all that changes, until this is cancelled."""
        self._changed(FleetState(name=states.now.name), states.now)
        stop_listening = states.listen(self._changed)
        try:
            async with asyncio.TaskGroup() as group:
                for outbox in self._outboxes:
                    group.create_task(outbox.run())
        finally:
            stop_listening()

    def _changed(self, before: FleetState, after: FleetState) -> None:
        for message in messages(before, after):
            for outbox in self._outboxes:
                outbox.put(message)


class _Outbox:
    """What waits for one sink, by commit, and what sends it."""

    def __init__(self, sink: Sink, clock: Clock, counted: Counted) -> None:
        self._sink, self._clock, self._counted = sink, clock, counted
        self._waiting: dict[str, Message] = {}  # the oldest first
        self._filled = asyncio.Event()

    def put(self, message: Message) -> None:
        """Have a message sent, in place of an older one about its commit."""
        older = self._waiting.pop(message.commit, None)
        if older is not None:
            self._count("replaced")
        if message.phase not in self._sink.phases or not calls.concerns(self._sink.target, message):
            return
        self._waiting[message.commit] = message
        self._filled.set()
        if len(self._waiting) > _WAITING:
            del self._waiting[next(iter(self._waiting))]
            self._count("dropped")

    async def run(self) -> None:
        """Send what is put in, one after the other."""
        while True:
            await self._filled.wait()
            while self._waiting:
                commit = next(iter(self._waiting))
                await self._send(self._waiting.pop(commit))
            self._filled.clear()

    async def _send(self, message: Message) -> None:
        message_id = f"msg_{os.urandom(16).hex()}"  # the same in all tries, so that one counts
        fault = await self._try(message, message_id)
        for pause in _PAUSES:
            if fault is None or not fault.again:
                break
            await self._clock.sleep(pause)
            if message.commit in self._waiting:
                self._count("replaced")
                return
            fault = await self._try(message, message_id)
        if fault is not None:
            fields = {"sink": self._sink.name, "reason": fault.problem}
            _log.warning("a notification could not be sent", extra=fields)
        self._count("sent" if fault is None else "failed")

    async def _try(self, message: Message, message_id: str) -> Fault | None:
        """Send a message once, with the secret as it is now, and return why it did not arrive.

        No URL gets into a text: that of a chat is its secret.
        """
        target = self._sink.target
        try:
            secret = self._sink.secret()
            if fault := secret_fault(target, secret):
                return Fault(fault, again=False)
            now = self._clock.now()
            call = calls.call_of(target, message, secret, message_id=message_id, now=now)
            async with Http(ca_file=self._sink.ca_file, timeout=_TIMEOUT, trust_env=True) as http:
                answer = await http.post(call.url, body=call.body, headers=call.headers)
        except OutboundError as error:
            return Fault(error.problem, again=True)
        except ConfigError as error:
            return Fault(error.message, again=False)
        return calls.fault_of(target, answer.status, answer.body)

    def _count(self, result: str) -> None:
        self._counted(self._sink.name, result)

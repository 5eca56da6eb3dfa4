"""Sends messages: each sink has its own queue, so a slow one delays no other."""

import asyncio
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias
from urllib.parse import quote

from reconciler.controller.tasks import Clock, gather_or_cancel
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.watch.fleet_state import FleetState
from reconciler.watch.loop import States
from reconciler.watch.notify.messages import Message, Phase, messages
from reconciler.watch.notify.sinks_file import (
    CommitStatus,
    Sink,
    Slack,
    Target,
    Webhook,
    secret_fault,
)
from reconciler.web import standard_webhooks
from reconciler.web.outbound import Http, OutboundError

_COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT: Final = 12  # characters of a commit, for people
_DESCRIPTION: Final = 140  # characters of a commit status: GitHub refuses more
_SUCCESS: Final = range(200, 300)
_REDIRECT: Final = range(300, 400)
_AGAIN: Final = frozenset({408, 425, 429})
# GitLab's answer where the status is so already: pending and pending.
_SAME: Final = b"Cannot transition status"


@dataclass(frozen=True, slots=True)
class Call:
    """A POST. The URL may be a secret."""

    url: str = field(repr=False)
    body: bytes
    headers: Mapping[str, str | Secret]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a message did not arrive, and whether another try may help."""

    problem: str
    again: bool


def concerns(target: Target, message: Message) -> bool:
    """Return whether a target can be given a message: a commit status needs a commit."""
    return not isinstance(target, CommitStatus) or bool(_COMMIT.fullmatch(message.commit))


def call_of(
    target: Target, message: Message, secret: Secret, *, message_id: str, now: datetime
) -> Call:
    """Return how a message is sent; `secret` fits the target (`sinks_file.secret_fault`)."""
    headers: dict[str, str | Secret] = {"Content-Type": "application/json"}
    match target:
        case CommitStatus():
            url = _status_url(target, message.commit)
            headers |= _authorization(target, secret)
            return Call(url, _json(_status(target, message)), headers)
        case Slack():
            return Call(secret.reveal(), _json({"text": _sentence(message)}), headers)
        case Webhook():
            body = _json(_event(message, now))
            headers |= standard_webhooks.headers(secret, message_id, body, now)
            return Call(target.url, body, headers)


def fault_of(target: Target, status: int, body: bytes) -> Fault | None:
    """Return why an answer means that a message did not arrive; None if it did."""
    if status in _SUCCESS:
        return None
    if isinstance(target, CommitStatus) and target.provider == "gitlab" and _SAME in body:
        return None
    if status in _REDIRECT:
        return Fault(f"answers {status}: redirects are not followed", again=False)
    return Fault(f"answers {status}", again=status in _AGAIN or status >= 500)


def _status_url(target: CommitStatus, commit: str) -> str:
    if target.provider == "gitlab":
        return f"{target.base}/projects/{quote(target.repository, safe='')}/statuses/{commit}"
    return f"{target.base}/repos/{target.repository}/statuses/{commit}"


def _authorization(target: CommitStatus, secret: Secret) -> dict[str, str | Secret]:
    match target.provider:
        case "gitlab":
            return {"PRIVATE-TOKEN": secret}
        case "gitea":
            return {"Authorization": Secret(f"token {secret.reveal()}")}
        case "github":
            return {
                "Authorization": Secret(f"Bearer {secret.reveal()}"),
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": "2022-11-28",
            }


def _status(target: CommitStatus, message: Message) -> dict[str, str]:
    failed = target.provider == "gitlab" and message.phase is Phase.FAILURE
    state = "failed" if failed else message.phase.value
    description = ": ".join(filter(None, (message.title, message.detail if target.detail else "")))
    if len(description) > _DESCRIPTION:
        description = f"{description[: _DESCRIPTION - 3].rstrip()}..."
    return {"state": state, "context": message.context, "description": description}


def _sentence(message: Message) -> str:
    """Return the text for a chat: as code, no name is a link or calls anybody."""
    commit = f"commit {message.commit[:_SHORT]}" if message.commit else ""
    detail = message.detail and "`" + message.detail.replace("`", "'") + "`"
    text = ": ".join(filter(None, (message.fleet, commit, message.title, detail)))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _event(message: Message, now: datetime) -> dict[str, object]:
    data = {
        "fleet": message.fleet,
        "context": message.context,
        "commit": message.commit,
        "state": message.phase.value,
        "reason": message.reason.value,
        "title": message.title,
        "detail": message.detail,
    }
    return {"type": "klutchctl.commit", "timestamp": now.isoformat(), "data": data}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


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
            await gather_or_cancel(outbox.run() for outbox in self._outboxes)
        finally:
            stop_listening()

    def _changed(self, before: FleetState, after: FleetState) -> None:
        for message in messages(before, after):
            for outbox in self._outboxes:
                outbox.put(message)


class _Outbox:
    """The messages for a sink, by commit, and their sender."""

    def __init__(self, sink: Sink, clock: Clock, counted: Counted) -> None:
        self._sink, self._clock, self._counted = sink, clock, counted
        self._waiting: dict[str, Message] = {}  # the oldest first
        self._filled = asyncio.Event()

    def put(self, message: Message) -> None:
        """Have a message sent, in place of an older one about its commit."""
        if self._waiting.pop(message.commit, None) is not None:
            self._count("replaced")
        if message.phase not in self._sink.phases or not concerns(self._sink.target, message):
            return
        self._waiting[message.commit] = message
        self._filled.set()
        if len(self._waiting) > _WAITING:
            del self._waiting[next(iter(self._waiting))]
            self._count("dropped")

    async def run(self) -> None:
        """Send the queued messages, one after the other."""
        while True:
            await self._filled.wait()
            while self._waiting:
                await self._send(self._waiting.pop(next(iter(self._waiting))))
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
            call = call_of(target, message, secret, message_id=message_id, now=self._clock.now())
            async with Http(ca_file=self._sink.ca_file, timeout=_TIMEOUT, trust_env=True) as http:
                answer = await http.post(call.url, body=call.body, headers=call.headers)
        except OutboundError as error:
            return Fault(error.problem, again=True)
        except ConfigError as error:
            return Fault(error.message, again=False)
        return fault_of(target, answer.status, answer.body)

    def _count(self, result: str) -> None:
        self._counted(self._sink.name, result)

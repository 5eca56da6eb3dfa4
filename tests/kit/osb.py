"""Scripted brokers where the product's client looks for real ones: no sockets, and any clock.

All of the client runs but for its HTTP. A call passes the same faults as writes to clusters do, so
that one cue counts both, and a process dies once for all: `deeds()` are writes and what changes
something at a broker.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import pytest

from reconciler.broker import client
from reconciler.core.refs import Kind, Ref
from reconciler.core.secret import Secret
from reconciler.kube.requests import Request, Verb
from reconciler.web.outbound import Answer, OutboundError
from tests.support import osb_wire
from tests.support.cues import AFTER, BEFORE
from tests.support.faults import Faults
from tests.support.osb_backup_manager import BackupManager
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_wire import failure

BROKER_CALL: Final = Kind("broker", "v2", "Call", "calls")
_VERBS: Final[dict[str, Verb]] = {
    "PUT": "create",
    "PATCH": "patch",
    "POST": "create",
    "DELETE": "delete",
}


@dataclass
class BrokerWires:
    """The brokers that can be reached, by their URL, and what befalls calls to them."""

    brokers: dict[str, ScriptedBroker | BackupManager] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)

    @contextlib.contextmanager
    def plugged(self) -> Iterator[None]:
        """Let all clients that are made meanwhile reach these brokers, and nothing else."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "Http", self._http)
            yield

    def _http(self, *, timeout: float, most: int, **_: Any) -> "ModelHttp":
        return ModelHttp(self, timeout, most)

    def at(self, url: str) -> tuple[ScriptedBroker | BackupManager, str]:
        """Return the broker of a URL, and the target there. Raises OutboundError."""
        for base, broker in self.brokers.items():
            if url.startswith(f"{base}/"):
                return broker, url.removeprefix(base)
        raise OutboundError(url, "no connection: Connection refused")


@dataclass
class ModelHttp:
    """What Http is to a server, to a scripted broker. Silence lasts for `timeout` of the loop."""

    wires: BrokerWires
    timeout: float
    most: int

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str | Secret],
        most: int | None = None,
    ) -> Answer:
        """Return the answer. Raises OutboundError, SimulatedCrash for a process that dies."""
        broker, target = self.wires.at(url)
        plain = {
            key: value.reveal() if isinstance(value, Secret) else value
            for key, value in headers.items()
        }
        asked = osb_wire.asked(method, target, plain, body or b"")
        about = target if asked is None else asked.instance
        ref = Ref("broker", BROKER_CALL, "", about)  # faults know a call by the instance
        noted = Request(_VERBS.get(method, "get"), ref, method, target)
        faults = self.wires.faults
        due = faults.enter(noted)
        await faults.pass_point(BEFORE, noted, due)
        await asyncio.sleep(0)  # others may come first, as on a network
        if isinstance(broker, BackupManager):
            async with broker.exchanged(method, target, plain, body or b"") as said:
                reply = said
        else:
            reply = failure(404) if asked is None else broker.answer(asked)
        await faults.pass_point(AFTER, noted, due)
        match reply.way:
            case "hang":
                await asyncio.sleep(self.timeout)
                raise OutboundError(url, f"no answer in {self.timeout:g} s", sent=True)
            case "cut":
                raise OutboundError(url, "the connection was cut before the answer", sent=True)
            case "endless":
                problem = f"the answer is larger than {(most or self.most) // 1024} KiB"
                raise OutboundError(url, problem, status=reply.status, sent=True)
        lowered = {name.lower(): value for name, value in reply.headers.items()}
        return Answer(reply.status, reply.body, lowered)

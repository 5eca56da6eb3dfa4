"""Scripted brokers where the product's client looks for real ones: no sockets, and any clock.

A call passes the same faults as writes to clusters do, so that one cue counts both, and a process
dies once for all: `deeds()` are writes and what changes something at a broker.
"""

import asyncio
from typing import Final

from reconciler.blueprints.offering import answers, messages
from reconciler.blueprints.offering.messages import Call, HttpRequest, OriginatingIdentity
from reconciler.blueprints.offering.outcomes import Outcome, Unknown
from reconciler.core.refs import Kind, Ref
from reconciler.kube.requests import Request, Verb
from tests.support import osb_wire
from tests.support.cues import AFTER, BEFORE
from tests.support.faults import Faults
from tests.support.osb_broker import ScriptedBroker

BROKER_CALL: Final = Kind("broker", "v2", "Call", "calls")
_VERBS: Final[dict[str, Verb]] = {"PUT": "create", "PATCH": "patch", "DELETE": "delete"}
_MOST_OCTETS: Final = 2**20


class DirectBroker:
    """What the product's client is to a broker, to a scripted one.

    `timeout` is how long, in seconds of the loop, an answer is waited for that does not come.
    """

    def __init__(
        self,
        broker: ScriptedBroker,
        *,
        faults: Faults | None = None,
        api_version: str = "2.17",
        timeout: float = 60.0,
    ) -> None:
        self.broker, self.faults = broker, faults or Faults()
        self._api_version, self._timeout = api_version, timeout

    async def call(self, call: Call, *, identity: OriginatingIdentity | None) -> Outcome:
        """Return what a call comes to. Raises SimulatedCrash for a process that dies there."""
        request = messages.http_request(call, api_version=self._api_version)
        noted = _noted(request, call)
        due = self.faults.enter(noted)
        await self.faults.pass_point(BEFORE, noted, due)
        await asyncio.sleep(0)  # others may come first, as on a network
        reply = self.broker.answer(self._asked(request, identity))
        await self.faults.pass_point(AFTER, noted, due)
        match reply.way:
            case "hang":
                await asyncio.sleep(self._timeout)
                return Unknown(f"no answer in {self._timeout:g} s")
            case "cut":
                return Unknown("the connection was cut before the answer")
            case "endless":
                return answers.unreadable(call, reply.status, f"more than {_MOST_OCTETS} octets")
        headers = {name.lower(): value for name, value in reply.headers.items()}
        return answers.outcome(call, reply.status, headers, reply.body)

    def _asked(self, request: HttpRequest, identity: OriginatingIdentity | None) -> osb_wire.Asked:
        headers = {
            "Authorization": f"Bearer {self.broker.password}",
            "X-Broker-API-Version": self._api_version,
            "X-Broker-API-Request-Identity": "in process",
        }
        if identity is not None:
            headers["X-Broker-API-Originating-Identity"] = identity.header()
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        found = osb_wire.asked(request.method, request.path, headers, request.body or b"")
        assert found is not None, request.path
        return found


def _noted(request: HttpRequest, call: Call) -> Request:
    """Return a call as faults know calls: about the instance, by name."""
    ref = Ref("broker", BROKER_CALL, "", getattr(call, "instance", ""))
    return Request(_VERBS.get(request.method, "get"), ref, request.method, request.path)

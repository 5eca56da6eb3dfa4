"""Requests as a platform makes them that keeps all rules; tests break one at a time."""

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

from tests.support import osb_wire
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_wire import Asked, Members, Said

INSTANCE, BINDING = "instance-1", "binding-1"
CONTEXT: Members = {
    "platform": "kubernetes",
    "namespace": "shop",
    "clusterid": "c1",
    "instance_name": "orders",
}
IDENTITY = "kubernetes " + base64.b64encode(b'{"username":"a","uid":"1","groups":[]}').decode()


class Platform:
    """Asks a broker. `breaking` changes each request before it is sent."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.breaking: Callable[[Members], object] = lambda request: None
        offering = broker.catalogue["services"][0]
        self.service, self.plan = offering["id"], offering["plans"][0]["id"]
        self.other_plan = offering["plans"][-1]["id"]

    def ask(
        self,
        method: str,
        instance: str = INSTANCE,
        binding: str = "",
        *,
        poll: bool = False,
        body: Members | None = None,
        **query: str,
    ) -> Members:
        """Return what the broker answers, with its status."""
        request = self._request(method, instance, binding, poll, body, query)
        self.breaking(request)
        said = self.broker.answer(_asked(request))
        return {"status": said.status, "way": said.way, **_members(said)}

    def _request(
        self,
        method: str,
        instance: str,
        binding: str,
        poll: bool,
        body: Members | None,
        query: dict[str, str],
    ) -> Members:
        ids = {"service_id": self.service, "plan_id": self.plan}
        pair = base64.b64encode(f"{self.broker.user}:{self.broker.password}".encode()).decode()
        bound = f"/service_bindings/{quote(binding, safe='')}" if binding else ""
        is_mutating = method != "GET"
        return {
            "method": method,
            "path": f"/v2/service_instances/{instance}{bound}" + "/last_operation" * poll,
            "query": {
                **({"accepts_incomplete": "true"} if is_mutating else {}),
                **({} if method in ("PUT", "PATCH") else ids),
                **query,
            },
            "headers": {
                "Authorization": f"Basic {pair}",
                "X-Broker-API-Version": "2.17",
                "X-Broker-API-Request-Identity": "r1",
                "X-Broker-API-Originating-Identity": IDENTITY,
                **({"Content-Type": "application/json"} if body is not None else {}),
            },
            "body": body,
        }

    def provision(self, instance: str = INSTANCE, **more: Any) -> Members:
        body = {
            "service_id": self.service,
            "plan_id": self.plan,
            "organization_guid": "c1",
            "space_guid": "s1",
            "context": CONTEXT,
            **more,
        }
        return self.ask("PUT", instance, body=body)

    def update(self, **more: Any) -> Members:
        previous = {"previous_values": {"plan_id": self.plan}}
        body = {"service_id": self.service, **previous, "context": CONTEXT, **more}
        return self.ask("PATCH", body=body)

    def bind(self, binding: str = BINDING, **more: Any) -> Members:
        ids = {"service_id": self.service, "plan_id": self.plan}
        app = {} if "predecessor_binding_id" in more else {"bind_resource": {"app_guid": "s1"}}
        return self.ask("PUT", binding=binding, body={**ids, **app, "context": CONTEXT, **more})


def _asked(request: Members) -> Asked:
    query = urlencode(request["query"])
    body = b"" if request["body"] is None else json.dumps(request["body"]).encode()
    found = osb_wire.asked(
        request["method"], f"{request['path']}?{query}", request["headers"], body
    )
    assert found is not None, request["path"]
    return found


def _members(said: Said) -> Members:
    try:
        found: Members = json.loads(said.body)
    except ValueError:
        return {"broken": said.body}
    return found

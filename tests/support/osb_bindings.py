"""Bindings of one instance, decided about as klutch-osb does, without API server and sockets.

world = World()
world.claim("orders", rotation={"every": "720h"})
world.run(hours=1)
assert world.logs_in("orders") and world.broker.violations == []
"""

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from bind.osb.decisions import record as records_of
from bind.osb.decisions.record import Record
from bind.osb.decisions.turn import Part
from reconciler.api.osb import BROKER_RECORD
from reconciler.core import keys, manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, Kind
from reconciler.core.times import format_time
from tests.support import osb_catalogues, osb_wire
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_turns import BINDING_KIND, GROUP, INSTANCE_KIND, OSB, SPACE, Turns

_MOST_LOOKS = 3000  # that a run may take


def catalogue(*, rotatable: bool = True, **more: Any) -> osb_wire.Members:
    plan = osb_catalogues.plan("small", rotatable=rotatable)
    more = {"instances_retrievable": False, **more}
    return osb_catalogues.catalogue(osb_catalogues.offering(plans=[plan], **more))


class World(Turns):
    """An instance that is there, and turns of its bindings."""

    def __init__(self, offered: osb_wire.Members | None = None) -> None:
        super().__init__(ScriptedBroker(offered or catalogue()))
        service = self.broker.catalogue["services"][0]
        self.service, self.plan = service["id"], service["plans"][0]["id"]
        body: Manifest = {
            "metadata": {"finalizers": [keys.OSB]},
            "spec": {"plan": "small"},
            "status": {"conditions": [{"type": "Provisioned", "status": "True"}]},
        }
        self.instance = self.objects.create(self.at(), body)["metadata"]["uid"]
        members = {"service_id": self.service, "plan_id": self.plan, "state": "present"}
        self.broker.inventory.put((self.instance, ""), members)
        known = Record(
            self.instance,
            "acme",
            records_of.INSTANCE,
            self.instance,
            self.service,
            self.plan,
            records_of.Claim(GROUP, INSTANCE_KIND.kind, SPACE, "orders", self.instance),
            records_of.PRESENT,
            sent=records_of.Sent(self.plan, records_of.digest_of(self.instance, {})),
        )
        made = records_of.created(known, OSB).manifest
        self.objects.create(self.at(BROKER_RECORD, self.instance), made)

    def serves(self, part: Part) -> bool:
        return part.binding is not None

    def lose_instance(self) -> None:
        """Let the broker lose the instance, with its bindings, and the program make it anew."""
        place = self.instance, ""
        known = dict(self.broker.inventory.instances[self.instance])
        self.broker.inventory.lose(place)
        self.broker.inventory.put(place, known)
        made_at = {"madeAt": format_time(self.now)}
        self.edit(BROKER_RECORD, self.instance, lambda live: live["spec"].update(made_at))

    def claim(self, name: str = "web", **spec: Any) -> dict[str, Any]:
        body: Manifest = {"metadata": {"name": name}, "spec": {"instanceRef": "orders", **spec}}
        return self.put(BINDING_KIND, body)

    def put(self, kind: Kind, body: Manifest) -> dict[str, Any]:
        return self.objects.create(self.at(kind, manifest.name_of(body)), body)

    def edit(self, kind: Kind, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        self.objects.edit(self.at(kind, name), change)

    def delete(self, kind: Kind, name: str) -> None:
        self.objects.delete(self.at(kind, name))

    def records(self, kind: str = records_of.BINDING) -> list[Record]:
        return super().records(kind)

    def secret(self, name: str = "web-creds") -> dict[str, str]:
        """Return what a Secret holds, {} where there is none."""
        live = self.live(SECRET, name)
        data = live["data"] if live is not None else {}
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def logs_in(self, name: str = "web") -> bool:
        """Return whether the credentials of a claim's Secret are taken by the broker's service."""
        return self.broker.log_in(self.secret(f"{name}-creds"))

    def condition(self, condition_type: str, name: str = "web") -> tuple[str, str]:
        """Return status and reason of a claim's condition."""
        live = self.live(BINDING_KIND, name)
        for one in manifest.get_maps(live, "status", "conditions"):
            if one["type"] == condition_type:
                return manifest.get_text(one, "status"), manifest.get_text(one, "reason")
        return "", ""

    def status(self, field: str, name: str = "web") -> Any:
        return manifest.get(self.live(BINDING_KIND, name), "status", field)

    def run(self, **span: float) -> None:
        """Look again and again, whenever that is due, for so long by the clock."""
        end = self.now + timedelta(**span)
        for _ in range(_MOST_LOOKS):
            again = self.turn()
            if again is None or self.now + again > end:
                self.now = max(end, self.now)
                return
            self.now += again
        raise AssertionError(f"looks again and again: {self.events[-5:]}")


def claimed(offered: osb_wire.Members | None = None, **span: float) -> World:
    """Return a world with a claim, after so long."""
    world = World(offered)
    world.claim()
    world.run(**span)
    return world

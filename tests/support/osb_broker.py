"""An Open Service Broker without sockets: requests in, answers out, strict about its platform.

    broker = ScriptedBroker()
    broker.modes.asynchronous = frozenset({"provision", "bind"})
    broker.faults.add("provision", osb_faults.hangs(processed=True), times=1)
    assert broker.violations == [] and broker.inventory.doubles == []

osb_script.py serves it over HTTP, osb_in_process.py to a client of the product's.
"""

import base64
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.support import osb_catalogues, osb_inventory, osb_rules
from tests.support.osb_faults import Faults
from tests.support.osb_inventory import Inventory, Modes
from tests.support.osb_operations import Operations
from tests.support.osb_wire import Asked, Entry, Members, Said, failure, said


class ScriptedBroker:
    """A broker's state, what it was asked, and what of that its platform should not have asked.

    All attributes may be changed at any time, by any thread. `now` is its clock, in seconds since
    1970.
    """

    def __init__(
        self, catalogue: Members | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        self.catalogue = catalogue or osb_catalogues.catalogue()
        self.user, self.password = "platform", secrets.token_urlsafe(12)
        self.now, self.modes, self.faults = now, Modes(), Faults()
        self.inventory = Inventory()
        self.journal: list[Entry] = []
        self.violations: list[str] = []
        self.lies: set[object] = set()  # passwords that it gave, of what is not made
        self._operations = Operations(self.inventory, lambda: self.modes, lambda: self.now())
        self._lock = threading.RLock()

    # What tests ask.

    def log_in(self, found: Mapping[str, Any]) -> bool:
        """Return whether credentials are those of a binding that lives."""
        pair = found.get("username"), found.get("password")
        now = self.now()
        return any(
            pair == (one["credentials"]["username"], one["credentials"]["password"])
            and one["state"] == "present"
            and now < one.get("ends", now + 1)
            for one in self.inventory.bindings.values()
        )

    def count(self, *verbs: str) -> int:
        return sum(entry.verb in verbs for entry in list(self.journal))

    def provisioned(self) -> list[str]:
        """Return the ids for which instances were asked, in their order."""
        asked = [one.instance for one in list(self.journal) if one.verb == "provision"]
        return list(dict.fromkeys(asked))

    # What its platform asks.

    def loses_its_answer(self) -> None:
        """Note that the platform died before it wrote the last answer down."""
        last = self.journal[-1]
        self._operations.unhear((last.instance, last.binding))

    def answer(self, asked: Asked) -> Said:
        """Carry a request out, with its fault, and note both."""
        with self._lock:
            reply = self._reply(asked)
            self._note(asked, reply.status)
        return reply

    def _note(self, asked: Asked, status: int) -> None:
        self.journal.append(
            Entry(
                asked.verb,
                asked.method,
                asked.path,
                asked.query,
                asked.headers,
                asked.members,
                status,
                *asked.place,
                self.now(),
            )
        )

    def _reply(self, asked: Asked) -> Said:
        if not self._is_known(asked.headers.get("authorization", "")):
            return failure(401, "Unauthorized", "who are you?")
        self._check(asked)
        fault = self.faults.due(asked.verb)
        if fault is None:
            return self._carry_out(asked, is_heard=True)
        if fault.processed:
            self._carry_out(asked, is_heard=False)
        if asked.method == "DELETE" and fault.said.status not in (400, 401, 422, 503):
            self._operations.unhear(asked.place)  # it may have ended the operation
        return fault.said

    def _is_known(self, authorization: str) -> bool:
        pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return authorization in (f"Basic {pair}", f"Bearer {self.password}")

    def _check(self, asked: Asked) -> None:
        held = self.inventory
        found = [
            *osb_rules.breaches(asked, self.catalogue, held.instances, held.bindings),
            *self._operations.breaches(asked),
        ]
        self.violations += [f"{asked.method} {asked.path}: {breach}" for breach in found]

    def _carry_out(self, asked: Asked, *, is_heard: bool) -> Said:
        if asked.verb == "catalogue":
            return said(200, self.catalogue)
        self._operations.settle()
        reply = self._done(asked)
        if is_heard and not asked.verb.startswith("poll"):
            self._operations.hear(asked, reply.status)
        if reply.status == 202 and self.modes.retry_after is not None:
            reply = replace(reply, headers={"Retry-After": str(self.modes.retry_after)})
        return reply

    def _done(self, asked: Asked) -> Said:
        match asked.verb:
            case "provision" | "bind":
                return self._put(asked)
            case "update":
                return self._update(asked)
            case "deprovision" | "unbind":
                return self._delete(asked)
            case "fetch" | "fetch-binding":
                return self._fetch(asked)
            case _:
                return self._operations.poll(asked)

    def _put(self, asked: Asked) -> Said:
        known = self.inventory.get(asked.place)
        if known is not None:
            return self._repeated(asked, known)
        if refused := self._refused(asked):
            return refused
        self.inventory.put(asked.place, self._made(asked))
        begun = self._operations.begin(asked)
        if begun is not None:
            return begun
        self.inventory.change(asked.place, state="present")
        return said(201, self._shown(asked, self.inventory.get(asked.place) or {}))

    def _made(self, asked: Asked) -> Members:
        made = {**asked.members, "request": asked.members, "state": "creating"}
        if not asked.binding:
            return made
        made |= {
            "instance_id": asked.instance,
            "credentials": osb_inventory.credentials(asked.instance, asked.binding),
        }
        predecessor = self.inventory.bindings.get(made.get("predecessor_binding_id", ""))
        if predecessor is not None and self.modes.same_credentials:
            made["credentials"] = predecessor["credentials"]
        if self.modes.life is not None:
            made["ends"] = self.now() + self.modes.life.total_seconds()
        return made

    def _refused(self, asked: Asked) -> Said | None:
        """Return why nothing is made or changed, if so."""
        stated = asked.members
        ids = stated.get("service_id", ""), stated.get("plan_id", "")
        _, of_plan = osb_catalogues.found(self.catalogue, *ids)
        instance = self.inventory.instances.get(asked.instance)
        if self._operations.is_busy(asked.instance):
            return self._operations.busy(asked.instance)
        if asked.verb == "bind" and (instance is None or instance["state"] != "present"):
            return failure(404 if instance is None else 400, "", "there is no such instance")
        if not isinstance(stated.get("parameters", {}), dict):
            return failure(400, "BadRequest", "parameters is no object")
        if asked.verb == "provision" and not of_plan:
            return failure(400, "BadRequest", "there is no such plan")
        version = stated.get("maintenance_info", {}).get("version")
        current = of_plan.get("maintenance_info", {}).get("version")
        if version is not None and of_plan and version != current:
            return failure(422, "MaintenanceInfoConflict", "the maintenance has changed")
        return None

    def _repeated(self, asked: Asked, known: Members) -> Said:
        always, is_same = self.modes.repeated, known["request"] == asked.members
        if always >= 400 or not (is_same or always in (200, 201)):
            return failure(always if always >= 400 else 409, "Conflict", "it is there")
        if always in (200, 201):
            if known["state"] in ("creating", "failed"):
                self.lies.add(known.get("credentials", {}).get("password"))
            return said(always, self._again(asked, known))
        operation = self._operations.of(asked.place)
        if operation and operation.verb == asked.verb and known["state"] in ("creating", "failed"):
            return self._operations.accepted(operation)
        if known["state"] == "failed":
            return failure(500, "", "its making has failed")
        return self._operations.again(asked) if always else said(200, self._again(asked, known))

    def _again(self, asked: Asked, known: Members) -> Members:
        shown = self._shown(asked, known)
        return shown if self.modes.repeats_credentials else {**shown, "credentials": None}

    def _shown(self, asked: Asked, known: Members) -> Members:
        """Return what is said of an instance or a binding that is there."""
        if not asked.binding:
            return {"dashboard_url": osb_inventory.dashboard(asked.instance)}
        found: Members = dict(self.modes.binding_extras)
        if self.modes.gives_credentials:
            found["credentials"] = known["credentials"]
        if self.modes.endpoints:
            found["endpoints"] = list(self.modes.endpoints)
        if "ends" in known:
            found["metadata"] = {"expires_at": _time(known["ends"])}
            if self.modes.renew_before is not None:
                renew = known["ends"] - self.modes.renew_before.total_seconds()
                found["metadata"]["renew_before"] = _time(renew)
        return found

    def _update(self, asked: Asked) -> Said:
        known = self.inventory.get(asked.place)
        if known is None:
            return failure(404, "", "there is no such instance")
        operation = self._operations.of(asked.place)
        if operation and operation.state == "in progress" and operation.body == asked.members:
            return self._operations.accepted(operation)
        if refused := self._refused(asked):
            return refused
        if asked.members.get("plan_id", known["plan_id"]) != known["plan_id"]:
            self.inventory.change(asked.place, old_plan_id=known["plan_id"])
        begun = self._operations.begin(asked)
        if begun is not None:
            return begun
        self._operations.apply_update(asked.place, asked.members)
        return said(200)

    def _delete(self, asked: Asked) -> Said:
        known = self.inventory.get(asked.place)
        if known is None:
            return said(self.modes.unknown_delete)
        operation = self._operations.of(asked.place)
        if operation is not None and operation.state == "in progress":
            if operation.verb == asked.verb:
                return self._operations.accepted(operation)
            if operation.verb == "update" or not self.modes.aborts:
                return self._operations.busy(asked.instance)
        elif self._operations.is_busy(asked.instance):
            return self._operations.busy(asked.instance)
        begun = self._operations.begin(asked)
        if begun is not None:
            return begun
        self.inventory.lose(asked.place)
        return said(200)

    def _fetch(self, asked: Asked) -> Said:
        known = self.inventory.get(asked.place)
        if known is None or known["state"] in ("creating", "failed"):
            return failure(404, "", "there is no such thing")
        if known["state"] == "updating":
            return self._operations.busy(asked.instance)
        found = self._shown(asked, known)
        if self.modes.shows_parameters:
            found["parameters"] = known.get("parameters", {})
        if not asked.binding:
            found |= {name: known[name] for name in ("service_id", "plan_id")}
            if info := known.get("maintenance_info"):
                found["maintenance_info"] = info
        return said(200, found)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

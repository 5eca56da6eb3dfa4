"""Bindings of one instance, decided about as klutch-osb does, without API server and sockets.

    world = World()
    world.claim("orders", rotation={"every": "720h"})
    world.run(hours=1)
    assert world.logs_in("orders") and world.broker.violations == []

Objects have resourceVersions, steps their preconditions, and a crash may follow each write and each
call. The broker is scripted (osb_broker.py), and its inventory is the witness.
"""

import base64
import copy
import itertools
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bind.osb.decisions import binding as bindings
from bind.osb.decisions import credentials, turn
from bind.osb.decisions import record as records_of
from bind.osb.decisions.record import Record
from bind.osb.decisions.view import (
    SOON,
    Ask,
    BindingView,
    Broker,
    HeldSecret,
    InstanceView,
    Next,
    Pause,
    Place,
)
from reconciler.api.osb import BROKER_RECORD, BrokerSpec, GeneratedKind
from reconciler.blueprints.offering.catalogue import Catalogue, catalogue_of
from reconciler.blueprints.offering.messages import is_mutating
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.core import keys, manifest
from reconciler.core.decision import Create, Decision, Delete, Patch, Step, status_patch
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, Kind, Ref
from reconciler.core.times import format_time
from tests.kit import json_patch
from tests.support import osb_catalogues, osb_wire
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_turns import outcome_of

CLUSTER = "control-plane"
SPACE = "klutch-bind-a"
OSB = "klutch-osb"
GROUP = "services.acme.example"
_MOST_LOOKS = 3000  # that a run may take
START = datetime(2026, 1, 1, tzinfo=UTC)
INSTANCE_KIND = Kind(GROUP, "v1", "PostgresqlInstance", "postgresqlinstances")
BINDING_KIND = Kind(GROUP, "v1", "PostgresqlBinding", "postgresqlbindings")


class Crash(Exception):
    """The program ended here."""


class Old(Exception):
    """A precondition does not hold: the step was decided on old facts."""


def catalogue(*, rotatable: bool = True, **more: Any) -> osb_wire.Members:
    plan = osb_catalogues.plan("small", rotatable=rotatable)
    return osb_catalogues.catalogue(osb_catalogues.offering(plans=[plan], **more))


class World:
    """An API server with an instance and its bindings, the program, and the broker."""

    def __init__(self, offered: osb_wire.Members | None = None) -> None:
        self.now = START
        self.broker = ScriptedBroker(offered or catalogue(), now=lambda: self.now.timestamp())
        self.objects: dict[Ref, dict[str, Any]] = {}
        self.pauses: dict[str, Pause] = {}
        self.events: list[str] = []
        self.dies: Callable[[], bool] = lambda: False  # asked after each write and call
        self.check: Callable[[], None] = lambda: None  # likewise
        self.meanwhile: Callable[[], None] = lambda: None  # while a call is on its way
        self.steps: list[str] = []
        self.read_soon = 0  # how often the catalogue was to be read
        self.versions = itertools.count(1)
        self.spec = BrokerSpec("acme", OSB, url="https://broker.acme.example", group=GROUP)
        self.closed, self.is_fresh, self.confirms = "", True, False
        self.crd_is_deleting = False
        self.place: Place | None = Place("shop", "c1", "s1")
        self.otherwise: Callable[[InstanceView], InstanceView] = lambda view: view
        self._known: dict[str, Record] = {}
        self._read: tuple[osb_wire.Members, Catalogue] | None = None
        self._provision()

    # What stands on the API server.

    def ref(self, kind: Kind, name: str) -> Ref:
        return Ref(CLUSTER, kind, OSB if kind == BROKER_RECORD else SPACE, name)

    def put(self, kind: Kind, body: Manifest) -> dict[str, Any]:
        """Create an object, as others do too."""
        made: dict[str, Any] = copy.deepcopy(dict(body))
        ref = self.ref(kind, made["metadata"]["name"])
        if ref in self.objects:
            raise Old(str(ref))
        made["metadata"].setdefault("namespace", ref.namespace)
        made["metadata"].setdefault("uid", str(uuid.uuid4()))
        made["metadata"]["resourceVersion"] = str(next(self.versions))
        self.objects[ref] = made
        return made

    def _provision(self) -> None:
        service = self.broker.catalogue["services"][0]
        live = self.put(
            INSTANCE_KIND,
            {
                "metadata": {"name": "orders", "finalizers": [keys.OSB]},
                "spec": {"plan": "small"},
                "status": {"conditions": [{"type": "Provisioned", "status": "True"}]},
            },
        )
        self.instance = live["metadata"]["uid"]
        self.service, self.plan = service["id"], service["plans"][0]["id"]
        members = {"service_id": self.service, "plan_id": self.plan, "state": "present"}
        self.broker.inventory.put((self.instance, ""), members)
        claim = records_of.Claim(GROUP, INSTANCE_KIND.kind, SPACE, "orders", self.instance)
        known = Record(
            self.instance,
            "acme",
            records_of.INSTANCE,
            self.instance,
            self.service,
            self.plan,
            claim,
            records_of.PRESENT,
            sent=records_of.Sent(self.plan),
        )
        self.put(BROKER_RECORD, records_of.created(known, OSB).manifest)

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

    def live(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """Return an object, None where it is not there."""
        return self.objects.get(self.ref(kind, name))

    def edit(self, kind: Kind, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        live = copy.deepcopy(self.objects[self.ref(kind, name)])  # others may hold it
        change(live)
        live["metadata"]["resourceVersion"] = str(next(self.versions))
        self.objects[self.ref(kind, name)] = live

    def delete(self, kind: Kind, name: str) -> None:
        ref = self.ref(kind, name)
        if not self.objects[ref]["metadata"].get("finalizers"):
            self._gone(ref)
            return
        stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.edit(kind, name, lambda live: live["metadata"].update(stamp))

    def _gone(self, ref: Ref) -> None:
        uid = self.objects.pop(ref)["metadata"]["uid"]
        for other, live in list(self.objects.items()):
            owners = live["metadata"].get("ownerReferences", [])
            if any(owner["uid"] == uid for owner in owners):
                del self.objects[other]

    def records(self, kind: str = records_of.BINDING) -> list[Record]:
        """Return the records of a kind, by claim and number."""
        found = [
            self._record(live) for ref, live in self.objects.items() if ref.kind == BROKER_RECORD
        ]
        mine = [one for one in found if one.kind == kind]
        return sorted(mine, key=lambda one: (one.claim.uid, one.number))

    def _record(self, live: dict[str, Any]) -> Record:
        version = live["metadata"]["resourceVersion"]
        if version not in self._known:
            self._known[version] = records_of.read(live, CLUSTER)
        return self._known[version]

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

    # What the program sees.

    def read_catalogue(self) -> Catalogue:
        document = self.broker.catalogue
        if self._read is None or self._read[0] is not document:
            self._read = document, catalogue_of(manifest.canonical(document))
        return self._read[1]

    def view(self) -> InstanceView:
        broker = Broker(self.spec, self.read_catalogue(), self.closed, self.is_fresh, self.confirms)
        kind = GeneratedKind(INSTANCE_KIND, "acme", self.service, {"small": self.plan})
        view = InstanceView(
            CLUSTER,
            kind,
            SPACE,
            "orders",
            self.live(INSTANCE_KIND, "orders"),
            self.place,
            broker,
            tuple(self.records(records_of.INSTANCE)),
            pauses=dict(self.pauses),
            now=self.now,
        )
        return self.otherwise(view)

    def binding(self, name: str, *, uid: str = "") -> BindingView:
        """Return a binding as one look shows it, with its Secret if that is to be read."""
        live = self.live(BINDING_KIND, name)
        kind = GeneratedKind(BINDING_KIND, "acme", self.service, {}, instances=INSTANCE_KIND.plural)
        mine = [one for one in self.records() if one.claim.name == name]
        view = BindingView(
            CLUSTER,
            kind,
            live,
            tuple(mine),
            crd_is_deleting=self.crd_is_deleting,
        )
        if not bindings.needs_secret(self.view(), view):
            return view
        secret = self.live(SECRET, credentials.name_of(live or {}))
        return replace(view, secret=HeldSecret(secret))

    def names(self) -> list[str]:
        claims = {ref.name for ref in self.objects if ref.kind == BINDING_KIND}
        return sorted(claims | {one.claim.name for one in self.records()})

    # What the program does.

    def turn(self) -> timedelta | None:
        """Look at all bindings once, or crash; return when to look again."""
        try:
            return self._turn()
        except Crash:
            self.steps.append("crash")
            self.restart()
            return SOON

    def _turn(self) -> timedelta | None:
        view, agains = self.view(), list[timedelta | None]()
        every = [*self.records(), *self.records(records_of.INSTANCE)]
        free, has_called = not any(one.holds_turn(self.now) for one in every), False
        seen = {name: self.binding(name) for name in self.names()}
        for name in sorted(seen, key=lambda each: (bindings.urgency(view, seen[each]), each)):
            next_ = bindings.look(replace(view, free=free), seen[name])
            is_call = next_.ask is not None and is_mutating(next_.ask.call)
            if next_.begins:
                free = False
            if is_call and has_called:
                agains.append(SOON)
                continue
            has_called = has_called or is_call
            agains.append(self._follow(view, name, next_))
        return min((again for again in agains if again is not None), default=None)

    def _follow(self, view: InstanceView, name: str, next_: Next) -> timedelta | None:
        try:
            self._execute(next_, name)
            if next_.ask is None:
                return next_.decision.again
            answer = self._call(next_.ask)
            self.meanwhile()
            after = turn.answered(
                replace(self.view(), bindings=(self.binding(name),)), next_.ask, answer
            )
            self._execute(after.next, name)
        except Old as error:
            self.steps.append(f"old: {error}")
        return SOON

    def _call(self, ask: Ask) -> Outcome:
        """Ask the broker, as the product's client does."""
        answer = outcome_of(self.broker, ask.call)
        self.steps.append(f"{type(ask.call).__name__} {ask.record[:4]}: {answer}")
        self._lived()
        return answer

    def _execute(self, next_: Next, name: str) -> None:
        """Do the steps in their order, then write the status, as the executor does."""
        self.pauses |= next_.pauses
        self.read_soon += next_.reads_catalogue
        decision, about = next_.decision, self.live(BINDING_KIND, name)
        self.events += [note.reason for note in decision.notes]
        moved: dict[Ref, tuple[str, str]] = {}
        for task in decision.tasks:
            for step in task.steps:
                self._write(step, moved)
                self._lived()
        self._write_status(name, about, decision)

    def _write_status(self, name: str, about: Manifest | None, decision: Decision) -> None:
        ref = self.ref(BINDING_KIND, name)
        if about is None or (live := self.objects.get(ref)) is None:
            return
        patch = status_patch(live, ref, decision, failed=(), now=self.now)
        if patch is not None:
            self._write(patch, {})
            self._lived()

    def _lived(self) -> None:
        self.check()
        if self.dies():
            raise Crash

    def _write(self, step: Step, moved: dict[Ref, tuple[str, str]]) -> None:
        self.steps.append(f"{type(step).__name__} {_shown(step)}")
        match step:
            case Create(kind, body):
                self.put(kind, body)
            case Patch(ref, body):
                self._patch(ref, body, moved)
            case Delete(ref, uid, version):
                self._expect(ref, uid, version, moved)
                self.delete(ref.kind, ref.name)
            case _:
                raise AssertionError(step)

    def _expect(
        self, ref: Ref, uid: str, version: str, moved: dict[Ref, tuple[str, str]]
    ) -> dict[str, Any]:
        live = self.objects.get(ref)
        decided_on, current = moved.get(ref, ("", ""))
        wanted = current if version == decided_on else version
        if live is None or (uid, wanted) != (
            live["metadata"]["uid"],
            live["metadata"]["resourceVersion"],
        ):
            raise Old(str(ref))
        return live

    def _patch(self, ref: Ref, body: Manifest, moved: dict[Ref, tuple[str, str]]) -> None:
        metadata = manifest.get_map(body, "metadata")
        version = manifest.get_text(metadata, "resourceVersion")
        live = self._expect(ref, manifest.get_text(metadata, "uid"), version, moved)
        merged = json_patch.merged(live, body)
        merged["metadata"] = {**merged["metadata"], "resourceVersion": str(next(self.versions))}
        self.objects[ref] = merged
        moved[ref] = (moved.get(ref, (version, ""))[0], merged["metadata"]["resourceVersion"])
        is_held = merged["metadata"].get("finalizers")
        if merged["metadata"].get("deletionTimestamp") and not is_held:
            self._gone(ref)

    def restart(self) -> None:
        """Forget what a process remembers."""
        self.pauses = {}

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


def _shown(step: Step) -> str:
    match step:
        case Create(kind, body):
            return f"{kind} {manifest.name_of(body)[:4]}"
        case Patch(ref, body, part):
            return f"{ref.kind} {ref.name[:4]} {part} {manifest.get_map(body, 'spec')}"
    return str(step)

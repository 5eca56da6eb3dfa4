"""Turns of klutch-osb without a program: decisions on a few objects, calls to a scripted broker.

A process may die after any step, and after a call. Time passes as the test says.
"""

import copy
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bind.osb.decisions import binding as bindings
from bind.osb.decisions import credentials, record, turn
from bind.osb.decisions.record import Record
from bind.osb.decisions.turn import Part
from bind.osb.decisions.view import (
    SOON,
    Ask,
    BindingView,
    Broker,
    InstanceView,
    Pause,
    Place,
    ReadSecret,
)
from reconciler.api.osb import BROKER_RECORD, BrokerSpec, GeneratedKind
from reconciler.blueprints.offering import answers, messages
from reconciler.blueprints.offering.catalogue import Catalogue, catalogue_of
from reconciler.blueprints.offering.outcomes import Outcome, Unknown
from reconciler.core import keys, manifest
from reconciler.core.decision import Create, Decision, Delete, Patch, Step, status_patch
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, Kind, Ref
from reconciler.core.times import format_time
from tests.kit import json_patch
from tests.support import osb_faults, osb_wire
from tests.support.osb_broker import ScriptedBroker

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTER: Final = "control-plane"
SPACE: Final = "klutch-bind-a"
OSB: Final = "klutch-osb"
GROUP: Final = "services.acme.example"
INSTANCE_KIND: Final = Kind(GROUP, "v1", "PostgresqlInstance", "postgresqlinstances")
BINDING_KIND: Final = Kind(GROUP, "v1", "PostgresqlBinding", "postgresqlbindings")
DELETED: Final = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


_WAYS: Final[Mapping[str, Sequence[Any]]] = {
    "gives_operation": (True, False),
    "repeated": (0, 0, 200, 201, 202, 409),
    "unknown_delete": (200, 404, 410),
    "gone_poll": (200, 404, 410),
    "unknown_poll": (404, 410),
    "aborts": (True, False),
}


class Dies(Exception):
    """The process ends here."""


class Stale(Exception):
    """A precondition does not hold: the step was decided on old facts."""


@dataclass
class Objects:
    """Objects by their place, with the API's preconditions, finalizers and owners."""

    live: dict[Ref, dict[str, Any]] = field(default_factory=dict)
    versions: int = 0

    def all(self, kind: Kind) -> list[dict[str, Any]]:
        return [one for ref, one in self.live.items() if ref.kind == kind]

    def create(self, ref: Ref, body: Manifest) -> dict[str, Any]:
        """Create an object, as others do too."""
        if ref in self.live:
            raise Stale(str(ref))
        made: dict[str, Any] = copy.deepcopy(dict(body))
        place = {"namespace": ref.namespace, "name": ref.name}
        made["metadata"] = {"uid": str(uuid.uuid4()), "generation": 1, **place, **made["metadata"]}
        return self._put(ref, made)

    def edit(self, ref: Ref, change: Callable[[dict[str, Any]], object]) -> None:
        live = copy.deepcopy(self.live[ref])  # others may hold it
        change(live)
        self._put(ref, live)

    def patch(self, ref: Ref, body: Mapping[str, Any], moved: str = "") -> str:
        """Patch an object that is as it was stated, or as the step before left it."""
        stated = dict(body.get("metadata", {}))
        uid, version = (stated.pop(name, "") for name in ("uid", "resourceVersion"))
        live = self._expect(ref, uid, moved or version)
        put = self._put(ref, json_patch.merged(live, {**body, "metadata": stated}))
        return str(put["metadata"]["resourceVersion"])

    def delete(self, ref: Ref, uid: str = "", version: str = "") -> None:
        if ref in self.live or uid:
            self._expect(ref, uid, version)
            self.edit(ref, lambda live: live["metadata"].update(DELETED))

    def _expect(self, ref: Ref, uid: str, version: str) -> dict[str, Any]:
        live = self.live.get(ref)
        if live is None or any(
            wanted and wanted != live["metadata"][name]
            for name, wanted in (("uid", uid), ("resourceVersion", version))
        ):
            raise Stale(str(ref))
        return live

    def _put(self, ref: Ref, body: dict[str, Any]) -> dict[str, Any]:
        self.versions += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.versions)}
        self.live[ref] = body = {**body, "metadata": metadata}
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            self._gone(ref)
        return body

    def _gone(self, ref: Ref) -> None:
        uid = self.live.pop(ref)["metadata"]["uid"]
        for other, live in list(self.live.items()):
            owners = live["metadata"].get("ownerReferences", [])
            if any(owner["uid"] == uid for owner in owners):
                del self.live[other]


def outcome_of(broker: ScriptedBroker, call: messages.Call) -> Outcome:
    """Ask a broker, as the product's client does."""
    request = messages.http_request(call, api_version="2.17")
    headers = {
        "Authorization": f"Bearer {broker.password}",
        "X-Broker-API-Version": "2.17",
        "X-Broker-API-Request-Identity": "1",
        **({"Content-Type": "application/json"} if request.body is not None else {}),
    }
    asked = osb_wire.asked(request.method, request.path, headers, request.body or b"")
    assert asked is not None
    said = broker.answer(asked)
    if said.way != "answer":
        return Unknown(said.way)
    lowered = {name.lower(): value for name, value in said.headers.items()}
    return answers.outcome(call, said.status, lowered, said.body)


class Turns:
    """One instance and its bindings, what stands behind them, and a process that has turns.

    `mortality` is the chance to die at each step. `steps` of what it did tell a failed test how it
    came there.
    """

    def __init__(
        self, broker: ScriptedBroker, chance: random.Random | None = None, mortality: float = 0.0
    ) -> None:
        self.broker, self.chance, self.mortality = broker, chance or random.Random(0), mortality
        self.now = NOW
        self.broker.now = lambda: self.now.timestamp()
        self.objects = Objects()
        self.pauses: dict[str, Pause] = {}
        self.steps: list[str] = []
        self.calls: list[messages.Call] = []
        self.events: list[str] = []
        self.read_soon = 0  # how often the catalogue was to be read
        self.meanwhile: Callable[[], None] | None = None  # what happens while a call is on its way
        self.check: Callable[[], None] = lambda: None  # after each write and call
        self.otherwise: Callable[[InstanceView], InstanceView] = lambda view: view
        self.spec = BrokerSpec("acme", OSB, url="https://broker.acme.example", group=GROUP)
        self.closed, self.is_fresh, self.confirms = "", True, False
        self.crd_is_deleting = False
        self.place: Place | None = Place("shop", "c1", "s1")
        offering = broker.catalogue["services"][0]
        plans = {plan["name"]: plan["id"] for plan in offering["plans"]}
        self.kind = GeneratedKind(INSTANCE_KIND, "acme", offering["id"], plans)
        self.bound = GeneratedKind(
            BINDING_KIND, "acme", offering["id"], {}, instances=INSTANCE_KIND.plural
        )
        self._read: tuple[osb_wire.Members, Catalogue] | None = None
        self._known: dict[str, Record] = {}

    # Objects

    def at(self, kind: Kind = INSTANCE_KIND, name: str = "orders") -> Ref:
        return Ref(CLUSTER, kind, OSB if kind == BROKER_RECORD else SPACE, name)

    def claim_instance(self, **spec: Any) -> None:
        self.objects.create(self.at(), {"metadata": {}, "spec": {"plan": "small", **spec}})

    def live(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """Return an object, None where it is not there."""
        return self.objects.live.get(self.at(kind, name))

    @property
    def instance_claim(self) -> Any:
        return self.live(INSTANCE_KIND, "orders")

    def records(self, kind: str = record.INSTANCE) -> list[Record]:
        """Return the records of a kind, by claim and number."""
        found = map(self._record, self.objects.all(BROKER_RECORD))
        mine = [one for one in found if one.kind == kind]
        return sorted(mine, key=lambda one: (one.claim.uid, one.number))

    def states(self) -> list[tuple[int, str]]:
        return [(one.number, one.state) for one in self.records()]

    def _record(self, live: dict[str, Any]) -> Record:
        version = live["metadata"]["resourceVersion"]
        if version not in self._known:
            self._known[version] = record.read(live, CLUSTER)
        return self._known[version]

    # Looks

    def view(self) -> InstanceView:
        claim = self.instance_claim
        uid = claim["metadata"]["uid"] if claim else ""
        records = self.records(record.INSTANCE)
        allowed = format_time(self.now) if self.confirms else ""
        view = InstanceView(
            CLUSTER,
            self.kind,
            SPACE,
            "orders",
            claim,
            place=self.place,
            broker=Broker(self.spec, self.read_catalogue(), self.closed, self.is_fresh, allowed),
            records=tuple(one for one in records if one.claim.uid == uid),
            others=tuple(one for one in records if one.claim.uid != uid),
            pauses=dict(self.pauses),
            now=self.now,
        )
        view = self.otherwise(view)
        bound = self.records(record.BINDING)
        there = {ref.name for ref in self.objects.live if ref.kind == BINDING_KIND}
        names = sorted(there | {one.claim.name for one in bound})
        return replace(view, bindings=tuple(self._binding(view, name, bound) for name in names))

    def _binding(self, view: InstanceView, name: str, bound: list[Record]) -> BindingView:
        """Return a binding as one look shows it, with its Secret if that is to be read."""
        live = self.live(BINDING_KIND, name)
        mine = tuple(one for one in bound if one.claim.name == name)
        found = BindingView(CLUSTER, self.bound, live, mine, None, self.crd_is_deleting)
        if not bindings.needs_secret(view, found):
            return found
        secret = self.live(SECRET, credentials.name_of(live or {}))
        return replace(found, secret=ReadSecret(secret))

    def read_catalogue(self) -> Catalogue:
        document = self.broker.catalogue
        if self._read is None or self._read[0] is not document:
            self._read = document, catalogue_of(manifest.canonical(document))
        return self._read[1]

    # Turns

    def go_on(self, turns: int) -> None:
        """Have turns, each when it is due."""
        for _ in range(turns):
            again = self.turn()
            self.now += timedelta(minutes=30) if again is None else min(again, timedelta(hours=25))

    def turn(self) -> timedelta | None:
        """Have a turn, or a part of one; return when the next one is due."""
        try:
            return self._turn()
        except Dies:
            self.steps.append("dies")
            self.restart()
        except Stale as error:
            self.steps.append(f"stale: {error}")
        return SOON

    # Histories

    def befalls(self, happenings: Sequence[Callable[[Any], None]]) -> None:
        happening = self.chance.choice(happenings)
        self.steps.append(happening.__name__)
        happening(self)

    def misbehaves(self, *verbs: Any) -> None:
        fault, times = osb_faults.some(self.chance), self.chance.choice([1, 1, 3, 8])
        self.broker.faults.add(self.chance.choice(verbs), fault, times=times)

    def changes_ways(self, **ways: Sequence[Any]) -> None:
        for name, choices in {**_WAYS, **ways}.items():
            setattr(self.broker.modes, name, self.chance.choice(choices))

    def decides_about_orphans(self, wish: str) -> None:
        note = {"metadata": {"annotations": {keys.OSB_ORPHAN: wish}}}
        for one in self.records():
            if one.state == record.ORPHANED:
                self.objects.patch(self.at(BROKER_RECORD, one.id), note)

    def ends_in_a_call(self) -> None:
        """Let the next call be made, without faults, by a process that has no time to read."""
        asks = [part.next.ask for part in self._look() if part.next.ask is not None]
        faults, self.broker.faults = self.broker.faults, type(self.broker.faults)()
        outcome_of(self.broker, asks[0].call)
        self.broker.faults = faults
        self.restart()

    def restart(self) -> None:
        """Forget what a process remembers."""
        self.pauses = {}

    def serves(self, part: Part) -> bool:
        """Return whether what is decided about a claim is done."""
        return True

    def _turn(self) -> timedelta | None:
        parts = self._look()
        for part in parts:
            if part.next.ask is not None:
                return self._ask(part.next.ask)
        agains = (part.next.decision.again for part in parts)
        return min((again for again in agains if again is not None), default=None)

    def _look(self, asked: Ask | None = None) -> list[Part]:
        parts = [part for part in turn.look(self.view(), asked) if self.serves(part)]
        for part in parts:
            self._execute(part)
        return parts

    def _ask(self, ask: Ask) -> timedelta:
        answer = outcome_of(self.broker, ask.call)
        self.calls.append(ask.call)
        self.steps.append(f"{type(ask.call).__name__} {ask.record[:4]}: {answer}")
        try:
            self._lived()
            if self.meanwhile is not None:
                self.meanwhile()
                self._look(ask)
            self._execute(turn.answered(self.view(), ask, answer))
        except Dies:
            self.broker.loses_its_answer()
            raise
        return SOON

    def _execute(self, part: Part) -> None:
        """Do the steps in their order, then write the status, as the executor does."""
        live = self.instance_claim if part.binding is None else part.binding.live
        decision, kind = part.next.decision, INSTANCE_KIND if part.binding is None else BINDING_KIND
        self.pauses |= part.next.pauses
        self.read_soon += part.next.reads_catalogue
        self.events += [note.reason for note in decision.notes]
        moved: dict[Ref, str] = {}
        for step in decision.steps:
            self._write(step, moved)
            self._lived()
        if live is not None:
            self._write_status(self.at(kind, manifest.name_of(live)), decision)

    def _write_status(self, ref: Ref, decision: Decision) -> None:
        live = self.objects.live.get(ref)
        if live is None:
            return
        patch = status_patch(live, ref, decision, failed=(), now=self.now)
        if patch is not None:
            self._write(patch, {})
            self._lived()

    def _lived(self) -> None:
        self.check()
        if self.chance.random() < self.mortality:
            raise Dies

    def _write(self, step: Step, moved: dict[Ref, str]) -> None:
        match step:
            case Create(kind, body):
                self.steps.append(f"create {kind} {manifest.name_of(body)}")
                self.objects.create(self.at(kind, manifest.name_of(body)), body)
            case Patch(ref, body, part):
                spec = manifest.get_map(body, "spec")
                self.steps.append(f"patch {ref.kind} {ref.name} {part} {spec}")
                moved[ref] = self.objects.patch(ref, body, moved.get(ref, ""))
            case Delete(ref, uid, version):
                self.steps.append(f"delete {ref.kind} {ref.name}")
                self.objects.delete(ref, uid, moved.get(ref, version))
            case _:
                raise AssertionError(step)

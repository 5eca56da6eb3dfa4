"""Turns of klutch-osb without a program: decisions on a few objects, calls to a scripted broker.

A process may die between any two steps, before a call and after it. Time passes as the test says.
"""

import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bind.osb.decisions import instance, record, turn
from bind.osb.decisions.view import Ask, Broker, InstanceView, Next, Pause, Place
from reconciler.api.osb import BROKER_RECORD, BrokerSpec, GeneratedKind, Timing
from reconciler.blueprints.offering import answers, messages
from reconciler.blueprints.offering.catalogue import Catalogue, catalogue_of
from reconciler.blueprints.offering.outcomes import Outcome, Unknown
from reconciler.core.decision import Create, Decision, Delete, Patch, Step, status_patch
from reconciler.core.manifest import canonical, is_deleting
from reconciler.core.refs import Kind, ObjectKey, Ref
from tests.kit import json_patch
from tests.support import osb_wire
from tests.support.osb_broker import ScriptedBroker

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTER: Final = "plane"


class Dies(Exception):
    """The process ends here."""


class Stale(Exception):
    """A write met another state than was looked at."""


@dataclass
class Objects:
    """Objects by their kind and place, with the API's preconditions and finalizers."""

    live: dict[tuple[Kind, ObjectKey], Any] = field(default_factory=dict)
    versions: int = 0

    def all(self, kind: Kind) -> list[Any]:
        return [one for (of, _), one in self.live.items() if of == kind]

    def create(self, kind: Kind, manifest: Mapping[str, Any]) -> None:
        metadata = manifest["metadata"]
        key = kind, ObjectKey(metadata["namespace"], metadata["name"])
        if key in self.live:
            raise Stale
        new = {"uid": str(uuid.uuid4()), "generation": 1, **metadata}
        self._put(key, {**manifest, "metadata": new})

    def patch(self, ref: Ref, body: Mapping[str, Any]) -> None:
        key = ref.kind, ObjectKey(ref.namespace, ref.name)
        live = self.live.get(key)
        if live is None:
            raise Stale
        stated = dict(body.get("metadata", {}))
        for name in ("uid", "resourceVersion"):
            if stated.pop(name, live["metadata"].get(name)) != live["metadata"].get(name):
                raise Stale
        self._put(key, json_patch.merged(live, {**body, "metadata": stated}))

    def delete(self, ref: Ref, resource_version: str = "") -> None:
        key = ref.kind, ObjectKey(ref.namespace, ref.name)
        live = self.live.get(key)
        if live is None:
            return
        if resource_version not in ("", live["metadata"]["resourceVersion"]):
            raise Stale
        mark = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        self._put(key, {**live, "metadata": {**live["metadata"], **mark}})

    def _put(self, key: tuple[Kind, ObjectKey], manifest: Any) -> None:
        self.versions += 1
        metadata = {**manifest["metadata"], "resourceVersion": str(self.versions)}
        self.live[key] = {**manifest, "metadata": metadata}
        if is_deleting(self.live[key]) and not metadata.get("finalizers"):
            del self.live[key]


def outcome_of(broker: ScriptedBroker, call: messages.Call) -> Outcome:
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


@dataclass
class Turns:
    """One claim, what stands behind it, and a process that takes turns at it.

    `mortality` is the chance to die at each step. `steps` of what it did tell a failed test how it
    came there.
    """

    broker: ScriptedBroker
    chance: random.Random
    mortality: float = 0.0
    now: datetime = NOW
    objects: Objects = field(default_factory=Objects)
    pauses: dict[str, Pause] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    calls: list[messages.Call] = field(default_factory=list)
    meanwhile: Callable[[], None] | None = None  # what happens while a call is on its way
    _read: tuple[Any, Catalogue] | None = None

    def __post_init__(self) -> None:
        self.broker.now = lambda: self.now.timestamp()
        offering = self.broker.catalogue["services"][0]
        plans = {plan["name"]: plan["id"] for plan in offering["plans"]}
        kind = Kind("acme.example", "v1", "DatabaseInstance", "databaseinstances")
        self.kind = GeneratedKind(kind, "acme", offering["id"], plans)
        self.spec = BrokerSpec("acme", "osb", group="acme.example", timing=Timing())

    @property
    def claim(self) -> Any:
        return self.objects.live.get((self.kind.kind, ObjectKey("home", "orders")))

    @property
    def ref(self) -> Ref:
        return Ref(CLUSTER, self.kind.kind, "home", "orders")

    def records(self) -> list[record.Record]:
        return [record.read(one, CLUSTER) for one in self.objects.all(BROKER_RECORD)]

    def view(self) -> InstanceView:
        uid = self.claim["metadata"]["uid"] if self.claim else ""
        records = self.records()
        return InstanceView(
            CLUSTER,
            self.kind,
            "home",
            "orders",
            self.claim,
            place=Place("shop", "c1", "s1"),
            broker=Broker(self.spec, self._catalogue(), is_fresh=True),
            records=tuple(one for one in records if one.claim.uid == uid),
            others=tuple(one for one in records if one.claim.uid != uid),
            pauses=dict(self.pauses),
            now=self.now,
        )

    def _catalogue(self) -> Catalogue:
        document = self.broker.catalogue
        if self._read is None or self._read[0] is not document:
            self._read = document, catalogue_of(canonical(document))
        return self._read[1]

    def go_on(self, turns: int) -> None:
        """Take turns, each when it is due."""
        for _ in range(turns):
            again = self._survived_turn()
            self.now += timedelta(minutes=30) if again is None else min(again, timedelta(hours=25))

    def _survived_turn(self) -> timedelta | None:
        """Take a turn, or a part of one; return when the next one is due."""
        try:
            return self._turn()
        except Dies:
            self.steps.append("dies")
            self.pauses.clear()
        except Stale:
            self.steps.append("stale")
        return timedelta()

    def _turn(self) -> timedelta | None:
        following = instance.look(replace(self.view(), free=True))
        self._follow(following)
        ask: Ask | None = following.ask
        if ask is None:
            return following.decision.again
        self._may_die()
        outcome = outcome_of(self.broker, ask.call)
        self.calls.append(ask.call)
        self.steps.append(f"{type(ask.call).__name__}: {outcome}")
        self._may_die()
        if self.meanwhile is not None:
            self.meanwhile()
            busy = replace(self.view(), free=False)
            self._follow(replace(instance.look(busy), ask=None))
        after = turn.answered(self.view(), ask, outcome).next
        self._follow(after)
        return after.decision.again

    def _follow(self, following: Next) -> None:
        self.pauses.update(following.pauses)
        for step in following.decision.steps:
            self._may_die()
            self._do(step)
        self._may_die()
        self._write_status(following.decision)

    def _do(self, step: Step) -> None:
        self.steps.append(repr(step)[:200])
        match step:
            case Create(kind, manifest):
                self.objects.create(kind, manifest)
            case Patch(ref, body):
                self.objects.patch(ref, body)
            case Delete(ref, _, version):
                self.objects.delete(ref, version)
            case _:
                raise AssertionError(step)

    def _write_status(self, decision: Decision) -> None:
        if self.claim is not None:
            patch = status_patch(self.claim, self.ref, decision, failed=(), now=self.now)
            if patch is not None:
                self.objects.patch(patch.ref, patch.body)

    def _may_die(self) -> None:
        if self.chance.random() < self.mortality:
            raise Dies

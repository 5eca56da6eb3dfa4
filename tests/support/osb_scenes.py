"""A broker, its ServiceBroker and generated kinds on a control plane, and `klutch-osb` there."""

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from bind.osb import program
from bind.osb.settings import Settings
from reconciler.api.osb import BROKER_RECORD, SERVICE_BROKER
from reconciler.blueprints.objects import Marks, build
from reconciler.controller.program import Term
from reconciler.controller.tasks import Clock, SystemClock
from reconciler.core import keys, refs
from reconciler.core.manifest import JSON, Manifest, get_text, put, ref_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube import crds
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from tests.kit import virtual_time
from tests.kit.osb import BrokerWires
from tests.support import removal
from tests.support.clusters import LiveCluster
from tests.support.definitions import OPEN, definition
from tests.support.eventually import eventually, working
from tests.support.faults import Faults, FaultyCluster
from tests.support.observing import established
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_script import scripted
from tests.support.settled import settled

MANAGER: Final = "tests"
USUAL: Final = Settings(leader_election=False)
NAME: Final = "acme"
GROUP: Final = "services.acme.example"
INSTANCE: Final = Kind(GROUP, "v1", "DatabaseInstance", "databaseinstances")
BINDING: Final = Kind(GROUP, "v1", "DatabaseBinding", "databasebindings")


@contextlib.asynccontextmanager
async def program_at(
    plane: LiveCluster,
    settings: Settings = USUAL,
    *,
    home: str = "klutch-osb",
    faults: Faults | None = None,
    clock: Clock | None = None,
    way: Connection | None = None,
) -> AsyncIterator[Term]:
    """Let klutch-osb work for the length of the block. `way`: by this, as its account."""
    async with KubeCluster(way or plane.connection, agent="klutch-osb") as real:
        cluster = real if faults is None else FaultyCluster(real, faults)
        made = program.wired(
            settings, cluster, leases=cluster, namespace=home, clock=clock or SystemClock()
        )
        async with working(made.manager):
            yield made


@dataclass
class OsbScene:
    """One broker, and its first offering as kinds of a control plane."""

    plane: LiveCluster
    namespace: str  # of claims
    broker: ScriptedBroker
    wires: BrokerWires
    url: str = "https://broker.example"
    home: str = "klutch-osb"
    name: str = NAME
    timing: Mapping[str, str] = field(default_factory=dict)

    def program(self, **more: Any) -> AbstractAsyncContextManager[Term]:
        return program_at(self.plane, home=self.home, **more)

    async def install(self) -> None:
        """Make CRDs, namespaces, the Secret and the ServiceBroker."""
        plane = self.plane.cluster
        for crd in (*crds.load(*crds.BROKERS), *self.generated()):
            await plane.apply(crd, refs.CRD, manager=MANAGER, force=True)
        for kind in (SERVICE_BROKER, BROKER_RECORD, INSTANCE, BINDING):
            await established(plane, kind)
        home = build(refs.NAMESPACE, self.home)
        await plane.apply(home, refs.NAMESPACE, manager=MANAGER, force=True)
        await self.make_secret()
        spec: dict[str, JSON] = {
            "url": self.url,
            "group": GROUP,
            "secretRef": {"name": self.name},
            "timing": dict(self.timing),
        }
        made = {**build(SERVICE_BROKER, self.name, namespace=self.home), "spec": spec}
        await plane.create(made, SERVICE_BROKER, manager=MANAGER)

    async def make_secret(self, password: str = "") -> None:
        texts = {"username": self.broker.user, "password": password or self.broker.password}
        data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        secret = {**build(refs.SECRET, self.name, namespace=self.home), "data": data}
        await self.plane.cluster.apply(secret, refs.SECRET, manager=MANAGER, force=True)

    def generated(self) -> list[Manifest]:
        """Return the CRDs of the first offering."""
        offering = self.broker.catalogue["services"][0]
        plans = {plan["name"]: plan["id"] for plan in offering["plans"]}
        marks = {keys.OSB_OFFERING: offering["id"], keys.OSB_PLANS: json.dumps(plans)}
        bound = {**marks, keys.OSB_INSTANCES: INSTANCE.plural}
        return [crd_of(INSTANCE, self.name, marks), crd_of(BINDING, self.name, bound)]

    async def claim(self, name: str = "orders", **spec: Any) -> Manifest:
        return await self.claim_of(INSTANCE, name, **spec)

    async def claim_of(self, kind: Kind, name: str, **spec: Any) -> Manifest:
        made = build(kind, name, namespace=self.namespace)
        made = {**made, "spec": {"plan": "small", **spec}}
        return await self.plane.cluster.create(made, kind, manager=MANAGER)

    async def bind(self, name: str = "orders", instance: str = "orders", **spec: Any) -> Manifest:
        made = build(BINDING, name, namespace=self.namespace)
        made = {**made, "spec": {"instanceRef": instance, **spec}}
        return await self.plane.cluster.create(made, BINDING, manager=MANAGER)

    async def change(self, kind: Kind, name: str = "orders", **spec: Any) -> Manifest:
        ref = Ref(self.plane.name, kind, self.namespace, name)
        return await self.plane.cluster.merge_patch(ref, {"spec": spec}, manager=MANAGER)

    async def annotate(self, kind: Kind, name: str, **marks: str | None) -> None:
        """Set annotations; `_` in a name stands for `-`, and klutchctl.dev/ before it."""
        place = self.home if kind in (BROKER_RECORD, SERVICE_BROKER) else self.namespace
        ref = Ref(self.plane.name, kind, place, name)
        named = {f"{keys.OWN_PREFIX}{key.replace('_', '-')}": text for key, text in marks.items()}
        body = {"metadata": {"annotations": named}}
        await self.plane.cluster.merge_patch(ref, body, manager=MANAGER)

    async def delete(self, kind: Kind, name: str = "orders") -> None:
        await removal.remove(self.plane.cluster, Ref(self.plane.name, kind, self.namespace, name))

    async def read(self, kind: Kind, name: str = "orders") -> Any:
        return await self.plane.cluster.get(Ref(self.plane.name, kind, self.namespace, name))

    async def records(self) -> list[Manifest]:
        return await self.all_of(BROKER_RECORD, self.home)

    async def all_of(self, kind: Kind, namespace: str = "") -> list[Manifest]:
        page = await self.plane.cluster.first_page(
            kind, namespace=namespace or self.namespace, limit=500
        )
        return list(page.items)

    async def in_phase(self, kind: Kind, phase: str, name: str = "orders") -> Any:
        async def found() -> Any:
            live = await self.read(kind, name)
            return live if get_text(live or {}, "status", "phase") == phase else None

        return await eventually(found, within=7200)

    async def gone(self, kind: Kind, name: str = "orders") -> None:
        async def is_gone() -> bool:
            return await self.read(kind, name) is None

        await eventually(is_gone, within=7200)


@contextlib.asynccontextmanager
async def modelled(plane: LiveCluster, namespace: str) -> AsyncIterator[OsbScene]:
    """Make a scene on a model of a control plane, with a broker on the same clock."""
    broker = ScriptedBroker(now=lambda: virtual_time.now().timestamp())
    url = "https://broker.example"
    scene = OsbScene(plane, namespace, broker, BrokerWires({url: broker}), url)
    await scene.install()
    with scene.wires.plugged():
        yield scene


@contextlib.asynccontextmanager
async def served(plane: LiveCluster, namespace: str) -> AsyncIterator[OsbScene]:
    """Make a scene on a real control plane, with a broker on loopback; what it made goes again."""
    with scripted() as broker:
        scene = OsbScene(plane, namespace, broker, BrokerWires(), broker.url)
        await scene.install()
        try:
            yield scene
        finally:
            home = Ref(plane.name, SERVICE_BROKER, scene.home, scene.name)
            await removal.remove(plane.cluster, home)
            for kind, place in ((BINDING, ""), (INSTANCE, ""), (BROKER_RECORD, scene.home)):
                for live in await scene.all_of(kind, place):
                    await removal.remove_for_good(plane, ref_of(plane.name, kind, live))
            for crd in scene.generated():
                await removal.remove_manifest(plane.cluster, refs.CRD, crd)
            for kind in (INSTANCE, BINDING):
                await _undefined(plane, kind)


async def _undefined(plane: LiveCluster, kind: Kind) -> None:
    """Wait until a CRD is gone: one that still goes takes no claims of the next test."""

    async def is_gone() -> bool:
        return await plane.cluster.get(Ref(plane.name, refs.CRD, "", kind.resource)) is None

    await eventually(is_gone)


async def at_rest(term: Term) -> None:
    """Wait until the program is at rest."""
    await settled(term)


def crd_of(kind: Kind, broker: str, marks: Mapping[str, str]) -> Manifest:
    """Return a CRD as a catalogue becomes one, without schemas of parameters."""
    schema: Manifest = {"type": "object", "properties": {"spec": OPEN, "status": OPEN}}
    borne = Marks({keys.OSB_BROKER: broker}, dict(marks))
    made = definition(kind, schema, status=True, marks=borne)
    return put(made, kind.kind.lower(), "spec", "names", "singular")

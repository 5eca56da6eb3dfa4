"""What compositions make of claims, a broker and a backup manager, and `klutch-osb` beside them."""

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from bind.osb.dataservices import managed as kinds
from bind.osb.settings import Settings
from reconciler.api import kind_of
from reconciler.blueprints.objects import Marks, build
from reconciler.controller.program import Term
from reconciler.core import keys, refs
from reconciler.core.manifest import JSON, Manifest, controller_to, get_maps, get_text, put, ref_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube import crds
from tests.kit.osb import BrokerWires
from tests.support import removal
from tests.support.clusters import LiveCluster
from tests.support.observing import established
from tests.support.osb_backup_manager import BackupManager
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_scenes import MANAGER, program_at

FOLDER: Final = Path(__file__).parents[2] / "schemas" / "dataservices"
USUAL: Final = Settings(
    dataservices=True, allow_plain_http=True, allow_loopback=True, leader_election=False
)
HOME: Final = "klutch-osb"
# Of the compositions: where the broker and the backup manager of a type are.
URL: Final = "https://broker.example"
MANAGER_URL: Final = "https://backups.example"
BROKER: Final = "postgresql-service-broker"
BACKUP_MANAGER: Final = "postgresql-backup-manager"


@cache
def _files() -> list[Any]:
    """Return the CRDs of provider-anynines' kinds."""
    paths = sorted(FOLDER.iterdir())
    return [yaml.load(path.read_text("utf-8"), yaml.CSafeLoader) for path in paths]


def _is_scoped(crd: Any) -> bool:
    """Return whether a CRD's objects may be in namespaces: all but ProviderConfigs."""
    return bool(crd["spec"]["names"]["kind"] != kinds.PROVIDER_CONFIG.kind)


@dataclass
class Compositions:
    """One control plane, with names of one test's own.

    `namespaced`: as the parts of namespaced composite resources, which ConfigMaps stand for here.
    """

    plane: LiveCluster
    namespace: str  # of claims
    prefix: str = ""
    namespaced: bool = False

    async def install(self) -> None:
        """Make all CRDs until they are served, and the namespaces of claims and of the program."""
        defined = (*crds.load(*crds.BROKERS), *map(self._scoped, _files()))
        for crd in defined:
            await self.plane.cluster.apply(crd, refs.CRD, manager=MANAGER, force=True)
        for crd in defined:
            version = get_text(get_maps(crd, "spec", "versions")[0], "name")
            await established(self.plane.cluster, kind_of(crd, version))
        for name in (HOME, self.namespace):
            made = build(refs.NAMESPACE, name)
            await self.plane.cluster.apply(made, refs.NAMESPACE, manager=MANAGER, force=True)

    async def uninstall(self) -> None:
        """Take the CRDs away: their scope is for good."""
        for ref in [ref_of(self.plane.name, refs.CRD, crd) for crd in _files() if _is_scoped(crd)]:
            await removal.remove(self.plane.cluster, ref)
            await self.absent(ref)

    def _scoped(self, crd: Any) -> Any:
        scoped = self.namespaced and _is_scoped(crd)
        return put(crd, "Namespaced", "spec", "scope") if scoped else crd

    def ref(self, kind: Kind, name: str) -> Ref:
        namespace = self.namespace if self.namespaced and kind != kinds.PROVIDER_CONFIG else ""
        return Ref(self.plane.name, kind, namespace, self.named(name))

    async def configure(self, name: str, url: str, user: str, password: str, **spec: Any) -> None:
        texts = {"username": user, "password": password}
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        secret = {**build(refs.SECRET, self.named(name), namespace=self.namespace), "data": data}
        await self.plane.cluster.apply(secret, refs.SECRET, manager=MANAGER, force=True)
        place = {"namespace": self.namespace, "name": self.named(name)}
        credentials: dict[str, JSON] = {"source": "Secret"}
        credentials |= {key: {"secretRef": {**place, "key": key}} for key in texts}
        config = {
            **build(kinds.PROVIDER_CONFIG, self.named(name)),
            "spec": {"url": url, "providerCredentials": credentials, **spec},
        }
        await self.plane.cluster.apply(config, kinds.PROVIDER_CONFIG, manager=MANAGER, force=True)

    def named(self, name: str) -> str:
        """Return a name of this test's own: the kinds are cluster-scoped."""
        return f"{self.prefix}{name}"

    def program(self, settings: Settings = USUAL, **more: Any) -> AbstractAsyncContextManager[Term]:
        return program_at(self.plane, settings, **more)

    async def make(
        self,
        kind: Kind,
        for_provider: Mapping[str, JSON],
        name: str = "orders",
        *,
        claim: str = "",
        **spec: JSON,
    ) -> Manifest:
        labels = {keys.INSTANCE_TYPE: "postgresql"}
        ref = self.ref(kind, name)
        if not ref.namespace:
            labels |= {keys.CLAIM_NAME: claim or name, keys.CLAIM_NAMESPACE: self.namespace}
        made = build(kind, ref.name, namespace=ref.namespace, marks=Marks(labels, {}))
        if ref.namespace:
            composite = build(refs.CONFIG_MAP, claim or name, namespace=ref.namespace)
            cluster = self.plane.cluster
            owner = await cluster.apply(composite, refs.CONFIG_MAP, manager=MANAGER, force=True)
            owners: list[JSON] = [controller_to(refs.CONFIG_MAP, owner)]
            made = put(made, owners, "metadata", "ownerReferences")
        scoped = replace(kind, namespaced=bool(ref.namespace))
        config = BACKUP_MANAGER if kind in (kinds.BACKUP, kinds.RESTORE) else BROKER
        stated: dict[str, JSON] = {
            "providerConfigRef": {"name": self.named(config)},
            "forProvider": for_provider,
            **spec,
        }
        return await self.plane.cluster.create({**made, "spec": stated}, scoped, manager=MANAGER)

    async def instance(self, name: str = "orders", **more: JSON) -> Manifest:
        asked: dict[str, JSON] = {
            "acceptsIncomplete": True,
            "serviceName": "database",
            "planName": "small",
            "organizationGuid": "organization",
            "spaceGuid": "space",
            **more,
        }
        return await self.make(kinds.SERVICE_INSTANCE, asked, name)

    async def binding(self, name: str = "orders", instance: str = "orders") -> Manifest:
        """Make a ServiceBinding, with a Secret of that name and `-creds`."""
        asked: dict[str, JSON] = {"instanceName": instance, "acceptsIncomplete": True}
        place = {"namespace": self.namespace, "name": f"{name}-creds"}
        return await self.make(kinds.SERVICE_BINDING, asked, name, writeConnectionSecretToRef=place)

    async def change(self, kind: Kind, body: Manifest, name: str = "orders") -> None:
        await self.plane.cluster.merge_patch(self.ref(kind, name), body, manager=MANAGER)

    async def annotate(self, kind: Kind, key: str, text: str, name: str = "orders") -> None:
        await self.change(kind, {"metadata": {"annotations": {key: text}}}, name)

    async def delete(self, kind: Kind, name: str = "orders") -> None:
        await removal.remove(self.plane.cluster, self.ref(kind, name))

    async def end(self, *ended: Kind) -> None:
        """Delete one of each of these kinds, and wait until they are gone."""
        for kind in ended:
            await self.delete(kind)
        for kind in ended:
            await self.gone(kind)

    async def read(self, kind: Kind, name: str = "orders") -> Any:
        """Return an object, None where it is absent."""
        return await self.plane.cluster.get(self.ref(kind, name))

    async def ready(self, kind: Kind, reason: str = "Available", name: str = "orders") -> Any:
        return await self.saying(kind, "Ready", reason, name)

    async def saying(self, kind: Kind, condition: str, reason: str, name: str = "orders") -> Any:
        async def found() -> Any:
            live = await self.read(kind, name)
            held = get_maps(live or {}, "status", "conditions")
            said = [(one.get("type"), one.get("reason")) for one in held]
            assert (condition, reason) in said, held
            return live

        return await reached(found)

    async def gone(self, kind: Kind, name: str = "orders") -> None:
        """Wait until an object is gone."""
        await self.absent(self.ref(kind, name))

    async def absent(self, ref: Ref) -> None:
        async def is_gone() -> bool:
            live = await self.plane.cluster.get(ref)
            assert live is None, live
            return True

        await reached(is_gone)

    async def credentials(self, name: str = "orders") -> dict[str, str]:
        """Return the texts of the Secret of a ServiceBinding, {} without one."""
        ref = Ref(self.plane.name, refs.SECRET, self.namespace, f"{name}-creds")
        data = (await self.plane.cluster.get(ref) or {}).get("data") or {}
        assert isinstance(data, dict)
        return {key: base64.b64decode(value).decode() for key, value in data.items()}


async def reached(probe: Callable[[], Awaitable[Any]], *, within: float = 7200.0) -> Any:
    """Return what a probe returns once that is true; ever less often, as brokers are asked."""
    began = time.monotonic()
    while True:
        last: object
        try:
            last = await probe()
        except AssertionError as failure:
            last = failure
        if last and not isinstance(last, AssertionError):
            return last
        waited = time.monotonic() - began
        assert waited < within, f"not within {within:g} s; last: {last!r}"
        await asyncio.sleep(min(0.05 + waited / 50, 20.0))


@dataclass
class Modelled:
    """All of it without sockets, and what befalls calls."""

    front: Compositions
    broker: ScriptedBroker
    manager: BackupManager
    wires: BrokerWires


@contextlib.asynccontextmanager
async def modelled(
    plane: LiveCluster, namespace: str, *, namespaced: bool = False
) -> AsyncIterator[Modelled]:
    """Yield a broker and a backup manager on a model, with their ProviderConfigs."""
    broker = ScriptedBroker(now=lambda: asyncio.get_running_loop().time())
    manager = BackupManager(lambda instance: instance in broker.provisioned())
    front = Compositions(plane, namespace, namespaced=namespaced)
    await front.install()
    await front.configure(BROKER, URL, broker.user, broker.password)
    await front.configure(
        BACKUP_MANAGER, MANAGER_URL, manager.user, manager.password, serviceType="backupmanager"
    )
    wires = BrokerWires({URL: broker, MANAGER_URL: manager})
    try:
        with wires.plugged():
            yield Modelled(front, broker, manager, wires)
    finally:
        manager.close()
    assert broker.violations == manager.violations == []


def state(live: Any) -> str:
    """Return the state of what stands behind an object."""
    at = ("status", "atProvider")
    return get_text(live, *at, "state") or get_text(live, *at, "status")

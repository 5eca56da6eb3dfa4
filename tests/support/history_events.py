"""Events of random histories: what developers, providers, operators and disasters do."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from reconciler import api
from reconciler.blueprints.objects import namespace
from reconciler.core import keys, names
from reconciler.core.errors import ClusterError, Missing
from reconciler.core.manifest import annotations_of, get_text, name_of, uid_of
from reconciler.core.refs import CONFIG_MAP, CRD, NAMESPACE, SECRET, Kind, ObjectKey, Ref
from tests.support import losses
from tests.support.bound_scenes import BIND, Scene, read, remove
from tests.support.clusters import LiveCluster
from tests.support.histories import CLAIMS, Backup, World
from tests.support.konnector_claims import ends
from tests.support.konnector_scenes import Side, sides
from tests.support.offers import define_again
from tests.support.provenance import NAMESPACES, PLANE

# In a cluster-scoped kind, the copy of one app cluster's `x-orders` has the other's place.
_CLAIMS: Final = ("x-orders", "orders", "users")
_ANOTHER: Final = "00000000-0000-0000-0000-000000000000"
_BARE: Final[dict[str, Any]] = {"metadata": {"finalizers": None}}
_SYSTEM: Final = ObjectKey("", names.KUBE_SYSTEM)


Event: TypeAlias = Callable[[Any], Awaitable[None]]


@dataclass
class History:
    """A world, chance, and the service of an app cluster that events are about."""

    world: World
    chance: random.Random
    scene: Scene
    backups: list[Backup] = field(default_factory=list)
    spaces: set[str] = field(default_factory=set)  # uids of all that were
    log: list[str] = field(default_factory=list)

    async def happens(self, event: Event) -> bool:
        """Let an event happen, and time pass; return whether it could."""
        if self.chance.random() < 0.4:
            self.scene = self.chance.choice(self.world.scenes)
        self.backups.append(self.world.backup())
        self.spaces.add(self.world.record.space(self.scene.app.name))
        self.log.append(f"{event.__name__} in {self.scene.app.name}, {self.scene.offer.scope}")
        happened = True
        try:
            await event(self)
        except ClusterError as error:
            self.log.append(f"  {error}")
            happened = False
        await asyncio.sleep(self.chance.choice([0, 0.2, 6]))
        if self.chance.random() < 0.7:
            await self.world.rest()
        for one in self.world.programs.values():
            one.away -= one.away > 0
            if not one.away and one.made is None:
                await one.start()
        return happened

    @property
    def here(self) -> Side:
        return sides(self.scene)[0]

    @property
    def there(self) -> Side:
        return sides(self.scene)[1]

    @property
    def claims(self) -> dict[str, Any]:
        return self.world.claims(self.scene)

    @property
    def in_namespace(self) -> list[Scene]:
        """The services whose claims are in the app namespace."""
        of_cluster = [one for one in self.world.scenes if one.app is self.scene.app]
        return [one for one in of_cluster if one.offer.kind.namespaced]

    async def claim(self) -> str:
        """Return the name of a live claim, which is made where there is none."""
        if not self.claims:
            await self.make("orders")
        return self.chance.choice(sorted(self.claims))

    async def make(self, name: str, side: Side | None = None, **metadata: Any) -> None:
        spec = {"text": self.world.text()}
        side = side or self.here
        await side.make(name, manager=side.who, spec=spec, metadata=metadata)

    async def make_data(self, kind: Kind, name: str, *, below: bool) -> None:
        """Make a Secret or ConfigMap anew."""
        end = ends(self.scene)[below]
        await end.delete(kind, name)
        await end.make(kind, name, data={"key": self.world.text()})

    async def lose(self, name: str, scene: Scene | None = None) -> None:
        scene = scene or self.scene
        await losses.lose(scene.app.cluster, sides(scene)[0].ref(name))

    async def end(self, live: LiveCluster, kind: Kind, where: str, name: str) -> None:
        """Delete an object; where nobody lets go of it, take its finalizers off."""
        await remove(live, kind, where, name)
        await self.world.rest()
        if await read(live, kind, where, name) is not None:
            with contextlib.suppress(Missing):
                ref = Ref(live.name, kind, where, name)
                await live.cluster.merge_patch(ref, _BARE, manager="disaster")

    async def end_claim(self, name: str) -> None:
        ref = self.here.ref(name)
        await self.end(self.scene.app, ref.kind, ref.namespace, name)

    def app_backup(self) -> Backup:
        """Return the app cluster as it is, to be changed."""
        return {self.scene.app.name: self.world.backup()[self.scene.app.name]}


class Events(History):
    """What may befall the clusters of a history."""

    async def claim_made(self) -> None:
        free = [name for name in _CLAIMS if self.world.read(self.scene, name) is None]
        await (self.make(free[0]) if free else self.claim_changed())

    async def claim_changed(self) -> None:
        await self.here.patch({"spec": {"text": self.world.text()}}, await self.claim())

    async def claim_deleted(self) -> None:
        await self.here.delete(await self.claim())

    async def claim_made_again(self) -> None:
        name = await self.claim()
        await self.end_claim(name)
        await self.make(name)

    async def claim_lost(self) -> None:
        await self.lose(await self.claim())

    async def claim_lost_and_made(self) -> None:
        name = await self.claim()
        await self.lose(name)
        await self.make(name)

    async def claim_restored(self) -> None:
        """A backup of objects brings a claim back, with its marks and another uid."""
        name = await self.claim()
        former = self.claims[name]
        await self.lose(name)
        await self.make(name, annotations=annotations_of(former), finalizers=[keys.SYNCER])
        if uid_of(former) in self.world.record.served:
            self.world.record.served.add(uid_of(self.world.read(self.scene, name)))

    async def claim_copied(self) -> None:
        name = await self.claim()
        marks = annotations_of(self.claims[name])
        await self.make(f"copied{len(self.log)}", annotations=marks, finalizers=[keys.SYNCER])

    async def namespace_lost_and_made(self) -> None:
        await self._another_namespace()

    async def namespace_ended_and_made(self) -> None:
        """The developers delete all that they have there before."""
        for scene in self.in_namespace:
            for name in self.world.claims(scene):
                await sides(scene)[0].delete(name)
        await self.world.rest()
        await self._another_namespace()

    async def _another_namespace(self) -> None:
        """Let the app namespace be another one, with a claim of a name that was used."""
        place = (self.scene.app, NAMESPACE, "", self.scene.app_namespace)
        for scene in self.in_namespace:
            for name in self.world.claims(scene):
                await self.lose(name, scene)
        await remove(*place)
        await self.world.rest()
        for scene in self.in_namespace:
            kind, cluster = scene.offer.kind, scene.app.cluster
            for live in (await cluster.list(kind)).items:
                with contextlib.suppress(Missing):
                    ref = Ref(scene.app.name, kind, scene.app_namespace, name_of(live))
                    await cluster.merge_patch(ref, _BARE, manager="disaster")
        if await read(*place) is None:
            made = namespace(self.scene.app_namespace)
            await self.scene.app.cluster.create(made, NAMESPACE, manager="tests")
        await self.make("orders", sides(self.in_namespace[0])[0])

    async def kind_made_again(self) -> None:
        """The provider's CRD goes, with all copies."""
        await remove(self.scene.plane, CRD, "", self.scene.offer.name)
        if self.chance.random() < 0.5:
            await self.world.rest()
        await define_again(self.scene.plane.cluster, self.scene.offer)

    async def kind_lost(self) -> None:
        """The app cluster loses the CRD, with all claims."""
        kind, backup = self.scene.offer.kind, self.app_backup()
        objects, _ = backup[self.scene.app.name]
        objects[kind.group, kind.plural] = {}
        objects[CRD.group, CRD.plural].pop(ObjectKey("", self.scene.offer.name), None)
        await self.world.restore(backup, self.scene.app.name)

    async def binding_made_again(self) -> None:
        await self.end(self.scene.app, api.API_SERVICE_BINDING, BIND, self.scene.offer.name)
        await self.scene.own_crd(await self.scene.bind(*CLAIMS))

    async def export_made_again(self) -> None:
        await self.end(
            self.scene.plane, api.API_SERVICE_EXPORT, self.scene.space, self.scene.offer.name
        )
        await self.request_made_again()

    async def request_made_again(self) -> None:
        kind, where = api.API_SERVICE_EXPORT_REQUEST, self.scene.space
        for one in (await self.scene.plane.cluster.list(kind, namespace=where)).items:
            await remove(self.scene.plane, kind, where, name_of(one))
        await self._request_all()

    async def _request_all(self) -> None:
        for scene in self.world.scenes:
            if scene.space == self.scene.space:
                await scene.request()

    async def app_cluster_restored(self) -> None:
        await self.world.restore(self.chance.choice(self.backups), self.scene.app.name, live=True)

    async def control_plane_restored(self) -> None:
        await self.world.restore(self.chance.choice(self.backups), PLANE, live=True)

    async def all_restored(self) -> None:
        await self.world.restore(self.chance.choice(self.backups), *self.world.models, live=True)

    async def deletion_restored(self) -> None:
        """The app cluster is as when a claim was on its way out, whose name is used by now."""
        name = await self.claim()
        await self.world.rest()
        await self.here.delete(name)
        backup = self.app_backup()
        await self.end_claim(name)
        await self.make(name)
        await self.world.rest()
        await self.world.restore(backup, self.scene.app.name)

    async def konnector_dies(self) -> None:
        self.world.programs[self.scene.app.name].writes_left = self.chance.randint(1, 6)

    async def backend_dies(self) -> None:
        self.world.programs[PLANE].writes_left = self.chance.randint(1, 6)

    async def konnector_away(self) -> None:
        await self.world.programs[self.scene.app.name].leave(events=2)

    async def backend_away(self) -> None:
        await self.world.programs[PLANE].leave(events=2)

    async def secret_made_on_both_sides(self) -> None:
        for below in self.chance.sample([False, True], 2):
            await self.make_data(SECRET, f"both{len(self.log)}", below=below)

    async def secret_made_again(self) -> None:
        await self.make_data(SECRET, "creds", below=False)

    async def secret_deleted(self) -> None:
        await ends(self.scene)[0].delete(SECRET, "creds")

    async def config_made_again(self) -> None:
        await self.make_data(CONFIG_MAP, "config", below=True)

    async def config_deleted(self) -> None:
        await ends(self.scene)[1].delete(CONFIG_MAP, "config")

    async def copy_deleted(self) -> None:
        await self.there.delete(await self.claim())

    async def copy_made_again(self) -> None:
        """The provider deletes a copy, and makes it again with its marks, or another claim's."""
        name = await self.claim()
        marks = annotations_of(await self.there.read(name) or {})
        if self.chance.random() < 0.5:
            marks |= {keys.CLAIM_UID: _ANOTHER}
        if not self.scene.offer.kind.namespaced:
            space = await self.scene.on_plane(NAMESPACE, self.scene.space)
            marks |= {keys.CLUSTER_NAMESPACE: self.scene.space, keys.SPACE_UID: uid_of(space or {})}
        await self.there.delete(name)
        await self.make(name, self.there, annotations=marks)

    async def mapping_deleted(self) -> None:
        """With it, a service namespace without copies may go, or be another app cluster's."""
        live = await read(self.scene.plane, NAMESPACE, "", self.scene.service_namespace)
        self.world.record.unmapped(self.scene.app.name, uid_of(live or {}))
        kind = api.API_SERVICE_NAMESPACE
        await remove(self.scene.plane, kind, self.scene.space, self.scene.app_namespace)

    async def service_namespace_deleted(self) -> None:
        await remove(self.scene.plane, NAMESPACE, "", self.scene.service_namespace)

    async def space_made_again(self) -> None:
        """The space goes, and another one of its name is bound, with a token of its own."""
        scene, konnector = self.scene, self.world.programs[self.scene.app.name]
        runs = konnector.made is not None
        await konnector.stop()
        await remove(scene.plane, NAMESPACE, "", scene.space)
        await self.world.rest()
        store = self.world.models[PLANE].store
        for resource, key, live in tuple(store.everything()):
            if key.namespace == scene.space and live["metadata"].get("finalizers"):
                store.put(resource, key, None)
        await remove(scene.app, SECRET, BIND, scene.secret)
        await remove(scene.plane, NAMESPACE, "", scene.space)
        await scene.make_space()
        await self._request_all()
        if runs:
            await konnector.start()

    async def app_cluster_changed(self) -> None:
        """The konnector's kubeconfig leads to another cluster, or to the first one again."""
        name, backup = self.scene.app.name, self.app_backup()
        namespaces = backup[name][0][NAMESPACES]
        live, first = namespaces[_SYSTEM], uid_of(self.world.first[name][0][NAMESPACES][_SYSTEM])
        uid = first if uid_of(live) != first else f"another{len(self.log)}"
        namespaces[_SYSTEM] = {**live, "metadata": {**live["metadata"], "uid": uid}}
        await self.world.restore(backup, name)


EVENTS: Final[Sequence[Event]] = [
    event for name, event in vars(Events).items() if not name.startswith("_")
]


async def ends_well(it: History) -> None:
    """Change all claims; then let a person confirm all, until each claim is served again."""
    world = it.world
    for one in world.programs.values():
        if one.made is None:
            await one.start()
    for scene in world.scenes:
        for name in world.claims(scene):
            await sides(scene)[0].patch({"spec": {"text": world.text()}}, name)
    for _ in range(6):
        await asyncio.sleep(61)
        await world.rest()
        if world.record.confirmed and not (late := unserved(world)):
            return
        world.record.confirmed = True
        await _confirm(it)
    raise AssertionError(f"claims are not served: {late}")


async def _confirm(it: History) -> None:
    for scene in {scene.space: scene for scene in it.world.scenes}.values():
        uid, system = [
            uid_of(await read(scene.app, NAMESPACE, "", name) or {})
            for name in (scene.app_namespace, names.KUBE_SYSTEM)
        ]
        await losses.confirm(scene, keys.CONFIRM_RECREATE, "all")
        await losses.confirm(scene, keys.CONFIRM_NAMESPACES, f"{scene.app_namespace}={uid}")
        await losses.confirm(scene, keys.CONFIRM_APP_CLUSTER, system)
        await losses.confirm(scene, keys.CONFIRM_MASS_DELETE)
        space = Ref(scene.plane.name, NAMESPACE, "", scene.space)
        await losses.note(scene.plane, space, keys.CONFIRM_SPACE, ",".join(it.spaces))


def unserved(world: World) -> list[str]:
    """Return which claims differ from their copies, but for those whose place is another's."""
    late = []
    for scene in world.scenes:
        for name, claim in world.claims(scene).items():
            copy = world.read(scene, name, at=PLANE)
            pair = world.record.pairs.get(uid_of(copy or {}))
            if pair is not None and pair.cluster != scene.app.name:
                continue
            texts = [get_text(claim, part, "text") for part in ("spec", "status")]
            if texts != [get_text(copy, part, "text") for part in ("spec", "status")]:
                late.append(
                    f"{scene.app.name} {scene.offer.name} {name}, with a copy: {bool(copy)}"
                )
    return late

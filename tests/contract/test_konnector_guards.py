"""What a konnector refuses to delete, or to make anew, between real API servers (mapping.md 10).

The loss of an app cluster must not become the loss of its services (H4, golden 06/40), nor that
of a space a lot of new, empty ones.
"""

import contextlib
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import pytest

from konnector.program import Konnector
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE
from reconciler.core import keys, names
from reconciler.core.durations import format_time
from reconciler.core.errors import Conflict
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    get_text,
    name_of,
    resource_version_of,
    uid_of,
)
from reconciler.core.refs import CONFIG_MAP, EVENT, NAMESPACE, SECRET, Kind, Ref
from reconciler.kube.cluster import Preconditions, Propagation
from tests.support.backend_stories import StandingClock
from tests.support.bound_scenes import BIND, Scene, conditions, gone, remove, secret, until
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound, claim, data, mapping_of
from tests.support.konnector_scenes import equals
from tests.support.settled import settled

MANY: Final = 8
DELETES, CREATES = "DeletesAllowed", "RecreationAllowed"
STRANGER: Final = "00000000-0000-0000-0000-000000000000"


class Many:
    """Instances of one service, and how they get lost on either side."""

    def __init__(self, scene: Scene, number: int = MANY) -> None:
        self.scene, self.kind = scene, scene.offer.kind
        self.names = [f"db{one}" for one in range(number)]

    async def make(self, *besides: str) -> None:
        """Make them, where there are others already."""
        for name in self.names:
            await self.scene.create_instance(name, size="1Gi")
        await until(lambda: self.are_there(*besides))

    async def are_there(self, *besides: str) -> bool:
        return await self.there() == sorted([*self.names, *besides])

    async def there(self) -> list[str]:
        scene = self.scene
        return await _names(scene.plane, self.kind, scene.service_namespace)

    async def lose_instance(self, name: str) -> None:
        """Let an instance be gone as if it had never been: nobody was asked, nobody waits."""
        cluster = self.scene.app.cluster
        ref = Ref(cluster.name, self.kind, self.scene.app_namespace, name)
        nothing: Manifest = {"metadata": {"finalizers": None}}
        while True:
            bare = await cluster.merge_patch(ref, nothing, manager="disaster")
            as_bare = Preconditions(uid=uid_of(bare), resource_version=resource_version_of(bare))
            with contextlib.suppress(Conflict):  # the konnector gave it its finalizer again
                await cluster.delete(ref, preconditions=as_bare, propagation=Propagation.BACKGROUND)
                return

    async def lose_copy(self, name: str) -> None:
        await remove(self.scene.plane, self.kind, self.scene.service_namespace, name)


async def _names(live: LiveCluster, kind: Kind, namespace: str) -> list[str]:
    found = (await live.cluster.list(kind, namespace=namespace)).items
    return sorted(name_of(one) for one in found)


async def note(live: LiveCluster, ref: Ref, key: str, value: str | None) -> None:
    body: Manifest = {"metadata": {"annotations": {key: value}}}
    await live.cluster.merge_patch(ref, body, manager="operator")


async def confirm(scene: Scene, key: str, now: datetime | None = None) -> None:
    ref = Ref(scene.plane.name, CLUSTER_BINDING, scene.space, names.CLUSTER_BINDING)
    await note(scene.plane, ref, key, format_time(now or datetime.now(UTC)))


async def cause(scene: Scene, condition: str) -> str:
    """Return why the ClusterBinding says that a guard is closed; "" where it does not say so."""
    live = await scene.on_plane(CLUSTER_BINDING, names.CLUSTER_BINDING)
    said = conditions(live).get(condition, {"status": "True"})
    return "" if said["status"] == "True" else said["reason"]


async def told(scene: Scene, reason: str) -> Any:
    """Return the Event about the APIServiceBinding with this reason."""
    binding = await scene.binding()
    for event in (await scene.app.cluster.list(EVENT, namespace=BIND)).items:
        about = get_text(event, "regarding", "uid")
        if about == uid_of(binding) and get_text(event, "reason") == reason:
            return event
    return None


def held(made: Konnector, verb: str) -> float:
    """Return how many writes were held, as the metrics tell."""
    return made.meters.registry.get_sample_value("klutch_held_writes_total", {"verb": verb}) or 0


def mapping_ref(scene: Scene) -> Ref:
    return Ref(scene.plane.name, API_SERVICE_NAMESPACE, scene.space, scene.app_namespace)


def secret_ref(scene: Scene) -> Ref:
    return Ref(scene.app.name, SECRET, BIND, scene.secret)


async def recorded(live: LiveCluster, ref: Ref, key: str) -> str | None:
    return annotations_of(await live.cluster.get(ref) or {}).get(key)


@pytest.mark.parametrize("namespace_too", [False, True])
async def test_an_emptied_app_cluster_deletes_nothing_until_it_is_confirmed(
    scene: Scene, namespace_too: bool
) -> None:
    """H4: neither the copies nor, with all of them in it, the service namespace."""
    many = Many(scene)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene, claim("secrets", "Provider"))
            await many.make("orders")
            await remove(scene.app, many.kind, scene.app_namespace, "orders")
            await until(lambda: many.are_there())
            await until(lambda: gone(scene.instance()))
        for name in many.names:
            await many.lose_instance(name)
        if namespace_too:
            await remove(scene.app, NAMESPACE, "", scene.app_namespace)
            await until(lambda: _is_gone(scene))
        mark = scene.plane.audit.mark()
        async with konnector(scene.app.connection) as made:
            await until(lambda: _says(scene, DELETES, "MassDeleteHeld"))
            event = await until(lambda: told(scene, "MassDeleteHeld"))
            assert f"8 of 8 {scene.offer.name}" in event["note"]
            assert keys.CONFIRM_MASS_DELETE in event["note"]
            await eventually(lambda: held(made, "delete") > 0)
            await settled(made)
            assert await many.there() == many.names
            assert await mapping_of(scene, scene.app_namespace)
            deletes = [one for one in scene.plane.audit.writes_since(mark) if one.verb == "delete"]
            assert not [one for one in deletes if scene.space in one.namespace]

            await confirm(scene, keys.CONFIRM_MASS_DELETE)
            await until(lambda: _empty(many))
            await until(lambda: _says(scene, DELETES, ""))
            if namespace_too:
                await until(lambda: _unmapped(scene))


async def _is_gone(scene: Scene) -> bool:
    return await scene.in_app(NAMESPACE, scene.app_namespace, "") is None


async def _says(scene: Scene, condition: str, reason: str) -> bool:
    return await cause(scene, condition) == reason


async def _empty(many: Many) -> bool:
    return not await many.there()


async def _unmapped(scene: Scene) -> bool:
    return await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace) is None


async def test_what_was_lost_and_comes_back_opens_the_guard_again(scene: Scene) -> None:
    many, clock = Many(scene), ForwardClock()
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
        for name in many.names:
            await many.lose_instance(name)
        async with konnector(scene.app.connection, clock=clock):
            await until(lambda: _says(scene, DELETES, "MassDeleteHeld"))
            for name in many.names:
                await scene.create_instance(name, size="2Gi")

            async def well() -> bool:
                clock.put_forward(timedelta(seconds=30))
                return await _says(scene, DELETES, "")

            await until(well)
            assert await many.there() == [*many.names, "orders"]
            # What is lost then is one of many, and goes.
            await many.lose_instance("db0")
            await until(lambda: _lacks(many, "db0"))


async def _lacks(many: Many, name: str) -> bool:
    return name not in await many.there()


async def test_a_loss_that_drips_in_is_seen_as_one(scene: Scene) -> None:
    """Five are few; with the sixth within a minute it is more than half of them."""
    many = Many(scene)
    async with scene.backend(), konnector(scene.app.connection, clock=StandingClock()) as made:
        await bound(scene)
        await many.make("orders")
        for name in many.names[:5]:
            await many.lose_instance(name)
            await until(partial(_lacks, many, name))
        for name in many.names[5:]:
            await many.lose_instance(name)
            await until(lambda: _says(scene, DELETES, "MassDeleteHeld"))
        await eventually(lambda: held(made, "delete") >= 3)
        assert await many.there() == [*many.names[5:], "orders"]


async def test_another_app_cluster_deletes_nothing(scene: Scene) -> None:
    """Not even one, and not if somebody asks for it; with a person's word, all is as usual."""
    many = Many(scene, 2)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
            uid = await recorded(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID)
            system = await scene.in_app(NAMESPACE, names.KUBE_SYSTEM, "")
            assert uid == uid_of(system)
        await note(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID, STRANGER)
        await many.lose_instance("db0")
        async with konnector(scene.app.connection):
            await until(lambda: _says(scene, DELETES, "AppClusterChanged"))
            assert await until(lambda: told(scene, "AppClusterChanged"))
            await remove(scene.app, many.kind, scene.app_namespace, "db1")
            await until(lambda: _event_about(scene, many, "db1", "DeletionHeld"))
            assert await many.there() == ["db0", "db1", "orders"]
            assert await recorded(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID) == STRANGER

            await confirm(scene, keys.CONFIRM_MASS_DELETE)
            await until(lambda: _lacks(many, "db0"))
            await until(lambda: _lacks(many, "db1"))

            async def ours() -> bool:
                held_uid = await recorded(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID)
                return held_uid == uid

            await until(ours)
            assert await many.there() == ["orders"]


async def _event_about(scene: Scene, many: Many, name: str, reason: str) -> bool:
    events = (await scene.app.cluster.list(EVENT, namespace=scene.app_namespace)).items
    return any(
        get_text(one, "reason") == reason and get_text(one, "regarding", "name") == name
        for one in events
    )


async def test_an_emptied_space_is_not_filled_with_new_services_until_it_is_confirmed(
    scene: Scene,
) -> None:
    """Nor are the credentials taken away that applications run on."""
    many = Many(scene)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene, claim("secrets", "Provider"))
            await many.make("orders")
            made = secret("creds", scene.service_namespace)
            await scene.plane.cluster.create(made, SECRET, manager="provider")
            await until(lambda: has_credentials(scene))
        for name in [*many.names, "orders"]:
            await many.lose_copy(name)
        await remove(scene.plane, SECRET, scene.service_namespace, "creds")
        async with konnector(scene.app.connection) as running:
            await until(lambda: _says(scene, CREATES, "MassRecreationHeld"))
            assert await until(lambda: told(scene, "MassRecreationHeld"))
            await scene.create_instance("new", size="1Gi")
            await until(lambda: scene.copy("new"))
            await until(lambda: _event_about(scene, many, "db0", "RecreationHeld"))
            await eventually(lambda: held(running, "create") > 0)
            await settled(running)
            assert await many.there() == ["new"]
            assert await has_credentials(scene)

            await confirm(scene, keys.CONFIRM_RECREATE)
            await until(lambda: many.are_there("new", "orders"))
            await until(lambda: _says(scene, CREATES, ""))
            await until(lambda: has_credentials(scene, False))


async def has_credentials(scene: Scene, wanted: bool = True) -> bool:
    return (await scene.in_app(SECRET, "creds", scene.app_namespace) is not None) is wanted


async def test_copies_that_vanish_one_by_one_are_seen_as_one_loss(scene: Scene) -> None:
    """One alone is made again, as in the protocol (G 44); so are a few."""
    many = Many(scene)
    async with scene.backend(), konnector(scene.app.connection, clock=StandingClock()):
        await bound(scene)
        await many.make("orders")
        for name in many.names[:5]:
            before = uid_of(await scene.copy(name))
            await many.lose_copy(name)
            await until(partial(_is_another, scene, name, before))
        await many.lose_copy("db5")
        await until(lambda: _says(scene, CREATES, "MassRecreationHeld"))
        await many.lose_copy("db6")
        await until(lambda: _event_about(scene, many, "db6", "RecreationHeld"))
        assert await many.there() == ["db0", "db1", "db2", "db3", "db4", "db7", "orders"]


async def _is_another(scene: Scene, name: str, uid: str) -> bool:
    live = await scene.copy(name)
    return live is not None and uid_of(live) != uid


async def test_a_space_that_was_made_anew_gets_no_lost_copy(scene: Scene) -> None:
    """The Secret in the app cluster remembers the space; a person's word lets it be another."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            space = await scene.on_plane(NAMESPACE, scene.space, "")
            await until(lambda: _remembers(scene, uid_of(space)))
        await note(scene.app, secret_ref(scene), keys.SPACE_UID, STRANGER)
        await Many(scene).lose_copy("orders")
        async with konnector(scene.app.connection):
            await until(lambda: _says(scene, CREATES, "SpaceChanged"))
            await until(lambda: _event_about(scene, Many(scene), "orders", "RecreationHeld"))
            assert await scene.copy() is None
            assert await _remembers(scene, STRANGER)

            await confirm(scene, keys.CONFIRM_RECREATE)
            await until(lambda: scene.copy())
            await until(lambda: _remembers(scene, uid_of(space)))


async def _remembers(scene: Scene, uid: str) -> bool:
    return await recorded(scene.app, secret_ref(scene), keys.SPACE_UID) == uid


async def test_a_take_over_records_what_it_finds(scene: Scene) -> None:
    """The original records neither; the first time nothing is held by them."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await until(lambda: scene.copy())
            space = await scene.on_plane(NAMESPACE, scene.space, "")
            await until(lambda: _remembers(scene, uid_of(space)))
        await note(scene.app, secret_ref(scene), keys.SPACE_UID, None)
        await note(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID, None)
        await Many(scene).lose_instance("orders")
        async with konnector(scene.app.connection):
            await until(lambda: _lacks(Many(scene), "orders"))
            await until(lambda: _remembers(scene, uid_of(space)))
            assert await until(
                lambda: recorded(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID)
            )
            assert not await cause(scene, DELETES)


async def test_what_an_app_cluster_owns_is_kept_when_most_of_it_is_lost(scene: Scene) -> None:
    """Claimed objects have no finalizer: that they are gone may be meant, or a disaster."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            there, here = await bound(scene, claim("configmaps", "Consumer"))
            for one in range(MANY):
                await here.make(CONFIG_MAP, f"c{one}", **data("one", "ConfigMap"))
            await until(lambda: equals(there.all(CONFIG_MAP), [f"c{one}" for one in range(MANY)]))
        for one in range(MANY):
            await here.delete(CONFIG_MAP, f"c{one}")
        async with konnector(scene.app.connection):
            await until(lambda: _says(scene, DELETES, "MassDeleteHeld"))
            assert await there.all(CONFIG_MAP) == [f"c{one}" for one in range(MANY)]
            await confirm(scene, keys.CONFIRM_MASS_DELETE)
            await until(lambda: there.lacks(CONFIG_MAP, "c7"))
            await until(lambda: there.lacks(CONFIG_MAP, "c0"))

"""Kubeconfigs that are renewed, broken, deleted and changed by hand, while claims are synced.

Nothing is read anew for a new kubeconfig of the same space, no write is lost, and the last one
that worked is kept (protocol-konnector.md A.7, B, H20, H21; golden 06/80 and 81).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from konnector.space.decide import PULSE
from reconciler.api import CLUSTER_BINDING
from reconciler.blueprints.objects import build
from reconciler.controller.program import Term
from reconciler.core import names
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import NAMESPACE, SECRET
from tests.support.bound_scenes import (
    ACCEPTED,
    BIND,
    MANAGER,
    Scene,
    conditions,
    direct_scene,
    gone,
    remove,
    says,
    until,
)
from tests.support.cues import Gate
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.forward_clock import ForwardClock
from tests.support.http_faults import answer, on
from tests.support.konnector import konnector
from tests.support.konnector_claims import is_idle
from tests.support.konnector_ways import (
    Kubeconfigs,
    a_way,
    account,
    content,
    fronting,
    put,
    text_of,
)
from tests.support.offers import offered
from tests.support.settled import settled

INVALID = "KubeconfigSecretInvalid"
SOURCE_INVALID = "ProviderSecretInvalid"


@dataclass
class Bound:
    """A scene whose first kubeconfig leads through `way`."""

    scene: Scene
    way: FaultProxy
    clock: ForwardClock
    program: Term

    @property
    def kubeconfigs(self) -> Kubeconfigs:
        return Kubeconfigs(self.scene)

    def cluster_binding(self) -> Any:
        return self.scene.on_plane(CLUSTER_BINDING, names.CLUSTER_BINDING)

    async def secret(self) -> Any:
        return await self.scene.in_app(SECRET, self.scene.secret)

    async def syncs(self, name: str) -> None:
        """See that a new claim goes up."""
        await self.scene.create_instance(name)
        await until(lambda: self.scene.copy(name))

    async def heart(self) -> str:
        return get_text(await self.cluster_binding(), "status", "lastHeartbeatTime")


@asynccontextmanager
async def bound(scene: Scene) -> AsyncIterator[Bound]:
    clock = ForwardClock()
    async with (
        fronting(scene.plane) as way,
        scene.backend(),
        konnector(scene.app.connection, clock=clock) as program,
    ):
        led = replace(scene.plane, connection=way.connection)
        await replace(scene, plane=led).make_space()
        await scene.request()
        await scene.bind(ACCEPTED)
        await until(lambda: says(scene.export(), "Ready"))
        made = Bound(scene, way, clock, program)
        await made.syncs("first")
        yield made


async def test_a_renewed_kubeconfig_is_used_without_a_gap(scene: Scene) -> None:
    async with bound(scene) as made, a_way(scene.plane) as (new_way, lists):
        renewed = made.kubeconfigs.by(new_way.connection, await scene.token())
        creating = asyncio.create_task(many_claims(scene))
        await made.kubeconfigs.provide(renewed)
        await until(lambda: made.kubeconfigs.mirrored(renewed))
        await eventually(lambda: len(lists.watched) >= 6)
        assert new_way.log[0].path == f"/api/v1/namespaces/{scene.space}"  # it was tried first
        made.way.add(on(), answer(401))
        created = await creating
        await until(lambda: all_copied(scene, created))
        await scene.patch_copy({"status": {"phase": "Ready"}}, subresource="status")
        assert lists.listed == []
        assert await says(made.cluster_binding(), "SecretValid")
        assert await says(scene.binding(), "Ready")


async def many_claims(scene: Scene) -> list[str]:
    created = ["orders", *(f"claim-{number}" for number in range(40))]
    for name in created:
        await scene.create_instance(name)
        await asyncio.sleep(0.02)
    return created


async def all_copied(scene: Scene, created: list[str]) -> bool:
    found = await scene.plane.cluster.list(scene.offer.kind, namespace=scene.service_namespace)
    return {get_text(one, "metadata", "name") for one in found.items} >= {*created}


async def test_what_befalls_the_way_to_a_provider_stops_nothing(scene: Scene) -> None:
    async with bound(scene) as made:
        await a_deleted_secret_is_made_again_and_nothing_stops(made)
        await a_space_without_its_cluster_binding_is_reported(made)
        await a_control_plane_that_is_away_for_long_is_reported_and_comes_back(made)
        await a_revoked_token_is_reported_and_a_new_one_mends_it(made)
        await a_broken_kubeconfig_is_never_mirrored_and_its_repair_is(made)
        await a_secret_that_was_spoilt_by_hand_stops_nothing(made)


async def a_deleted_secret_is_made_again_and_nothing_stops(made: Bound) -> None:
    await settled(made.program)
    before = await made.secret()
    for turn in range(3):  # the original loses a race now and then
        await remove(made.scene.app, SECRET, BIND, made.scene.secret)
        await made.syncs(f"claim-{turn}")
        await until(made.secret)
    assert (await made.secret())["data"] == before["data"]
    await until(lambda: says(made.scene.binding(), "SecretValid"))
    await until(lambda: says(made.scene.binding(), "Ready"))


async def a_space_without_its_cluster_binding_is_reported(made: Bound) -> None:
    before = await made.cluster_binding()
    await remove(made.scene.plane, CLUSTER_BINDING, made.scene.space, names.CLUSTER_BINDING)
    reason = "ClusterBindingUpdateFailed"
    await until(lambda: says(made.scene.binding(), "Heartbeating", "False", reason))
    again = {key: before[key] for key in ("apiVersion", "kind", "spec")}
    metadata: Manifest = {"name": names.CLUSTER_BINDING, "namespace": made.scene.space}
    await made.scene.plane.cluster.create(
        {**again, "metadata": metadata}, CLUSTER_BINDING, manager=MANAGER
    )
    await until(lambda: says(made.scene.binding(), "Heartbeating"))
    await until(made.heart)


async def a_control_plane_that_is_away_for_long_is_reported_and_comes_back(made: Bound) -> None:
    made.way.refuse()
    made.way.cut()
    made.clock.put_forward(PULSE)
    reason = "ClusterBindingUpdateFailed"
    reported = lambda: says(made.scene.binding(), "Heartbeating", "False", reason)  # noqa: E731
    await until(reported, within=180)
    await made.scene.create_instance("after-absence")
    await made.way.accept()
    await until(lambda: says(made.scene.binding(), "Heartbeating"))
    await until(lambda: made.scene.copy("after-absence"))


async def a_revoked_token_is_reported_and_a_new_one_mends_it(made: Bound) -> None:
    made.way.add(on(), answer(401))
    made.way.cut()
    made.clock.put_forward(PULSE)
    reason = "ClusterBindingUpdateFailed"
    await until(lambda: says(made.scene.binding(), "Heartbeating", "False", reason))
    assert not await says(made.scene.binding(), "Ready")
    await made.scene.create_instance("after-revocation")
    await made.kubeconfigs.place(await made.kubeconfigs.renewed())
    await until(lambda: made.scene.copy("after-revocation"))
    await until(lambda: says(made.scene.binding(), "Heartbeating"))
    await until(lambda: says(made.scene.binding(), "Ready"))


async def a_broken_kubeconfig_is_never_mirrored_and_its_repair_is(made: Bound) -> None:
    await settled(made.program)
    before = await made.secret()
    plane = made.scene.plane.connection
    for broken in ("garbage", made.kubeconfigs.by(plane, "a.b.c")):
        await made.kubeconfigs.provide(broken)

        async def reported(broken: str = broken) -> bool:
            found = conditions(await made.cluster_binding())["SecretValid"]
            wrong = "invalid" if broken == "garbage" else "does not work from here"
            return wrong in found.get("message", "")

        await until(reported)
        assert await made.secret() == before
    await made.syncs("beside-broken")
    renewed = await made.kubeconfigs.renewed()
    await made.kubeconfigs.provide(renewed)
    await until(lambda: made.kubeconfigs.mirrored(renewed))
    await until(lambda: says(made.cluster_binding(), "SecretValid"))
    assert await says(made.scene.binding(), "Ready")


async def a_secret_that_was_spoilt_by_hand_stops_nothing(made: Bound) -> None:
    await made.kubeconfigs.provide("garbage")
    await until(lambda: says(made.cluster_binding(), "SecretValid", "False", SOURCE_INVALID))
    await made.kubeconfigs.place("garbage")
    await until(lambda: says(made.scene.binding(), "SecretValid", "False", INVALID))
    await made.syncs("beside-spoilt")
    assert await says(made.scene.binding(), "Connected")
    renewed = await made.kubeconfigs.renewed()
    await made.kubeconfigs.provide(renewed)
    await until(lambda: made.kubeconfigs.mirrored(renewed))
    await until(lambda: says(made.scene.binding(), "SecretValid"))


async def test_a_way_that_somebody_chose_is_kept(scene: Scene) -> None:
    async with bound(scene) as made, a_way(scene.plane) as (own_way, lists):
        held = await made.secret()
        chosen = text_of(held).replace(made.way.url, own_way.url)
        await made.kubeconfigs.place(chosen)
        await eventually(lambda: len(lists.watched) >= 6)
        mark = scene.app.audit.mark()
        before = await made.heart()
        made.clock.put_forward(PULSE)
        await until(lambda: changed(made.heart, before))
        assert await made.kubeconfigs.mirrored(chosen)
        written = scene.app.audit.writes_since(mark, namespace=BIND)
        assert [one for one in written if one.resource == "secrets"] == []
        assert await says(made.cluster_binding(), "SecretValid")


async def changed(reading: Callable[[], Awaitable[str]], before: str) -> bool:
    return await reading() != before


async def test_a_token_that_never_worked_is_mended_by_a_new_one(scene: Scene) -> None:
    """As where it was revoked while no konnector ran; which space it led to is not known."""
    async with scene.backend(), konnector(scene.app.connection):
        await scene.make_space()
        await scene.request()
        kubeconfigs = Kubeconfigs(scene)
        await kubeconfigs.place(kubeconfigs.by(scene.plane.connection, "a.b.c"))
        await scene.bind(ACCEPTED)
        await until(lambda: says(scene.binding(), "Connected", "False", "Pending"))
        await kubeconfigs.place(await kubeconfigs.renewed())
        await until(lambda: says(scene.binding(), "Ready"))
        await scene.create_instance("waiting")
        await until(lambda: scene.copy("waiting"))


async def test_a_kubeconfig_to_a_space_that_is_not_there_is_reported_and_asks_little(
    scene: Scene,
) -> None:
    """With rights everywhere, every list of it succeeds and is empty."""
    clock = ForwardClock()
    everything: Manifest = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    async with (
        account(scene.plane, [everything]) as token,
        a_way(scene.plane) as (way, _),
        konnector(scene.app.connection, clock=clock) as working,
    ):
        made = build(SECRET, scene.secret, namespace=BIND)
        await scene.app.cluster.create(made, SECRET, manager=MANAGER)
        await put(scene.app, BIND, scene.secret, content(way.connection, token, scene.space))
        await scene.bind()

        async def reported() -> bool:
            if is_idle(working):  # a slow machine is asked no more often
                clock.put_forward(timedelta(seconds=30))
            found = conditions(await scene.binding()).get("InformersSynced", {})
            return f"Namespace {scene.space} does not exist" in found.get("message", "")

        await until(reported)
        asked = [one for one in way.log if one.path.endswith(f"/namespaces/{scene.space}")]
        assert len(asked) < 100


async def test_two_providers_side_by_side_and_one_of_them_ends(
    scene: Scene, namespace: str
) -> None:
    other_name = f"test-x{namespace[6:]}"
    async with (
        a_namespace(scene, other_name),
        direct_scene(scene.plane, scene.app, other_name) as other,
        bound(scene) as made,
        a_way(scene.plane) as (silent, _),
        a_way(scene.plane) as (new_way, _),
    ):
        await other.bound(ACCEPTED)
        await until(lambda: says(other.export(), "Ready"))
        await other.create_instance("theirs")
        await until(lambda: other.copy("theirs"))
        there = Bound(other, made.way, made.clock, made.program)
        # Nor is one that leads to a server which does not answer.
        gate = Gate()
        silent.add(on(), gate)
        await made.kubeconfigs.place(made.kubeconfigs.by(silent.connection, await scene.token()))
        await gate.reached.wait()
        await there.kubeconfigs.place(there.kubeconfigs.by(new_way.connection, await other.token()))
        await eventually(lambda: len(new_way.log) > 1)  # it was tried, and is used
        assert silent.log == []
        gate.open()
        # A new token for one of them is no matter to the other.
        renewed = await there.kubeconfigs.renewed()
        await there.kubeconfigs.provide(renewed)
        await until(lambda: there.kubeconfigs.mirrored(renewed))
        await made.syncs("ours")

        await scene.unbind()
        await until(lambda: says(scene.export(), "Connected", "False", "APIServiceBindingNotFound"))
        # What the binding left is released first, over this very provider.
        await eventually(lambda: silent.is_left and made.way.is_left)
        before, theirs = await made.heart(), await there.heart()
        made.clock.put_forward(PULSE)
        await until(lambda: changed(there.heart, theirs))
        await there.syncs("later")
        assert await made.heart() == before


async def test_two_bindings_of_one_secret_share_a_provider(scene: Scene, namespace: str) -> None:
    plane, app = scene.plane.cluster, scene.app.cluster
    async with (
        offered(plane, app, namespace=namespace) as offer,
        bound(scene) as made,
        a_way(scene.plane) as (new_way, lists),
    ):
        second = replace(scene, offer=offer)
        await second.request()
        await second.bind(ACCEPTED)
        await until(lambda: says(second.export(), "Ready"))
        await second.create_instance("theirs")
        await until(lambda: second.copy("theirs"))
        # It is read once, and then watched over one connection.
        of_exports = [one for one in made.way.log if one.path.endswith("/apiserviceexports")]
        assert len(of_exports) == 2
        renewed = made.kubeconfigs.by(new_way.connection, await scene.token())
        await made.kubeconfigs.provide(renewed)
        await until(lambda: made.kubeconfigs.mirrored(renewed))
        copies = {collection(scene), collection(second)}
        await eventually(lambda: copies <= {*lists.watched})
        assert lists.listed == []
        await scene.unbind()
        # What to release of a binding that was deleted plainly is read anew, and nothing else.
        await eventually(lambda: lists.listed)
        await second.create_instance("later")
        await until(lambda: second.copy("later"))
        assert {*lists.listed} == {collection(scene)}
        await second.unbind()


def collection(scene: Scene) -> str:
    kind = scene.offer.kind
    group = f"/apis/{kind.group}/{kind.version}"
    return f"{group}/namespaces/{scene.service_namespace}/{kind.plural}"


async def test_a_binding_that_is_led_elsewhere_is_synced_there_only(
    scene: Scene, namespace: str
) -> None:
    """Its provider stays, for the other binding."""
    plane, app, other_name = scene.plane.cluster, scene.app.cluster, f"test-x{namespace[6:]}"
    async with (
        a_namespace(scene, other_name),
        offered(plane, app, namespace=namespace) as offer,
        direct_scene(scene.plane, scene.app, other_name) as other,
        bound(scene) as made,
    ):
        await other.bound(ACCEPTED)
        second, own = replace(scene, offer=offer), f"{scene.secret}-own"
        same = text_of(await scene.in_app(SECRET, scene.secret))
        await app.create(build(SECRET, own, namespace=BIND), SECRET, manager="operator")
        await put(scene.app, BIND, own, same)
        await second.request()
        await second.bind(ACCEPTED, secret=own)
        await until(lambda: says(second.export(), "Ready"))
        await put(scene.app, BIND, own, text_of(await other.in_app(SECRET, other.secret)))
        await until(
            lambda: says(second.export(), "Connected", "False", "APIServiceBindingNotFound")
        )
        await made.syncs("ours")
        await second.create_instance("theirs")
        await made.syncs("later")
        assert await second.copy("theirs") is None

        # Nobody wants the Secret of a binding that is gone to be made again.
        await second.unbind()
        await until(lambda: gone(second.binding()))
        await remove(scene.app, SECRET, BIND, own)
        there = Bound(other, made.way, made.clock, made.program)
        for _ in range(3):
            before = await there.heart()
            made.clock.put_forward(PULSE)
            await until(lambda before=before: changed(there.heart, before))  # type: ignore[misc]
        assert await scene.in_app(SECRET, own) is None


@asynccontextmanager
async def a_namespace(scene: Scene, name: str) -> AsyncIterator[None]:
    await scene.plane.cluster.create(build(NAMESPACE, name), NAMESPACE, manager="tests")
    yield
    await remove(scene.plane, NAMESPACE, "", name)

"""What an app cluster owns and no provider gets, whatever a claim selects (T4, upwards)."""

from functools import partial

from reconciler.api import API_SERVICE_BINDING
from reconciler.blueprints import objects as blueprint
from reconciler.blueprints.objects import Marks
from reconciler.core.manifest import annotations_of
from reconciler.core.refs import SECRET, GroupResource
from tests.support.bound_scenes import BIND, Scene, remove, until
from tests.support.konnector import konnector
from tests.support.konnector_claims import accept, bound, canaries, claim, data, provided, quiet_in
from tests.support.konnector_scenes import sides
from tests.support.settled import settled

UP = claim("secrets", "Consumer")


async def test_what_nobody_uses_the_service_beside_stays(scene: Scene) -> None:
    """The provider maps namespaces as it likes; what went up before is neither sent nor deleted."""
    async with quiet_in(scene) as quiet, scene.backend(), konnector(scene.app.connection) as made:
        there_, here_ = await bound(scene, UP)
        async with canaries(scene, quiet) as targets:
            await here_.make(SECRET, "usual", **data("one"))
            await until(lambda: there_.holds(SECRET, "usual", "one"))
            await settled(made)
            for there, here in targets:
                assert await there.all(SECRET) == []
                assert annotations_of(await here.read(SECRET, "canary")) == {}

            there, here = targets[-1]
            await quiet.create_instance("first", size="1Gi")
            for name in ("canary", "marked"):
                await until(partial(there.holds, SECRET, name, "one"))
            mine, _ = sides(quiet)
            await mine.delete("first")
            await until(lambda: mine.gone("first"))
            await here.patch(SECRET, "canary", **data("two"))
            await here_.patch(SECRET, "usual", **data("two"))
            await until(lambda: there_.holds(SECRET, "usual", "two"))
            await settled(made)
            assert await there.holds(SECRET, "canary", "one")
            await here.delete(SECRET, "marked")
            await until(lambda: there.lacks(SECRET, "marked"))


async def test_what_a_claim_spells_out_goes_up_from_a_namespace_of_the_cluster(
    scene: Scene,
) -> None:
    named = claim("secrets", "Consumer", namespaces=["*", "kube-public"])
    async with scene.backend(), konnector(scene.app.connection):
        await bound(scene, named)
        there, here = await provided(scene, "kube-public")
        await here.make(SECRET, "canary", **data("one"))
        instance = scene.offer.instance("first", namespace="kube-public", spec={"size": "1Gi"})
        await scene.app.cluster.create(instance, scene.offer.kind, manager="developer")
        try:
            await until(lambda: there.holds(SECRET, "canary", "one"))
        finally:
            await remove(scene.app, scene.offer.kind, "kube-public", "first")
            await here.delete(SECRET, "canary")


async def test_a_kubeconfig_of_a_binding_goes_up_by_name_only(scene: Scene) -> None:
    """Of a provider that never answered, no konnector has noted anything on its Secret."""
    place = (scene.app_namespace, "kubeconfig-new")
    other = GroupResource("other.example", "things")
    binding = blueprint.service_binding(
        other, namespace=BIND, secret=place, claims=[], marks=Marks()
    )
    async with scene.backend(), konnector(scene.app.connection) as made:
        await scene.app.cluster.create(binding, API_SERVICE_BINDING, manager="operator")
        there, here = await bound(scene, UP)
        await here.make(SECRET, place[1], **data("token"))
        await here.make(SECRET, "usual", **data("one"))
        await until(lambda: there.holds(SECRET, "usual", "one"))
        await settled(made)
        assert await there.all(SECRET) == ["usual"]
        assert annotations_of(await here.read(SECRET, place[1])) == {}

        await accept(scene, claim("secrets", "Consumer", names=["*", place[1]]))
        await until(lambda: there.holds(SECRET, place[1], "token"))
        await remove(scene.app, API_SERVICE_BINDING, BIND, other.name)

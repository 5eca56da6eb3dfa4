"""T4: what a provider puts into service namespaces arrives only where a developer asked for it.

The provider here maps whichever app namespace it likes, and writes what would direct a cluster.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest

from reconciler.api.exports import API_SERVICE_NAMESPACE
from reconciler.blueprints import space as spaces
from reconciler.blueprints.objects import build
from reconciler.core import keys, names
from reconciler.core.manifest import annotations_of, is_deleting
from reconciler.core.refs import NAMESPACE, SECRET
from tests.support.bound_scenes import Scene, new, remove, until
from tests.support.konnector import USUAL, konnector
from tests.support.konnector_claims import End, bound, claim, data, ends, mapping_of
from tests.support.konnector_scenes import sides
from tests.support.settled import settled

DOWN = claim("secrets", "Provider")
PROVIDED: Final = {"annotations": {keys.RESOURCE_OWNER: "Provider"}}
REFLECTED: Final = {
    "annotations": {"reflector.v1.k8s.emberstack.com/reflection-auto-enabled": "true"}
}
# What an attacker would bring, by name.
EVIL: Final[dict[str, Any]] = {
    "cacerts": {},
    "sh.helm.release.v1.web.v1": {"type": "helm.sh/release.v1"},
    "reflected": {"metadata": REFLECTED},
}
SYSTEM: Final = ("kube-system", "kube-public", names.KLUTCH_NAMESPACE)


def at(scene: Scene, app_namespace: str) -> Scene:
    return replace(scene, app_namespace=app_namespace)


@pytest.fixture
async def quiet(scene: Scene) -> AsyncIterator[Scene]:
    """The same space, seen from an app namespace in which nobody uses the service."""
    other = at(scene, f"{scene.app_namespace}-quiet")
    await scene.app.cluster.create(
        spaces.namespace(other.app_namespace), NAMESPACE, manager="tests"
    )
    yield other
    await remove(scene.app, NAMESPACE, "", other.app_namespace)
    for one in (other.app_namespace, *SYSTEM):
        await remove(scene.plane, NAMESPACE, "", at(scene, one).service_namespace)


async def mapped(scene: Scene, app_namespace: str) -> tuple[End, End]:
    """Let the provider map an app namespace; return its end and the app cluster's."""
    made = build(API_SERVICE_NAMESPACE, app_namespace, namespace=scene.space, spec={})
    await scene.plane.cluster.create(made, API_SERVICE_NAMESPACE, manager="provider")
    await until(lambda: mapping_of(scene, app_namespace))
    return ends(at(scene, app_namespace))


async def written(there: End, only: dict[str, Any] = EVIL) -> None:
    for name, body in only.items():
        await there.make(SECRET, name, **data("evil"), **body)


async def crossed(scene: Scene, name: str) -> None:
    """Wait until what was made just now has been looked at: something else has arrived."""
    there, here = ends(scene)
    await there.make(SECRET, name, **data("one"))
    await until(lambda: here.holds(SECRET, name, "one"))


async def test_nothing_arrives_where_no_developer_asked(scene: Scene, quiet: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection) as made:
        await bound(scene, DOWN)
        mark = scene.app.audit.mark()
        targets = [await mapped(scene, one) for one in (*SYSTEM, quiet.app_namespace)]
        for there, _ in targets:
            await written(there)
        await crossed(scene, "creds")
        # Born on the control plane, an instance is no developer's word; and has no place in these.
        for one in (*SYSTEM, quiet.app_namespace):
            await sides(at(scene, one))[1].make("planted")
        await until(lambda: quiet.instance("planted"))
        for there, _ in targets:
            await written(there, {"later": {}})
        await crossed(scene, "more")
        await settled(made)
        secrets = {
            one.namespace
            for one in scene.app.audit.writes_since(mark)
            if one.resource == "secrets" and one.agent.startswith("konnector")
        }
        assert secrets == {scene.app_namespace}
        for one in SYSTEM:
            assert await at(scene, one).instance("planted") is None


async def test_credentials_follow_the_first_claim_and_stay_until_the_provider_takes_them(
    scene: Scene, quiet: Scene
) -> None:
    async with scene.backend(), konnector(scene.app.connection) as made:
        await bound(scene, DOWN)
        there, here = await mapped(scene, quiet.app_namespace)
        await written(there)
        await crossed(scene, "creds")
        assert await here.all(SECRET) == []

        await quiet.create_instance("first", size="1Gi")
        await until(lambda: here.holds(SECRET, "cacerts", "evil"), within=10)
        await crossed(scene, "more")
        assert await here.all(SECRET) == ["cacerts", "reflected"]
        reflected = await here.read(SECRET, "reflected")
        assert annotations_of(reflected) == PROVIDED["annotations"]

        _, copy = sides(quiet)
        await until(lambda: copy.read("first"))
        await copy.hold("service.example/hold", name="first")
        mine, _ = sides(quiet)
        await mine.delete("first")
        await until(lambda: copy.goes("first"))
        assert is_deleting(await mine.read("first"))
        mark = here.mark()
        await there.patch(SECRET, "cacerts", **data("more evil"))
        await crossed(scene, "even-more")
        await settled(made)
        assert await here.holds(SECRET, "cacerts", "evil")
        assert [one for one in here.writes_since(mark) if one.resource == "secrets"] == []

        await there.delete(SECRET, "cacerts")
        await until(lambda: here.lacks(SECRET, "cacerts"))
        await copy.patch({"metadata": {"finalizers": None}}, "first")
        await until(lambda: mine.gone("first"))
        await crossed(scene, "last")
        assert await here.all(SECRET) == ["reflected"]


async def test_what_came_down_before_is_not_touched(scene: Scene, quiet: Scene) -> None:
    """As 0.1.0 left it: neither rewritten nor deleted, until its origin goes."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene, DOWN)
            there, here = await mapped(scene, quiet.app_namespace)
        await there.make(SECRET, "old", metadata=PROVIDED, **data("two"))
        await here.make(SECRET, "old", metadata=PROVIDED, **data("one"))
        mark = here.mark()
        async with konnector(scene.app.connection) as made:
            await crossed(scene, "creds")
            await settled(made)
            assert here.writes_since(mark) == []
            await there.delete(SECRET, "old")
            await until(lambda: here.lacks(SECRET, "old"))


async def test_what_is_named_literally_arrives(scene: Scene, quiet: Scene) -> None:
    """A namespace or an object that the accepted claim spells out is consented to."""
    release = "sh.helm.release.v1.web.v1"
    named = claim("secrets", "Provider", names=["*", release], namespaces=["*", "kube-public"])
    async with scene.backend(), konnector(scene.app.connection):
        await bound(scene, named)
        there, here = await mapped(scene, "kube-public")
        await written(there, {"cacerts": {}})
        there_, here_ = ends(scene)
        await written(there_, {release: EVIL[release]})
        await until(lambda: here_.read(SECRET, release))
        assert await here.all(SECRET) == []
        public = at(scene, "kube-public")
        instance = scene.offer.instance("first", namespace="kube-public", spec={"size": "1Gi"})
        await new(scene.app, instance, scene.offer.kind, manager="developer")
        try:
            await until(lambda: here.holds(SECRET, "cacerts", "evil"))
        finally:
            mine, _ = sides(public)
            await mine.delete("first")
            await until(lambda: mine.gone("first"))
            await here.delete(SECRET, "cacerts")


async def test_nothing_arrives_where_the_konnector_runs(scene: Scene, quiet: Scene) -> None:
    own = replace(USUAL, namespace=quiet.app_namespace)
    async with scene.backend(), konnector(scene.app.connection, own):
        await bound(scene, DOWN)
        await quiet.create_instance("first", size="1Gi")
        await until(lambda: quiet.copy("first"))
        there, here = ends(quiet)
        await written(there)
        await crossed(scene, "creds")
        assert await here.all(SECRET) == []

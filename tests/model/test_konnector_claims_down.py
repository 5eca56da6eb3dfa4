"""T4: what comes down only comes where a developer uses the service, or where it is named."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import pytest

from reconciler.core import keys
from reconciler.core.manifest import annotations_of, is_deleting
from reconciler.core.refs import SECRET
from tests.support.bound_scenes import Scene, new, until
from tests.support.konnector import USUAL, konnector
from tests.support.konnector_claims import (
    EVIL,
    bound,
    claim,
    crossed,
    data,
    elsewhere,
    ends,
    provided,
    quiet_in,
)
from tests.support.konnector_scenes import sides
from tests.support.settled import settled

DOWN = claim("secrets", "Provider")
PROVIDED: Final = {"annotations": {keys.RESOURCE_OWNER: "Provider"}}


@pytest.fixture
async def quiet(scene: Scene) -> AsyncIterator[Scene]:
    async with quiet_in(scene) as quiet:
        yield quiet


async def test_credentials_follow_the_first_claim_and_stay_until_the_provider_takes_them(
    scene: Scene, quiet: Scene
) -> None:
    async with scene.backend(), konnector(scene.app.connection) as made:
        await bound(scene, DOWN)
        there, here = await provided(scene, quiet.app_namespace)
        await there.make_all(SECRET, EVIL)
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
            there, here = await provided(scene, quiet.app_namespace)
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
        there, here = await provided(scene, "kube-public")
        await there.make_all(SECRET, {"cacerts": data("evil")})
        there_, here_ = ends(scene)
        await there_.make_all(SECRET, {release: EVIL[release]})
        await until(lambda: here_.read(SECRET, release))
        assert await here.all(SECRET) == []
        public = elsewhere(scene, "kube-public")
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
        await there.make_all(SECRET, EVIL)
        await crossed(scene, "creds")
        assert await here.all(SECRET) == []

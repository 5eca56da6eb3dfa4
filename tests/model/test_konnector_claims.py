"""Permission claims: what goes which way, and what follows it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest

from reconciler.blueprints import objects as spaces
from reconciler.core import keys
from reconciler.core.manifest import (
    annotations_of,
    controller_to,
    finalizers_of,
    is_deleting,
    uid_of,
)
from reconciler.core.refs import CONFIG_MAP, NAMESPACE, SECRET
from tests.support.bound_scenes import Scene, new, remove, until
from tests.support.konnector import USUAL, konnector
from tests.support.konnector_claims import (
    EVIL,
    End,
    bound,
    claim,
    crossed,
    data,
    degraded,
    elsewhere,
    ends,
    provided,
    quiet_in,
)
from tests.support.konnector_scenes import sides
from tests.support.losses import confirm
from tests.support.settled import settled

OWNER = keys.RESOURCE_OWNER
NAME, PART = "app.kubernetes.io/name", "app.kubernetes.io/part-of"
NOTE = "servicebinding.io/provider"
DOWN = claim("secrets", "Provider")
UP = claim("configmaps", "Consumer")
WAYS = {
    "provider": (DOWN, SECRET, "Provider"),
    "consumer": (UP, CONFIG_MAP, "Consumer"),
    "consumer-secret": (claim("secrets", "Consumer"), SECRET, "Consumer"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_claimed_object_follows_its_origin_and_nothing_else(scene: Scene, way: str) -> None:
    """G 35-41, 45-48, 54, 55 and golden 02/30-34, 36-38."""
    accepted, kind, owner = WAYS[way]
    async with scene.backend(), konnector(scene.app.connection):
        there, here = await bound(scene, accepted)
        origin, copy = (there, here) if owner == "Provider" else (here, there)
        metadata = {
            "labels": {PART: "service", "argocd.argoproj.io/instance": "x", "team": "a"},
            "annotations": {NOTE: "1", "note.example/rotation": "1"},
            "finalizers": ["service.example/hold"],
        }
        await origin.make(kind, "creds", metadata=metadata, **data("one", kind.kind))

        made = await until(lambda: copy.holds(kind, "creds", "one"))
        assert made["metadata"]["labels"] == {PART: "service"}
        space = await scene.on_plane(NAMESPACE, scene.space, "")
        named = {keys.ORIGIN_UID: uid_of(await origin.read(kind, "creds"))}
        marks = {OWNER: owner, keys.ORIGIN_SPACE_UID: uid_of(space)}
        assert annotations_of(made) == {NOTE: "1", **marks, **named}
        assert finalizers_of(made) == []
        assert annotations_of(await origin.read(kind, "creds"))[OWNER] == owner

        edited = {**data("mine", kind.kind), "metadata": {"labels": {PART: "me", NAME: "x"}}}
        await copy.patch(kind, "creds", **edited)
        back = await until(lambda: copy.holds(kind, "creds", "one"))
        assert back["metadata"]["labels"] == {PART: "service"}

        await origin.patch(kind, "creds", **data("two", kind.kind))
        await until(lambda: copy.holds(kind, "creds", "two"))

        await copy.delete(kind, "creds")
        await until(lambda: copy.holds(kind, "creds", "two"))

        await origin.patch(kind, "creds", metadata={"finalizers": None})
        await origin.delete(kind, "creds")
        await until(lambda: origin.lacks(kind, "creds"))
        await until(lambda: copy.lacks(kind, "creds"))


async def test_a_place_that_is_not_free_is_given_away_where_it_is(scene: Scene) -> None:
    """S26, so stricter than G 37-40. A copy whose origin is absent goes on a person's word."""
    either = claim("secrets"), claim("configmaps")
    async with scene.backend():
        async with konnector(scene.app.connection):
            there, here = await bound(scene, *either)
        provided, consumed = ({"annotations": {OWNER: one}} for one in ("Provider", "Consumer"))
        await there.make(SECRET, "orphan-up", metadata=consumed, **data("x"))
        await here.make(SECRET, "orphan-down", metadata=provided, **data("x"))
        await here.make(SECRET, "mine", metadata=consumed, **data("mine"))
        await there.make(SECRET, "mine", **data("other"))
        await there.make(SECRET, "theirs", metadata=provided, **data("theirs"))
        await here.make(SECRET, "theirs", **data("other"))
        async with konnector(scene.app.connection):
            await until(lambda: there.is_orphan(SECRET, "orphan-up"))
            await until(lambda: here.is_orphan(SECRET, "orphan-down"))
            assert f"{here.namespace}/orphan-down" in await until(lambda: degraded(scene))
            await crossed(scene, "later")
            assert await there.holds(SECRET, "mine", "other")
            assert await here.holds(SECRET, "theirs", "other")
            await there.note(SECRET, "mine", resource_owner="Consumer")
            await here.note(SECRET, "theirs", resource_owner="Provider")
            await until(lambda: there.holds(SECRET, "mine", "mine"))
            await until(lambda: here.holds(SECRET, "theirs", "theirs"))
            await confirm(scene, keys.CONFIRM_ORPHANS, "secrets")
            await until(lambda: there.lacks(SECRET, "orphan-up"))
            await until(lambda: here.lacks(SECRET, "orphan-down"))


async def test_credentials_cost_two_requests_and_nothing_when_they_lie(scene: Scene) -> None:
    """F.3 and golden 02/30, where the original needs five."""
    async with scene.backend(), konnector(scene.app.connection) as made:
        there, here = await bound(scene, DOWN)
        await settled(made)
        marks = there.mark(), here.mark()
        await there.make(SECRET, "creds", **data("one"))
        await until(lambda: here.holds(SECRET, "creds", "one"))
        # When the second one is through, all that the first brought about has been seen.
        await there.make(SECRET, "later", **data("one"))
        await until(lambda: here.holds(SECRET, "later", "one"))
        await settled(made)
        on_plane = [(one.verb, one.name) for one in there.writes_since(marks[0])]
        in_app = [one.verb for one in here.writes_since(marks[1]) if one.resource == "secrets"]
        assert sorted(on_plane) == [("patch", "creds"), ("patch", "later")]
        assert in_app == ["create", "create"]

        marks = there.mark(), here.mark()
        await there.patch(SECRET, "creds", **data("two"))
        await until(lambda: here.holds(SECRET, "creds", "two"))
        await settled(made)
        assert there.writes_since(marks[0]) == []
        assert [one.verb for one in here.writes_since(marks[1])] == ["patch"]


async def test_nothing_is_written_again_by_a_new_process(scene: Scene) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection) as made:
            there, here = await bound(scene, DOWN, UP)
            await there.make(SECRET, "creds", **data("one"))
            await here.make(CONFIG_MAP, "settings", **data("one", "ConfigMap"))
            await until(lambda: here.holds(SECRET, "creds", "one"))
            await until(lambda: there.holds(CONFIG_MAP, "settings", "one"))
            await settled(made)
        marks = there.mark(), here.mark()
        async with konnector(scene.app.connection) as made:
            await there.make(SECRET, "later", **data("one"))
            await until(lambda: here.holds(SECRET, "later", "one"))
            await settled(made)
        assert [(one.verb, one.name) for one in there.writes_since(marks[0])] == [
            ("patch", "later")
        ]
        assert [one.verb for one in here.writes_since(marks[1])] == ["create"]


async def test_a_claim_moves_nothing_the_other_way(scene: Scene) -> None:
    """H1, H2 and golden 02/35, 02/39: neither is anything written to what stays."""
    async with scene.backend(), konnector(scene.app.connection) as made:
        there, here = await bound(scene, DOWN, UP)
        marks = there.mark(), here.mark()
        mine = {"annotations": {OWNER: "Consumer"}}
        await here.make(SECRET, "private", **data("canary"))
        await here.make(SECRET, "private-too", metadata=mine, **data("canary"))
        await there.make(CONFIG_MAP, "internal", **data("canary", "ConfigMap"))
        await there.make(CONFIG_MAP, "internal-too", metadata={"annotations": {OWNER: "Provider"}})
        await there.make(SECRET, "creds", **data("one"))
        await here.make(CONFIG_MAP, "settings", **data("one", "ConfigMap"))
        await until(lambda: here.holds(SECRET, "creds", "one"))
        await until(lambda: there.holds(CONFIG_MAP, "settings", "one"))
        await settled(made)
        assert await there.all(SECRET) == ["creds"]
        assert await here.all(CONFIG_MAP) == ["settings"]
        stays = ("private", "private-too", "internal", "internal-too")
        written = [*there.writes_since(marks[0]), *here.writes_since(marks[1])]
        assert not [one for one in written if one.name in stays]


OBJECTS: dict[str, Any] = {
    "creds": {"metadata": {"labels": {"tier": "gold"}}},
    "key": {"type": "shop.example/key"},
    "other": {},
}
# What each of them selects; {} stands for the app namespace.
SELECTORS: dict[str, Any] = {
    "names": ({"names": ["names-creds", "names-key"]}, ["creds", "key"]),
    "labels": ({"labelSelectors": [{"tier": "gold"}]}, ["creds"]),
    "fields": ({"fieldSelectors": ["type=shop.example/key"]}, ["key"]),
    "elsewhere": ({"namespaces": ["another"]}, []),
    "here": ({"namespaces": ["another", "{}"]}, ["creds", "key", "other"]),
}


@pytest.mark.parametrize("owner", ["Provider", "Consumer"])
async def test_a_selector_holds_on_both_sides(scene: Scene, owner: str) -> None:
    """H2 and E.1: exactly what a claim selects is carried, and nothing the other way."""
    claims, chosen = [], []
    for word, (selector, taken) in SELECTORS.items():
        fitting: dict[str, Any] = {
            key: [scene.app_namespace if one == "{}" else one for one in values]
            for key, values in selector.items()
        }
        all_names = [f"{word}-{name}" for name in OBJECTS]
        selected: dict[str, Any] = {"names": all_names, **fitting}
        claims.append(claim("secrets", owner, **selected))
        chosen += [f"{word}-{name}" for name in taken]
    async with scene.backend(), konnector(scene.app.connection) as made:
        there, here = await bound(scene, *claims)
        origin, copy = (there, here) if owner == "Provider" else (here, there)
        for word in SELECTORS:
            for name, body in OBJECTS.items():
                await origin.make(SECRET, f"{word}-{name}", **data("one"), **body)
        await copy.make(SECRET, "names-unrelated", **data("one"))

        await settled(made)
        assert await copy.all(SECRET) == sorted([*chosen, "names-unrelated"])
        assert "names-unrelated" not in await origin.all(SECRET)


async def test_an_origin_on_its_way_out_takes_along_its_copy_and_no_other(scene: Scene) -> None:
    """H8 and golden 06/50: the provider's namespace means nothing in the app cluster."""
    innocent = End(scene.app, scene.service_namespace, "developer")
    app = scene.app.cluster
    async with scene.backend(), konnector(scene.app.connection):
        there, here = await bound(scene, DOWN)
        await app.create(spaces.namespace(there.namespace), NAMESPACE, manager="tests")
        try:
            await innocent.make(SECRET, "creds", **data("innocent"))
            held = {"finalizers": ["service.example/hold"]}
            await there.make(SECRET, "creds", metadata=held, **data("one"))
            await until(lambda: here.holds(SECRET, "creds", "one"))
            await there.delete(SECRET, "creds")
            await until(lambda: here.lacks(SECRET, "creds"))
            assert is_deleting(await there.read(SECRET, "creds"))
            assert await innocent.holds(SECRET, "creds", "innocent")
            await there.patch(SECRET, "creds", metadata={"finalizers": None})
            await until(lambda: there.lacks(SECRET, "creds"))
        finally:
            await remove(scene.app, NAMESPACE, "", there.namespace)


@pytest.mark.parametrize("collector_lags", [False, True])
async def test_what_a_claim_leaves_while_no_konnector_watches_goes_with_it(
    scene: Scene, quiet: Scene, collector_lags: bool
) -> None:
    """Its deletionTimestamp proves the end of what came for it, whose own end nobody saw."""
    (mine, copy), (_, moved) = sides(scene), ends(quiet)
    freed: Any = {"metadata": {"finalizers": None}}
    async with scene.backend():
        async with konnector(scene.app.connection):
            there, here = await bound(scene, DOWN)
            await mine.make("other")
            other = await until(lambda: copy.read("other"))
            await copy.hold("service.example/hold")
            owner = controller_to(scene.offer.kind, await copy.read())
            if collector_lags:  # the model's does not, and knows owners by their uid
                owner["uid"] = uid_of(other)
            owned: Any = {"metadata": {"ownerReferences": [owner]}}
            await there.make_all(SECRET, {"lives": {}, "creds": owned})
            await until(lambda: here.read(SECRET, "lives"))
            marks = {"annotations": annotations_of(await until(lambda: here.read(SECRET, "creds")))}
            await moved.make(SECRET, "moved", metadata=marks)
            await mine.delete()
            await until(copy.goes)
            if collector_lags:
                await copy.patch(freed)
                await until(copy.gone)
        await (there.delete(SECRET, "creds") if collector_lags else copy.patch(freed))
        await until(lambda: there.lacks(SECRET, "creds"))
        assert await mine.goes()
        async with konnector(scene.app.connection) as made:
            await until(mine.gone)
            await settled(made)
            assert await here.all(SECRET) == ["lives"]
            assert await moved.all(SECRET) == ["moved"]


# T4: what comes down only comes where a developer uses the service, or where it is named


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
        kept = {OWNER, keys.ORIGIN_UID, keys.ORIGIN_SPACE_UID}
        assert annotations_of(reflected).keys() == kept

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

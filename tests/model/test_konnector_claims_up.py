"""What an app cluster owns goes up, what it keeps for itself does not, and what hinders is told."""

from functools import partial
from typing import Any

import pytest

from reconciler.blueprints.objects import build
from reconciler.core import keys
from reconciler.core.errors import Forbidden, Rejected
from reconciler.core.manifest import Manifest, annotations_of, get_text, uid_of
from reconciler.core.refs import CONFIG_MAP, EVENT, SECRET, Kind, Ref
from tests.support.bound_scenes import Scene, b64, until
from tests.support.eventually import eventually
from tests.support.konnector import konnector
from tests.support.konnector_claims import (
    End,
    accept,
    bound,
    claim,
    data,
    degraded,
    ends,
    mapped,
    offer,
)
from tests.support.settled import settled

OWNER = keys.RESOURCE_OWNER
MINE = {"annotations": {OWNER: "Consumer"}}
UP = claim("secrets", "Consumer")
DOWN = claim("secrets", "Provider")
QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
# Types that lead into the app cluster, or hold all that a release was made of (mapping.md 0).
KEPT: dict[str, Any] = {
    "robot": {
        "type": "kubernetes.io/service-account-token",
        "metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}},
    },
    "joining": {"type": "bootstrap.kubernetes.io/token"},
    "sh.helm.release.v1.x.v1": {"type": "helm.sh/release.v1"},
}


async def test_what_was_there_before_its_namespace_was_mapped_goes_up(scene: Scene) -> None:
    """H24: with the mapping comes all that waits, and no claimed object makes a mapping."""
    async with scene.backend(), konnector(scene.app.connection) as made:
        there, here = ends(scene)
        await offer(scene, UP)
        await scene.bound(UP)
        await here.make(SECRET, "early", **data("one"))
        await here.make(SECRET, "never-said", **data("one"))
        await settled(made)
        assert not await mapped(scene)
        await scene.create_instance(size="1Gi")
        await until(lambda: there.holds(SECRET, "early", "one"))
        await until(lambda: there.holds(SECRET, "never-said", "one"))


async def test_what_an_app_cluster_keeps_goes_up_by_name_only(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection) as made:
        there, here = await bound(scene, UP)
        for name, more in KEPT.items():
            await here.make(SECRET, name, **{**data("one"), **more})
        await here.make(SECRET, "usual", **data("one"))
        await until(lambda: there.holds(SECRET, "usual", "one"))
        await settled(made)
        assert await there.all(SECRET) == ["usual"]
        assert OWNER not in annotations_of(await here.read(SECRET, "robot"))

        release = "sh.helm.release.v1.x.v1"
        await accept(scene, claim("secrets", "Consumer", names=["*", release]))
        await until(lambda: there.holds(SECRET, release, "one"))
        await settled(made)
        assert await there.all(SECRET) == [release, "usual"]


async def test_a_claim_without_owner_takes_up_what_is_named_or_marked(scene: Scene) -> None:
    """mapping.md 0, stricter than E.2: `*` says nothing about the app cluster's own objects."""
    async with scene.backend(), konnector(scene.app.connection) as made:
        there, here = await bound(scene, claim("secrets", names=["*", "named"]))
        await here.make(SECRET, "canary", **data("one"))
        await here.make(SECRET, "marked", metadata=MINE, **data("one"))
        await here.make(SECRET, "named", **data("one"))
        await there.make(SECRET, "creds", **data("one"))
        for name in ("marked", "named"):
            await until(partial(there.holds, SECRET, name, "one"))
            for end in (there, here):
                assert annotations_of(await end.read(SECRET, name)) == {OWNER: "Consumer"}
        await until(lambda: here.holds(SECRET, "creds", "one"))
        await settled(made)
        assert await there.all(SECRET) == ["creds", "marked", "named"]
        assert OWNER not in annotations_of(await here.read(SECRET, "canary"))


async def test_a_copy_never_becomes_an_upload(scene: Scene) -> None:
    """H35: its annotation removed and its origin gone, it is the app cluster's and stays there."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            there, here = await bound(scene, DOWN)
            for name in ("creds", "other"):
                await there.make(SECRET, name, **data("one"))
                await until(partial(here.holds, SECRET, name, "one"))
            await here.note(SECRET, "creds", resource_owner=None)
            await until(lambda: _is_marked(here, "creds"))
        await here.note(SECRET, "creds", resource_owner=None)
        await there.delete(SECRET, "creds")
        await there.delete(SECRET, "other")
        async with konnector(scene.app.connection) as made:
            await until(lambda: here.lacks(SECRET, "other"))
            await settled(made)
            assert await there.all(SECRET) == []
            assert await here.holds(SECRET, "creds", "one")


async def _is_marked(end: End, name: str) -> bool:
    return OWNER in annotations_of(await end.read(SECRET, name))


@pytest.mark.parametrize("owner", ["Provider", "Consumer"])
async def test_what_an_api_server_would_not_change_is_made_anew(scene: Scene, owner: str) -> None:
    """H19: immutable Secrets, and another type, which the original asks for again and again."""
    async with scene.backend(), konnector(scene.app.connection) as made:
        there, here = await bound(scene, claim("secrets", owner), claim("configmaps", owner))
        origin, copy = (there, here) if owner == "Provider" else (here, there)
        await origin.make(SECRET, "fixed", immutable=True, **data("one"))
        await origin.make(SECRET, "typed", type="shop.example/one", **data("one"))
        await origin.make(CONFIG_MAP, "fixed", immutable=True, **data("one", "ConfigMap"))
        for kind, name in ((SECRET, "fixed"), (SECRET, "typed"), (CONFIG_MAP, "fixed")):
            await until(partial(copy.holds, kind, name, "one"))
            with pytest.raises(Rejected):
                await origin.patch(kind, name, **data("two", kind.kind), type="shop.example/two")
            await origin.delete(kind, name)
            more = {"type": "shop.example/two"} if name == "typed" else {"immutable": True}
            await origin.make(kind, name, **more, **data("two", kind.kind))
            await until(partial(copy.holds, kind, name, "two"))
        assert get_text(await copy.read(SECRET, "typed"), "type") == "shop.example/two"

        # What becomes immutable is a change like any other.
        await origin.make(SECRET, "later", **data("one"))
        await until(lambda: copy.holds(SECRET, "later", "one"))
        mark = copy.mark()
        await origin.patch(SECRET, "later", immutable=True, **data("two"))
        done = await until(lambda: copy.holds(SECRET, "later", "two"))
        await settled(made)
        assert done["immutable"] is True
        assert [one.verb for one in copy.writes_since(mark)] == ["patch"]


async def test_two_of_one_name_are_left_alone_and_told(scene: Scene) -> None:
    """H24, the undecidable row of E.2: an Event in the app cluster says how to decide."""
    async with scene.backend(), konnector(scene.app.connection):
        there, here = await bound(scene, DOWN)
        mine = await here.make(SECRET, "creds", **data("mine"))
        await there.make(SECRET, "creds", **data("theirs"))
        event = await until(lambda: _event(here, mine, "ClaimConflict"))
        assert "resource-owner: Provider" in event["note"]
        assert await here.holds(SECRET, "creds", "mine")
        assert await there.holds(SECRET, "creds", "theirs")
        await here.note(SECRET, "creds", resource_owner="Provider")
        await until(lambda: here.holds(SECRET, "creds", "theirs"))


async def _event(end: End, about: Manifest, reason: str) -> Any:
    events = (await end.live.cluster.list(EVENT, namespace=end.namespace)).items
    found = [
        one
        for one in events
        if get_text(one, "reason") == reason and get_text(one, "regarding", "uid") == uid_of(about)
    ]
    return found[0] if found else None


async def exhaust(end: End) -> None:
    """Let a quota be used up, as its controller would say, which is not here."""
    hard = {"hard": {"count/secrets": "0"}}
    await end.make(QUOTA, "none", spec=hard)
    ref = Ref(end.live.name, QUOTA, end.namespace, "none")
    status = {"status": {**hard, "used": {"count/secrets": "0"}}}
    await end.live.cluster.merge_patch(ref, status, manager="tests", subresource="status")
    tried = build(SECRET, "tried", namespace=end.namespace)

    async def is_heard_of() -> bool:
        try:
            await end.live.cluster.create(tried, SECRET, manager="tests", dry_run=True)
        except Forbidden:
            return True
        return False

    await eventually(is_heard_of)


@pytest.mark.parametrize("owner", ["Provider", "Consumer"])
async def test_what_one_side_refuses_is_told_and_tried_again(scene: Scene, owner: str) -> None:
    """H17: a quota, say. The developer reads why in the binding, and of an own object beside it."""
    async with scene.backend(), konnector(scene.app.connection):
        there, here = await bound(scene, claim("secrets", owner))
        origin, copy = (there, here) if owner == "Provider" else (here, there)
        await exhaust(copy)
        live = await origin.make(SECRET, "creds", **data("hidden-one"))
        told = await until(lambda: degraded(scene))
        assert "hidden" not in told
        assert b64("hidden-one") not in told
        assert f"{here.namespace}/creds" in told
        assert "quota" in told
        if owner == "Consumer":
            event = await until(lambda: _event(here, live, "SyncDenied"))
            assert "quota" in event["note"]
        await copy.delete(QUOTA, "none")
        await until(lambda: copy.holds(SECRET, "creds", "hidden-one"), within=180)
        await until(lambda: _is_well(scene))


async def _is_well(scene: Scene) -> bool:
    return not await degraded(scene)

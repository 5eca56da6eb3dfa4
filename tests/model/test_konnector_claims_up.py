"""What an app cluster owns goes up, what it keeps for itself does not, and what hinders is told."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from reconciler.blueprints.objects import build
from reconciler.core import keys
from reconciler.core.errors import Forbidden, Rejected
from reconciler.core.manifest import Manifest, annotations_of, get_text, name_of, uid_of
from reconciler.core.refs import CONFIG_MAP, CRD, EVENT, SECRET, Kind, Ref
from tests.kit.wire import Wires
from tests.support.bound_scenes import BIND, Scene, b64, remove, served, until
from tests.support.clusters import LiveCluster
from tests.support.definitions import OPEN, definition
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
from tests.support.observing import established
from tests.support.offers import MANAGER, offered
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
                assert annotations_of(await end.read(SECRET, name))[OWNER] == "Consumer"
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
            await until(lambda: here.is_orphan(SECRET, "other"))
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


async def test_two_of_one_name_are_left_alone_and_reported(scene: Scene) -> None:
    """H24, the undecidable row of E.2: an Event in the app cluster says how to decide."""
    async with scene.backend(), konnector(scene.app.connection):
        there, here = await bound(scene, DOWN)
        mine = await here.make(SECRET, "creds", **data("mine"))
        copy, claim = await scene.copy(), await scene.instance()
        kind = scene.offer.kind
        owner = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name_of(copy)}
        owned = {"ownerReferences": [{**owner, "uid": uid_of(copy)}]}
        await there.make(SECRET, "creds", metadata=owned, **data("theirs"))
        event = await until(lambda: _event(here, mine, "ClaimConflict"))
        assert "resource-owner: Provider" in event["note"]
        of_claim = await until(lambda: _event(here, claim, "ClaimConflict"))
        assert of_claim["note"] == f"Secret creds: {event['note']}"
        assert "/creds: The provider has another" in await eventually(partial(degraded, scene))
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
async def test_what_one_side_refuses_is_reported_and_tried_again(scene: Scene, owner: str) -> None:
    """H17: a quota, say. The developer reads why in the binding, and of an own object beside it."""
    async with scene.backend(), konnector(scene.app.connection):
        there, here = await bound(scene, claim("secrets", owner))
        origin, copy = (there, here) if owner == "Provider" else (here, there)
        await exhaust(copy)
        live = await origin.make(SECRET, "creds", **data("hidden-one"))
        reported = await until(lambda: degraded(scene))
        assert "hidden" not in reported
        assert b64("hidden-one") not in reported
        assert f"{here.namespace}/creds" in reported
        assert "quota" in reported
        if owner == "Consumer":
            event = await until(lambda: _event(here, live, "SyncDenied"))
            assert "quota" in event["note"]
        await copy.delete(QUOTA, "none")
        await until(lambda: copy.holds(SECRET, "creds", "hidden-one"), within=180)
        await until(lambda: is_well(scene))


# Claims that come, change, go, or cannot be followed, while a konnector runs (H9, H18, H29)


SECRETS = claim("secrets", "Provider", names=["creds", "key"])
MAPS = claim("configmaps", "Provider")


async def is_accepted(scene: Scene) -> bool:
    return "requires" not in await degraded(scene)


async def test_claims_are_followed_as_they_change(scene: Scene) -> None:
    """H9 and golden 06/10: accepted later, narrowed, rejected, accepted again."""
    more = claim("secrets", "Provider")
    async with scene.backend(), konnector(scene.app.connection):
        there, here = await bound(scene, offers=[more, MAPS])
        await there.make(SECRET, "creds", **data("one"))
        await there.make(SECRET, "key", **data("one"))
        await accept(scene, SECRETS)
        await until(lambda: here.holds(SECRET, "creds", "one"))
        await until(lambda: here.holds(SECRET, "key", "one"))

        # What comes newly tells that the rest holds, too.
        await there.make(SECRET, "narrowed", **data("now"))
        await accept(scene, claim("secrets", "Provider", names=["key", "narrowed"]))
        await until(lambda: here.holds(SECRET, "narrowed", "now"))
        await there.patch(SECRET, "creds", **data("two"))
        await there.patch(SECRET, "key", **data("two"))
        await until(lambda: here.holds(SECRET, "key", "two"))
        assert await here.holds(SECRET, "creds", "one")

        await there.make(CONFIG_MAP, "rejected", **data("now", "ConfigMap"))
        await accept(scene, {**SECRETS, "state": "Rejected", "required": True}, MAPS)
        await until(lambda: here.holds(CONFIG_MAP, "rejected", "now"))
        assert "the provider requires it" in await eventually(partial(degraded, scene))
        await there.patch(SECRET, "creds", **data("three"))
        await there.delete(SECRET, "key")
        await there.patch(CONFIG_MAP, "rejected", **data("later", "ConfigMap"))
        await until(lambda: here.holds(CONFIG_MAP, "rejected", "later"))
        assert await here.holds(SECRET, "creds", "one")
        assert await here.holds(SECRET, "key", "two")

        await accept(scene, SECRETS, MAPS)
        await until(lambda: here.holds(SECRET, "creds", "three"))
        await until(lambda: here.is_orphan(SECRET, "key"))
        assert await here.holds(SECRET, "narrowed", "now")
        # Of the orphan it says so for longer.
        await eventually(lambda: is_accepted(scene))
        events = (await scene.app.cluster.list(EVENT, namespace=BIND)).items
        assert sum("requires" in get_text(one, "note") for one in events) == 1


@pytest.fixture
async def voucher(control_plane: LiveCluster, app_cluster: LiveCluster) -> AsyncIterator[Kind]:
    """A kind that neither cluster serves yet; at the end both are rid of it."""
    kind = Kind(f"v{uuid.uuid4().hex[:10]}.example", "v1", "Voucher", "vouchers")
    yield kind
    for live in (control_plane, app_cluster):
        await remove(live, CRD, "", kind.resource)


async def serve(live: LiveCluster, kind: Kind) -> None:
    await live.cluster.create(definition(kind, OPEN), CRD, manager=MANAGER)
    await established(live.cluster, kind)


async def works(there: End, here: End, text: str) -> None:
    await there.patch(SECRET, "creds", **data(text))
    await until(lambda: here.holds(SECRET, "creds", text))


async def is_well(scene: Scene) -> bool:
    return not await degraded(scene)


async def test_a_kind_that_is_served_nowhere_harms_its_claim_only(
    scene: Scene, voucher: Kind
) -> None:
    """H18: it is told, the others go on, and it is followed as soon as both serve it; H19."""
    claimed = claim("vouchers", "Provider", group=voucher.group)
    async with scene.backend(), konnector(scene.app.connection):
        there, here = await bound(scene, SECRETS, claimed)
        await there.make(SECRET, "creds", **data("zero"))
        await works(there, here, "one")
        assert voucher.resource in await until(lambda: degraded(scene))

        await serve(scene.plane, voucher)
        await there.make(voucher, "v1", spec={"value": 1, "code": "abc"})
        await works(there, here, "two")
        assert voucher.resource in await degraded(scene)

        await serve(scene.app, voucher)

        async def arrived(spec: object) -> bool:
            live = await here.read(voucher, "v1")
            return live is not None and live["spec"] == spec

        await until(lambda: arrived({"value": 1, "code": "abc"}))
        await until(lambda: is_well(scene))
        # The original asks for updates of custom resources that no API server accepts.
        await there.patch(voucher, "v1", spec={"value": 2, "code": None})
        await until(lambda: arrived({"value": 2}))
        await here.patch(voucher, "v1", spec={"value": 3})
        await until(lambda: arrived({"value": 2}))
        await there.delete(voucher, "v1")
        await until(lambda: here.lacks(voucher, "v1"))


async def test_two_exports_that_claim_the_same_share_one_watch(
    scene: Scene, namespace: str, wires: Wires
) -> None:
    """H29: of Secrets there is one watch for each service namespace, and one set of writes."""
    plane, app = scene.plane, scene.app

    def watched() -> tuple[int, int]:
        found = [way for way, to in wires.watches if to.partition("?")[0].endswith("/secrets")]
        return found.count(plane.connection.server), found.count(app.connection.server)

    everything = claim("secrets", "Provider")
    async with (
        offered(plane.cluster, app.cluster, namespace=namespace) as more,
        scene.backend(),
        konnector(app.connection) as made,
    ):
        there, here = await bound(scene, everything)
        await there.make(SECRET, "creds", **data("one"))
        await until(lambda: here.holds(SECRET, "creds", "one"))
        before, mark = watched(), here.mark()
        assert min(before) > 0

        other = replace(scene, offer=more)
        await other.request()
        await other.bind(everything)
        await until(lambda: served(app, more.kind))
        await other.create_instance("second")
        await until(lambda: other.copy("second"))
        await settled(made)
        assert watched() == before
        await works(there, here, "two")
        await there.make(SECRET, "later", **data("one"))
        await until(lambda: here.holds(SECRET, "later", "one"))

        # The claim of one binding goes; that of the other is followed as before.
        await accept(scene)
        await works(there, here, "three")
        await settled(made)
        assert watched() == before
        secrets = [one for one in here.writes_since(mark) if one.resource == "secrets"]
        assert sorted(one.verb for one in secrets) == ["create", "patch", "patch"]
        await other.unbind()

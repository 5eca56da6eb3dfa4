"""Claims that come, change, go, or cannot be followed, while a konnector runs (H9, H18, H29)."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from reconciler.blueprints.objects import build
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CONFIG_MAP, CRD, SECRET, Kind
from tests.kit.wire import Wires
from tests.support.bound_scenes import Scene, remove, served, until
from tests.support.clusters import LiveCluster
from tests.support.konnector import konnector
from tests.support.konnector_claims import (
    End,
    accept,
    bound,
    claim,
    data,
    degraded,
)
from tests.support.observing import established
from tests.support.offers import MANAGER, offered
from tests.support.settled import settled

SECRETS = claim("secrets", "Provider", names=["creds", "key"])
MAPS = claim("configmaps", "Provider")
FREE: Manifest = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
VERSION: Manifest = {
    "name": "v1",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": FREE},
}


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
        await accept(scene, {**SECRETS, "state": "Rejected"}, MAPS)
        await until(lambda: here.holds(CONFIG_MAP, "rejected", "now"))
        await there.patch(SECRET, "creds", **data("three"))
        await there.delete(SECRET, "key")
        await there.patch(CONFIG_MAP, "rejected", **data("later", "ConfigMap"))
        await until(lambda: here.holds(CONFIG_MAP, "rejected", "later"))
        assert await here.holds(SECRET, "creds", "one")
        assert await here.holds(SECRET, "key", "two")

        await accept(scene, SECRETS, MAPS)
        await until(lambda: here.holds(SECRET, "creds", "three"))
        await until(lambda: here.lacks(SECRET, "key"))
        assert await here.holds(SECRET, "narrowed", "now")


@pytest.fixture
async def voucher(control_plane: LiveCluster, app_cluster: LiveCluster) -> AsyncIterator[Kind]:
    """A kind that neither cluster serves yet; at the end both are rid of it."""
    kind = Kind(f"v{uuid.uuid4().hex[:10]}.example", "v1", "Voucher", "vouchers")
    yield kind
    for live in (control_plane, app_cluster):
        await remove(live, CRD, "", kind.resource)


async def serve(live: LiveCluster, kind: Kind) -> None:
    made = build(
        CRD,
        kind.resource,
        spec={
            "group": kind.group,
            "names": {"plural": kind.plural, "kind": kind.kind},
            "scope": "Namespaced",
            "versions": [VERSION],
        },
    )
    await live.cluster.create(made, CRD, manager=MANAGER)
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

"""The CRDs of the front for compositions, on a real API server."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bind.osb.dataservices import managed as kinds
from reconciler.core import keys, manifest, names, refs
from reconciler.core.errors import Rejected
from reconciler.core.manifest import get, labels_of
from reconciler.core.refs import Ref
from tests.support import deployed
from tests.support.clusters import LiveCluster
from tests.support.deployed import Hearing
from tests.support.event_rights import recorded_and_counted
from tests.support.osb_compositions import Compositions
from tests.support.osb_rights import SETTINGS, given, lives, shipped
from tests.support.osb_scenes import OsbScene, served

INSTANCE, BINDING = kinds.SERVICE_INSTANCE, kinds.SERVICE_BINDING
BACKUP, RESTORE = kinds.BACKUP, kinds.RESTORE


@pytest.fixture
async def front(control_plane: LiveCluster, namespace: str) -> Compositions:
    made = Compositions(control_plane, namespace, prefix=f"t{uuid.uuid4().hex[:8]}-")
    await made.install()
    return made


REFUSED = [
    ("no plan", INSTANCE, {"serviceName": "a", "organizationGuid": "o", "spaceGuid": "s"}, {}),
    ("an unknown policy", RESTORE, {"backupName": "a"}, {"managementPolicies": ["Guess"]}),
    ("an unknown deletion", BACKUP, {"instanceName": "a"}, {"deletionPolicy": "Never"}),
]


@pytest.mark.parametrize(("_", "kind", "asked", "spec"), REFUSED, ids=[row[0] for row in REFUSED])
async def test_an_api_server_refuses(front: Compositions, _, kind, asked, spec) -> None:
    with pytest.raises(Rejected):
        await front.make(kind, asked, **spec)


async def test_what_is_not_said_has_the_defaults_of_crossplane(front: Compositions) -> None:
    made = await front.make(
        INSTANCE,
        {"serviceName": "a", "planName": "b", "organizationGuid": "o", "spaceGuid": "s"},
        claim="defaults",
    )
    assert get(made, "spec", "deletionPolicy") == "Delete"
    assert get(made, "spec", "managementPolicies") == ["*"]
    assert get(made, "spec", "forProvider", "acceptsIncomplete") is True
    assert labels_of(made)[keys.CLAIM_NAME] == "defaults"
    await front.delete(INSTANCE)


@asynccontextmanager
async def working(scene: OsbScene, made: list[Any]) -> AsyncIterator[Hearing]:
    """Let klutch-osb lead under its account, and hear what it asks for."""
    plane = scene.plane
    async with (
        deployed.installed(plane.cluster, plane.connection, made) as way,
        deployed.heard(way) as (heard, hearing),
    ):
        async with scene.program(settings=SETTINGS, way=heard):
            yield hearing
        await recorded_and_counted(heard, scene.namespace)
        await given_back(scene)


async def given_back(scene: OsbScene) -> None:
    ref = Ref(scene.plane.name, refs.LEASE, names.OSB_NAMESPACE, names.OSB_LEASE)
    lease = await scene.plane.cluster.get(ref)
    assert manifest.get_text(lease, "spec", "holderIdentity") == ""
    assert manifest.get_text(lease, "spec", "acquireTime")


async def test_all_that_is_done_needs_these_rights_and_no_other(control_plane, namespace):
    made = shipped()
    async with served(control_plane, namespace) as scene:
        async with working(scene, made) as hearing:
            await lives(scene)
        assert scene.broker.violations == []
        assert hearing.refused() == set()
        assert given(made) - hearing.used() == set()

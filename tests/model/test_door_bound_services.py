"""What a space that the front door made may have: what was bound there, whichever replica did."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import pytest

from bind.settings import parse
from reconciler import api
from reconciler.apply import patches
from reconciler.blueprints import objects
from reconciler.core import conditions, keys, manifest, refs
from reconciler.core.manifest import Manifest
from reconciler.core.refs import GroupResource, Ref
from reconciler.kube.cluster import Cluster
from tests.model.test_door_spaces import get
from tests.support.backend import USUAL, backend
from tests.support.clusters import LiveCluster
from tests.support.door_spaces import ALICE, Door, replica
from tests.support.eventually import eventually
from tests.support.offers import Offer, offered

MANAGER: Final = "tests"
OPEN: Final = replace(
    USUAL,
    door=parse(
        [
            "--oidc-issuer-url=https://idp.example.org",
            "--oidc-issuer-client-id=web",
            "--oidc-issuer-client-secret=s",
            "--oidc-callback-url=https://bind.example.org/callback",
        ]
    ).door,
)


@pytest.fixture
async def queues(control_plane: LiveCluster, namespace: str) -> AsyncIterator[Offer]:
    async with offered(control_plane.cluster, namespace=namespace) as offer:
        yield offer


@contextlib.asynccontextmanager
async def two_replicas(
    control_plane: LiveCluster, service: str, queues: Offer
) -> AsyncIterator[tuple[Door, Door]]:
    plane = control_plane.cluster
    async with (
        backend(control_plane.connection),
        replica(plane, service) as one,
        replica(plane, queues.name) as other,
    ):
        yield one, other


async def noted(door: Door, space: str) -> set[str]:
    live = await get(door.plane, refs.NAMESPACE, "", space)
    return set(manifest.annotations_of(live)[keys.MAY_BIND].split(","))


async def asks(plane: Cluster, space: str, resource: GroupResource) -> None:
    """Ask for an export, as a konnector's account may."""
    made = objects.export_request(space, resource, parameters={}, marks=objects.UNMARKED)
    await plane.create(made, api.API_SERVICE_EXPORT_REQUEST, manager="a konnector")


async def answered(plane: Cluster, space: str, name: str) -> tuple[str, str]:
    live = await get(plane, api.API_SERVICE_EXPORT_REQUEST, space, name)
    said = conditions.get(live, "ExportsReady")
    return ("", "") if said is None else (said.status, said.reason)


async def is_refused(plane: Cluster, space: str, name: str) -> bool:
    return await answered(plane, space, name) == ("False", "NotListed")


async def is_served(plane: Cluster, space: str, name: str) -> bool:
    export = await get(plane, api.API_SERVICE_EXPORT, space, name)
    return export is not None and await answered(plane, space, name) == ("True", "")


async def test_a_space_gets_exports_of_what_was_bound_there_alone(
    control_plane: LiveCluster, service: str, queues: Offer
) -> None:
    plane = control_plane.cluster
    async with backend(control_plane.connection), replica(plane, service) as door:
        space = await door.bind()
        await asks(plane, space, queues.resource)
        await asks(plane, space, door.offer.resource)
        await eventually(lambda: is_refused(plane, space, queues.name))
        await eventually(lambda: is_served(plane, space, service))
        assert await get(plane, api.API_SERVICE_EXPORT, space, queues.name) is None
        async with replica(plane, queues.name) as other:
            assert await other.bind() == space
        # The note alone has the request looked at again.
        await eventually(lambda: is_served(plane, space, queues.name))
        assert await noted(door, space) == {service, queues.name}


async def test_where_everybody_may_bind_everything_a_space_may_ask_for_it(
    control_plane: LiveCluster, service: str, queues: Offer
) -> None:
    plane = control_plane.cluster
    async with backend(control_plane.connection, OPEN), replica(plane, service) as door:
        space = await door.bind()
        await asks(plane, space, queues.resource)
        await eventually(lambda: is_served(plane, space, queues.name))


async def test_a_fleet_that_takes_a_space_over_fills_it_until_it_lets_it_go(
    control_plane: LiveCluster, service: str, queues: Offer, namespace: str
) -> None:
    plane = control_plane.cluster
    async with (
        offered(plane, namespace=namespace) as topics,
        backend(control_plane.connection),
        replica(plane, service) as door,
    ):
        space = await door.bind()
        ref = Ref(plane.name, refs.NAMESPACE, "", space)
        await asks(plane, space, queues.resource)
        body: Manifest = {"metadata": {"labels": {keys.FLEET: "shop"}}}
        await plane.merge_patch(ref, body, manager=MANAGER)
        await eventually(lambda: is_served(plane, space, queues.name))
        # The fleet lets it go, and its label stays.
        live = await get(plane, refs.NAMESPACE, "", space)
        retired = patches.retire(ref, uid=manifest.uid_of(live), now=datetime.now(UTC))(live)
        await plane.merge_patch(ref, retired or {}, manager=MANAGER)
        assert await door.bind() == space
        await asks(plane, space, topics.resource)
        await eventually(lambda: is_refused(plane, space, topics.name))
        assert await noted(door, space) == {service}


async def test_binds_of_two_services_at_two_replicas_are_both_noted(
    control_plane: LiveCluster, service: str, queues: Offer
) -> None:
    async with two_replicas(control_plane, service, queues) as (one, other):
        found = await asyncio.gather(*(each.bind() for each in (one, other) for _ in range(5)))
        assert len(set(found)) == 1
        assert await noted(one, found[0]) == {service, queues.name}
        mark = control_plane.audit.mark()
        await one.bind()
        assert control_plane.audit.writes_since(mark) == []


async def test_several_services_of_one_bind_are_noted_at_once(
    control_plane: LiveCluster, service: str, queues: Offer
) -> None:
    async with two_replicas(control_plane, service, queues) as (one, other):
        space = await one.spaces.provide(ALICE, "4ceiSr", one.offer, other.offer)
        assert await noted(one, space.name) == {service, queues.name}


async def test_the_first_note_takes_in_what_a_space_has_and_is_about_to_get(
    control_plane: LiveCluster, service: str, queues: Offer, namespace: str
) -> None:
    plane, unnoted = control_plane.cluster, {"metadata": {"annotations": {keys.MAY_BIND: None}}}
    way = control_plane.connection
    async with offered(plane, namespace=namespace) as topics, replica(plane, service) as door:
        async with backend(way):
            space = await door.bind()
            ref = Ref(plane.name, refs.NAMESPACE, "", space)
            await plane.merge_patch(ref, unnoted, manager=MANAGER)
            await asks(plane, space, queues.resource)
            await eventually(lambda: is_served(plane, space, queues.name))
        # Nobody answers these before the bind; one of them asks for what is not offered.
        await asks(plane, space, topics.resource)
        await asks(plane, space, GroupResource("nobody.example", "offers"))
        await eventually(lambda: door.views.resources_of(space) == {queues.name, topics.name})
        async with backend(way):
            await door.bind()
            await eventually(lambda: is_served(plane, space, topics.name))
        assert await noted(door, space) == {service, queues.name, topics.name}

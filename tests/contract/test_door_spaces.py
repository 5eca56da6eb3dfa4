"""Spaces of those who sign in, and who may bind what, on a real API server."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import pytest
import pytest_asyncio

from bind.door import provisioning
from bind.door.authorizer import Reviews
from bind.door.catalogue import Offer
from bind.door.identity import Identity
from bind.door.provisioning import SpaceTerms
from bind.door.refusals import Refused
from reconciler.api import API_SERVICE_EXPORT_REQUEST, API_SERVICE_EXPORT_TEMPLATE
from reconciler.blueprints import objects
from reconciler.blueprints.objects import UNMARKED, build
from reconciler.core import manifest, refs
from reconciler.core.errors import Forbidden
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from reconciler.kube import kubeconfig
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from reconciler.kube.requests import Preconditions, Propagation
from tests.support.backend import USUAL, backend
from tests.support.clusters import LiveCluster
from tests.support.door_spaces import COMPLETE, inside, replica
from tests.support.eventually import eventually
from tests.support.offers import offered

MANAGER: Final = "tests"
GROUP: Final = "oidc:team-a"


def somebody() -> Identity:
    """Return an identity that no other test has."""
    subject = f"user-{uuid.uuid4().hex[:8]}"
    return Identity("https://idp.example.org", subject, f"oidc:{subject}", (GROUP,))


def terms(plane: LiveCluster) -> SpaceTerms:
    way = plane.connection
    return SpaceTerms("cluster-", "Shop Inc", way.server, tls_server_name=way.tls_server_name)


@pytest_asyncio.fixture
async def service(control_plane: LiveCluster, namespace: str) -> AsyncIterator[str]:
    async with offered(control_plane.cluster, namespace=namespace) as offer:
        yield offer.name


async def remove(cluster: Cluster, ref: Ref) -> None:
    live = await cluster.get(ref)
    assert live is not None
    exactly = Preconditions(manifest.uid_of(live))
    await cluster.delete(ref, preconditions=exactly, propagation=Propagation.BACKGROUND)


async def test_twenty_binds_at_two_replicas_make_one_space_whose_kubeconfig_is_good(
    control_plane: LiveCluster, service: str
) -> None:
    plane, alice, made = control_plane.cluster, somebody(), terms(control_plane)
    async with (
        backend(control_plane.connection, replace(USUAL, control_plane_mode=False)),
        replica(plane, service, made) as one,
        replica(plane, service, made) as other,
    ):
        calls = [
            each.spaces.provide(alice, "4ceiSr", each.offer)
            for each in (one, other)
            for _ in range(10)
        ]
        found = {(space.name, space.kubeconfig) for space in await asyncio.gather(*calls)}
        ((space, content),) = found
        try:
            assert await inside(plane, space) == COMPLETE
            mark = control_plane.audit.mark()
            await one.spaces.provide(alice, "4ceiSr", one.offer)
            assert control_plane.audit.writes_since(mark, namespace=space) == []
            await asks_for_an_export(content, space, one.offer)
        finally:
            await remove(plane, Ref(plane.name, refs.NAMESPACE, "", space))


async def asks_for_an_export(content: bytes, space: str, offer: Offer) -> None:
    """Do with a kubeconfig what a CLI does first, and what it may not."""
    way = kubeconfig.from_content(content, name="the provider")
    assert isinstance(way, Connection)
    assert way.namespace == space
    asked = objects.export_request(space, offer.resource, parameters={}, marks=UNMARKED)
    async with KubeCluster(way) as provider:
        await provider.create(asked, API_SERVICE_EXPORT_REQUEST, manager=MANAGER)
        with pytest.raises(Forbidden):
            await provider.list(refs.SECRET, namespace=offer.namespace)


async def test_a_deleted_space_is_not_filled_while_it_goes_and_is_made_anew_afterwards(
    control_plane: LiveCluster, service: str
) -> None:
    plane, alice, made = control_plane.cluster, somebody(), terms(control_plane)
    name = provisioning.Wanted(alice, "4ceiSr", made, frozenset()).name
    ref = Ref(plane.name, refs.NAMESPACE, "", name)
    async with (
        backend(control_plane.connection, replace(USUAL, control_plane_mode=False)),
        replica(plane, service, made) as door,
    ):
        before = await door.spaces.provide(alice, "4ceiSr", door.offer)
        held = Ref(plane.name, refs.SECRET, name, "kubeconfig")
        await plane.merge_patch(
            held, {"metadata": {"finalizers": ["tests.example/held"]}}, manager=MANAGER
        )
        await remove(plane, ref)
        with pytest.raises(Refused, match="being deleted") as refused:
            await door.spaces.provide(alice, "4ceiSr", door.offer)
        assert refused.value.code == "conflict"
        await plane.merge_patch(held, {"metadata": {"finalizers": None}}, manager=MANAGER)

        async def gone() -> bool:
            return await plane.get(ref) is None

        await eventually(gone)
        after = await door.spaces.provide(alice, "4ceiSr", door.offer)
        await remove(plane, ref)
    assert after.name == before.name
    assert after.kubeconfig != before.kubeconfig


def rights(namespace: str, template: str) -> list[tuple[Kind, Manifest]]:
    """Return what lets a group bind one template."""
    kind = API_SERVICE_EXPORT_TEMPLATE
    rule: Manifest = {
        "apiGroups": [kind.group],
        "resources": [kind.plural],
        "resourceNames": [template],
        "verbs": ["bind"],
    }
    role: Manifest = {"apiGroup": refs.ROLE.group, "kind": "Role", "name": "binders"}
    group: Manifest = {"apiGroup": refs.ROLE.group, "kind": "Group", "name": GROUP}
    return [
        (refs.ROLE, build(refs.ROLE, "binders", namespace=namespace, rules=[rule])),
        (
            refs.ROLE_BINDING,
            build(
                refs.ROLE_BINDING, "binders", namespace=namespace, roleRef=role, subjects=[group]
            ),
        ),
    ]


async def test_who_may_bind_is_up_to_the_control_plane(
    control_plane: LiveCluster, service: str
) -> None:
    plane, alice, seconds = control_plane.cluster, somebody(), [0.0]
    reviews = Reviews(plane, lambda: seconds[0])
    async with replica(plane, service) as door:
        offer = door.offer

    async def later(after: float) -> bool:
        seconds[0] += after
        return await reviews.may_bind(alice, offer)

    assert not await later(0)
    for kind, made in rights(offer.namespace, offer.name):
        await plane.create(made, kind, manager=MANAGER)
    assert not await later(9.9)  # as it was said
    await eventually(lambda: later(10))  # its rights come to the server by a watch of its own
    assert not await reviews.may_bind(replace(alice, groups=("oidc:team-b",)), offer)
    assert not await reviews.may_bind(alice, replace(offer, name="another"))
    await remove(plane, Ref(plane.name, refs.ROLE_BINDING, offer.namespace, "binders"))

    async def refused() -> bool:
        return not await later(10)

    await eventually(refused)


async def test_a_backend_that_may_not_ask_refuses(control_plane: LiveCluster, service: str) -> None:
    way = control_plane.connection
    async with replica(control_plane.cluster, service) as door:
        offer = door.offer
    async with KubeCluster(Connection("nobody", way.server, ca=way.ca)) as anonymous:
        reviews = Reviews(anonymous, lambda: 0.0)
        with pytest.raises(Refused) as raised:
            await reviews.may_bind(somebody(), offer)
    assert raised.value.code == "unavailable"

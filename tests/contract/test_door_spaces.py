"""Spaces of those who sign in, and who may bind what, on a real API server."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import pytest
import pytest_asyncio

from bind.door.authorizer import Reviews
from bind.door.identity import Identity, Refused
from reconciler.api import API_SERVICE_EXPORT_TEMPLATE
from reconciler.blueprints.objects import build
from reconciler.core import refs
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from tests.support.bound_scenes import remove
from tests.support.clusters import LiveCluster
from tests.support.door_spaces import replica
from tests.support.eventually import eventually
from tests.support.offers import offered

MANAGER: Final = "tests"
GROUP: Final = "oidc:team-a"


def somebody() -> Identity:
    subject = f"user-{uuid.uuid4().hex[:8]}"
    return Identity("https://idp.example.org", subject, f"oidc:{subject}", (GROUP,))


@pytest_asyncio.fixture
async def service(control_plane: LiveCluster, namespace: str) -> AsyncIterator[str]:
    async with offered(control_plane.cluster, namespace=namespace) as offer:
        yield offer.name


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
    await remove(control_plane, refs.ROLE_BINDING, offer.namespace, "binders")

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

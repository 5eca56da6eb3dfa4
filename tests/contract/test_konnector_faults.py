"""API servers that die in turn, and come back, cost a konnector nothing.

What its own deaths and refused writes come to: `tests/model/test_konnector_crashes.py`.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import pytest

from bind.app_cluster_binding.cleanup import DRAIN_TIMEOUT
from klutchctl.sandbox.servers import Program
from klutchctl.sandbox.state import Role
from reconciler import api
from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from tests.support import konnector_faults as story
from tests.support import losses
from tests.support.bound_scenes import ACCEPTED, Scene, gone, read, remove, until
from tests.support.deep_objects import nested, post, typed
from tests.support.deletion_drills import DEADLINE, STUCK, drill, lived
from tests.support.konnector import konnector
from tests.support.konnector_scenes import refusal

pytestmark = pytest.mark.timeout(900)


@pytest.mark.soak
async def test_api_servers_that_die_in_turn_and_come_back_cost_nothing(
    scene: Scene, without: Callable[[Role, Program], AbstractAsyncContextManager[None]]
) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await story.begins(scene)
        await until(lambda: story.bound_alike(scene))
        async with without(Role.CONTROL_PLANE, Program.API_SERVER):
            await story.goes_on(scene)
        await until(lambda: story.all_there(scene))
        async with without(Role.APP_CLUSTER, Program.API_SERVER):
            await story.is_served(scene)
        await until(lambda: story.served_alike(scene))
        await story.changes(scene)
        both = (
            without(Role.CONTROL_PLANE, Program.API_SERVER),
            without(Role.APP_CLUSTER, Program.API_SERVER),
        )
        async with both[0], both[1]:
            pass
        await until(lambda: story.changed_alike(scene))


async def test_eight_claims_go_with_their_namespace(scene: Scene) -> None:
    many = losses.Many(scene, 8)
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound(ACCEPTED)
        await many.make()
        await remove(scene.app, NAMESPACE, "", scene.app_namespace)
        await until(lambda: gone(read(scene.app, NAMESPACE, "", scene.app_namespace)))
        await until(lambda: gone(read(scene.plane, NAMESPACE, "", scene.service_namespace)))
        assert await losses.cause(scene, "DeletesAllowed") == ""


__all__ = ["drill", "lived"]


async def test_a_space_that_does_not_go_is_reported_with_what_holds_it(lived):
    managed = lived.managed
    export = Ref(managed.plane.name, api.API_SERVICE_EXPORT, managed.space, managed.offer.name)
    await lived.hold(export, STUCK)
    await lived.delete("Delete")
    await until(managed.drains)
    lived.clock.put_forward(DRAIN_TIMEOUT)
    await lived.waits_for(f"Namespace {managed.space} still exists", STUCK)
    lived.clock.put_forward(DEADLINE)
    await lived.waits_for(f"Namespace {managed.space}", STUCK, reason="DeadlineExceeded")
    await lived.hold(export)
    await lived.ended()
    await until(lived.has_let_the_data_go)


# Written by nobody, compared by recursion or not, and read by orjson or not.
LEVELS: Final = [280, 1000, 3000]


async def litter(scene: Scene, namespace: str, levels: int) -> None:
    """Leave what tenants can leave: a request, and metadata of a Secret, on both sides."""
    name = f"deep-{levels}"
    named = f'{{"group":"{scene.offer.group}","resource":"{scene.offer.kind.plural}"}}'
    asked = f'"spec":{{"parameters":{{"a":{nested(levels)}}},"resources":[{named}]}}'
    kind = API_SERVICE_EXPORT_REQUEST
    await post(scene.plane, kind, namespace, typed(kind, asked, name=name))
    manager = '"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1"'
    managed = f',"managedFields":[{{{manager},"fieldsV1":{nested(levels)}}}]'
    secret = typed(SECRET, '"data":{}', name=name, metadata=managed)
    for live, where in ((scene.plane, namespace), (scene.app, scene.app_namespace)):
        await post(live, SECRET, where, secret)


async def test_neighbours_of_deep_objects_are_served(scene: Scene, namespace: str) -> None:
    for levels in LEVELS:
        await litter(scene, namespace, levels)
    async with scene.backend(), scene.konnector():
        await scene.bound()
        await scene.create_instance(size="1Gi")
        await until(scene.copy)
        # Into watches that are open, and into the lists of those that begin.
        for levels in LEVELS:
            spec = f'"spec":{{"a":{nested(levels)}}}'
            instance = typed(scene.offer.kind, spec, name=f"deep-{levels}")
            await post(scene.app, scene.offer.kind, scene.app_namespace, instance)
        await scene.create_instance("later", size="2Gi")
        await until(lambda: scene.copy("later"))
    async with scene.backend(), scene.konnector():
        await scene.create_instance("latest", size="3Gi")
        await until(lambda: scene.copy("latest"))
        await until(lambda: all_refused(scene))
        for levels in LEVELS:
            assert await scene.copy(f"deep-{levels}") is None


async def all_refused(scene: Scene) -> bool:
    message = await refusal(scene)
    return all(f"deep-{levels}" in message for levels in LEVELS)

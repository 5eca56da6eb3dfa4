"""A konnector's token, asked all the time while the backend works at what it stands for."""

import asyncio
import contextlib
import itertools
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from bind.settings import Settings
from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.blueprints.objects import build
from reconciler.controller.program import Term
from reconciler.core import names
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import CLUSTER_ROLE, NAMESPACE, SECRET
from reconciler.core.times import format_time
from tests.support import removal
from tests.support.backend import backend
from tests.support.eventually import eventually
from tests.support.konnector_rights import COPY, Konnector, Question, forbidden, needed
from tests.support.offers import CREDENTIALS, offered
from tests.support.served_spaces import Damage, Space, a_space, claim, damaged_and_repaired, gone

pytestmark = pytest.mark.timeout(900)  # on a busy machine

RECONCILES = 200
TIMES = 100  # that each forbidden thing is asked for at least
# Of these reconciles any could give or take a right.
GRANTING = ("binderrole", "clusterbinding", "servicenamespace")
CONFIG: Manifest = {"resource": "configmaps", "version": "v1"}


@dataclass
class Scene:
    """Two served spaces; the konnector has the token of the first."""

    backend: Term
    spaces: tuple[Space, Space]
    konnector: Konnector
    needed: list[Question]
    taken: int = 0  # how many rights of the konnector are out of order by our own hand
    taken_ever: int = 0

    @property
    def cluster(self):
        return self.spaces[0].cluster

    def reconciles(self) -> int:
        """Return how many times rights were looked at."""
        found = self.backend.metrics.registry.collect()
        samples = [each for one in found if one.name == "klutch_reconcile" for each in one.samples]
        ends = [each for each in samples if each.name == "klutch_reconcile_total"]
        return int(sum(each.value for each in ends if each.labels["controller"] in GRANTING))

    async def asks_for_all_that_is_forbidden(self) -> None:
        asked = forbidden(*self.spaces)
        while True:
            found = await self.konnector.all_statuses(asked)
            assert {str(one): status for one, status in found.items() if status != 403} == {}

    async def does_all_that_it_must(self) -> None:
        while True:
            before = self.taken_ever
            whole = not self.taken
            found = await self.konnector.all_statuses(self.needed)
            if whole and self.taken_ever == before:
                assert {str(one): it for one, it in found.items() if not works(it)} == {}

    @contextlib.asynccontextmanager
    async def without(self) -> AsyncIterator[None]:
        """Within the block a right is missing by our own hand; at its end all are back."""
        self.taken += 1
        self.taken_ever += 1
        yield
        await eventually(self.may_do_all_that_it_must)
        self.taken -= 1

    async def may_do_all_that_it_must(self) -> bool:
        quick = [one for one in self.needed if one.verb != "watch"]
        found = await self.konnector.all_statuses(quick)
        assert {str(one): it for one, it in found.items() if not works(it)} == {}
        return True


def works(status: int) -> bool:
    """Tell whether a call was allowed: an object that changed meanwhile is no matter of rights."""
    return status in (200, 201, 409)


@contextlib.asynccontextmanager
async def staged(control_plane, namespace) -> AsyncIterator[Scene]:
    cluster = control_plane.cluster
    async with (
        offered(cluster, namespace=namespace) as offer,
        a_space(cluster, offer) as own,
        a_space(cluster, offer) as other,
        backend(control_plane.connection, Settings()) as made,
    ):
        for space in (own, other):
            await space.served()
            for kind in (offer.kind, SECRET):
                copy = build(kind, COPY, namespace=space.home)
                await cluster.create(copy, kind, manager="tests")
        token = b64decode(await own.token()).decode()
        async with Konnector(control_plane.connection, token) as konnector:
            yield Scene(made, (own, other), konnector, await needed(own))


async def claims_change(scene: Scene) -> None:
    """By the template, and by hand, which the template undoes."""
    own = scene.spaces[0]
    for claims in ([CREDENTIALS, CONFIG], [CREDENTIALS]):
        await claim(scene.cluster, own.offer, claims)
        await given(scene, claims)
    for space in scene.spaces:
        more: Manifest = {"spec": {"permissionClaims": [CREDENTIALS, CONFIG]}}
        await space.patch(space.export, more)
    await given(scene, [CREDENTIALS])


async def given(scene: Scene, claims: list[Manifest]) -> None:
    """Wait until exports and rights are as claimed."""
    wanted = sorted(get_text(one, "resource") for one in claims)

    async def so():
        for space in scene.spaces:
            export, role = await space.at(space.export), await space.at(space.role)
            claimed = [one["resource"] for one in export["spec"]["permissionClaims"]]
            allowed = [one["resources"][0] for one in role["rules"]]
            if (sorted(claimed), sorted(allowed)) != (wanted, sorted([*wanted, "databases"])):
                return False
        return True

    await eventually(so)


async def app_namespaces_come_and_go(scene: Scene) -> None:
    for space in scene.spaces:
        await space.make(API_SERVICE_NAMESPACE, "guest")
    for space in scene.spaces:
        home = names.service_namespace(space.name, "guest")
        mapping = space.ref(API_SERVICE_NAMESPACE, "guest")

        async def told(space=space, mapping=mapping, home=home):
            return get_text(await space.at(mapping), "status", "namespace") == home

        await eventually(told)
        await removal.remove(space.cluster, mapping)
        await gone(space.cluster, space.everywhere(NAMESPACE, home))


async def hearts_beat(scene: Scene) -> None:
    for space in scene.spaces:
        beat = {"lastHeartbeatTime": format_time(datetime.now(UTC)), "heartbeatInterval": "5m0s"}
        await space.patch(space.binding, {"status": beat}, subresource="status")


async def rights_are_damaged(scene: Scene) -> None:
    roles = [one.role for one in scene.spaces]
    bindings = [ref for one in scene.spaces for ref in (one.in_space, one.in_home)]
    of_all = scene.spaces[0].everywhere(CLUSTER_ROLE, names.BINDER)
    for damage, refs in (
        (Damage.emptied, [*roles, *bindings]),
        (Damage.removed, [*roles, *bindings]),
        (Damage.misled, bindings),
        (Damage.emptied, [of_all]),
        (Damage.removed, [of_all]),
    ):
        async with scene.without():
            done = (damaged_and_repaired(scene.cluster, ref, damage) for ref in refs)
            await asyncio.gather(*done)


CHURN = (claims_change, hearts_beat, app_namespaces_come_and_go, hearts_beat, rights_are_damaged)


async def test_no_right_flaps(control_plane, namespace):
    mark = control_plane.audit.mark()
    async with staged(control_plane, namespace) as scene:
        await eventually(scene.may_do_all_that_it_must)  # the API server hears of it by and by
        begun = scene.reconciles()
        asking = forbidden(*scene.spaces)
        assert len(asking) == 20

        def enough() -> bool:
            asked = min(scene.konnector.answers[one].total() for one in asking)
            return scene.reconciles() - begun >= RECONCILES and asked >= TIMES

        async with asyncio.TaskGroup() as group:
            loops = (scene.asks_for_all_that_is_forbidden, scene.does_all_that_it_must)
            running = [group.create_task(one()) for one in loops]
            for churn in itertools.cycle(CHURN):
                await churn(scene)
                if enough():
                    break
            for one in running:
                one.cancel()
    written = control_plane.audit.writes_since(mark)
    ours = [one for one in written if one.agent == "klutch-bind"]
    assert {one.resource for one in ours} >= {"clusterroles", "rolebindings"}
    # Those that other tests left behind may be taken away.
    everywhere = [one for one in ours if one.resource == "clusterrolebindings"]
    assert {one.verb for one in everywhere} <= {"delete"}

"""A konnector that dies on cue, a story of claims, and what both sides must come to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias
from unittest import mock

from konnector import program
from reconciler.api import API_SERVICE_BINDING, CLUSTER_BINDING
from reconciler.controller.program import Term
from reconciler.controller.tasks import Clock
from reconciler.core import keys, names
from reconciler.core.errors import KlutchError
from reconciler.core.manifest import (
    annotations_of,
    finalizers_of,
    get,
    get_map,
    get_text,
    is_deleting,
    name_of,
    ref_of,
)
from reconciler.core.refs import SECRET, Kind, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from tests.support.bound_scenes import ACCEPTED, Scene, b64, conditions, remove, says, secret
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.faults import Faults, FaultyCluster, survives
from tests.support.konnector import konnector
from tests.support.losses import note

_LONG: Final = 180.0  # seconds; failures in a row make long pauses


@contextlib.contextmanager
def faulty_providers(faults: Faults) -> Iterator[None]:
    """Let the ways that lead from kubeconfig Secrets fail as well."""
    real = program.connect

    def connect(*arguments: Any, **more: Any) -> Cluster:
        return FaultyCluster(real(*arguments, **more), faults)

    with mock.patch.object(program, "connect", connect):
        yield


@contextlib.asynccontextmanager
async def mortal(
    way: Connection, faults: Faults, *, clock: Clock | None = None
) -> AsyncIterator[Term]:
    """Let a konnector work whose calls to all clusters fail, or kill it, as the faults say."""
    with faulty_providers(faults):
        async with konnector(way, clock=clock, faults=faults) as made:
            yield made


async def restless(way: Connection, stop: asyncio.Event, deaths: Callable[[], Faults]) -> int:
    """Run a konnector again and again until `stop`; each meets faults of its own.

    Return how often it ended. One that cannot start ends, and is started again, as in a Pod.
    """
    died = 0

    async def live(faults: Faults) -> None:
        async with mortal(way, faults):
            while not stop.is_set():
                faults.still_alive()
                await asyncio.sleep(0.05)

    while not stop.is_set():
        try:
            died += not await survives(live(deaths()))
        except (KlutchError, AssertionError):
            died += 1
    return died


async def alike(scene: Scene) -> bool:
    """See that each side has what the other has, and no more. Raises AssertionError."""
    claims = await _held(scene.app, scene.offer.kind, scene.app_namespace)
    copies = await _held(scene.plane, scene.offer.kind, scene.service_namespace)
    assert not claims.keys() - copies.keys(), f"no copies of {claims.keys() - copies.keys()}"
    assert not copies.keys() - claims.keys(), f"only copies of {copies.keys() - claims.keys()}"
    for name, claim in claims.items():
        copy = copies[name]
        assert not is_deleting(claim), f"{name} is being deleted"
        assert not is_deleting(copy), f"the copy of {name} is being deleted"
        assert finalizers_of(claim) == [keys.SYNCER], f"finalizers of {name}"
        assert finalizers_of(copy) == [], f"finalizers of the copy of {name}"
        assert keys.BOUND in annotations_of(claim), f"{name} is not marked"
        assert keys.BOUND in annotations_of(copy), f"the copy of {name} is not marked"
        assert get(claim, "spec") == get(copy, "spec"), f"the specs of {name} differ"
        assert get_map(claim, "status") == get_map(copy, "status"), f"statuses of {name} differ"
    sent = await _held(scene.plane, SECRET, scene.service_namespace)
    came = await _held(scene.app, SECRET, scene.app_namespace)
    assert not sent.keys() - came.keys(), f"Secrets {sent.keys() - came.keys()} did not come"
    assert not came.keys() - sent.keys(), f"Secrets {came.keys() - sent.keys()} did not go"
    old = [name for name in sent if get(sent[name], "data") != get(came[name], "data")]
    assert not old, f"Secrets {old} are old"
    return True


async def becomes_alike(scene: Scene, reported: str = "") -> None:
    async def probe() -> bool:
        try:
            return await alike(scene)
        except AssertionError as failure:
            raise AssertionError(f"{reported}: {failure}; {await troubles(scene)}") from None

    await eventually(probe, within=_LONG)


async def troubles(scene: Scene) -> list[str]:
    reported = [
        await scene.on_plane(CLUSTER_BINDING, names.CLUSTER_BINDING),
        await scene.binding(),
        await scene.export(),
    ]
    return [
        f"{get_text(one, 'kind')} {condition}: {said.get('reason')}"
        for one in reported
        for condition, said in conditions(one).items()
        if said.get("status") != "True"
    ]


async def _held(live: LiveCluster, kind: Kind, namespace: str) -> dict[str, Any]:
    found = await live.cluster.list(kind, namespace=namespace)
    return {name_of(one): one for one in found.items}


CLAIMS = [f"claim-{number}" for number in range(4)]


async def begins(scene: Scene) -> None:
    """Bind, and make claims."""
    await scene.make_space()
    await scene.request()
    binding = await scene.bind(ACCEPTED)
    # A konnector that dies has not seen whether a copy was deleted alone.
    ref = ref_of(scene.app.name, API_SERVICE_BINDING, binding)
    await note(scene.app, ref, keys.RECREATE, keys.RECREATE_ALWAYS)


async def goes_on(scene: Scene) -> None:
    """Claims come, as soon as there is their kind."""
    for name in CLAIMS:
        await scene.create_instance(name, size="1Gi")


async def is_served(scene: Scene) -> None:
    """Let the provider answer: statuses, and a Secret for one claim."""
    plane = scene.plane.cluster
    for name in CLAIMS:
        ref = Ref("", scene.offer.kind, scene.service_namespace, name)
        status = {"status": {"phase": f"Ready {name}"}}
        await plane.merge_patch(ref, status, manager="provider", subresource="status")
    await plane.create(secret("creds", scene.service_namespace), SECRET, manager="provider")


async def changes(scene: Scene) -> None:
    """Let a field go, a claim, and a copy; and change a Secret."""
    app, plane = scene.app.cluster, scene.plane.cluster
    first, second, third, _ = (Ref("", scene.offer.kind, scene.app_namespace, n) for n in CLAIMS)
    await app.merge_patch(first, {"spec": {"size": None, "tier": "b"}}, manager="developer")
    await remove(scene.app, scene.offer.kind, scene.app_namespace, second.name)
    await remove(scene.plane, scene.offer.kind, scene.service_namespace, third.name)
    ref = Ref("", SECRET, scene.service_namespace, "creds")
    await plane.merge_patch(ref, {"data": {"password": b64("new")}}, manager="provider")


async def all_there(scene: Scene) -> bool:
    return await alike(scene) and await says(scene.export(), "Ready")


async def served_alike(scene: Scene) -> bool:
    brought = await scene.in_app(SECRET, "creds", scene.app_namespace)
    return brought is not None and await alike(scene)


async def changed_alike(scene: Scene) -> bool:
    brought = await scene.in_app(SECRET, "creds", scene.app_namespace)
    assert get_text(brought, "data", "password") == b64("new")
    assert await scene.instance(CLAIMS[1]) is None
    return await alike(scene)


async def bound_alike(scene: Scene) -> bool:
    return await says(scene.export(), "Ready")


Goal: TypeAlias = Callable[[Scene], Awaitable[bool]]
STORY: tuple[tuple[Callable[[Scene], Awaitable[None]], Goal], ...] = (
    (begins, bound_alike),
    (goes_on, all_there),
    (is_served, served_alike),
    (changes, changed_alike),
)

"""Losses on either side of a space, how they are told, and how a person confirms them."""

import contextlib
from datetime import datetime
from typing import Any

from reconciler.api import CLUSTER_BINDING
from reconciler.controller.program import Term
from reconciler.controller.tasks import SystemClock
from reconciler.core import manifest, names
from reconciler.core.errors import Conflict
from reconciler.core.refs import EVENT, Kind, Ref
from reconciler.core.times import format_time
from reconciler.kube.requests import Preconditions, Propagation
from tests.support import backend
from tests.support.bound_scenes import BIND, Scene, conditions, remove, until
from tests.support.clusters import LiveCluster
from tests.support.konnector import AGENT

AGENTS = (AGENT, backend.AGENT)


class Many:
    """Instances of one service, and how they get lost on either side."""

    def __init__(self, scene: Scene, number: int) -> None:
        self.scene, self.kind = scene, scene.offer.kind
        self.names = [f"db{one:02}" for one in range(number)]

    async def make(self, *besides: str) -> None:
        for name in self.names:
            await self.scene.create_instance(name, size="1Gi")
        await until(lambda: self.are_there(*besides))
        await until(self.are_marked)

    async def are_there(self, *besides: str) -> bool:
        """Return whether all of them have a copy, and so have these others, and nothing else."""
        return await self.there() == sorted([*self.names, *besides])

    async def are_marked(self) -> bool:
        app = self.scene.app.cluster
        found = (await app.list(self.kind, namespace=self.scene.app_namespace)).items
        return all("klutch.anynines.com/bound" in manifest.annotations_of(one) for one in found)

    async def there(self) -> list[str]:
        scene = self.scene
        return await all_names(scene.plane, self.kind, scene.service_namespace)

    async def lose_instance(self, name: str) -> None:
        """Let an instance be gone as if it had never been: nobody was asked, nobody waits."""
        cluster = self.scene.app.cluster
        await lose(cluster, Ref(cluster.name, self.kind, self.scene.app_namespace, name))

    async def lose_copy(self, name: str) -> None:
        await remove(self.scene.plane, self.kind, self.scene.service_namespace, name)

    async def touch(self) -> None:
        """Let the konnector look at all copies again."""
        for name in await self.there():
            ref = Ref("", self.kind, self.scene.service_namespace, name)
            await note(self.scene.plane, ref, "touched", format_time(SystemClock().now()))

    async def orphans(self) -> list[str]:
        """Return the names of the copies that are marked as orphans."""
        scene = self.scene
        listed = await scene.plane.cluster.list(self.kind, namespace=scene.service_namespace)
        marked = [
            one for one in listed.items if "klutchctl.dev/orphaned" in manifest.annotations_of(one)
        ]
        return sorted(map(manifest.name_of, marked))


async def lose(cluster: Any, ref: Ref) -> None:
    """Let an object be gone without its finalizers: nobody was asked, nobody waits."""
    nothing: manifest.Manifest = {"metadata": {"finalizers": None}}
    while True:
        bare = await cluster.merge_patch(ref, nothing, manager="disaster")
        as_bare = Preconditions(
            uid=manifest.uid_of(bare), resource_version=manifest.resource_version_of(bare)
        )
        with contextlib.suppress(Conflict):  # the konnector gave it its finalizer again
            await cluster.delete(ref, preconditions=as_bare, propagation=Propagation.BACKGROUND)
            return


async def all_names(live: LiveCluster, kind: Kind, namespace: str) -> list[str]:
    found = (await live.cluster.list(kind, namespace=namespace)).items
    return sorted(manifest.name_of(one) for one in found)


async def note(live: LiveCluster, ref: Ref, key: str, value: str | None) -> None:
    """Set an annotation, or take it off."""
    body: manifest.Manifest = {"metadata": {"annotations": {key: value}}}
    await live.cluster.merge_patch(ref, body, manager="operator")


async def confirm(scene: Scene, key: str, value: str | datetime | None = None) -> None:
    """Annotate the ClusterBinding, as of now unless a value is told."""
    said = value if isinstance(value, str) else format_time(value or SystemClock().now())
    ref = Ref(scene.plane.name, CLUSTER_BINDING, scene.space, names.CLUSTER_BINDING)
    await note(scene.plane, ref, key, said)


async def withdraw(scene: Scene, key: str) -> None:
    """Take an annotation off the ClusterBinding."""
    ref = Ref(scene.plane.name, CLUSTER_BINDING, scene.space, names.CLUSTER_BINDING)
    await note(scene.plane, ref, key, None)


async def cause(scene: Scene, condition: str) -> str:
    """Return why a condition of the ClusterBinding is not True; "" where it is, or is not told."""
    live = await scene.on_plane(CLUSTER_BINDING, names.CLUSTER_BINDING)
    said = conditions(live).get(condition, {"status": "True"})
    return "" if said["status"] == "True" else said["reason"]


async def says(scene: Scene, condition: str, reason: str) -> bool:
    return await cause(scene, condition) == reason


async def reported(scene: Scene, reason: str) -> Any:
    binding = await scene.binding()
    for event in (await scene.app.cluster.list(EVENT, namespace=BIND)).items:
        about = manifest.get_text(event, "regarding", "uid")
        if about == manifest.uid_of(binding) and manifest.get_text(event, "reason") == reason:
            return event
    return None


async def reported_of(scene: Scene, name: str, reason: str) -> bool:
    events = (await scene.app.cluster.list(EVENT, namespace=scene.app_namespace)).items
    return any(
        manifest.get_text(one, "reason") == reason
        and manifest.get_text(one, "regarding", "name") == name
        for one in events
    )


def measured(made: Term, metric: str, **labels: str) -> float:
    """Return what a metric says, 0 where it does not."""
    return made.metrics.registry.get_sample_value(metric, labels) or 0


def deletes_since(live: LiveCluster, mark: int) -> list[str]:
    """Return what konnectors and backends deleted, as the API server's audit log tells."""
    return [
        f"{one.verb} {one.namespace}/{one.name}"
        for one in live.audit.writes_since(mark)
        if one.verb.startswith("delete") and any(agent in one.agent for agent in AGENTS)
    ]

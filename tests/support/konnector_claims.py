"""Claimed objects between real clusters: what is offered and accepted, and both ends of a way."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler import api
from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import build
from reconciler.controller.program import Term
from reconciler.core import keys, names
from reconciler.core.manifest import Manifest, annotations_of, get_text, name_of, ref_of
from reconciler.core.refs import NAMESPACE, SECRET, Kind, Ref
from tests.support.bound_scenes import BIND, MANAGER, Scene, b64, conditions, read, remove, until
from tests.support.clusters import LiveCluster, Write
from tests.support.konnector import AGENT

SYSTEM: Final = ("kube-system", "kube-public", names.KLUTCH_NAMESPACE)


def claim(resource: str, owner: str = "", *, group: str = "", **more: Any) -> Manifest:
    """Return a claim as a binding accepts it; `more` is about its selector."""
    selector = {**({"owner": owner} if owner else {}), **more}
    return {
        "group": group,
        "resource": resource,
        "version": "v1",
        "state": "Accepted",
        "selector": selector,
    }


async def bound(
    scene: Scene, *claims: Manifest, offers: Sequence[Manifest] | None = None
) -> tuple["End", "End"]:
    """Bind with these claims, all of them offered unless `offers` says otherwise.

    Return the ends on the control plane and in the app cluster, once an instance is up.
    """
    await offer(scene, *(claims if offers is None else offers))
    await scene.bound(*claims)
    await scene.create_instance(size="1Gi")
    await until(scene.is_marked)
    return ends(scene)


def ends(scene: Scene) -> tuple["End", "End"]:
    """Return where claimed objects are, on the control plane and in the app cluster."""
    return (
        End(scene.plane, scene.service_namespace, "provider"),
        End(scene.app, scene.app_namespace, "developer"),
    )


def elsewhere(scene: Scene, app_namespace: str) -> Scene:
    """Return the same space, seen from another app namespace."""
    return replace(scene, app_namespace=app_namespace)


@contextlib.asynccontextmanager
async def quiet_in(scene: Scene) -> AsyncIterator[Scene]:
    """Make an app namespace in which nobody uses the service; yield the scene seen from there."""
    quiet = elsewhere(scene, f"{scene.app_namespace}-quiet")
    made = spaces.namespace(quiet.app_namespace)
    await scene.app.cluster.create(made, NAMESPACE, manager="tests")
    try:
        yield quiet
    finally:
        await remove(scene.app, NAMESPACE, "", quiet.app_namespace)
        for name in (quiet.app_namespace, *SYSTEM):
            await remove(scene.plane, NAMESPACE, "", elsewhere(scene, name).service_namespace)


async def provided(scene: Scene, app_namespace: str) -> tuple["End", "End"]:
    """Let the provider map an app namespace; return its end and the app cluster's."""
    made = build(api.API_SERVICE_NAMESPACE, app_namespace, namespace=scene.space, spec={})
    await scene.plane.cluster.create(made, api.API_SERVICE_NAMESPACE, manager="provider")
    await until(lambda: mapping_of(scene, app_namespace))
    return ends(elsewhere(scene, app_namespace))


@contextlib.asynccontextmanager
async def canaries(scene: Scene, quiet: Scene) -> AsyncIterator[Sequence[tuple["End", "End"]]]:
    """Make Secrets `canary` and `marked`, which is the consumer's, where nobody uses the service.

    The provider maps these namespaces: yield the ends of each, `quiet`'s as the last.
    """
    mine = {"annotations": {keys.RESOURCE_OWNER: "Consumer"}}
    targets = [await provided(scene, one) for one in (*SYSTEM, quiet.app_namespace)]
    try:
        for _, here in targets:
            await here.make(SECRET, "canary", **data("one"))
            await here.make(SECRET, "marked", metadata=mine, **data("one"))
        yield targets
    finally:
        for _, here in targets:
            for name in ("canary", "marked"):
                await here.delete(SECRET, name)


async def crossed(scene: Scene, name: str) -> None:
    """Wait until what was made just now has been looked at: something else has arrived."""
    there, here = ends(scene)
    await there.make(SECRET, name, **data("one"))
    await until(lambda: here.holds(SECRET, name, "one"))


async def mapped(scene: Scene) -> bool:
    return bool(await mapping_of(scene, scene.app_namespace))


async def mapping_of(scene: Scene, app_namespace: str) -> str:
    """Return the service namespace of an app namespace, "" while there is none."""
    live = await scene.on_plane(api.API_SERVICE_NAMESPACE, app_namespace)
    return get_text(live, "status", "namespace")


async def offer(scene: Scene, *claims: Manifest) -> None:
    """Let the template of the service offer these claims and no others."""
    plane = scene.plane.cluster
    offered = [{key: value for key, value in one.items() if key != "state"} for one in claims]
    for template in (await plane.list(api.API_SERVICE_EXPORT_TEMPLATE)).items:
        if get_text(template, "spec", "APIServiceSelector", "group") == scene.offer.group:
            ref = ref_of(plane.name, api.API_SERVICE_EXPORT_TEMPLATE, template)
            body: Manifest = {"spec": {"permissionClaims": offered}}
            await plane.merge_patch(ref, body, manager="provider")


async def accept(scene: Scene, *claims: Manifest) -> None:
    """Let the binding have these claims and no others."""
    ref = Ref(scene.app.name, api.API_SERVICE_BINDING, BIND, scene.offer.name)
    body: Manifest = {"spec": {"permissionClaims": list(claims)}}
    await scene.app.cluster.merge_patch(ref, body, manager=MANAGER)


async def degraded(scene: Scene) -> str:
    """Return what the binding says of claims that are not followed, "" for nothing."""
    said = conditions(await scene.binding()).get("PermissionClaimsInSync", {})
    return said.get("message", "") if said.get("status") == "False" else ""


@dataclass(frozen=True, slots=True)
class End:
    """One end of a way: a namespace of a cluster, and who writes there by hand."""

    live: LiveCluster
    namespace: str
    writer: str

    async def make(self, kind: Kind, name: str, **more: Any) -> Manifest:
        """Create an object; `metadata` among `more` is laid over name and namespace."""
        metadata = {"name": name, "namespace": self.namespace, **more.pop("metadata", {})}
        made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more}
        return await self.live.cluster.create(made, kind, manager=self.writer)

    async def make_all(self, kind: Kind, bodies: Mapping[str, Manifest]) -> None:
        for name, body in bodies.items():
            await self.make(kind, name, **body)

    async def read(self, kind: Kind, name: str) -> Any:
        return await read(self.live, kind, self.namespace, name)

    async def is_orphan(self, kind: Kind, name: str) -> bool:
        return keys.ORPHANED in annotations_of(await self.read(kind, name) or {})

    async def patch(self, kind: Kind, name: str, **body: Any) -> Manifest:
        ref = Ref(self.live.name, kind, self.namespace, name)
        return await self.live.cluster.merge_patch(ref, body, manager=self.writer)

    async def note(self, kind: Kind, name: str, **annotations: str | None) -> None:
        """Set annotations of our group: `resource_owner` is resource-owner."""
        said = {
            f"{keys.KLUTCH_GROUP}/{key.replace('_', '-')}": value
            for key, value in annotations.items()
        }
        await self.patch(kind, name, metadata={"annotations": said})

    async def delete(self, kind: Kind, name: str) -> None:
        await remove(self.live, kind, self.namespace, name)

    async def holds(self, kind: Kind, name: str, text: str) -> Any:
        """Return the object if its data has this text under `key`, else None."""
        found = await self.read(kind, name)
        return found if get_text(found, "data", "key") in (text, b64(text)) else None

    async def lacks(self, kind: Kind, name: str) -> bool:
        return await self.read(kind, name) is None

    async def all(self, kind: Kind) -> list[str]:
        """Return the names of all objects of a kind, but for those that clusters make."""
        found = (await self.live.cluster.list(kind, namespace=self.namespace)).items
        return sorted(name_of(one) for one in found if name_of(one) != "kube-root-ca.crt")

    def mark(self) -> int:
        return self.live.audit.mark()

    def writes_since(self, mark: int) -> list[Write]:
        found = self.live.audit.writes_since(mark, namespace=self.namespace)
        return [one for one in found if AGENT in one.agent]


def data(text: str, kind: str = "Secret") -> Manifest:
    return {"data": {"key": b64(text) if kind == "Secret" else text}}


def is_idle(made: Term) -> bool:
    """Return whether no key waits and none is worked on, without a request to a cluster."""
    return not made.metrics.activity.queued(soon=0)


_REFLECTED: Final = {
    "annotations": {"reflector.v1.k8s.emberstack.com/reflection-auto-enabled": "true"}
}
# What an attacker would bring, by name.
EVIL: Final[dict[str, Any]] = {
    "cacerts": data("evil"),
    "sh.helm.release.v1.web.v1": {"type": "helm.sh/release.v1", **data("evil")},
    "reflected": {"metadata": _REFLECTED, **data("evil")},
}

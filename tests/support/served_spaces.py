"""Binding spaces on a real control plane, as klutchctl makes them, and damage to their rights."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconciler import api
from reconciler.blueprints import objects
from reconciler.blueprints import objects as spaces_of
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core import keys, manifest, names, refs
from reconciler.core.errors import AlreadyExists
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Cluster
from tests.support import removal
from tests.support.eventually import eventually
from tests.support.offers import Offer

MANAGER: Final = "tests"
FLEET: Final = "tests"
APP: Final = "dev"
_STATED: Final = ("rules", "subjects", "roleRef", "spec")


@dataclass(frozen=True, slots=True)
class Space:
    """A binding space, seen by an administrator."""

    cluster: Cluster
    name: str
    offer: Offer

    @property
    def home(self) -> str:
        """The service namespace of the app namespace that is there from the start."""
        return names.service_namespace(self.name, APP)

    @property
    def export(self) -> Ref:
        return self.ref(api.API_SERVICE_EXPORT, self.offer.name)

    @property
    def binding(self) -> Ref:
        return self.ref(api.CLUSTER_BINDING, names.CLUSTER_BINDING)

    @property
    def role(self) -> Ref:
        return self.everywhere(refs.CLUSTER_ROLE, names.space_cluster_role(self.name))

    @property
    def in_space(self) -> Ref:
        return self.ref(refs.ROLE_BINDING, names.BINDER)

    @property
    def in_home(self) -> Ref:
        """The RoleBinding in the service namespace."""
        return Ref(self.cluster.name, refs.ROLE_BINDING, self.home, names.BINDER)

    def ref(self, kind: Kind, name: str) -> Ref:
        return Ref(self.cluster.name, kind, self.name, name)

    def everywhere(self, kind: Kind, name: str) -> Ref:
        return Ref(self.cluster.name, kind, "", name)

    async def at(self, ref: Ref) -> Any:
        return await self.cluster.get(ref)

    async def has(self, ref: Ref) -> None:
        """Wait until an object is there."""

        async def found():
            return await self.at(ref)

        await eventually(found)

    async def patch(self, ref: Ref, body: Manifest, *, subresource: str = "") -> None:
        await self.cluster.merge_patch(ref, body, manager=MANAGER, subresource=subresource)

    async def make(self, kind: Kind, name: str, **fields: Any) -> None:
        made = build(kind, name, namespace=self.name, **fields)
        await self.cluster.create(made, kind, manager=MANAGER)

    async def served(self) -> None:
        """Wait until all that a konnector needs is there."""
        for ref in (self.export, self.role, self.in_space, self.in_home):
            await self.has(ref)

        async def reported():
            mapping = await self.at(self.ref(api.API_SERVICE_NAMESPACE, APP))
            return manifest.get_text(mapping, "status", "namespace") == self.home

        async def granted():
            rules = manifest.get_maps(await self.at(self.role), "rules")
            return any(self.offer.group in manifest.get_texts(rule, "apiGroups") for rule in rules)

        await eventually(reported)
        await eventually(granted)  # the role may be older than the export

    async def token(self) -> str:
        """Return what the konnector has in its kubeconfig, in base64."""
        secret = self.ref(refs.SECRET, names.BINDER)

        async def filled():
            return manifest.get_text(await self.at(secret), "data", "token")

        return await eventually(filled)


@contextlib.asynccontextmanager
async def a_space(cluster: Cluster, offer: Offer) -> AsyncIterator[Space]:
    """Make what klutchctl makes in Direct mode, and take it away with all that followed."""
    space = Space(cluster, names.direct_space(FLEET, uuid.uuid4().hex[:8]), offer)
    try:
        await filled(space)
        yield space
    finally:
        for name in (space.home, space.name):
            await removal.remove(cluster, space.everywhere(refs.NAMESPACE, name))


async def filled(space: Space) -> None:
    """Make the space with what klutchctl makes in it: once more, after it was deleted."""
    marks = Marks(annotations={keys.IDENTITY: f"klutchctl:{FLEET}/{space.name}"})
    made = (
        spaces_of.namespace(space.name, marks=marks),
        spaces_of.service_account(space.name, names.BINDER, marks=UNMARKED),
        spaces_of.token_secret(space.name, names.BINDER, marks=UNMARKED),
        spaces_of.cluster_binding(
            space.name,
            kubeconfig_name=names.KUBECONFIG,
            spec={"providerPrettyName": "Shop Inc"},
            marks=UNMARKED,
        ),
        objects.export_request(space.name, space.offer.resource, parameters={}, marks=UNMARKED),
        build(api.API_SERVICE_NAMESPACE, APP, namespace=space.name),
    )
    for one in made:
        await space.cluster.create(one, _KINDS[manifest.get_text(one, "kind")], manager=MANAGER)


async def place_of(space: Space, app_namespace: str) -> str:
    """Return the service namespace of an app namespace, once its konnector may use it."""
    mapping = space.ref(api.API_SERVICE_NAMESPACE, app_namespace)

    async def reported() -> str:
        place = manifest.get_text(await space.at(mapping) or {}, "status", "namespace")
        rights = Ref(space.cluster.name, refs.ROLE_BINDING, place, names.BINDER)
        return place if place and await space.at(rights) else ""

    return await eventually(reported)


_KINDS: Final = {
    one.kind: one
    for one in (
        refs.NAMESPACE,
        refs.SERVICE_ACCOUNT,
        refs.SECRET,
        api.CLUSTER_BINDING,
        api.API_SERVICE_EXPORT_REQUEST,
        api.API_SERVICE_NAMESPACE,
    )
}


async def flood(space: Space, count: int) -> None:
    """Make so many requests for what the space has, as its konnector may."""
    one = objects.export_request(space.name, space.offer.resource, parameters={}, marks=UNMARKED)
    free = asyncio.Semaphore(16)

    async def make(number: int) -> None:
        metadata = {**manifest.get_map(one, "metadata"), "name": f"flood-{number}"}
        made = {**one, "metadata": metadata}
        async with free:
            await space.cluster.create(made, api.API_SERVICE_EXPORT_REQUEST, manager="tenant")

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(make(number))


async def gone(cluster: Cluster, ref: Ref) -> None:
    """Wait until an object is gone, or on its way out."""

    async def is_gone():
        live = await cluster.get(ref)
        return live is None or manifest.is_deleting(live)

    await eventually(is_gone)


async def claim(cluster: Cluster, offer: Offer, claims: Sequence[Manifest]) -> None:
    """Let the template of a service claim this from now on."""
    found = (await cluster.list(api.API_SERVICE_EXPORT_TEMPLATE)).items
    (template,) = [one for one in found if api.offered_resource(one).name == offer.name]
    ref = manifest.ref_of(cluster.name, api.API_SERVICE_EXPORT_TEMPLATE, template)
    await cluster.merge_patch(ref, {"spec": {"permissionClaims": list(claims)}}, manager=MANAGER)


def stated(live: Manifest | None) -> Mapping[str, Any]:
    """Return what an RBAC object gives, and to whom, or what a quota allows."""
    return {key: value for key, value in (live or {}).items() if key in _STATED}


class Damage:
    """Ways in which an RBAC object or a quota loses what it says; none gives anybody anything."""

    @staticmethod
    async def emptied(cluster: Cluster, live: Manifest, kind: Kind) -> None:
        field = "rules" if "rules" in live else "subjects"
        await cluster.merge_patch(
            manifest.ref_of(cluster.name, kind, live), {field: None}, manager=MANAGER
        )

    @staticmethod
    async def uncounted(cluster: Cluster, live: Manifest, kind: Kind) -> None:
        body: Manifest = {"spec": {"hard": {"count/secrets": None}}}
        await cluster.merge_patch(manifest.ref_of(cluster.name, kind, live), body, manager=MANAGER)

    @staticmethod
    async def removed(cluster: Cluster, live: Manifest, kind: Kind) -> None:
        await removal.remove(cluster, manifest.ref_of(cluster.name, kind, live))

    @staticmethod
    async def misled(cluster: Cluster, live: Manifest, kind: Kind) -> None:
        """Make it anew with another role, which does not exist."""
        other = {**manifest.get_map(live, "roleRef"), "name": "nobody-made-this"}
        made = build(
            kind,
            manifest.name_of(live),
            namespace=manifest.namespace_of(live),
            roleRef=other,
            subjects=manifest.get_maps(live, "subjects"),
        )
        owners = manifest.get_maps(live, "metadata", "ownerReferences")
        if owners:
            made = {
                **made,
                "metadata": {**manifest.get_map(made, "metadata"), "ownerReferences": owners},
            }
        for _ in range(20):
            await removal.remove(cluster, manifest.ref_of(cluster.name, kind, live))
            with contextlib.suppress(AlreadyExists):  # the backend was faster
                await cluster.create(made, kind, manager=MANAGER)
                return
        raise AssertionError(f"{kind} {manifest.name_of(live)} cannot be made by hand")


async def damaged_and_repaired(cluster: Cluster, ref: Ref, damage: Any) -> None:
    """Do the damage, and wait until the object gives again what it gave."""
    before = await cluster.get(ref)
    assert before is not None, ref
    await damage(cluster, before, ref.kind)

    async def repaired():
        live = await cluster.get(ref)
        changed = live is not None and _version(live) != _version(before)
        return changed and stated(live) == stated(before)

    await eventually(repaired)


def _version(live: Manifest) -> tuple[str, str]:
    return manifest.uid_of(live), manifest.get_text(live, "metadata", "resourceVersion")


@dataclass(frozen=True, slots=True)
class AppCluster:
    """An AppClusterBinding beside its kubeconfig, and its space."""

    space: Space
    namespace: str

    @property
    def ref(self) -> Ref:
        return Ref(self.space.cluster.name, api.APP_CLUSTER_BINDING, self.namespace, "shop")

    @property
    def source(self) -> Ref:
        return Ref(self.space.cluster.name, refs.SECRET, self.namespace, "shop-kubeconfig")

    @property
    def deployment(self) -> Ref:
        return self.space.ref(refs.DEPLOYMENT, names.konnector_deployment("shop"))

    @property
    def content(self) -> Sequence[Ref]:
        connector = names.CONTROL_PLANE_CONNECTOR
        return (
            self.space.binding,
            self.space.ref(refs.SERVICE_ACCOUNT, names.BINDER),
            self.space.ref(refs.SECRET, self.source.name),
            self.space.ref(refs.ROLE, connector),
            self.space.ref(refs.ROLE_BINDING, connector),
            self.space.ref(api.API_SERVICE_BINDING, self.space.offer.name),
            self.space.export,
            self.space.in_space,
            self.space.role,
            self.deployment,
        )

    async def bind(self) -> None:
        """Make it, and wait for all that follows."""
        spec: Manifest = {
            "kubeconfigSecretRef": {
                "namespace": self.namespace,
                "name": self.source.name,
                "key": names.KUBECONFIG,
            },
            "apiExports": [self.space.offer.resource.wire],
            "konnector": {"deploy": True, "overrides": {"image": "registry.example.com/k:1"}},
        }
        made = build(api.APP_CLUSTER_BINDING, "shop", namespace=self.namespace, spec=spec)
        await self.space.cluster.create(made, api.APP_CLUSTER_BINDING, manager="tests")
        for ref in self.content:
            await self.space.has(ref)

        async def is_looked_at():
            return bool(
                manifest.get_maps(await self.space.at(self.space.binding), "status", "conditions")
            )

        await eventually(is_looked_at)

    async def unbind(self) -> None:
        await removal.remove(self.space.cluster, self.ref)

        async def is_gone():
            return await self.space.at(self.ref) is None

        await eventually(is_gone)

    async def keeps(self, ref: Ref, body: Manifest) -> None:
        """Change something of an object by hand, and wait until it is as before."""
        before = _stated_with_labels(await self.space.at(ref))
        await self.space.patch(ref, body)

        async def again():
            return _stated_with_labels(await self.space.at(ref)) == before

        await eventually(again)


def _stated_with_labels(live: Any) -> Mapping[str, Any]:
    return {**live, "metadata": {"labels": manifest.labels_of(live)}}

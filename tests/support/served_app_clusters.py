"""An AppClusterBinding on a real control plane, and what follows from it in its space."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.bindings import API_SERVICE_BINDING, APP_CLUSTER_BINDING
from reconciler.blueprints.objects import build
from reconciler.core import names, refs
from reconciler.core.manifest import Manifest, get_maps, labels_of
from reconciler.core.refs import Ref
from tests.support.eventually import eventually
from tests.support.served_spaces import Space, delete


@dataclass(frozen=True, slots=True)
class AppCluster:
    """An AppClusterBinding beside its kubeconfig, and its space."""

    space: Space
    namespace: str

    @property
    def ref(self) -> Ref:
        return Ref(self.space.cluster.name, APP_CLUSTER_BINDING, self.namespace, "shop")

    @property
    def source(self) -> Ref:
        return Ref(self.space.cluster.name, refs.SECRET, self.namespace, "shop-kubeconfig")

    @property
    def deployment(self) -> Ref:
        return self.space.ref(refs.DEPLOYMENT, names.konnector_deployment("shop"))

    @property
    def content(self) -> Sequence[Ref]:
        """What there is in the space once all is well."""
        connector = names.CONTROL_PLANE_CONNECTOR
        return (
            self.space.binding,
            self.space.ref(refs.SERVICE_ACCOUNT, names.BINDER),
            self.space.ref(refs.SECRET, self.source.name),
            self.space.ref(refs.ROLE, connector),
            self.space.ref(refs.ROLE_BINDING, connector),
            self.space.ref(API_SERVICE_BINDING, self.space.offer.name),
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
        made = build(APP_CLUSTER_BINDING, "shop", namespace=self.namespace, spec=spec)
        await self.space.cluster.create(made, APP_CLUSTER_BINDING, manager="tests")
        for ref in self.content:
            await self.space.has(ref)

        async def is_looked_at():
            return bool(get_maps(await self.space.at(self.space.binding), "status", "conditions"))

        await eventually(is_looked_at)

    async def unbind(self) -> None:
        await delete(self.space.cluster, self.ref)

        async def is_gone():
            return await self.space.at(self.ref) is None

        await eventually(is_gone)

    async def keeps(self, ref: Ref, body: Manifest) -> None:
        """Change something of an object by hand, and wait until it is as before."""
        before = _stated(await self.space.at(ref))
        await self.space.patch(ref, body)

        async def again():
            return _stated(await self.space.at(ref)) == before

        await eventually(again)


def _stated(live: Any) -> Mapping[str, Any]:
    return {**live, "metadata": {"labels": labels_of(live)}}

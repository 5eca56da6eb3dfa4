"""The wire kinds as small valid objects, written to a real cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler import api
from reconciler.core.manifest import JSON, Manifest, drop, get_map, put
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Writer

MANAGER: Final = "tests"
SERVER_FIELDS: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
KINDS = (
    api.API_SERVICE_BINDING,
    api.API_SERVICE_EXPORT,
    api.API_SERVICE_EXPORT_REQUEST,
    api.API_SERVICE_EXPORT_TEMPLATE,
    api.API_SERVICE_NAMESPACE,
    api.APP_CLUSTER_BINDING,
    api.CLUSTER_BINDING,
)
NAMES = {api.CLUSTER_BINDING: "cluster", api.API_SERVICE_EXPORT: "databases.shop.example"}
SECRET = {"name": "kubeconfig", "key": "kubeconfig"}
FAR_SECRET = SECRET | {"namespace": "team-a"}
CLAIM = {"resource": "secrets", "version": "v1"}
DATABASES = {"group": "shop.example", "resource": "databases"}
NOW = "2026-06-01T12:00:00Z"
READY = {"type": "Ready", "status": "False", "message": "Wait", "lastTransitionTime": NOW}
VERSION = {"name": "v1", "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
SPECS: Mapping[Kind, Mapping[str, Any]] = {
    api.API_SERVICE_BINDING: {"kubeconfigSecretRef": FAR_SECRET},
    api.API_SERVICE_EXPORT: {
        "group": "shop.example",
        "names": {"plural": "databases", "kind": "Database"},
        "scope": "Namespaced",
        "informerScope": "Namespaced",
        "versions": [VERSION],
    },
    api.API_SERVICE_EXPORT_REQUEST: {"resources": [DATABASES]},
    api.API_SERVICE_EXPORT_TEMPLATE: {"APIServiceSelector": DATABASES},
    api.API_SERVICE_NAMESPACE: {},
    api.APP_CLUSTER_BINDING: {"kubeconfigSecretRef": FAR_SECRET},
    api.CLUSTER_BINDING: {"kubeconfigSecretRef": SECRET, "providerPrettyName": "Shop Inc"},
}


@dataclass(frozen=True, slots=True)
class WireObjects:
    """Writes one object of each kind into a namespace: the smallest one, with changes."""

    cluster_name: str
    writer: Writer
    namespace: str

    async def create(
        self,
        kind: Kind,
        *,
        dry_run: bool = False,
        spec: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        """`spec` is laid over the smallest one; `more` holds `name` and other top-level fields."""
        metadata = {"name": more.pop("name", name_of_the(kind)), "namespace": self.namespace}
        manifest: Manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": metadata,
            "spec": {**SPECS[kind], **(spec or {})},
            **more,
        }
        return await self.writer.create(manifest, kind, manager=MANAGER, dry_run=dry_run)

    async def patch(self, kind: Kind, body: Manifest, *, subresource: str = "") -> Any:
        """Merge `body` into the object that `create` made."""
        ref = Ref(self.cluster_name, kind, self.namespace, name_of_the(kind))
        return await self.writer.merge_patch(ref, body, manager=MANAGER, subresource=subresource)


def name_of_the(kind: Kind) -> str:
    """The name that `create` gives: the one that the CRD asks for, or just some name."""
    return NAMES.get(kind, "x")


def strip_server_fields(manifest: Manifest, *, keep_status: bool) -> dict[str, JSON]:
    """Return the manifest without the metadata that only a server writes, as for a new object."""
    metadata = get_map(manifest, "metadata")
    kept = {key: value for key, value in metadata.items() if key not in SERVER_FIELDS}
    stripped = put(manifest, kept, "metadata") if "metadata" in manifest else dict(manifest)
    return stripped if keep_status else drop(stripped, "status")

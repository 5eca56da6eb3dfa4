"""A provider that is played: offers the services that fleet-example binds, and runs none.

On the wire it is what a provider publishes: a CRD and an APIServiceExportTemplate each.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from reconciler.api.export_template import API_SERVICE_EXPORT_TEMPLATE
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, NAMESPACE
from reconciler.kube.cluster import Writer

GROUP: Final = "anynines.com"
_NAMESPACE: Final = "crossplane-system"
_SECRETS: Final[Manifest] = {
    "group": "",
    "resource": "secrets",
    "version": "v1",
    "selector": {"owner": "Provider"},
}
SERVICES: Final[Mapping[str, tuple[str, Sequence[Manifest]]]] = {
    "postgresqlinstances": ("PostgresqlInstance", []),
    "servicebindings": ("ServiceBinding", [_SECRETS]),
    "backups": ("Backup", []),
    "restores": ("Restore", []),
}


async def offer(control_plane: Writer) -> None:
    """Publish the services. Safe to repeat."""
    namespace: Manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": _NAMESPACE},
    }
    await control_plane.apply(namespace, NAMESPACE, manager="provider", force=True)
    for plural, (kind, claims) in SERVICES.items():
        await control_plane.apply(_crd(plural, kind), CRD, manager="provider", force=True)
        template = _template(plural, claims)
        await control_plane.apply(
            template, API_SERVICE_EXPORT_TEMPLATE, manager="provider", force=True
        )


def _crd(plural: str, kind: str) -> Manifest:
    schema: Manifest = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: Manifest = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"plural": plural, "kind": kind},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _template(plural: str, claims: Sequence[Manifest]) -> Manifest:
    return {
        "apiVersion": API_SERVICE_EXPORT_TEMPLATE.api_version,
        "kind": API_SERVICE_EXPORT_TEMPLATE.kind,
        "metadata": {"name": plural, "namespace": _NAMESPACE},
        "spec": {
            "APIServiceSelector": {"group": GROUP, "resource": plural},
            "permissionClaims": list(claims),
        },
    }

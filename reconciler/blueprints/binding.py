"""The objects that ask for services and bind them: request, binding, AppClusterBinding.

The wire kinds of protocol-bind.md A.2, A.4, A.7 as mapping.md 3, 5, 6, 8 has them written.
Refuses to decide which claims are accepted.
"""

from collections.abc import Iterable
from typing import Final

from reconciler.api.bindings import API_SERVICE_BINDING, APP_CLUSTER_BINDING
from reconciler.api.exports import API_SERVICE_EXPORT_REQUEST
from reconciler.blueprints.objects import Marks, build
from reconciler.core import names
from reconciler.core.manifest import JSON, Manifest, digest
from reconciler.core.refs import GroupResource

_DIGEST_LENGTH: Final = 8


def export_request(
    space: str, resource: GroupResource, *, parameters: Manifest, marks: Marks
) -> Manifest:
    """Return the request for an export. Neither field of its spec can be changed."""
    spec: dict[str, JSON] = {"resources": [resource.wire]}
    if parameters:
        spec["parameters"] = parameters
    return build(API_SERVICE_EXPORT_REQUEST, resource.name, namespace=space, marks=marks, spec=spec)


def parameters_digest(parameters: Manifest) -> str:
    """Return the annotation `parameters` of a binding, "" for no parameters (mapping.md 1)."""
    return digest(parameters)[:_DIGEST_LENGTH] if parameters else ""


def service_binding(
    resource: GroupResource,
    *,
    namespace: str,
    secret: tuple[str, str],
    claims: Iterable[Manifest],
    marks: Marks,
) -> Manifest:
    """Return the APIServiceBinding that uses the kubeconfig in `secret` (namespace, name).

    `namespace` is "" where the live kind is cluster-scoped. The claims are one atomic list,
    which we own whole.
    """
    return build(
        API_SERVICE_BINDING,
        resource.name,
        namespace=namespace,
        marks=marks,
        spec={
            "kubeconfigSecretRef": _secret_ref(secret),
            "permissionClaims": list(claims),
        },
    )


def app_cluster_binding(
    place: tuple[str, str],
    *,
    secret: tuple[str, str],
    resources: Iterable[GroupResource],
    konnector: Manifest,
    marks: Marks,
) -> Manifest:
    """Return the AppClusterBinding at `place` (namespace, name) with all that a cluster binds.

    `secret` (namespace, name) holds the app cluster's kubeconfig and cannot be changed later.
    """
    namespace, name = place
    return build(
        APP_CLUSTER_BINDING,
        name,
        namespace=namespace,
        marks=marks,
        spec={
            "kubeconfigSecretRef": _secret_ref(secret),
            "apiExports": [resource.wire for resource in sorted(resources)],
            "konnector": konnector,
        },
    )


def _secret_ref(secret: tuple[str, str]) -> Manifest:
    namespace, name = secret
    return {"namespace": namespace, "name": name, "key": names.KUBECONFIG}

"""The frame of every manifest that we state, and the objects that ask for services and bind them.

The wire kinds of protocol-bind.md A.2, A.4 and A.7 are as mapping.md 3, 5, 6, 8 has them written.
Empty labels and annotations are left out, so that nothing is stated that a server would drop.
Refuses to decide which claims are accepted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from reconciler.api.bindings import API_SERVICE_BINDING, APP_CLUSTER_BINDING
from reconciler.api.exports import API_SERVICE_EXPORT_REQUEST
from reconciler.core import keys, names
from reconciler.core.manifest import JSON, Manifest, digest
from reconciler.core.refs import GroupResource, Kind


@dataclass(frozen=True, slots=True)
class Marks:
    """The labels and annotations of an object."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


UNMARKED: Final = Marks()


def build(
    kind: Kind, name: str, *, namespace: str = "", marks: Marks = UNMARKED, **fields: JSON
) -> Manifest:
    """Return a manifest with `fields` at its top level."""
    metadata: dict[str, JSON] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if marks.labels:
        metadata["labels"] = marks.labels
    if marks.annotations:
        metadata["annotations"] = marks.annotations
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def ownership_labels(fleet: str, cluster: str, *, binding: str = "") -> dict[str, str]:
    """Return our labels (mapping.md 1). `binding` is information only."""
    labels = {keys.FLEET: fleet, keys.CLUSTER: cluster}
    return {**labels, keys.BINDING: binding} if binding else labels


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

"""Builds the objects of spaces, requests and bindings, and the common frame of all manifests.

The wire kinds of protocol-bind.md A.2, A.4, A.7 and B.4 are as mapping.md 3, 5, 6, 8 have them.
Empty labels and annotations are left out, so that nothing is stated that a server would drop.
Refuses to decide which claims are accepted, how names are found, and what exists already.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import yaml

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.manifest import JSON, KNOWN_AFTER_APPLY, Manifest, digest
from reconciler.core.refs import NAMESPACE, SECRET, SERVICE_ACCOUNT, GroupResource, Kind
from reconciler.core.secret import Secret


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
    return build(
        api.API_SERVICE_EXPORT_REQUEST, resource.name, namespace=space, marks=marks, spec=spec
    )


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
        api.API_SERVICE_BINDING,
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
        api.APP_CLUSTER_BINDING,
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


_ENTRY: Final = "default"  # the one name of cluster, user and context


def namespace(name: str, *, marks: Marks = UNMARKED) -> Manifest:
    return build(NAMESPACE, name, marks=marks)


def service_account(namespace: str, name: str, *, marks: Marks) -> Manifest:
    """Return a ServiceAccount: an identity without any right yet."""
    return build(SERVICE_ACCOUNT, name, namespace=namespace, marks=marks)


def token_secret(namespace: str, account: str, *, marks: Marks) -> Manifest:
    """Return the Secret, named like the account, that a controller fills with its token."""
    annotations = {**marks.annotations, keys.SERVICE_ACCOUNT_NAME: account}
    return build(
        SECRET,
        account,
        namespace=namespace,
        marks=Marks(marks.labels, annotations),
        type="kubernetes.io/service-account-token",
    )


def cluster_binding(space: str, *, kubeconfig_name: str, spec: Manifest, marks: Marks) -> Manifest:
    """Return the ClusterBinding of a space. The Secret that it names cannot be changed later."""
    secret = {"name": kubeconfig_name, "key": names.KUBECONFIG}
    return build(
        api.CLUSTER_BINDING,
        names.CLUSTER_BINDING,
        namespace=space,
        marks=marks,
        spec={**spec, "kubeconfigSecretRef": secret},
    )


def kubeconfig_secret(namespace: str, name: str, *, content: str | None, marks: Marks) -> Manifest:
    """Return the Secret with a kubeconfig; None is known after apply."""
    data = KNOWN_AFTER_APPLY if content is None else base64.b64encode(content.encode()).decode()
    return build(SECRET, name, namespace=namespace, marks=marks, data={names.KUBECONFIG: data})


class Reachable(Protocol):
    """The address of a cluster; `ca` and `tls_server_name` may be ""."""

    @property
    def server(self) -> str: ...

    @property
    def ca(self) -> str:
        """The authority of its certificate, as PEM text."""
        ...

    @property
    def tls_server_name(self) -> str:
        """The name in its certificate, where that is not the host of the URL."""
        ...


def kubeconfig(address: Reachable, token: Secret, *, namespace: str = "") -> str:
    """Return a kubeconfig whose current context leads to an address. It holds the token.

    Without a CA, the trust of the reader's machine counts. The konnector takes `namespace`, that of
    the context, for its binding space.
    """
    cluster = {"server": address.server}
    if address.ca:
        cluster["certificate-authority-data"] = base64.b64encode(address.ca.encode()).decode()
    if address.tls_server_name:
        cluster["tls-server-name"] = address.tls_server_name
    context = {"cluster": _ENTRY, "namespace": namespace, "user": _ENTRY}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": _ENTRY,
        "clusters": [{"name": _ENTRY, "cluster": cluster}],
        "contexts": [{"name": _ENTRY, "context": context}],
        "users": [{"name": _ENTRY, "user": {"token": token.reveal()}}],
    }
    # Wide, because a folded token is valid YAML that not every reader puts together again.
    return yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, width=1 << 20)

"""Builds the objects of spaces, requests and bindings, and the common frame of all manifests.

The wire kinds of protocol-bind.md A.2, A.4, A.7 and B.4 are as mapping.md 3, 5, 6, 8 have them.
Empty labels and annotations are left out, so that nothing is stated that a server would drop.
Refuses to decide which claims are accepted, how names are found, and what exists already.

A POST makes its manager the owner of the API server's defaults too, so a manifest is completed by
them before owned paths are compared with it. Checked on kube-apiserver 1.36; the other kinds that
we create get nothing.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

import yaml

from reconciler import api
from reconciler.core import identity, keys, names
from reconciler.core import manifest as m
from reconciler.core.keys import KLUTCH_GROUP
from reconciler.core.manifest import JSON, KNOWN_AFTER_APPLY, Manifest, digest
from reconciler.core.normalize import Rules, by_kind
from reconciler.core.refs import NAMESPACE, SECRET, SERVICE_ACCOUNT, GroupResource, Kind
from reconciler.core.secret import Secret
from reconciler.core.times import format_time

_DEPLOYMENT: Final[Manifest] = {
    "replicas": 1,
    "progressDeadlineSeconds": 600,
    "revisionHistoryLimit": 10,
    "strategy": {"type": "RollingUpdate"},
}
_ROLLING_UPDATE: Final[Manifest] = {"maxSurge": "25%", "maxUnavailable": "25%"}
_POD: Final[Manifest] = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER: Final[Manifest] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBE: Final[Manifest] = {
    "failureThreshold": 3,
    "periodSeconds": 10,
    "successThreshold": 1,
    "timeoutSeconds": 1,
}
_HTTP_GET: Final[Manifest] = {"path": "/", "scheme": "HTTP"}
_GRPC: Final[Manifest] = {"service": ""}
_PORT: Final[Manifest] = {"protocol": "TCP"}
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


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
    more: Manifest = {
        "namespace": namespace,
        "labels": marks.labels,
        "annotations": marks.annotations,
    }
    metadata = {"name": name, **{key: value for key, value in more.items() if value}}
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
    given = {"parameters": parameters} if parameters else {}
    spec: Manifest = {"resources": [resource.wire], **given}
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
        spec={"kubeconfigSecretRef": _secret_ref(secret), "permissionClaims": list(claims)},
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
    return build(
        api.APP_CLUSTER_BINDING,
        place[1],
        namespace=place[0],
        marks=marks,
        spec={
            "kubeconfigSecretRef": _secret_ref(secret),
            "apiExports": [resource.wire for resource in sorted(resources)],
            "konnector": konnector,
        },
    )


def _secret_ref(secret: tuple[str, str]) -> Manifest:
    return {"namespace": secret[0], "name": secret[1], "key": names.KUBECONFIG}


_ENTRY: Final = "default"  # the one name of cluster, user and context


def namespace(name: str, *, marks: Marks = UNMARKED) -> Manifest:
    return build(NAMESPACE, name, marks=marks)


def service_account(namespace: str, name: str, *, marks: Marks) -> Manifest:
    """Return a ServiceAccount: an identity without any right yet."""
    return build(SERVICE_ACCOUNT, name, namespace=namespace, marks=marks)


def token_secret(namespace: str, account: str, *, marks: Marks) -> Manifest:
    """Return the Secret, named like the account, that a controller fills with its token."""
    return build(
        SECRET,
        account,
        namespace=namespace,
        marks=Marks(marks.labels, {**marks.annotations, keys.SERVICE_ACCOUNT_NAME: account}),
        type="kubernetes.io/service-account-token",
    )


def cluster_binding(space: str, *, kubeconfig_name: str, spec: Manifest, marks: Marks) -> Manifest:
    """Return the ClusterBinding of a space. The Secret that it names cannot be changed later."""
    return build(
        api.CLUSTER_BINDING,
        names.CLUSTER_BINDING,
        namespace=space,
        marks=marks,
        spec={**spec, "kubeconfigSecretRef": {"name": kubeconfig_name, "key": names.KUBECONFIG}},
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


def with_defaults(manifest: Manifest) -> Manifest:
    """Return the manifest as a server would complete it; kinds without a rule as they are."""
    return by_kind(manifest, _RULES)


def _namespace(manifest: Manifest) -> Manifest:
    labels: Manifest = {"kubernetes.io/metadata.name": m.name_of(manifest)}
    return m.fill(manifest, {"metadata": {"labels": labels}})


def _secret(manifest: Manifest) -> Manifest:
    if texts := m.get_map(manifest, "stringData"):
        data = {
            key: base64.b64encode(text.encode()).decode()
            for key, text in texts.items()
            if isinstance(text, str)
        }
        manifest = m.put(manifest, {**m.get_map(manifest, "data"), **data}, "data")
    return m.fill(m.drop(manifest, "stringData"), {"type": "Opaque"})


def _app_cluster_binding(manifest: Manifest) -> Manifest:
    path = ("spec", "konnector", "overrides")
    manifest = m.map_items(manifest, _port, *path, "ports")
    for name in _PROBES:
        if isinstance(m.get(manifest, *path, name, "grpc"), Mapping):
            probe = m.fill(m.get_map(manifest, *path, name), {"grpc": _GRPC})
            manifest = m.put(manifest, probe, *path, name)
    return manifest


def _deployment(manifest: Manifest) -> Manifest:
    manifest = m.fill(manifest, {"spec": _DEPLOYMENT})
    if m.get(manifest, "spec", "strategy", "type") == "RollingUpdate":
        manifest = m.fill(manifest, {"spec": {"strategy": {"rollingUpdate": _ROLLING_UPDATE}}})
    pod = ("spec", "template", "spec")
    account = m.get_text(manifest, *pod, "serviceAccountName")
    # The field's old name is kept beside the new one.
    old_name: Manifest = {"serviceAccount": account} if account else {}
    manifest = m.put(manifest, m.fill(m.get_map(manifest, *pod), {**_POD, **old_name}), *pod)
    for name in ("containers", "initContainers"):
        manifest = m.map_items(manifest, _container, *pod, name)
    return manifest


def _container(container: Manifest) -> Manifest:
    policy = _pull_policy(m.get_text(container, "image"))
    container = m.fill(container, {**_CONTAINER, "imagePullPolicy": policy})
    for name in _PROBES:
        probe = m.get(container, name)
        if isinstance(probe, Mapping):
            container = m.put(container, _handler(m.fill(probe, _PROBE)), name)
    for hook, handler in m.get_map(container, "lifecycle").items():
        if isinstance(handler, Mapping):
            container = m.put(container, _handler(handler), "lifecycle", hook)
    return m.map_items(container, _port, "ports")


def _handler(handler: Manifest) -> Manifest:
    for name, defaults in (("httpGet", _HTTP_GET), ("grpc", _GRPC)):
        if isinstance(handler.get(name), Mapping):
            handler = m.fill(handler, {name: defaults})
    return handler


def _port(port: Manifest) -> JSON:
    return m.fill(port, _PORT)


def _pull_policy(image: str) -> str:
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if not digest and tag in ("", "latest") else "IfNotPresent"


_RULES: Final[Rules] = {
    ("", "Namespace"): _namespace,
    ("", "Secret"): _secret,
    ("apps", "Deployment"): _deployment,
    (KLUTCH_GROUP, "AppClusterBinding"): _app_cluster_binding,
}


def is_to_release(copy: Manifest) -> bool:
    """Return whether a konnector would delete or adopt it; the original's marks none it adopts."""
    notes = m.annotations_of(copy)
    is_kept = notes.get(keys.ADOPT) == keys.NOT_ADOPTED or m.controller_of(copy)
    return keys.BOUND in notes or not (is_kept or keys.RELEASED in notes)


def released(copy: Manifest, now: datetime) -> dict[str, JSON]:
    """Return the metadata of a merge patch after which a copy is released.

    A cluster-scoped one is owned by its space, would go with that, and is known by it.
    """
    notes: dict[str, JSON] = {keys.BOUND: None, keys.RELEASED: format_time(now)}
    if m.namespace_of(copy):
        return {"annotations": notes}
    owners = m.get_maps(copy, "metadata", "ownerReferences")
    kept: JSON = [one for one in owners if one.get("kind") != NAMESPACE.kind]
    space = {keys.SPACE_UID: identity.space_of(copy)}
    return {"annotations": {**notes, **space}, "ownerReferences": kept}

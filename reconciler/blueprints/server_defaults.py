"""Lists the API server's defaults for the kinds that we create.

A POST makes its manager the owner of these fields too, so a manifest has to be completed by them
before owned paths are compared with it. Checked on kube-apiserver 1.36; the other kinds that we
create get nothing. Does not know what is compared, and why.
"""

import base64
from collections.abc import Mapping
from typing import Final

from reconciler.core import manifest as m
from reconciler.core.keys import KLUTCH_GROUP
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.normalize import Rules, by_kind

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


def with_defaults(manifest: Manifest) -> Manifest:
    """Return the manifest as a server would complete it; kinds without a rule as they are."""
    return by_kind(manifest, _RULES)


def _namespace(manifest: Manifest) -> Manifest:
    labels: Manifest = {"kubernetes.io/metadata.name": m.name_of(manifest)}
    return m.fill(manifest, {"metadata": {"labels": labels}})


def _secret(manifest: Manifest) -> Manifest:
    texts = m.get_map(manifest, "stringData")
    if texts:
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
    strategy = ("spec", "strategy")
    if m.get(manifest, *strategy, "type") == "RollingUpdate":
        manifest = m.fill(manifest, {"spec": {"strategy": {"rollingUpdate": _ROLLING_UPDATE}}})
    pod = ("spec", "template", "spec")
    account = m.get_text(manifest, *pod, "serviceAccountName")
    # The field's old name is kept beside the new one.
    old_name: Manifest = {"serviceAccount": account} if account else {}
    manifest = m.put(manifest, m.fill(m.get_map(manifest, *pod), {**_POD, **old_name}), *pod)
    for field in ("containers", "initContainers"):
        manifest = m.map_items(manifest, _container, *pod, field)
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

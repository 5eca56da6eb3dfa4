"""The konnector of an app cluster: its identity, rights and Deployment (protocol-bind.md D.5).

Decides what the original `kubectl bind` decides, so that either can take over the other's.
Refuses to know which rights are needed.
"""

from collections.abc import Sequence
from typing import Final

from reconciler.blueprints import overrides as containers
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, names
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, DEPLOYMENT, SERVICE_ACCOUNT

_REPLICAS: Final = 2
_POD_LABELS: Final = {keys.APP: keys.APP_KONNECTOR}
_RUNNING: Final[Manifest] = {
    "env": [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    ],
    "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
}


def cluster_role(name: str, rules: Sequence[Manifest], *, marks: Marks) -> Manifest:
    """Return a ClusterRole."""
    return build(CLUSTER_ROLE, name, marks=marks, rules=list(rules))


def cluster_role_binding(name: str, account: str, *, marks: Marks) -> Manifest:
    """Return what gives the ClusterRole of this name to an account in namespace klutch-bind."""
    place = {"name": account, "namespace": names.KLUTCH_NAMESPACE}
    subject = {"kind": SERVICE_ACCOUNT.kind, **place}
    role = {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.kind, "name": name}
    return build(CLUSTER_ROLE_BINDING, name, marks=marks, subjects=[subject], roleRef=role)


def deployment(image: str, overrides: Manifest, *, marks: Marks) -> Manifest:
    """Return the Deployment. Its selector cannot be changed, so it bears no label of ours."""
    pod: Manifest = {
        "restartPolicy": "Always",
        "serviceAccountName": names.KONNECTOR,
        "containers": [_container({"image": image, **_RUNNING}, overrides)],
    }
    spec: Manifest = {
        "replicas": _REPLICAS,
        "selector": {"matchLabels": _POD_LABELS},
        "template": {"metadata": {"labels": _POD_LABELS}, "spec": pod},
    }
    return _deployment(spec, marks)


def image_and_overrides(image: str, overrides: Manifest, *, marks: Marks) -> Manifest:
    """Return the part of the Deployment that a live one gets (mapping.md 3, row 7).

    Replicas, sidecars and a strategy that somebody gave it are left alone.
    """
    container = _container({"image": image}, overrides)
    return _deployment({"template": {"spec": {"containers": [container]}}}, marks)


def app_cluster_binding_konnector(*, deploy: bool, image: str, overrides: Manifest) -> Manifest:
    """Return `spec.konnector` of an AppClusterBinding, whose backend runs the konnector."""
    if not deploy:
        return {"deploy": False}
    container: dict[str, JSON] = {"image": image, **overrides} if image else dict(overrides)
    return {"deploy": True, "overrides": container} if container else {"deploy": True}


def _container(base: Manifest, overrides: Manifest) -> Manifest:
    # The name is the key by which the container is found, so overrides do not change it.
    own: Manifest = {"name": names.KONNECTOR}
    return {**own, **containers.merged(base, overrides), **own}


def _deployment(spec: Manifest, marks: Marks) -> Manifest:
    return build(
        DEPLOYMENT,
        names.KONNECTOR,
        namespace=names.KLUTCH_NAMESPACE,
        marks=Marks({**_POD_LABELS, **marks.labels}, marks.annotations),
        spec=spec,
    )

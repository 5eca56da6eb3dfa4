"""The konnector of an app cluster: its identity, rights and Deployment (protocol-bind.md D.5).

Decides what the original `kubectl bind` decides, so that either can take over the other's.
Refuses to know which rights are needed.
"""

from collections.abc import Sequence
from typing import Final

from reconciler.blueprints import overrides as containers
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, names
from reconciler.core.manifest import JSON, Manifest, drop, get_map
from reconciler.core.refs import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, DEPLOYMENT, SERVICE_ACCOUNT

_REPLICAS: Final = 2
_POD_LABELS: Final = {keys.APP: keys.APP_KONNECTOR}
# Whoever may write bindings elsewhere, as a tenant in a namespace of his own, gets no CRDs and no
# Secrets of the cluster by them. A variable, unlike an argument, stays where overrides name others.
_ENCLOSED: Final[Manifest] = {"name": "BINDING_NAMESPACE", "value": names.KLUTCH_NAMESPACE}
_PROBE: Final[Manifest] = {"httpGet": {"path": "/healthz", "port": 8080}}
_ENVIRONMENT: Final[tuple[Manifest, ...]] = (
    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
)
# As konnector/deploy/minimal has it.
_CONFINED: Final[Manifest] = {
    "startupProbe": {**_PROBE, "failureThreshold": 30, "periodSeconds": 2},
    "livenessProbe": {**_PROBE, "periodSeconds": 10, "timeoutSeconds": 5},
    "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    "securityContext": {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}
_PROBES: Final = frozenset({"startupProbe", "livenessProbe", "readinessProbe"})
_GRACE: Final[Manifest] = {"terminationGracePeriodSeconds": 60}


def cluster_role(name: str, rules: Sequence[Manifest], *, marks: Marks) -> Manifest:
    """Return a ClusterRole."""
    return build(CLUSTER_ROLE, name, marks=marks, rules=list(rules))


def cluster_role_binding(name: str, account: str, *, marks: Marks) -> Manifest:
    """Return what gives the ClusterRole of this name to an account in namespace klutch-bind."""
    place = {"name": account, "namespace": names.KLUTCH_NAMESPACE}
    subject = {"kind": SERVICE_ACCOUNT.kind, **place}
    role = {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.kind, "name": name}
    return build(CLUSTER_ROLE_BINDING, name, marks=marks, subjects=[subject], roleRef=role)


def deployment(
    image: str, overrides: Manifest, *, marks: Marks, confined: bool = False
) -> Manifest:
    """Return the Deployment. Its selector cannot be changed, so it bears no label of ours.

    `confined` is for an image of ours, which needs no more than that allows.
    """
    beside: Manifest = {}
    if confined:
        beside = {**_confinement(overrides), "env": [*_ENVIRONMENT, _ENCLOSED]}
    inside = {**pod(image, overrides, beside=beside), **(_GRACE if confined else {})}
    spec: Manifest = {
        "replicas": _REPLICAS,
        "selector": {"matchLabels": _POD_LABELS},
        "template": {"metadata": {"labels": _POD_LABELS}, "spec": inside},
    }
    return _deployment(spec, marks)


def pod(image: str, overrides: Manifest, *, beside: Manifest) -> Manifest:
    """Return what a Pod of it is. `beside` are fields of the container that overrides change."""
    base: Manifest = {"env": list(_ENVIRONMENT), "readinessProbe": _PROBE, **beside, "image": image}
    return {
        "restartPolicy": "Always",
        "serviceAccountName": names.KONNECTOR,
        "containers": [_container(base, overrides)],
    }


def confinement(overrides: Manifest) -> Manifest:
    """Return what protects the control plane from a container, whatever overrides say beside it.

    They may name other probes and other resources: a probe of ours is in the way where they put
    one elsewhere, and so is a request beside a limit or a request of theirs.
    """
    probes = [get_map(overrides, field) for field in _PROBES]
    elsewhere = any(containers.HANDLERS & probe.keys() for probe in probes)
    kept = {
        field: value for field, value in _CONFINED.items() if not (elsewhere and field in _PROBES)
    }
    ours = get_map(_CONFINED, "resources")
    said = {
        name for part in ("limits", "requests") for name in get_map(overrides, "resources", part)
    }
    requests = {k: v for k, v in get_map(ours, "requests").items() if k not in said}
    resources = {**ours, "requests": requests} if requests else drop(ours, "requests")
    return {**kept, "resources": resources}


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


def _confinement(overrides: Manifest) -> Manifest:
    """Return what protects a container, without what overrides name.

    A limit below a request of ours would be refused, and root beside runAsNonRoot not started;
    one probe that is elsewhere tells that all are.
    """
    said = {field for field, value in overrides.items() if value is not None}
    named = said | _PROBES if said & _PROBES else said
    return {field: value for field, value in _CONFINED.items() if field not in named}


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

"""The Deployments of konnectors: in an app cluster, and in a binding space on the control plane.

Decides what the original decides (`kubectl bind`, protocol-bind.md D.5, and its backend, C.6), so
that either can take over the other's. Refuses to know which rights are needed and what is live.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.blueprints import overrides as containers
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, names
from reconciler.core.manifest import JSON, Manifest, drop, get_map, get_text
from reconciler.core.refs import DEPLOYMENT

REPLICAS: Final = 2
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


@dataclass(frozen=True, slots=True)
class SpaceKonnector:
    """The AppClusterBinding (`namespace`, `name`) that a konnector serves, and its space.

    `secret` is the Secret in the space with the app cluster's kubeconfig, under `key`.
    """

    namespace: str
    name: str
    space: str
    secret: str
    key: str = names.KUBECONFIG

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of Deployment and Pods, and the selector, which cannot be changed."""
        owner = keys.app_cluster_binding_labels(self.namespace, self.name)
        return {keys.APP: keys.APP_KONNECTOR, **owner}


def deployment(
    image: str, overrides: Manifest, *, marks: Marks, confined: bool = False
) -> Manifest:
    """Return the Deployment in an app cluster. Its immutable selector bears no label of ours.

    `confined` is for an image of ours, which needs no more than that allows.
    """
    if not confined:
        return _deployment(_spec(_POD_LABELS, _pod(image, overrides, beside={}), REPLICAS), marks)
    beside = {**_confinement(overrides), "env": [*_ENVIRONMENT, _ENCLOSED]}
    pod = {**_pod(image, overrides, beside=beside), **_GRACE}
    return _deployment(_spec(_POD_LABELS, pod, REPLICAS), marks)


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


def space_deployment(
    served: SpaceKonnector,
    *,
    image: str,
    overrides: Manifest,
    replicas: int = REPLICAS,
    confined: bool = True,
) -> Manifest:
    """Return the Deployment in a binding space. `image` is for overrides without one.

    `confined` is with the security context, limits and probes of konnector/deploy; without, it is
    the original's, and what overrides name is theirs.

    Overrides with `args` replace all arguments, also those without which a konnector does not
    know its place.
    """
    said = {key: value for key, value in overrides.items() if value is not None}
    container = {"args": _arguments(served), **said, "image": image_of(said, image)}
    pod = _pod(image, container, beside=_confinement_of_space(said) if confined else {})
    return build(
        DEPLOYMENT,
        names.konnector_deployment(served.name),
        namespace=served.space,
        marks=Marks(served.labels),
        # The account of the space, not that of a konnector in an app cluster.
        spec=_spec(served.labels, {**pod, "serviceAccountName": names.BINDER}, replicas),
    )


def image_of(overrides: Manifest, default: str) -> str:
    """Return the image that the konnector runs, "" for none."""
    return get_text(overrides, "image") or default


def _spec(labels: Mapping[str, str], pod: Manifest, replicas: int) -> Manifest:
    return {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }


def _pod(image: str, overrides: Manifest, *, beside: Manifest) -> Manifest:
    """Return a Pod's spec. `beside` are fields of the container that overrides change."""
    base: Manifest = {"env": list(_ENVIRONMENT), "readinessProbe": _PROBE, **beside, "image": image}
    return {
        "restartPolicy": "Always",
        "serviceAccountName": names.KONNECTOR,
        "containers": [_container(base, overrides)],
    }


def _confinement(overrides: Manifest) -> Manifest:
    """Return what protects a container, without what overrides name.

    A limit below a request of ours would be refused, and root beside runAsNonRoot not started;
    one probe that is elsewhere tells that all are.
    """
    said = {field for field, value in overrides.items() if value is not None}
    named = said | _PROBES if said & _PROBES else said
    return {field: value for field, value in _CONFINED.items() if field not in named}


def _confinement_of_space(overrides: Manifest) -> Manifest:
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


def _arguments(served: SpaceKonnector) -> Sequence[str]:
    secret = "--app-cluster-kubeconfig-secret"
    return [
        "--control-plane-mode",
        f"{secret}-name={served.secret}",
        f"{secret}-namespace={served.space}",
        f"{secret}-key={served.key}",
        f"--binding-root-namespace={served.space}",
        "--lease-namespace=$(POD_NAMESPACE)",
    ]


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

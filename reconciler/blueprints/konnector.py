"""Builds the Deployments of konnectors: in an app cluster, and in a binding space.

Decides what the original decides (`kubectl bind`, protocol-bind.md D.5, and its backend, C.6), so
that either can take over the other's, and which overrides of its container count and are allowed.
Does not know which rights are needed and what is live.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, names
from reconciler.core.manifest import JSON, Manifest, drop, get_map, get_maps, get_text
from reconciler.core.refs import DEPLOYMENT, LIMIT_RANGE, NETWORK_POLICY

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
    "startupProbe": {
        **_PROBE,
        "initialDelaySeconds": 2,
        "failureThreshold": 30,
        "periodSeconds": 2,
    },
    "livenessProbe": {**_PROBE, "periodSeconds": 10, "timeoutSeconds": 5},
    "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    "securityContext": {
        "runAsNonRoot": True,
        # Both: a kubelet takes the user of the image and not its group, which would be root's.
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}
_PROBES: Final = frozenset({"startupProbe", "livenessProbe", "readinessProbe"})
# Of a container in a binding space; a konnector has a limit of its own, of memory.
_USUAL: Final[Manifest] = {"cpu": "1", "memory": "512Mi"}
_MOST: Final[Manifest] = {"cpu": "2", "memory": "1Gi"}
_NO_METADATA: Final[tuple[Manifest, ...]] = (
    {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]},
    {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::/32"]},
)
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
    forced: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    """Return the Deployment in a binding space. `image` is for overrides without one.

    `confined` is with the security context, limits and probes of konnector/deploy; without, it is
    the original's, and what overrides name is theirs. `forced` are variables that no overrides set.

    Overrides with `args` replace all arguments, also those without which a konnector does not
    know its place.
    """
    stated = {key: value for key, value in overrides.items() if value is not None}
    container = {"args": _arguments(served), **stated, "image": image_of(stated, image)}
    pod = _pod(image, container, beside=_confinement_of_space(stated) if confined else {})
    if forced:
        first = get_maps(pod, "containers")[0]
        env = [each for each in get_maps(first, "env") if get_text(each, "name") not in forced]
        env += ({"name": key, "value": value} for key, value in forced.items())
        pod = {**pod, "containers": [{**first, "env": env}]}
    return build(
        DEPLOYMENT,
        names.konnector_deployment(served.name),
        namespace=served.space,
        marks=Marks(served.labels),
        # The account of the space, not that of a konnector in an app cluster.
        spec=_spec(served.labels, {**pod, "serviceAccountName": names.BINDER}, replicas),
    )


def network_policy(space: str) -> Manifest:
    """Return the policy for Pods of a binding space: no metadata service; nobody reaches them."""
    beyond: list[JSON] = [{"ipBlock": block} for block in _NO_METADATA]
    spec: Manifest = {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "egress": [{"to": beyond}],
    }
    return build(NETWORK_POLICY, names.KONNECTOR, namespace=space, spec=spec)


def limit_range(space: str) -> Manifest:
    """Return the limits of a container in a binding space, whatever its overrides are."""
    most: Manifest = {"type": "Container", "default": _USUAL, "max": _MOST}
    return build(LIMIT_RANGE, names.KONNECTOR, namespace=space, spec={"limits": [most]})


def image_in(deployment: Manifest) -> str:
    """Return the image that a live Deployment runs, "" for none."""
    containers = get_maps(deployment, "spec", "template", "spec", "containers")
    return get_text(containers[0], "image") if containers else ""


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
    """Return the confinement of a container, without the fields that overrides name.

    A limit below a request of ours would be refused, and root beside runAsNonRoot not started;
    one probe that is elsewhere tells that all are.
    """
    stated = {field for field, value in overrides.items() if value is not None}
    named = stated | _PROBES if stated & _PROBES else stated
    return {field: value for field, value in _CONFINED.items() if field not in named}


def _confinement_of_space(overrides: Manifest) -> Manifest:
    """Return the confinement that protects the control plane, whatever the overrides are.

    They may name other probes and other resources: a probe of ours is in the way where they put
    one elsewhere, and so is a request beside a limit or a request of theirs.
    """
    probes = [get_map(overrides, field) for field in _PROBES]
    elsewhere = any(_HANDLERS & probe.keys() for probe in probes)
    kept = {
        field: value for field, value in _CONFINED.items() if not (elsewhere and field in _PROBES)
    }
    ours = get_map(_CONFINED, "resources")
    stated = {
        name for part in ("limits", "requests") for name in get_map(overrides, "resources", part)
    }
    requests = {k: v for k, v in get_map(ours, "requests").items() if k not in stated}
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
    return {**own, **with_overrides(base, overrides), **own}


def _deployment(spec: Manifest, marks: Marks) -> Manifest:
    return build(
        DEPLOYMENT,
        names.KONNECTOR,
        namespace=names.KLUTCH_NAMESPACE,
        marks=Marks({**_POD_LABELS, **marks.labels}, marks.annotations),
        spec=spec,
    )


# Overrides are a strategic merge patch as Kubernetes does it (protocol-bind.md A.7, C.6), down to
# the order of its arrays, so that the same ones give the same container as the original. Unlike
# there, false, 0 and "" can be set, a probe with another handler replaces the one that was there,
# and so does a variable with another source. A null says nothing: an API server drops it from an
# AppClusterBinding, too.
_KEYED: Final = {
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
# How a probe asks, or what a hook does.
_HANDLERS: Final = frozenset({"exec", "grpc", "httpGet", "sleep", "tcpSocket"})
# Of these fields of one object there can be only one.
_EXCLUSIVE: Final = (
    _HANDLERS,
    frozenset({"value", "valueFrom"}),
)

# On the control plane not all are allowed (trust.md T5): a user who may create an AppClusterBinding
# is not always one who may run any container there. An image with its arguments is as far as it
# goes.
ALLOWED_OVERRIDES: Final = "image, imagePullPolicy, args, env, resources and probes"

_PLAIN: Final = frozenset({"imagePullPolicy", "args"})
_RESOURCES: Final = frozenset({"limits", "requests"})
_VARIABLE: Final = frozenset({"name", "value", "valueFrom"})
# Nothing of these is beyond the Pod and its namespace; a Secret is looked at by name.
_SOURCES: Final = frozenset({"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"})
# From where a probe is sent, others than the Pod can be reached.
_AIMS: Final = ("httpGet", "tcpSocket")


def with_overrides(container: Manifest, overrides: Manifest) -> Manifest:
    """Return the container with all `overrides`."""
    result = dict(container)
    for field, value in overrides.items():
        key = _KEYED.get(field)
        below = container.get(field)
        if value is None:
            continue
        if key and isinstance(value, list | tuple) and isinstance(below, list | tuple):
            result[field] = _merged_items(below, value, key)
        else:
            result[field] = _merged(below, value)
    return result


def _merged(below: JSON, over: JSON) -> JSON:
    if not isinstance(over, Mapping):
        return over
    kept = dict(below) if isinstance(below, Mapping) else {}
    stated = {key: value for key, value in over.items() if value is not None}
    for rivals in _EXCLUSIVE:
        if rivals & stated.keys():
            kept = {key: value for key, value in kept.items() if key not in rivals - stated.keys()}
    return kept | {key: _merged(kept.get(key), value) for key, value in stated.items()}


def _merged_items(below: Sequence[JSON], over: Sequence[JSON], key: str) -> list[JSON]:
    """Merge by key. What `over` adds goes before what it leaves alone, as Kubernetes has it."""
    named = {_key(item, key): item for item in below}
    places = {_key(item, key): place for place, item in enumerate(below)}
    stated = {_key(item, key) for item in over}
    patched = [
        (places.get(_key(item, key), -1), _merged(named.get(_key(item, key)), item))
        for item in over
    ]
    rest = [(place, item) for place, item in enumerate(below) if _key(item, key) not in stated]
    items: list[JSON] = []
    while patched and rest:
        first = patched if patched[0][0] < rest[0][0] else rest
        items.append(first.pop(0)[1])
    return [*items, *(item for _, item in [*patched, *rest])]


def _key(item: JSON, key: str) -> JSON:
    return item.get(key) if isinstance(item, Mapping) else None


def refused_overrides(
    overrides: Manifest, secret: str, prefixes: Collection[str] = (), own: str = ""
) -> Iterator[str]:
    """Yield the path of each field that is not allowed.

    `secret` is the one Secret that variables may read: the konnector's own kubeconfig. Images are
    `own`, the deployer's, or below one of `prefixes`.
    """
    for field, value in sorted(overrides.items()):
        if value is None or field in _PLAIN:
            continue
        if field == "image":
            below = any(_is_below(str(value), prefix) for prefix in prefixes)
            if value not in ("", own) and not below:
                yield field
        elif field == "name":
            if value != names.KONNECTOR:
                yield field
        elif field == "env":
            yield from _variables(overrides, secret)
        elif field == "resources":
            yield from _others(get_map(overrides, field), _RESOURCES, field)
        elif field in _PROBES:
            aims = (one for one in _AIMS if get_text(overrides, field, one, "host"))
            yield from (f"{field}.{aim}.host" for aim in aims)
        else:
            yield field


def _is_below(image: str, prefix: str) -> bool:
    """Return whether an image is in a repository, or below; the colon of a host begins a port."""
    whole = prefix.rstrip("/")
    ends = ("/", ":", "@") if "/" in whole else ("/",)
    return image.startswith(tuple(f"{whole}{end}" for end in ends))


def _variables(overrides: Manifest, secret: str) -> Iterator[str]:
    for place, variable in enumerate(get_maps(overrides, "env")):
        path = f"env[{place}]"
        yield from _others(variable, _VARIABLE, path)
        source = get_map(variable, "valueFrom")
        yield from _others(source, _SOURCES, f"{path}.valueFrom")
        if (
            source.get("secretKeyRef") is not None
            and get_text(source, "secretKeyRef", "name") != secret
        ):
            yield f"{path}.valueFrom.secretKeyRef"


def _others(found: Manifest, known: frozenset[str], path: str) -> Iterator[str]:
    for field, value in sorted(found.items()):
        if value is not None and field not in known:
            yield f"{path}.{field}"

"""A konnector that runs on the control plane, in the binding space that it serves.

Its Deployment and rights as protocol-bind.md C.6 has them, so that either backend can take over
from the other. Refuses to know what is live.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.blueprints import konnector
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, names
from reconciler.core.keys import KLUTCH_GROUP
from reconciler.core.manifest import JSON, Manifest, get_text
from reconciler.core.refs import DEPLOYMENT, LEASE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT

REPLICAS: Final = 2

_HANDLE: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
_BINDINGS: Final = "apiservicebindings"


@dataclass(frozen=True, slots=True)
class Home:
    """Whose konnector it is, and where: an AppClusterBinding, and its space.

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


def image_of(overrides: Manifest, default: str) -> str:
    """Return the image that the konnector runs, "" for none."""
    return get_text(overrides, "image") or default


def deployment(
    home: Home,
    *,
    image: str,
    overrides: Manifest,
    replicas: int = REPLICAS,
    confined: bool = True,
) -> Manifest:
    """Return the Deployment. `image` is for overrides without one.

    `confined` is with the security context, limits and probes of konnector/deploy; without, it is
    the original's, and what overrides name is theirs.

    Overrides with `args` replace all arguments, also those without which a konnector does not
    know its place.
    """
    said = {key: value for key, value in overrides.items() if value is not None}
    laid_over: dict[str, JSON] = {"args": _arguments(home), **said, "image": image_of(said, image)}
    beside = konnector.confinement(said) if confined else {}
    inside = konnector.pod(image, laid_over, beside=beside)
    # The account of the space, not that of a konnector in an app cluster.
    pod: Manifest = {**inside, "serviceAccountName": names.BINDER}
    spec: Manifest = {
        "replicas": replicas,
        "selector": {"matchLabels": home.labels},
        "template": {"metadata": {"labels": home.labels}, "spec": pod},
    }
    return build(
        DEPLOYMENT,
        names.konnector_deployment(home.name),
        namespace=home.space,
        marks=Marks(home.labels),
        spec=spec,
    )


def role(space: str) -> Manifest:
    """Return the Role for what only a konnector on the control plane does there."""
    rules = (
        _rule(KLUTCH_GROUP, _BINDINGS, _HANDLE),
        _rule(KLUTCH_GROUP, f"{_BINDINGS}/status", ("patch", "update")),
        _rule(LEASE.group, LEASE.plural, _HANDLE),
    )
    return build(ROLE, names.CONTROL_PLANE_CONNECTOR, namespace=space, rules=rules)


def role_binding(space: str) -> Manifest:
    """Return what gives that Role to the space's ServiceAccount."""
    name = names.CONTROL_PLANE_CONNECTOR
    subject = {"kind": SERVICE_ACCOUNT.kind, "name": names.BINDER, "namespace": space}
    to = {"apiGroup": ROLE.group, "kind": ROLE.kind, "name": name}
    return build(ROLE_BINDING, name, namespace=space, subjects=[subject], roleRef=to)


def _arguments(home: Home) -> Sequence[str]:
    secret = "--app-cluster-kubeconfig-secret"
    return [
        "--control-plane-mode",
        f"{secret}-name={home.secret}",
        f"{secret}-namespace={home.space}",
        f"{secret}-key={home.key}",
        f"--binding-root-namespace={home.space}",
        "--lease-namespace=$(POD_NAMESPACE)",
    ]


def _rule(group: str, resource: str, verbs: Sequence[str]) -> Manifest:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}

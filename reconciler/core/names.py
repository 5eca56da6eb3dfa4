"""Builds every fixed or derived name of an object. No other module makes one up.

Wire facts of protocol-bind.md A.11, B.3, B.4, C.6, D and mapping.md 3, 8. Does not know
whether such an object exists or is ours; a derived name may be too long or taken, so check
`label_problem` and the owner before creating (protocol-bind.md F6, F33).
"""

import base64
import hashlib
import re
import string
from collections.abc import Collection
from typing import Final

MAX_LABEL: Final = 63
# Of a new service namespace: what composes in it appends to its name, as `-dsi`.
MAX_SERVICE_NAMESPACE: Final = 58
MAX_SUBDOMAIN: Final = 253

# In the app cluster.
KLUTCH_NAMESPACE: Final = "klutch-bind"
KUBE_SYSTEM: Final = "kube-system"  # its uid identifies the cluster
KONNECTOR: Final = "konnector"  # Deployment, container and ServiceAccount
KONNECTOR_CLUSTER_ROLE: Final = "klutch-bind-konnector"
KONNECTOR_LEASE: Final = "klutch-bind"
AGENTLESS_SERVICE_ACCOUNT: Final = "klutch-konnector"  # where the konnector runs elsewhere
KUBECONFIG_GENERATE_NAME: Final = "kubeconfig-"

# In a binding space.
CLUSTER_BINDING: Final = "cluster"
BINDER: Final = "klutch-binder"  # ServiceAccount, token Secret, RoleBinding and ClusterRole
KUBECONFIG: Final = "kubeconfig"  # the Secret and the key in it
CONTROL_PLANE_CONNECTOR: Final = "control-plane-connector"

# Elsewhere on the control plane.
BACKEND: Final = "klutch-bind"  # Deployment, ServiceAccount and roles
QUOTA: Final = "klutch-bind"  # of a space and of each of its service namespaces
BACKEND_LEASE: Final = "klutch-bind-backend"  # a konnector may lead in the same namespace
OSB_NAMESPACE: Final = "klutch-osb"  # of ServiceBrokers and BrokerRecords
OSB_LEASE: Final = "klutch-osb"
DOOR_KEYS: Final = "klutch-bind-door"  # Secret of the front door's keys, beside that Lease

KONNECTOR_IMAGE_REPOSITORY: Final = "public.ecr.aws/w5n9a2g2/klutch/konnector"

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_CUT: Final = 24
_BASE62: Final = string.digits + string.ascii_letters  # lower before upper case
_DIGITS: Final = 10  # of base32 in the name of a space: 50 bits
_KUBE: Final = "kube-"  # what the names of Kubernetes' own namespaces begin with


def label_problem(name: str) -> str:
    """Return why `name` is not a DNS label (RFC 1123, as for namespaces), or ""."""
    if len(name) > MAX_LABEL:
        return f"{name!r} has {len(name)} characters, {MAX_LABEL} are allowed"
    if not _LABEL.fullmatch(name):
        return f"{name!r} is not made of a-z, 0-9 and inner dashes"
    return ""


def subdomain_problem(name: str) -> str:
    """Return why `name` is not a DNS subdomain (RFC 1123, as for most objects), or ""."""
    if len(name) > MAX_SUBDOMAIN:
        return f"{name!r} has {len(name)} characters, {MAX_SUBDOMAIN} are allowed"
    if not all(_LABEL.fullmatch(part) for part in name.split(".")):
        return f"{name!r} is not made of a-z, 0-9, inner dashes and dots"
    return ""


def is_reserved(app_namespace: str, own: str = "") -> bool:
    """Return whether objects of a namespace could direct the cluster itself, or its konnector.

    `own` is the konnector's namespace, "" where it is in none of the app cluster, or not known.
    """
    ours = app_namespace in (KLUTCH_NAMESPACE, own)
    return app_namespace.startswith(_KUBE) or (ours and bool(app_namespace))


def base62_digest(content: bytes) -> str:
    """Return the SHA-224 of some content as a number in base 62 (G.2)."""
    number, digits = int.from_bytes(hashlib.sha224(content).digest(), "big"), ""
    while number:
        number, digit = divmod(number, len(_BASE62))
        digits = _BASE62[digit] + digits
    return digits


def resource_name(plural: str, group: str) -> str:
    """Return the name of a CRD and of its export, binding and request: `plural.group`.

    The bare plural for the core group.
    """
    return f"{plural}.{group}" if group else plural


def direct_identity(fleet: str, cluster: str) -> str:
    """Return the identity annotation of a space that klutchctl made. It has no `#`."""
    return direct_identities(fleet) + cluster


def direct_identities(fleet: str) -> str:
    """Return the start of the identity annotation of each space that klutchctl made."""
    return f"klutchctl:{fleet}/"


def direct_space(fleet: str, cluster: str) -> str:
    """Return the space that klutchctl makes for a cluster.

    Of fixed length and without inner dashes after the prefix, so that no space is a prefix of
    another.
    """
    return space_name("cluster-", f"{fleet}/{cluster}")


def space_name(prefix: str, identity: str) -> str:
    """Return the name of a new space: the same for each replica, and for no other identity."""
    digest = hashlib.sha256(identity.encode()).digest()
    return f"{prefix}{base64.b32encode(digest).decode().lower()[:_DIGITS]}"


def kubeconfig_secret(space: str) -> str:
    """Return the Secret in the app cluster that klutchctl makes for a space.

    The part of the space after its last dash is what tells it from others.
    """
    return f"{KUBECONFIG_GENERATE_NAME}{space.rpartition('-')[2][:5]}"


def app_cluster_binding_space(namespace: str, name: str) -> str:
    """Return the space of an AppClusterBinding. Ambiguous: `a`, `b-c` equals `a-b`, `c`."""
    return f"klutch-bind-{namespace}-{name}"


def konnector_deployment(app_cluster_binding: str) -> str:
    """Return the Deployment that serves an AppClusterBinding, in its space."""
    return f"konnector-{app_cluster_binding}"


def legacy_konnector_cluster_role(namespace: str, name: str) -> str:
    """Return the ClusterRole(Binding) that an AppClusterBinding's cleanup looks for."""
    return f"klutch-konnector-{namespace}-{name}"


def app_cluster_kubeconfig_secret(cluster: str) -> str:
    """Return the Secret beside a fleet's AppClusterBinding."""
    return f"{cluster}-kubeconfig"


def space_cluster_role(space: str) -> str:
    """Return the ClusterRole(Binding) with a space's rights on exported and claimed kinds."""
    return f"{BINDER}-{space}"


def service_namespace(space: str, app_namespace: str) -> str:
    """Return the namespace of an app namespace's copies, before its status names one."""
    return f"{space}-{app_namespace}"


def hashed_service_namespaces(space: str, app_namespace: str, space_uid: str) -> tuple[str, ...]:
    """Return such a place that no other app cluster can foresee, nor take, and that fits always.

    The second one, if any, is the longer one of earlier versions. `cluster-a` with app namespace
    `b-x` and `cluster-a-b` with `x` meet under the plain name, and a later space may be called
    like it.
    """
    digest = hashlib.sha256(f"{space_uid}/{app_namespace}".encode()).hexdigest()[:10]
    plain = service_namespace(space, app_namespace)
    cut = [plain[: most - len(digest) - 1] for most in (MAX_SERVICE_NAMESPACE, MAX_LABEL)]
    return tuple(dict.fromkeys(f"{kept.rstrip('-')}-{digest}" for kept in cut))


def copy_name(space: str, name: str) -> str:
    """Return the copy of a cluster-scoped object under isolation `Prefixed`."""
    return f"{space}-{name}"


def claim_name(space: str, copy: str) -> str | None:
    """Return the claim of such a copy, or None where it has not the space's prefix.

    The prefix is no proof of ownership: the cluster-namespace annotation is.
    """
    name = copy.removeprefix(f"{space}-")
    return name if name and name != copy else None


def export_request(app_cluster_binding: str, template: str) -> str:
    """Return the request that an AppClusterBinding makes for a template, 63 characters at most.

    A cut may leave a dash before the joining one: peers look for exactly that name.
    """
    binding = _sanitized(app_cluster_binding, "binding")
    export = _sanitized(template, "export")
    head, tail = f"appclusterbinding-{binding}-", f"-{_fnv1a32(template.encode())}"
    room = max(1, MAX_LABEL - len(head) - len(tail))
    return f"{head}{export[:room]}{tail}"


def _sanitized(text: str, fallback: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_CUT] or fallback


def _fnv1a32(data: bytes) -> str:
    """Return the 32-bit FNV-1a hash as 8 hex digits."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def lock_lease(fleet: str) -> str:
    """Return the Lease in namespace klutch-bind that one run on a control plane holds."""
    return f"klutchctl-{fleet}"


def controller_lease(fleet: str, shard: Collection[str] = ()) -> str:
    """Return the Lease that one controller of a fleet, or of some of its control planes, holds."""
    return f"klutchctl-controller-{shard_of(fleet, shard)}"


def shard_of(fleet: str, shard: Collection[str]) -> str:
    """Return the name of a fleet, or of some of its control planes together."""
    if not shard:
        return fleet
    return f"{fleet}-{hashlib.sha256(','.join(sorted(shard)).encode()).hexdigest()[:8]}"

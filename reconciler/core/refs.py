"""Identifies kinds, objects and their clusters, and nothing about an object's content."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """A resource type as an API server serves it, so that no discovery is needed to reach it.

    `group` is "" for the core API; `plural` is the path segment.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`group/version`, or the bare version for the core API."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`plural.group`, as CRDs, exports and bindings are named; the bare plural for core."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __str__(self) -> str:
        return self.kind

    def __hash__(self) -> int:
        return hash(self.plural)


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """An object in a cluster. `namespace` is "" for cluster-scoped kinds, `name` for a list."""

    cluster: str
    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.cluster}: {self.object}"

    @property
    def object(self) -> str:
        """`Kind namespace/name` without the cluster, for sentences that name it already."""
        if not self.name:
            place = f" in namespace {self.namespace}" if self.namespace else ""
            return f"{self.kind} list{place}"
        path = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {path}"


@dataclass(frozen=True, slots=True, order=True)
class GroupResource:
    """A resource type without its version, as requests and bindings name it. `group` may be ""."""

    group: str
    plural: str

    @property
    def name(self) -> str:
        """The name of its request, export, binding and CRD; the bare plural for core."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def wire(self) -> dict[str, str]:
        """The GroupResource of protocol-bind.md A.1.1."""
        return {"group": self.group, "resource": self.plural}


class ObjectKey(NamedTuple):
    """An object among those of its kind. `namespace` is "" for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
SECRET = Kind("", "v1", "Secret", "secrets")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
LIMIT_RANGE = Kind("", "v1", "LimitRange", "limitranges")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
EVENT = Kind("events.k8s.io", "v1", "Event", "events")
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = Kind(
    "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False
)
CLUSTER_ROLE_BINDING = Kind(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
CRD = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)
ADMISSION_POLICY = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    namespaced=False,
)
ADMISSION_POLICY_BINDING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
)
# Crossplane's: what composes, each state of it that may be in use, and for which kinds.
_CROSSPLANE = "apiextensions.crossplane.io"
COMPOSITION = Kind(_CROSSPLANE, "v1", "Composition", "compositions", namespaced=False)
COMPOSITION_REVISION = Kind(
    _CROSSPLANE, "v1", "CompositionRevision", "compositionrevisions", namespaced=False
)
FUNCTION_REVISION = Kind(
    "pkg.crossplane.io", "v1", "FunctionRevision", "functionrevisions", namespaced=False
)
COMPOSITE_DEFINITION = Kind(
    _CROSSPLANE,
    "v1",
    "CompositeResourceDefinition",
    "compositeresourcedefinitions",
    namespaced=False,
)

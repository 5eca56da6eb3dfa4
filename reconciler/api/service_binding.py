"""APIServiceBinding: a provider's service in an app cluster (protocol-bind A.2)."""

from typing import Final, Literal

from reconciler.api.common import (
    GROUP,
    KLUTCH_VERSION,
    VERSION,
    AcceptablePermissionClaim,
    ClusterSecretKeyRef,
    Condition,
    KlutchVersion,
    ObjectMeta,
    WireModel,
)
from reconciler.core.refs import Kind

# Klutch up to 1.5.0 serves it cluster-scoped: the live CRD decides which path is right.
API_SERVICE_BINDING: Final = Kind(GROUP, VERSION, "APIServiceBinding", "apiservicebindings")


class APIServiceBindingSpec(WireModel):
    """`kubeconfig_secret_ref` cannot be changed, the claims can."""

    kubeconfig_secret_ref: ClusterSecretKeyRef
    permission_claims: tuple[AcceptablePermissionClaim, ...] = ()


class APIServiceBindingStatus(WireModel):
    """What the konnector observed."""

    provider_pretty_name: str = ""
    conditions: tuple[Condition, ...] = ()


class APIServiceBinding(WireModel):
    """Named `plural.group`, like the CRD and its export. The CRD does not require `spec`."""

    api_version: KlutchVersion = KLUTCH_VERSION
    kind: Literal["APIServiceBinding"] = "APIServiceBinding"
    metadata: ObjectMeta = ObjectMeta()
    spec: APIServiceBindingSpec | None = None
    status: APIServiceBindingStatus = APIServiceBindingStatus()

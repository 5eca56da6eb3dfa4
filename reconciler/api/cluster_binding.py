"""ClusterBinding: one app cluster as its provider sees it (protocol-bind A.6)."""

from typing import Final, Literal

from pydantic import Field, JsonValue

from reconciler.api.common import (
    GROUP,
    KLUTCH_VERSION,
    VERSION,
    Condition,
    KlutchVersion,
    LocalSecretKeyRef,
    ObjectMeta,
    WireModel,
)
from reconciler.core.refs import Kind

CLUSTER_BINDING: Final = Kind(GROUP, VERSION, "ClusterBinding", "clusterbindings")


class ClusterBindingSpec(WireModel):
    """`kubeconfig_secret_ref` cannot be changed once it is set."""

    kubeconfig_secret_ref: LocalSecretKeyRef
    provider_pretty_name: str
    service_provider_spec: dict[str, JsonValue] = Field(default_factory=dict, repr=False)


class ClusterBindingStatus(WireModel):
    """`last_heartbeat_time` is RFC 3339 text, `heartbeat_interval` a Go duration such as 5m0s."""

    last_heartbeat_time: str = ""
    heartbeat_interval: str = ""
    konnector_version: str = ""
    conditions: tuple[Condition, ...] = ()


class ClusterBinding(WireModel):
    """There is one in each binding space, named `cluster`."""

    api_version: KlutchVersion = KLUTCH_VERSION
    kind: Literal["ClusterBinding"] = "ClusterBinding"
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterBindingSpec
    status: ClusterBindingStatus = ClusterBindingStatus()

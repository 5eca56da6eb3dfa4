"""AppClusterBinding: an app cluster bound from the control plane (protocol-bind A.7)."""

from typing import Final, Literal

from pydantic import Field, JsonValue, StrictBool

from reconciler.api.common import (
    GROUP,
    KLUTCH_VERSION,
    VERSION,
    ClusterSecretKeyRef,
    Condition,
    GroupResource,
    KlutchVersion,
    ObjectMeta,
    WireModel,
)
from reconciler.core.refs import Kind

APP_CLUSTER_BINDING: Final = Kind(GROUP, VERSION, "AppClusterBinding", "appclusterbindings")


class KonnectorSpec(WireModel):
    """`overrides` is a partial corev1.Container as JSON; {} changes nothing."""

    deploy: StrictBool = False
    overrides: dict[str, JsonValue] = Field(default_factory=dict, repr=False)


class AppClusterBindingSpec(WireModel):
    """`kubeconfig_secret_ref` names the app cluster's kubeconfig and cannot be changed."""

    kubeconfig_secret_ref: ClusterSecretKeyRef
    api_exports: tuple[GroupResource, ...] = ()
    konnector: KonnectorSpec = KonnectorSpec()


class AppClusterBindingStatus(WireModel):
    """What the backend observed."""

    conditions: tuple[Condition, ...] = ()


class AppClusterBinding(WireModel):
    """Its name and namespace are part of the name of the binding space."""

    api_version: KlutchVersion = KLUTCH_VERSION
    kind: Literal["AppClusterBinding"] = "AppClusterBinding"
    metadata: ObjectMeta = ObjectMeta()
    spec: AppClusterBindingSpec
    status: AppClusterBindingStatus = AppClusterBindingStatus()

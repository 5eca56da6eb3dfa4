"""The vocabulary of conditions: every type, and every cause for which one is False.

Wire facts (protocol-bind.md A.10, protocol-konnector.md B, C), so that a reason never appears
with another severity; what is marked as ours the originals do not know. A type that is ours
is set from its first trouble on. Refuses to know when a cause applies, and with what message.
"""

from typing import Final

from reconciler.core.conditions import ERROR, INFO, READY, WARNING, Cause

HEALTHY: Final = "Healthy"
SECRET_VALID: Final = "SecretValid"
VALID_VERSION: Final = "ValidVersion"
PROVIDER_IN_SYNC: Final = "ProviderInSync"
CONNECTED: Final = "Connected"
CONSUMER_IN_SYNC: Final = "ConsumerInSync"
EXPORTS_READY: Final = "ExportsReady"
INFORMERS_SYNCED: Final = "InformersSynced"
HEARTBEATING: Final = "Heartbeating"
SCHEMA_IN_SYNC: Final = "SchemaInSync"
KONNECTOR_DEPLOYED: Final = "KonnectorDeployed"
# Ours: a space's rights, its bounds, and room for its app namespaces (on ClusterBinding); whether a
# template still offers what is exported (on APIServiceExport).
PERMISSIONS_GRANTED: Final = "PermissionsGranted"
SPACE_BOUNDED: Final = "SpaceBounded"
SERVICE_NAMESPACES_READY: Final = "ServiceNamespacesReady"
OFFERED: Final = "Offered"
# Ours, on APIServiceBinding: whether accepted claims are served, whether each instance is, and
# whether nothing is lost between the versions of one kind.
PERMISSION_CLAIMS_IN_SYNC: Final = "PermissionClaimsInSync"
INSTANCES_IN_SYNC: Final = "InstancesInSync"
VERSIONS_COMPATIBLE: Final = "VersionsCompatible"
# Ours, on ClusterBinding: whether guards let a konnector delete, and make lost copies anew. There
# InstancesInSync tells of the orphans of all kinds.
DELETES_ALLOWED: Final = "DeletesAllowed"
RECREATION_ALLOWED: Final = "RecreationAllowed"

# ClusterBinding
FIRST_HEARTBEAT_PENDING: Final = Cause(HEALTHY, INFO, "FirstHeartbeatPending")
HEARTBEAT_INTERVAL_MISSING: Final = Cause(HEALTHY, INFO, "HeartbeatIntervalMissing")
HEARTBEAT_TIMEOUT: Final = Cause(HEALTHY, ERROR, "HeartbeatTimeout")
HEARTBEAT_TIME_DRIFT: Final = Cause(HEALTHY, WARNING, "HeartbeatTimeDrift")
PROVIDER_SECRET_NOT_FOUND: Final = Cause(SECRET_VALID, WARNING, "ProviderSecretNotFound")
PROVIDER_SECRET_INVALID: Final = Cause(SECRET_VALID, WARNING, "ProviderSecretInvalid")
VERSION_PARSE_ERROR: Final = Cause(VALID_VERSION, WARNING, "ParseError")
# Ours: RBAC could not be written; its name belongs to somebody else (protocol-bind.md F6); what
# bounds a space could not be written; the name of a service namespace belongs to somebody else; an
# app namespace's name makes too long a one.
PERMISSIONS_UPDATE_FAILED: Final = Cause(PERMISSIONS_GRANTED, ERROR, "PermissionsUpdateFailed")
PERMISSIONS_FOREIGN: Final = Cause(PERMISSIONS_GRANTED, ERROR, "ForeignPermissions")
BOUNDS_UPDATE_FAILED: Final = Cause(SPACE_BOUNDED, WARNING, "BoundsUpdateFailed")
NAMESPACE_COLLISION: Final = Cause(SERVICE_NAMESPACES_READY, ERROR, "NamespaceCollision")
NAMESPACE_NAME_INVALID: Final = Cause(SERVICE_NAMESPACES_READY, ERROR, "NamespaceNameInvalid")
# Ours (H4): a cluster or space is not the one that was recorded; nobody knows which one it is;
# most of a kind is being deleted at once; copies of bound claims are gone.
APP_CLUSTER_CHANGED: Final = Cause(DELETES_ALLOWED, ERROR, "AppClusterChanged")
APP_CLUSTER_UNKNOWN: Final = Cause(DELETES_ALLOWED, ERROR, "AppClusterUnknown")
MASS_DELETION: Final = Cause(DELETES_ALLOWED, ERROR, "MassDeletion")
SPACE_CHANGED: Final = Cause(RECREATION_ALLOWED, ERROR, "SpaceChanged")
SPACE_UNKNOWN: Final = Cause(RECREATION_ALLOWED, ERROR, "SpaceUnknown")
RECREATION_HELD: Final = Cause(RECREATION_ALLOWED, ERROR, "RecreationHeld")

# APIServiceExport
PROVIDER_CRD_INVALID: Final = Cause(PROVIDER_IN_SYNC, ERROR, "CustomResourceDefinitionUpdateFailed")
# Ours: the provider's CRD is away, for now or for good (C.3); the export could not be written; no
# template offers it any more (F22).
PROVIDER_CRD_NOT_FOUND: Final = Cause(PROVIDER_IN_SYNC, ERROR, "CustomResourceDefinitionNotFound")
EXPORT_UPDATE_FAILED: Final = Cause(PROVIDER_IN_SYNC, ERROR, "APIServiceExportUpdateFailed")
OFFER_WITHDRAWN: Final = Cause(OFFERED, WARNING, "TemplateNotFound")
BINDING_NOT_FOUND: Final = Cause(CONNECTED, INFO, "APIServiceBindingNotFound")
CONSUMER_SYNC_NOT_APPLICABLE: Final = Cause(CONSUMER_IN_SYNC, INFO, "NA")
CONSUMER_SYNC_UNKNOWN: Final = Cause(CONSUMER_IN_SYNC, INFO, "Unknown")

# APIServiceExportRequest
CRD_NOT_FOUND: Final = Cause(EXPORTS_READY, ERROR, "CRDNotFound")
CRD_INVALID: Final = Cause(EXPORTS_READY, ERROR, "CRDInvalid")
# Ours (F24): the space's AppClusterBinding does not list it; nothing offers the resource; this
# backend cannot export its scope; the API server refused the export, or could not be asked.
NOT_LISTED: Final = Cause(EXPORTS_READY, ERROR, "NotListed")
TEMPLATE_NOT_FOUND: Final = Cause(EXPORTS_READY, ERROR, "TemplateNotFound")
SCOPE_NOT_SUPPORTED: Final = Cause(EXPORTS_READY, ERROR, "ScopeNotSupported")
TOO_MANY: Final = Cause(EXPORTS_READY, ERROR, "TooManyResources")
EXPORT_CREATE_FAILED: Final = Cause(EXPORTS_READY, ERROR, "APIServiceExportCreateFailed")

# APIServiceBinding; the two of the Secret also on AppClusterBinding
KUBECONFIG_SECRET_NOT_FOUND: Final = Cause(SECRET_VALID, ERROR, "KubeconfigSecretNotFound")
KUBECONFIG_SECRET_INVALID: Final = Cause(SECRET_VALID, ERROR, "KubeconfigSecretInvalid")
INFORMER_SYNC_TIMEOUT: Final = Cause(INFORMERS_SYNCED, ERROR, "InformerSyncTimeout")
CLUSTER_BINDING_UPDATE_FAILED: Final = Cause(HEARTBEATING, WARNING, "ClusterBindingUpdateFailed")
# Ours: the way to the control plane is cut.
CONTROL_PLANE_UNREACHABLE: Final = Cause(CONNECTED, WARNING, "ControlPlaneUnreachable")
EXPORT_NOT_FOUND: Final = Cause(CONNECTED, ERROR, "APIServiceExportNotFound")
EXPORT_INVALID: Final = Cause(CONNECTED, ERROR, "APIServiceExportInvalid")
CRD_CREATE_FAILED: Final = Cause(CONNECTED, ERROR, "CustomResourceDefinitionCreateFailed")
CRD_UPDATE_FAILED: Final = Cause(CONNECTED, ERROR, "CustomResourceDefinitionUpdateFailed")
CRD_FOREIGN: Final = Cause(CONNECTED, ERROR, "ForeignCustomResourceDefinition")
PENDING: Final = Cause(READY, INFO, "Pending")
# Ours (H14, H16, H17, H18, H32; their CLI says Pending in Ready alone). The originals know
# SchemaInSync and never set it.
NOT_OF_THIS_SPACE: Final = Cause(CONNECTED, ERROR, "AppClusterChanged")
NOT_YET_CONNECTED: Final = Cause(CONNECTED, INFO, "Pending")
ISOLATION_UNSUPPORTED: Final = Cause(CONNECTED, ERROR, "IsolationUnsupported")
CRD_NOT_ESTABLISHED: Final = Cause(SCHEMA_IN_SYNC, INFO, "CustomResourceDefinitionNotEstablished")
CRD_OUTDATED: Final = Cause(SCHEMA_IN_SYNC, INFO, "CustomResourceDefinitionOutdated")
CRD_TERMINATING: Final = Cause(SCHEMA_IN_SYNC, WARNING, "CustomResourceDefinitionTerminating")
CRD_NAMES_NOT_ACCEPTED: Final = Cause(SCHEMA_IN_SYNC, ERROR, "NamesNotAccepted")
CLAIMS_DEGRADED: Final = Cause(PERMISSION_CLAIMS_IN_SYNC, WARNING, "PermissionClaimsDegraded")
INSTANCES_REFUSED: Final = Cause(INSTANCES_IN_SYNC, WARNING, "InstancesRefused")
# Ours, also on ClusterBinding: copies whose origin is absent, which is no deletion.
ORPHANED: Final = Cause(INSTANCES_IN_SYNC, WARNING, "Orphaned")
VERSIONS_DIFFER: Final = Cause(VERSIONS_COMPATIBLE, WARNING, "SchemasDiffer")

# AppClusterBinding
KONNECTOR_DEPLOYMENT_FAILED: Final = Cause(KONNECTOR_DEPLOYED, ERROR, "KonnectorDeploymentFailed")

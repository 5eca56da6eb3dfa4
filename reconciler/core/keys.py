"""Lists every label, annotation, finalizer and field manager. No other module spells one out.

Wire facts of protocol-bind.md A.11 and protocol-konnector.md 0, and our own of mapping.md 1.
Does not know which object carries which, beyond what is said here.
"""

from typing import Final

KLUTCH_GROUP: Final = "klutch.anynines.com"
TEMPLATE_GROUP: Final = "example-backend.klutch.anynines.com"
API_VERSION: Final = "v1alpha1"
OWN_PREFIX: Final = "klutchctl.dev/"

# Who wrote a field, as managedFields shows it.
MANAGER_CLI: Final = "klutchctl"
# Writes only the annotations `leaving` and `credential`: no apply of ours may take those away.
MANAGER_NOTES: Final = "klutchctl-notes"
# `kubectl bind`, also the original's: either goes on with what the other wrote.
MANAGER_BIND: Final = "kubectl-bind"
MANAGER_BACKEND: Final = "klutch-bind"
MANAGER_OSB: Final = "klutch-osb"
MANAGER_CONTROLLER: Final = "klutchctl-controller"  # of its FleetStatus and Events
MANAGER_KONNECTOR: Final = KLUTCH_GROUP
MANAGER_ORIGINAL_KONNECTOR: Final = "konnector"  # with operation Update
KONNECTORS: Final = frozenset({MANAGER_KONNECTOR, MANAGER_ORIGINAL_KONNECTOR})
MANAGER_ORIGINAL_BACKEND: Final = "example-backend"  # with operation Update

# Klutch: annotations.
SOURCE_SPEC_HASH: Final = f"{KLUTCH_GROUP}/source-spec-hash"
API_SERVICE_NAMESPACE: Final = f"{KLUTCH_GROUP}/api-service-namespace"
IDENTITY: Final = f"{TEMPLATE_GROUP}/identity"
BOUND: Final = f"{KLUTCH_GROUP}/bound"
BOUND_VALUE: Final = "true"
RESOURCE_OWNER: Final = f"{KLUTCH_GROUP}/resource-owner"
OWNER_PROVIDER: Final = "Provider"
OWNER_CONSUMER: Final = "Consumer"
CLUSTER_NAMESPACE: Final = f"{KLUTCH_GROUP}/cluster-namespace"
SERVICE_ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"

# Flux, Argo CD: what outlives its file, since others' objects live by it.
KEPT: Final = {
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
}

# Kubernetes: on a CRD of a group that ends in k8s.io or kubernetes.io, which needs it.
API_APPROVED: Final = "api-approved.kubernetes.io"

# Kubernetes: the Pods that a Namespace admits.
POD_SECURITY_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
POD_SECURITY_RESTRICTED: Final = "restricted"

# Klutch: labels.
APP_CLUSTER_BINDING_NAME: Final = f"{KLUTCH_GROUP}/appclusterbinding-name"
APP_CLUSTER_BINDING_NAMESPACE: Final = f"{KLUTCH_GROUP}/appclusterbinding-namespace"
APP: Final = "app"
APP_KONNECTOR: Final = "konnector"

# Klutch: finalizers.
APP_CLUSTER_BINDING_CLEANUP: Final = f"{KLUTCH_GROUP}/appclusterbinding-cleanup"
SYNCER: Final = f"{KLUTCH_GROUP}/syncer"

# Ours: labels on objects that we create or adopt.
FLEET: Final = f"{OWN_PREFIX}fleet"
CLUSTER: Final = f"{OWN_PREFIX}cluster"
BINDING: Final = f"{OWN_PREFIX}binding"

# Ours: annotations.
APP_CLUSTER_UID: Final = f"{OWN_PREFIX}app-cluster-uid"
# Uids, by which an object of one life is told from a later one of its name: `core.identity`. Each
# counts only at its place; copied to another one, it is a word.
SPACE_UID: Final = f"{OWN_PREFIX}space-uid"  # on service namespaces, wide copies, kubeconfigs
ACCOUNT_UID: Final = f"{OWN_PREFIX}account-uid"  # on a service namespace: of the ServiceAccount
CLAIM_UID: Final = f"{OWN_PREFIX}claim-uid"  # on a copy, its Secret here, and its claim
ORIGIN_UID: Final = f"{OWN_PREFIX}origin-uid"  # on each claimed object that was brought, either way
ORIGIN_SPACE_UID: Final = f"{OWN_PREFIX}origin-space-uid"  # beside it
APP_NAMESPACE_UID: Final = f"{OWN_PREFIX}app-namespace-uid"  # on a mapping, and on its Namespace
UIDS_SINCE: Final = f"{OWN_PREFIX}uids-since"  # RFC 3339 time, beside it: all its pairs have uids
APP_CLUSTER_BINDING_UID: Final = f"{OWN_PREFIX}app-cluster-binding-uid"  # on a space's Namespace
CRD_UID: Final = f"{OWN_PREFIX}crd-uid"  # on an APIServiceExport: of the provider's CRD
ACCESS: Final = f"{OWN_PREFIX}access"
# On a ClusterBinding, an AppClusterBinding, and in Direct mode an APIServiceBinding: what its
# kubeconfig is, for those who may not read Secrets.
CREDENTIAL: Final = f"{OWN_PREFIX}credential"
PARAMETERS: Final = f"{OWN_PREFIX}parameters"
DELETION_POLICY: Final = f"{OWN_PREFIX}deletion-policy"
UNIT_POLICIES: Final = f"{OWN_PREFIX}unit-policies"  # on an AppClusterBinding, of what it lists
DRAINING: Final = f"{OWN_PREFIX}draining"  # RFC 3339 time, beside a policy that the backend set
FORCE_CLEANUP: Final = f"{OWN_PREFIX}force-cleanup"  # "true": no konnector is waited for
SUSPEND: Final = f"{OWN_PREFIX}suspend"  # on a FleetStatus: why nothing is to be written
RELEASED: Final = f"{OWN_PREFIX}released"
ADOPT: Final = f"{OWN_PREFIX}adopt"  # NOT_ADOPTED: part of a provider's service, and no instance
NOT_ADOPTED: Final = "false"
# On a template: "true": instances with a controller are adopted, too.
ADOPT_CONTROLLED: Final = f"{OWN_PREFIX}adopt-controlled"
# On a template and its export: which compositions app clusters may name, and which fields of
# Crossplane's machinery they may write; on an export, which ones it leaves out.
COMPOSITIONS: Final = f"{OWN_PREFIX}compositions"
OPEN_MACHINERY: Final = f"{OWN_PREFIX}open-machinery"
LEFT_OUT: Final = f"{OWN_PREFIX}left-out"
WITHDRAWN: Final = f"{OWN_PREFIX}withdrawn"  # on an export: why its kind is going
RELEASED_KINDS: Final = f"{OWN_PREFIX}released-kinds"  # resources, on an APIServiceNamespace
EVER_EXPORTED: Final = f"{OWN_PREFIX}ever-exported"  # resources, on ClusterRole klutch-binder
MADE_AT: Final = f"{OWN_PREFIX}made-at"  # RFC 3339 time, on a service namespace that we made
COUNTED: Final = f"{OWN_PREFIX}counted"  # on a ResourceQuota: `resource=number` then, by ","
# On the Lease of a fleet's lock: commits, the last applied first, then those that it follows.
APPLIED: Final = f"{OWN_PREFIX}applied"
LEAVING: Final = f"{OWN_PREFIX}leaving"  # on the root of units that are being let go
# Keys of labels and annotations, beside those that always do, that go to the other side: on a
# template and its export up, on an APIServiceBinding down.
CARRIES: Final = f"{OWN_PREFIX}carries"
ACCEPT_CLAIMS: Final = f"{OWN_PREFIX}accept-claims"
ACCEPT_CLAIMS_TEMPLATE: Final = "Template"
ALLOW_APP_CLUSTER_BINDING: Final = f"{OWN_PREFIX}allow-app-cluster-binding"
# On a binding space that the front door made or served: who vouched for its identity.
ISSUER: Final = f"{OWN_PREFIX}issuer"
CLUSTER_NAME: Final = f"{OWN_PREFIX}cluster-name"  # as who bound there calls it
# Resources, beside it: what was bound there, and all that its konnector may ask for.
MAY_BIND: Final = f"{OWN_PREFIX}may-bind"
# On a template: how the pages present it, in place of what its CRD says.
TITLE: Final = f"{OWN_PREFIX}title"
DESCRIPTION: Final = f"{OWN_PREFIX}description"
DOCS_URL: Final = f"{OWN_PREFIX}docs-url"
ORPHANED: Final = f"{OWN_PREFIX}orphaned"  # RFC 3339 time, on a copy whose origin is absent
# Beside it: the confirm-orphans that stood already then, and so does not mean this copy.
ORPHANED_UNDER: Final = f"{OWN_PREFIX}orphaned-under"
# RFC 3339 time, on an APIServiceNamespace whose app namespace was seen on its way out.
APP_NAMESPACE_DELETED: Final = f"{OWN_PREFIX}app-namespace-deleted"
CONFIRM_ORPHANS: Final = f"{OWN_PREFIX}confirm-orphans"
CONFIRM_APP_CLUSTER: Final = f"{OWN_PREFIX}confirm-app-cluster"
# On a ClusterBinding: `<app namespace>=<its uid>[,...]`, of namespaces that were made again.
CONFIRM_NAMESPACES: Final = f"{OWN_PREFIX}confirm-namespaces"
# On a space's Namespace, or its AppClusterBinding: the former uid, whose spaces are given to it.
CONFIRM_SPACE: Final = f"{OWN_PREFIX}confirm-space"
CONFIRM_MASS_DELETE: Final = f"{OWN_PREFIX}confirm-mass-delete"
# On a copy: `<uid of its claim>/<number allowed>`, since so many deletions were too many.
DELETION_HELD: Final = f"{OWN_PREFIX}deletion-held"
# On an APIServiceBinding: so many of its claims, or Namespaces with them, may go at once.
DELETIONS_AT_ONCE: Final = f"{OWN_PREFIX}deletions-at-once"
CONFIRM_RECREATE: Final = f"{OWN_PREFIX}confirm-recreate"
# On an APIServiceBinding: the version that its claims may be read in, whatever they lose.
CONFIRM_VERSION: Final = f"{OWN_PREFIX}confirm-version"
RECREATE: Final = f"{OWN_PREFIX}recreate"  # on an APIServiceBinding
RECREATE_ALWAYS: Final = "Always"

# Of service brokers: on generated CRDs, on claims, on Secrets with credentials, on BrokerRecords.
OSB_BROKER: Final = f"{OWN_PREFIX}osb-broker"  # label: name of the ServiceBroker
OSB_SERVICE: Final = f"{OWN_PREFIX}osb-service"  # label: `broker.stem`
OSB_OFFERING: Final = f"{OWN_PREFIX}osb-offering"  # id of the service
OSB_PLANS: Final = f"{OWN_PREFIX}osb-plans"  # JSON: name of a plan -> its id
OSB_OFFERED: Final = f"{OWN_PREFIX}osb-offered"  # JSON: what the kinds were made from
OSB_INSTANCES: Final = f"{OWN_PREFIX}osb-instances"  # plural of the kind that is bound
OSB_BINDING: Final = f"{OWN_PREFIX}osb-binding"  # id of the binding that a Secret is of
OSB_RETRY: Final = f"{OWN_PREFIX}osb-retry"  # another text: what was refused is tried again
OSB_ROTATE: Final = f"{OWN_PREFIX}osb-rotate"  # another text: new credentials
OSB_AFTER: Final = f"{OWN_PREFIX}osb-after"  # highest id of a backup that was there before
OSB_MOVED: Final = f"{OWN_PREFIX}osb-moved"  # on a ServiceBroker: the origin that its records take
OSB_ORPHAN: Final = f"{OWN_PREFIX}osb-orphan"  # what becomes of a record without claim
ORPHAN_DEPROVISION: Final = "Deprovision"
ORPHAN_FORGET: Final = "Forget"
ORPHAN_ADOPT: Final = "Adopt"

# Ours: finalizers.
DRAIN: Final = f"{OWN_PREFIX}drain"
OSB: Final = f"{OWN_PREFIX}osb"  # on claims that a service broker serves


# Crossplane's, on its managed resources; the finalizer and the annotations of provider-anynines.
CROSSPLANE: Final = "crossplane.io/"
EXTERNAL_NAME: Final = f"{CROSSPLANE}external-name"
PAUSED: Final = f"{CROSSPLANE}paused"
CLAIM_NAME: Final = f"{CROSSPLANE}claim-name"
CLAIM_NAMESPACE: Final = f"{CROSSPLANE}claim-namespace"
PROVIDER_CONFIG: Final = f"{CROSSPLANE}provider-config"  # label of a ProviderConfigUsage
MANAGED_RESOURCE: Final = "finalizer.managedresource.crossplane.io"
IN_USE: Final = "in-use.crossplane.io"  # finalizer of a ProviderConfig
BINDING_CREATED: Final = "anynines.crossplane.io/servicebinding-created"  # "true"
BACKUP_ID: Final = "anynines.crossplane.io/backup-id"
RESTORE_ID: Final = "anynines.crossplane.io/restore-id"
INSTANCE_TYPE: Final = "klutch.io/instance-type"
# Ours, on managed resources: what was last asked of a broker and is not in the status of the
# original; which bindings there are beside the first; the operation of one.
OSB_SENT: Final = f"{OWN_PREFIX}osb-sent"
OSB_BINDINGS: Final = f"{OWN_PREFIX}osb-bindings"
OSB_OPERATION: Final = f"{OWN_PREFIX}osb-operation"
OSB_ORIGIN: Final = f"{OWN_PREFIX}osb-origin"  # the broker that has it
OSB_API_VERSION: Final = f"{OWN_PREFIX}osb-api-version"  # on a ProviderConfig


def app_cluster_binding_labels(namespace: str, name: str) -> dict[str, str]:
    """Return the two labels that lead from an object back to its AppClusterBinding."""
    return {APP_CLUSTER_BINDING_NAME: name, APP_CLUSTER_BINDING_NAMESPACE: namespace}

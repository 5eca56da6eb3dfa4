"""The facts for decisions about an AppClusterBinding: live objects, options, conditions.

A condition of ours, beside the original's two types, appears only once something was wrong, and is
True from then on: an AppClusterBinding that never had trouble has the original's and no others.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from reconciler.api import listed_resources
from reconciler.core import conditions, keys, manifest, names
from reconciler.core.conditions import (
    ERROR,
    EXPORTS_READY,
    INFO,
    KONNECTOR_DEPLOYED,
    SECRET_VALID,
    WARNING,
    Cause,
    Condition,
)
from reconciler.core.decision import Decision, Delete, Patch, deletion, modification, writes_each
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import GroupResource, Kind
from reconciler.kube.networks import ANYWHERE, Networks

DELETE: Final = "Delete"
RELEASE: Final = "Release"

SPACE_READY: Final = "BindingSpaceReady"
BINDINGS_READY: Final = "APIServiceBindingsReady"
CLEANED_UP: Final = "CleanedUp"

SECRET_NOT_GRANTED: Final = Cause(SECRET_VALID, ERROR, "KubeconfigSecretNotGranted")

SPACE_NAME_INVALID: Final = Cause(SPACE_READY, ERROR, "BindingSpaceNameInvalid")
SPACE_TAKEN: Final = Cause(SPACE_READY, ERROR, "BindingSpaceTaken")
SPACE_LEFT_OVERS: Final = Cause(SPACE_READY, ERROR, "BindingSpaceLeftOvers")
SPACE_TERMINATING: Final = Cause(SPACE_READY, WARNING, "BindingSpaceTerminating")
SPACE_FAILED: Final = Cause(SPACE_READY, ERROR, "BindingSpaceFailed")

TEMPLATE_NOT_FOUND: Final = Cause(BINDINGS_READY, ERROR, "APIServiceExportTemplateNotFound")
BINDING_FAILED: Final = Cause(BINDINGS_READY, ERROR, "APIServiceBindingFailed")
BINDING_INVALID: Final = Cause(BINDINGS_READY, ERROR, "APIServiceBindingInvalid")
BINDINGS_DRAINING: Final = Cause(BINDINGS_READY, INFO, "Draining")

REQUEST_WAITING: Final = Cause(EXPORTS_READY, WARNING, "APIServiceExportRequestWaiting")
REQUEST_REFUSED: Final = Cause(EXPORTS_READY, ERROR, "APIServiceExportRequestFailed")
EXPORT_FAILED: Final = Cause(EXPORTS_READY, ERROR, "APIServiceExportFailed")

OVERRIDE_NOT_ALLOWED: Final = Cause(KONNECTOR_DEPLOYED, ERROR, "OverrideNotAllowed")
KONNECTOR_PROGRESSING: Final = Cause(KONNECTOR_DEPLOYED, INFO, "KonnectorProgressing")

CLEANUP_WAITING: Final = Cause(CLEANED_UP, INFO, "Waiting")
CLEANUP_TIMED_OUT: Final = Cause(CLEANED_UP, ERROR, "DeadlineExceeded")
CLEANUP_FAILED: Final = Cause(CLEANED_UP, ERROR, "CleanupFailed")

# These two are always reported, as by the original; the others only after a first problem.
_ALWAYS: Final = (SECRET_VALID, KONNECTOR_DEPLOYED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The Namespace that bears the name of the binding space, and everything in it that counts.

    `secrets`, `bindings` (APIServiceBindings), `exports`, `requests` and `service_namespaces`
    are all that the Namespace holds, whoever made them. `deployment` is the one named after the
    AppClusterBinding; with its managedFields, fields that we no longer state are noticed too.
    """

    namespace: Manifest
    account: Manifest | None = None
    cluster_binding: Manifest | None = None
    role: Manifest | None = None
    role_binding: Manifest | None = None
    network_policy: Manifest | None = None
    limit_range: Manifest | None = None
    deployment: Manifest | None = None
    secrets: Sequence[Manifest] = ()
    bindings: Sequence[Manifest] = ()
    exports: Sequence[Manifest] = ()
    requests: Sequence[Manifest] = ()
    service_namespaces: Sequence[Manifest] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A look at an AppClusterBinding.

    `source` is the Secret that spec.kubeconfigSecretRef names. `templates` holds at least those
    of the resources in spec.apiExports; all of them will do. `space` is None where there is no
    Namespace of that name. `deployments_served` is False where the control plane has no apps/v1.
    `legacy` are ClusterRoleBinding and ClusterRole `klutch-konnector-<namespace>-<name>`, which
    older backends left; they count for a deletion only. `left` is a sentence about what an earlier
    space of that name left, looked for where an account is to be made, else "". `kind_goes`: all
    AppClusterBindings are being deleted, with their CRD.
    """

    app_cluster_binding: Manifest
    source: Manifest | None = None
    templates: Sequence[Manifest] = ()
    space: Space | None = None
    deployments_served: bool = True
    legacy: Sequence[tuple[Kind, Manifest]] = ()
    left: str = ""
    kind_goes: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and name of the AppClusterBinding."""
        return manifest.namespace_of(self.app_cluster_binding), manifest.name_of(
            self.app_cluster_binding
        )

    @property
    def space_name(self) -> str:
        """The name of the binding space, whether it can exist or not."""
        return names.app_cluster_binding_space(*self.place)

    @property
    def labels(self) -> dict[str, str]:
        """The labels that lead back to the AppClusterBinding."""
        return keys.app_cluster_binding_labels(*self.place)

    @property
    def resources(self) -> tuple[GroupResource, ...]:
        """The names in spec.apiExports: trimmed, sorted, each once."""
        return tuple(sorted(listed_resources(self.app_cluster_binding)))

    @property
    def deploys(self) -> bool:
        """Whether the backend runs the konnector."""
        return manifest.get_bool(self.app_cluster_binding, "spec", "konnector", "deploy")

    @property
    def secret_name(self) -> str:
        """The name of the copy of the kubeconfig Secret.

        A space keeps the one that its ClusterBinding names, because neither that reference nor
        those of the APIServiceBindings can be changed.
        """
        binding = None if self.space is None else self.space.cluster_binding
        ref = ("spec", "kubeconfigSecretRef", "name")
        return manifest.get_text(binding, *ref) or manifest.get_text(self.app_cluster_binding, *ref)

    @property
    def is_forced(self) -> bool:
        """Whether an annotation asks not to wait for the konnector."""
        return manifest.annotations_of(self.app_cluster_binding).get(keys.FORCE_CLEANUP) == "true"

    @property
    def is_retired(self) -> bool:
        """Whether klutchctl has let go of everything here, so that nothing is missed."""
        released = manifest.annotations_of(self.app_cluster_binding).get(keys.RELEASED, "")
        return bool(released) and not self.resources and not self.deploys


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The settings of the backend's operator.

    `control_plane` is the name of the cluster in refs. `konnector_image` is for konnectors
    without an image of their own; "" for none. An AppClusterBinding names this image, or
    one below `konnector_image_prefixes`. `all_overrides` lets spec.konnector.overrides say
    anything, as the original does. `networks` bounds where kubeconfigs of app clusters lead. After
    `drain_deadline` a deletion that does not get on is an error in the conditions, and still waits.
    """

    control_plane: str
    konnector_image: str
    konnector_image_prefixes: tuple[str, ...] = ()
    allow_cross_namespace_secrets: bool = False
    all_overrides: bool = False
    networks: Networks = ANYWHERE
    drain_deadline: timedelta = timedelta(minutes=10)

    def change(self, kind: Kind, live: Manifest, /, **parts: JSON) -> Patch:
        """Return the patch of exactly the object that was looked at: see `modification`."""
        return modification(self.control_plane, kind, live, **parts)

    def deletion(self, kind: Kind, live: Manifest) -> Delete:
        """Return the delete of exactly the object that was looked at."""
        return deletion(self.control_plane, kind, live)

    def deletions(self, found: Iterable[tuple[Kind, Manifest]], failure: Cause) -> Decision:
        """Return the decision to delete those of these objects that do not go already."""
        leaving = (self.deletion(kind, one) for kind, one in found if not manifest.is_deleting(one))
        return writes_each(leaving, failure)


def trouble(cause: Cause, message: str) -> Decision:
    """Return a decision without writes that reports this problem."""
    return Decision(conditions=(conditions.false(cause, message),))


def summed_up(
    live: Manifest, parts: Decision, *, judged: Sequence[str], beside: Sequence[Condition] = ()
) -> Decision:
    """Return the decision with one condition of each type that its parts looked into, `judged`.

    A type without trouble is True where it is always said, or where `live` has it. `beside` goes
    with it as it is.
    """
    present = {each.type for each in conditions.of(live)}
    return replace(parts, conditions=(*beside, *_worst(parts.conditions, judged, present)))


def _worst(
    troubles: Sequence[Condition], judged: Sequence[str], present: set[str]
) -> Iterator[Condition]:
    for condition_type in judged:
        of_type = [each for each in troubles if each.type == condition_type]
        if of_type:
            worst = min(of_type, key=_urgency)
            alike = [each for each in of_type if _urgency(each) == _urgency(worst)]
            yield replace(worst, message=" ".join(dict.fromkeys(each.message for each in alike)))
        elif condition_type in _ALWAYS or condition_type in present:
            yield conditions.true(condition_type)


def _urgency(condition: Condition) -> tuple[int, str]:
    return {ERROR: 0, WARNING: 1}.get(condition.severity, 2), condition.reason

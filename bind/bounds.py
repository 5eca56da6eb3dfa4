"""What bounds a binding space, whoever made it: the Pods that it admits. Pure.

A space is what the annotation of its Namespace says, or the labels of its ClusterBinding, which no
konnector may write: a ClusterBinding that somebody put elsewhere makes none. Refuses to know what
is in it.
"""

from dataclasses import dataclass
from typing import Final

from reconciler.core import keys, names
from reconciler.core.decision import Patch, Step, preconditions_of
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    ref_of,
)
from reconciler.core.refs import NAMESPACE

# No Pod there can be root, or reach into its node (trust.md T5).
RESTRICTED: Final = {keys.POD_SECURITY_ENFORCE: keys.POD_SECURITY_RESTRICTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the operator of the backend decided. `restricted`: spaces admit no other Pods."""

    restricted: bool = True


UNBOUNDED: Final = Bounds(restricted=False)


def is_space(namespace: Manifest, binding: Manifest) -> bool:
    """Tell whether a Namespace is the space of the ClusterBinding in it."""
    if keys.IDENTITY in annotations_of(namespace):
        return True
    labels = labels_of(binding)
    owner = (
        labels.get(keys.APP_CLUSTER_BINDING_NAMESPACE, ""),
        labels.get(keys.APP_CLUSTER_BINDING_NAME, ""),
    )
    return all(owner) and names.app_cluster_binding_space(*owner) == name_of(namespace)


def pod_security(cluster: str, namespace: Manifest) -> tuple[Step, ...]:
    """Return what has a space admit restricted Pods alone.

    One that says something else got it from an administrator, whose decision it is.
    """
    if is_deleting(namespace) or keys.POD_SECURITY_ENFORCE in labels_of(namespace):
        return ()
    metadata: Manifest = {**preconditions_of(namespace), "labels": RESTRICTED}
    return (Patch(ref_of(cluster, NAMESPACE, namespace), {"metadata": metadata}),)

"""What of an object goes to the other side: its content, and the labels that are meant to travel.

Of protocol-konnector.md D.2, E.2 and H12. Refuses to know which way an object goes.
"""

from collections.abc import Mapping
from typing import Final

from reconciler.core import keys
from reconciler.core.manifest import (
    JSON,
    Manifest,
    annotations_of,
    get_map,
    get_text,
    labels_of,
)
from reconciler.core.refs import Kind, ObjectKey

_NOT_CONTENT: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
# What tools write to find their own objects again, on the other side finds the wrong ones: they
# would be pruned there. The rest is ours, or says how one side alone handles the object.
_STAYS: Final = (
    f"{keys.KLUTCH_GROUP}/",
    keys.OWN_PREFIX,
    "kubectl.kubernetes.io/",
    "argocd.argoproj.io/",
    "helm.sh/",
    "meta.helm.sh/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "objectset.rio.cattle.io/",
    "applyset.kubernetes.io/",
)


def content(live: Manifest) -> dict[str, JSON]:
    """Return what an object holds beside identity, metadata and status: `spec`, `data`, `type`."""
    return {key: value for key, value in live.items() if key not in _NOT_CONTENT}


def travels(key: str) -> bool:
    """Tell whether a label or an annotation with this key goes to the other side."""
    return not key.startswith(_STAYS)


def travelling_labels(live: Manifest) -> dict[str, str]:
    """Return the labels that go to the other side."""
    return {key: value for key, value in labels_of(live).items() if travels(key)}


def travelling_annotations(live: Manifest) -> dict[str, str]:
    """Return the annotations that go to the other side."""
    return {key: value for key, value in annotations_of(live).items() if travels(key)}


def moved(live: Manifest, kind: Kind, to: ObjectKey, marks: Mapping[str, str]) -> dict[str, JSON]:
    """Return the object as it is made on the other side, annotated with `marks`.

    Nothing in it is the server's; owners and finalizers of one side mean nothing, or worse, on
    the other (H5); its status comes from the other side or not at all.
    """
    metadata: dict[str, JSON] = {"name": to.name}
    if to.namespace:
        metadata["namespace"] = to.namespace
    if labels := travelling_labels(live):
        metadata["labels"] = labels
    metadata["annotations"] = {**travelling_annotations(live), **marks}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        **content(live),
    }


def is_managed(live: Manifest) -> bool:
    """Tell whether the object carries the annotation that a konnector brought it (any value)."""
    return keys.BOUND in get_map(live, "metadata", "annotations")


def owner_of(live: Manifest | None) -> str:
    """Return which side owns a claimed object, as its annotation says; "" for no word of it."""
    return get_text(live, "metadata", "annotations", keys.RESOURCE_OWNER)

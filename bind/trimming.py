"""What the backend keeps of objects that app clusters write: what it reads, and no more. Pure.

A konnector may write objects of 1.5 MiB by the hundred, and all views are in one memory (rule T9).
What is longer or more than anything sensible is cut, so that it still shows as such.
"""

from collections.abc import Iterable
from typing import Final

from reconciler.core import keys, manifest
from reconciler.core.manifest import JSON, Manifest

# One more than a request may name, so that too many are noticed.
MOST_RESOURCES: Final = 100
_LONGEST_NAME: Final = 254  # one more than any resource has
_LONGEST_NOTE: Final = 1024
_FEW: Final = 8  # finalizers of others, which are only counted and shown

_IDENTITY: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
)
_LABELS: Final = (keys.APP_CLUSTER_BINDING_NAME, keys.APP_CLUSTER_BINDING_NAMESPACE)
_OF_BINDINGS: Final = (keys.DELETION_POLICY, keys.DRAINING)


def request(live: Manifest) -> Manifest:
    """Return what is read of an APIServiceExportRequest: of `spec` what it asks for."""
    asked = manifest.get_maps(live, "spec", "resources")[: MOST_RESOURCES + 1]
    resources: list[JSON] = [
        {part: manifest.get_text(one, part)[:_LONGEST_NAME] for part in ("group", "resource")}
        for one in asked
    ]
    return _kept(live, spec={"resources": resources}, status=manifest.get_map(live, "status"))


def service_namespace(live: Manifest) -> Manifest:
    """Return what is read of an APIServiceNamespace."""
    named = manifest.get_text(live, "status", "namespace")
    return _kept(live, status={"namespace": named} if named else {})


def cluster_binding(live: Manifest) -> Manifest:
    """Return what is read of a ClusterBinding."""
    spec = manifest.get_map(live, "spec")
    read = {
        part: spec[part] for part in ("kubeconfigSecretRef", "providerPrettyName") if part in spec
    }
    return _kept(live, spec=read, status=manifest.get_map(live, "status"))


def binding(live: Manifest) -> Manifest:
    """Return what is read of an APIServiceBinding: of its claims, whether it has any.

    Its finalizers are all there: those of others are written again as they are.
    """
    spec = manifest.get_map(live, "spec")
    read: dict[str, JSON] = {"kubeconfigSecretRef": manifest.get(spec, "kubeconfigSecretRef")}
    if "permissionClaims" in spec:
        read["permissionClaims"] = []
    return _kept(live, notes=_OF_BINDINGS, finalizers=len(manifest.finalizers_of(live)), spec=read)


def marks(live: Manifest) -> Manifest:
    """Return what is read of an object of which only metadata are."""
    return _kept(live)


def _kept(
    live: Manifest, *, notes: Iterable[str] = (), finalizers: int = _FEW, **parts: Manifest
) -> Manifest:
    held = manifest.get_map(live, "metadata")
    metadata: dict[str, JSON] = {part: held[part] for part in _IDENTITY if part in held}
    labels, annotations = manifest.labels_of(live), manifest.annotations_of(live)
    said: dict[str, JSON] = {
        "labels": {key: labels[key] for key in _LABELS if key in labels},
        "annotations": {
            key: annotations[key][:_LONGEST_NOTE] for key in notes if key in annotations
        },
        "finalizers": list(manifest.finalizers_of(live)[:finalizers]),
    }
    metadata |= {part: value for part, value in said.items() if value}
    kept = {part: live[part] for part in ("apiVersion", "kind") if part in live}
    return {**kept, "metadata": metadata, **{part: value for part, value in parts.items() if value}}

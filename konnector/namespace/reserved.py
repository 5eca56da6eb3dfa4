"""Which app namespaces belong to the cluster's own programs, and so to no developer. Pure."""

from typing import Final

from reconciler.core import names

_KUBE: Final = "kube-"  # what the names of Kubernetes' own begin with


def is_reserved(app_namespace: str, own: str) -> bool:
    """Tell whether what comes into a namespace could direct the cluster itself, or its konnector.

    `own` is the konnector's namespace, "" where it is in none of the app cluster.
    """
    ours = app_namespace in (names.KLUTCH_NAMESPACE, own)
    return app_namespace.startswith(_KUBE) or (ours and bool(app_namespace))

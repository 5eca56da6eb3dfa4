"""The app cluster's kubeconfig: whether it may be used here, and whether it can be.

A kubeconfig in a Secret was written by whoever may write that Secret, so it is read as hostile
input: nothing in it may run a program or read a file of the konnector's machine.
"""

from bind.app_cluster_binding import causes as own_causes
from bind.app_cluster_binding.part import Problem
from bind.app_cluster_binding.seen import Seen, Terms
from reconciler.api.kubeconfig import content_of
from reconciler.core import keys, reasons
from reconciler.core.manifest import annotations_of, get_text
from reconciler.kube import kubeconfig


def problem(seen: Seen, terms: Terms) -> Problem | None:
    """Return why the kubeconfig cannot be used (SecretValid), or None."""
    ref = ("spec", "kubeconfigSecretRef")
    namespace, name, key = (
        get_text(seen.app_cluster_binding, *ref, part) for part in ("namespace", "name", "key")
    )
    place = f"{namespace}/{name}"
    if not terms.allow_cross_namespace_secrets and not _is_granted(seen, namespace):
        # The same whether there is such a Secret or not: that is nobody else's business.
        message = (
            f"Kubeconfig secret {place} is in another namespace, which nobody has allowed: annotate"
            f" it with {keys.ALLOW_APP_CLUSTER_BINDING}={'/'.join(seen.place)}."
        )
        return own_causes.SECRET_NOT_GRANTED, message
    if seen.source is None:
        return reasons.KUBECONFIG_SECRET_NOT_FOUND, f"Kubeconfig secret {place} not found."
    content = content_of(seen.source, key)
    fault = content if isinstance(content, str) else _fault(content)
    if fault:
        return reasons.KUBECONFIG_SECRET_INVALID, f"Kubeconfig secret {place} {fault}"
    return None


def _fault(content: bytes) -> str:
    connection = kubeconfig.from_content(content, name="the app cluster")
    return connection if isinstance(connection, str) else ""


def _is_granted(seen: Seen, namespace: str) -> bool:
    if namespace == seen.place[0]:
        return True
    notes = {} if seen.source is None else annotations_of(seen.source)
    return notes.get(keys.ALLOW_APP_CLUSTER_BINDING) == "/".join(seen.place)

"""The app cluster's kubeconfig: whether it may be used here, and whether it can be.

A kubeconfig in a Secret was written by whoever may write that Secret, so it is read as hostile
input: nothing in it may run a program or read a file of the konnector's machine.
"""

import base64
import binascii

from bind import app_cluster_binding_causes as own_causes
from bind.app_cluster.part import Problem
from bind.app_cluster.seen import Seen, Terms
from reconciler.core import keys, reasons
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest, annotations_of, get_text
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
    complaint = _complaint(seen.source, key)
    if complaint:
        return reasons.KUBECONFIG_SECRET_INVALID, f"Kubeconfig secret {place} {complaint}"
    return None


def _is_granted(seen: Seen, namespace: str) -> bool:
    if namespace == seen.place[0]:
        return True
    notes = {} if seen.source is None else annotations_of(seen.source)
    return notes.get(keys.ALLOW_APP_CLUSTER_BINDING) == "/".join(seen.place)


def _complaint(secret: Manifest, key: str) -> str:
    text = get_text(secret, "data", key)
    if not text:
        return f'is missing "{key}" string key.'
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error:
        return "has an invalid kubeconfig: it is not base64"
    try:
        kubeconfig.from_secret(content, name="the app cluster", environ={})
    except ConfigError as error:
        return f"has an invalid kubeconfig: {error}"
    return ""

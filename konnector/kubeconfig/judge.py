"""Checks the kubeconfig Secret of a binding, and finds its provider.

What it holds was written by whoever may write Secrets there, so it is read as hostile input:
nothing in it may run a program or read a file of the konnector's machine. Does not know where
Secrets come from; no text of a kubeconfig ever gets into a sentence or a repr.
"""

import functools
import hashlib
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.api import kubeconfig_content, secret_of
from reconciler.core import conditions
from reconciler.core.conditions import Condition
from reconciler.core.manifest import Manifest, get_text
from reconciler.kube import kubeconfig
from reconciler.kube.connection import Connection

_NAME: Final = "the service provider"


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement of a binding's Secret.

    `condition` is SecretValid. Only where that is True are the others told: `content` is the
    kubeconfig, `identity` its fingerprint, by which bindings share a provider, and `namespace`
    that of its current context ("" for none).
    """

    condition: Condition
    identity: str = ""
    namespace: str = ""
    content: bytes = field(default=b"", repr=False)

    @property
    def usable(self) -> bool:
        return self.condition.status == conditions.TRUE


def judge(binding: Manifest, secret: Manifest | None, *, control_plane_mode: bool) -> Judged:
    """Return the verdict on the Secret that the binding refers to; None: there is no such Secret.

    In control-plane mode it leads to the app cluster, and needs no namespace: the space is told
    to the program. Else the space is the namespace of the current context (A.5).
    """
    namespace, name = secret_of(binding)
    if not name:
        message = "spec.kubeconfigSecretRef names no kubeconfig secret."
        return Judged(conditions.false(conditions.KUBECONFIG_SECRET_NOT_FOUND, message))
    if secret is None:
        advice = (
            "The backend makes it from the AppClusterBinding's."
            if control_plane_mode
            else "Rerun kubectl bind for repair."
        )
        message = f"Kubeconfig secret {namespace}/{name} not found. {advice}"
        return Judged(conditions.false(conditions.KUBECONFIG_SECRET_NOT_FOUND, message))
    content = kubeconfig_content(secret, get_text(binding, "spec", "kubeconfigSecretRef", "key"))
    found = content if isinstance(content, str) else _read(content)
    if isinstance(found, Connection) and not (found.namespace or control_plane_mode):
        found = "has an invalid kubeconfig: its current context names no namespace"
    if isinstance(content, str) or isinstance(found, str):
        message = f"Kubeconfig secret {namespace}/{name} {found}"
        return Judged(conditions.false(conditions.KUBECONFIG_SECRET_INVALID, message))
    valid = conditions.true(conditions.SECRET_VALID)
    return Judged(valid, fingerprint(content), found.namespace, content)


def fault(content: bytes, *, namespace: str) -> str:
    """Return why a kubeconfig does not lead to the space `namespace` of a provider, or "".

    The reason goes on a sentence that begins with the Secret's name.
    """
    found = _read(content)
    if isinstance(found, str):
        return found
    if found.namespace != namespace:
        return f"has a kubeconfig whose current context does not lead to namespace {namespace}"
    return ""


def leads_to(content: bytes) -> str | None:
    """Return the namespace that a kubeconfig's current context names; None for a broken one."""
    found = _read(content)
    return None if isinstance(found, str) else found.namespace


def same_but_for_server(one: bytes, other: bytes) -> bool:
    """Return whether two kubeconfigs differ in nothing that counts but the server's address.

    That is what somebody writes whose app cluster reaches the provider by another way.
    """
    first, second = _read(one), _read(other)
    if isinstance(first, str) or isinstance(second, str):
        return False
    return replace(first, server="", tls_server_name="") == replace(
        second, server="", tls_server_name=""
    )


def fingerprint(content: bytes) -> str:
    """Return 32 hex digits that distinguish kubeconfigs and give nothing of them away."""
    return hashlib.sha256(b"klutchctl/v1/kubeconfig\n" + content).hexdigest()[:32]


@functools.lru_cache(maxsize=64)  # it is read several times at every look
def _read(content: bytes) -> Connection | str:
    return kubeconfig.from_content(content, name=_NAME)

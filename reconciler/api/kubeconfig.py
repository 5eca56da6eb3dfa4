"""Kubeconfigs in Secrets: their bytes, where they lead, and which credential they hold.

`observe` puts the facts in the place of the value as soon as it is read, so that a plan made
from a snapshot compares exactly what a live one does. Refuses to know YAML and certificates.
"""

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Final

from reconciler.core import names
from reconciler.core.manifest import JSON, Manifest, get, get_text

SERVICE_ACCOUNT_TOKEN: Final = "kubernetes.io/service-account-token"
TOKEN_KEY: Final = "token"
CA_KEY: Final = "ca.crt"

_LENGTH: Final = 32
_NOTED: Final = 16


def content_of(secret: Manifest, key: str) -> bytes | str:
    """Return the kubeconfig under `key` ("": the usual one), or why there is none.

    The reason goes on a sentence that begins with the Secret's name.
    """
    key = key or names.KUBECONFIG
    text = get_text(secret, "data", key)
    if not text:
        return f'is missing "{key}" string key.'
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # also for text beyond ASCII
        return "has an invalid kubeconfig: it is not base64"


@dataclass(frozen=True, slots=True)
class KubeconfigFacts:
    """The current context of one kubeconfig. "" = the kubeconfig does not say it.

    `ca_digest` is that of `ca_digest`, `token_digest` that of `token_digest` below.
    """

    server: str
    ca_digest: str
    tls_server_name: str
    namespace: str
    token_digest: str

    def same_token(self, token: str) -> bool:
        """Tell whether a token with the digest `token` is there, and this one. "" is no token."""
        return bool(token) and self.token_digest == token


@dataclass(frozen=True, slots=True)
class ServiceAccountFacts:
    """A service account token Secret that a cluster has filled, by the same digests."""

    ca_digest: str
    token_digest: str


def token_digest(token: str) -> str:
    """Return 32 hex digits that tell one token from another, also between objects and clusters.

    Unlike other values of Secrets, a token is not mixed with its object's uid: the copies of
    one token in two clusters have to be recognised as one. That gives nothing away, because
    tokens that Kubernetes issues hold a signature, far too much to be guessed from a digest.
    "" for "".
    """
    return _digest("token", token)


def ca_digest(pem: str) -> str:
    """Return 32 hex digits that tell one CA bundle (PEM text, public) from another. "" for ""."""
    return _digest("ca", " ".join(pem.split()))


def as_value(facts: KubeconfigFacts) -> dict[str, JSON]:
    """Return what stands in a Secret's data in the place of the kubeconfig."""
    return {
        "server": facts.server,
        "ca": facts.ca_digest,
        "tls-server-name": facts.tls_server_name,
        "namespace": facts.namespace,
        "token": facts.token_digest,
    }


def note_of(facts: KubeconfigFacts, uid: str) -> str:
    """Return the annotation `credential` of an object with this uid: where it leads, and as whom.

    The token stands in it as a digest that is salted with the uid (safety.md): it tells one token
    of the object from the next, and is of no use beside another object.
    """
    token = hashlib.sha256(f"klutchctl/v1{uid}{facts.token_digest}".encode()).hexdigest()
    return json.dumps({**as_value(facts), "token": token[:_NOTED]}, sort_keys=True)


def noted(annotation: str) -> KubeconfigFacts | None:
    """Return the facts that an annotation `credential` tells, or None where it is not of ours."""
    try:
        value = json.loads(annotation)
    except (ValueError, RecursionError):
        return None
    return facts_of({"data": {names.KUBECONFIG: value}})


def facts_of(secret: Manifest, *, key: str = names.KUBECONFIG) -> KubeconfigFacts | None:
    """Return the facts of the kubeconfig under `key`, or None where there is no readable one.

    `secret` is as observed: with facts in the place of the kubeconfig.
    """
    value = get(secret, "data", key)
    if not get_text(value, "server"):
        return None
    return KubeconfigFacts(
        server=get_text(value, "server"),
        ca_digest=get_text(value, "ca"),
        tls_server_name=get_text(value, "tls-server-name"),
        namespace=get_text(value, "namespace"),
        token_digest=get_text(value, "token"),
    )


def service_account_facts_of(secret: Manifest) -> ServiceAccountFacts | None:
    """Return the facts of an observed service account token Secret, or None until it is filled."""
    if get_text(secret, "type") != SERVICE_ACCOUNT_TOKEN:
        return None
    token, ca = get_text(secret, "data", TOKEN_KEY), get_text(secret, "data", CA_KEY)
    return ServiceAccountFacts(ca_digest=ca, token_digest=token) if token and ca else None


def _digest(purpose: str, text: str) -> str:
    if not text:
        return ""
    return hashlib.sha256(f"klutchctl/v1/{purpose}\n{text}".encode()).hexdigest()[:_LENGTH]

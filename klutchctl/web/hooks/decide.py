"""Decides whether a request is a webhook with the right proof. Pure.

Nothing in a body is parsed. What is not signed is not believed either: GitHub and Gitea sign the
body and not the id of a delivery, so that a replay with another id is known by its body.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

from reconciler.core.secret import Secret
from reconciler.web import standard_webhooks


class Provider(StrEnum):
    """A provider of webhooks, by its proof of origin; the values are those of `--hook`."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"  # and Forgejo
    GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A webhook that is genuine. `delivery` is the same for a replay, and for no other."""

    delivery: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that is no webhook of ours; it learns nothing but the status."""

    status: int


Verdict: TypeAlias = Accepted | Refused
UNPROVEN: Final = Refused(401)


def decide(
    provider: Provider, headers: Mapping[str, str], body: bytes, secret: Secret, now: datetime
) -> Verdict:
    """Return whether the request proves that its sender has the secret.

    `headers` have lower-case names, and those that came twice are joined, which none can be.
    """
    delivery = _delivery(provider, headers, body, secret, now)
    if delivery is None:
        return UNPROVEN
    return Accepted(hashlib.sha256(delivery.encode("utf-8", "replace")).hexdigest())


def _delivery(
    provider: Provider, headers: Mapping[str, str], body: bytes, secret: Secret, now: datetime
) -> str | None:
    match provider:
        case Provider.GITHUB:
            prefix, _, mac = headers.get("x-hub-signature-256", "").partition("=")
            return _signed_body(mac if prefix == "sha256" else "", body, secret)
        case Provider.GITEA:
            mac = headers.get("x-forgejo-signature") or headers.get("x-gitea-signature", "")
            return _signed_body(mac, body, secret)
        case Provider.GITLAB if not secret.reveal().startswith(standard_webhooks.ENCODED):
            return _by_token(headers, body, secret)
        case Provider.GITLAB | Provider.GENERIC:
            return standard_webhooks.verified(headers, body, secret, now)


def _signed_body(mac: str, body: bytes, secret: Secret) -> str | None:
    expected = hmac.new(secret.reveal().encode(), body, hashlib.sha256).hexdigest()
    return mac if standard_webhooks.same(mac, expected) else None


def _by_token(headers: Mapping[str, str], body: bytes, secret: Secret) -> str | None:
    """Return the id that GitLab gives to all tries of a delivery, else a digest of its body.

    The token is all that is proven here: a sender that has it may send what it likes.
    """
    if not standard_webhooks.same(headers.get("x-gitlab-token", ""), secret.reveal()):
        return None
    return headers.get("idempotency-key") or hashlib.sha256(body).hexdigest()

"""Clients of a provider, and how they prove that they are who they say."""

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus

from joserfc import jwk, jwt
from joserfc.errors import JoseError

from tests.support.issuer_tokens import SigningKey

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class Refusal(Exception):
    """An error of RFC 6749 5.2."""

    def __init__(self, error: str, why: str, *, status: int = 400) -> None:
        super().__init__(why)
        self.error, self.why, self.status = error, why, status


@dataclass(frozen=True, slots=True)
class Client:
    """A client: confidential by a secret or a key, else public.

    Assertions are signed by `key`; those of a federated client bear `subject`, and any issuer.
    """

    id: str
    secret: str = ""
    key: SigningKey | None = None
    subject: str = ""
    redirect_uris: tuple[str, ...] = ()  # none: any
    claims: Mapping[str, Any] = field(default_factory=dict)  # of tokens for itself

    @property
    def is_public(self) -> bool:
        return not self.secret and self.key is None


class Clients:
    """The clients that a provider knows."""

    def __init__(self, clients: tuple[Client, ...], *, issuer: str) -> None:
        self.known = {client.id: client for client in clients}
        self._issuer = issuer
        self._used: set[str] = set()  # assertions, by their `jti`

    def authenticated(self, authorization: str, form: Mapping[str, str]) -> Client:
        """Return the client of a request. Raises Refusal."""
        ways = (bool(authorization), "client_secret" in form, "client_assertion" in form)
        if sum(ways) > 1:
            raise Refusal("invalid_request", "two ways to authenticate")
        if authorization:
            return self._by_secret(*_basic(authorization))
        if "client_assertion" in form:
            return self._by_assertion(form)
        client = self._known(form.get("client_id", ""))
        if "client_secret" in form:
            return self._by_secret(client.id, form["client_secret"])
        if not client.is_public:
            raise _unauthorized("no authentication")
        return client

    def _known(self, name: str) -> Client:
        if name not in self.known:
            raise _unauthorized("no such client")
        return self.known[name]

    def _by_secret(self, name: str, secret: str) -> Client:
        client = self._known(name)
        if not client.secret or client.secret != secret:
            raise _unauthorized("another secret")
        return client

    def _by_assertion(self, form: Mapping[str, str]) -> Client:
        if form.get("client_assertion_type") != ASSERTION:
            raise Refusal("invalid_request", "another type of assertion")
        for client in self.known.values():
            if client.key is not None and (claims := _verified(form["client_assertion"], client)):
                self._judge(claims, client, form.get("client_id", client.id))
                return client
        raise _unauthorized("no client's assertion")

    def _judge(self, claims: Mapping[str, Any], client: Client, named: str) -> None:
        own = not client.subject
        faults = {
            "another client_id": named != client.id,
            "aud is not the issuer alone": claims.get("aud") not in (self._issuer, [self._issuer]),
            "sub": claims.get("sub") != (client.subject or client.id),
            "iss": own and claims.get("iss") != client.id,
            "exp": not 0 < claims.get("exp", 0) - time.time() <= 3600,
            "jti is missing or used": own and claims.get("jti", "") in self._used | {""},
        }
        if any(faults.values()):
            raise _unauthorized(", ".join(fault for fault, found in faults.items() if found))
        self._used.add(claims.get("jti", ""))


def _verified(assertion: str, client: Client) -> Mapping[str, Any]:
    assert client.key is not None
    key = jwk.import_key(client.key.jwk(alg=None, use=None, kid=None))
    try:
        return jwt.decode(assertion, key, algorithms=[client.key.algorithm]).claims
    except (JoseError, ValueError):
        return {}


def _basic(authorization: str) -> tuple[str, str]:
    """Read RFC 6749 2.3.1: both halves are encoded as in forms."""
    scheme, _, value = authorization.partition(" ")
    try:
        name, colon, secret = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise Refusal("invalid_request", "Authorization cannot be read") from None
    if scheme.lower() != "basic" or not colon:
        raise Refusal("invalid_request", "Authorization is not Basic")
    return unquote_plus(name), unquote_plus(secret)


def _unauthorized(why: str) -> Refusal:
    return Refusal("invalid_client", why, status=401)

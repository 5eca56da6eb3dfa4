"""What is sent to a provider: the way of a browser, and forms. Nothing is sent here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from authlib.oauth2.rfc6749.parameters import prepare_grant_uri

from reconciler.core.secret import Secret
from reconciler.oidc.answers import (
    DeviceCode,
    Tokens,
    after_device_refusal,
    callback_problem,
    device_code_of,
    tokens_of,
)
from reconciler.oidc.clients import Client, Fields, proof
from reconciler.oidc.errors import ProviderFault
from reconciler.oidc.provider import Provider

__all__ = [
    "Client",
    "DeviceCode",
    "Form",
    "Tokens",
    "after_device_refusal",
    "authorization_url",
    "callback_problem",
    "client_credentials_form",
    "code_form",
    "device_code_of",
    "device_form",
    "device_token_form",
    "exchange_form",
    "tokens_of",
]

_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_EXCHANGE_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"


@dataclass(frozen=True, slots=True)
class Form:
    """A POST to a provider. Secrets are revealed in `body` and `headers` alone."""

    url: str
    fields: Fields
    authorization: Secret | None = None

    def body(self) -> bytes:
        """Return the fields, form-encoded."""
        revealed = [
            (name, value.reveal() if isinstance(value, Secret) else value)
            for name, value in self.fields
        ]
        return urlencode(revealed).encode()

    def headers(self) -> Mapping[str, str]:
        """Return the headers, with the client's proof where it is one."""
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        if self.authorization is not None:
            headers["Authorization"] = self.authorization.reveal()
        return headers


def authorization_url(  # noqa: PLR0913 - each is a parameter of the protocol
    provider: Provider,
    *,
    client_id: str,
    redirect_uri: str,
    scopes: Sequence[str],
    state: str,
    nonce: str,
    challenge: str,
) -> str:
    """Return where a browser signs in (RFC 6749 4.1.1, with PKCE and nonce).

    Raises ProviderFault: the provider has no authorization endpoint.
    """
    return str(
        prepare_grant_uri(
            _required(provider, provider.authorization_endpoint, "authorization_endpoint"),
            client_id,
            "code",
            redirect_uri=redirect_uri,
            scope=" ".join(scopes),
            state=state,
            nonce=nonce,
            code_challenge=challenge,
            code_challenge_method="S256",
        )
    )


def code_form(  # noqa: PLR0913 - each is a parameter of the protocol
    provider: Provider,
    client: Client,
    *,
    code: Secret,
    redirect_uri: str,
    verifier: Secret,
    now: float,
    jti: bytes,
) -> Form:
    """Return the form that redeems a code (RFC 6749 4.1.3). Raises as `proof` does."""
    fields: Fields = (
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect_uri),
        ("code_verifier", verifier),
    )
    return _token_form(provider, client, fields, now=now, jti=jti)


def client_credentials_form(
    provider: Provider,
    client: Client,
    *,
    scopes: Sequence[str],
    now: float,
    jti: bytes,
    audience: str = "",
) -> Form:
    """Return the form of a machine for itself (RFC 6749 4.4.2). Raises as `proof` does."""
    fields: Fields = (("grant_type", "client_credentials"), *_scope(scopes))
    if audience:
        fields = (*fields, ("audience", audience))
    return _token_form(provider, client, fields, now=now, jti=jti)


def device_form(
    provider: Provider,
    client: Client,
    *,
    scopes: Sequence[str],
    challenge: str,
    now: float = 0.0,
    jti: bytes = b"",
) -> Form:
    """Return the form that asks for a device code, with PKCE (RFC 8628 3.1).

    `now` and `jti` are needed by clients with a private key. Raises as `proof` does, and
    ProviderFault: no device grant there.
    """
    endpoint = provider.device_authorization_endpoint
    url = _required(provider, endpoint, "device_authorization_endpoint")
    fields: Fields = (
        *_scope(scopes),
        ("code_challenge", challenge),
        ("code_challenge_method", "S256"),
    )
    proven = proof(provider, client, now=now, jti=jti)
    return Form(url, (*fields, *proven.fields), proven.authorization)


def device_token_form(
    provider: Provider,
    client: Client,
    *,
    device_code: Secret,
    verifier: Secret,
    now: float,
    jti: bytes,
) -> Form:
    """Return the form that asks whether the person is done (RFC 8628 3.4)."""
    fields: Fields = (
        ("grant_type", _DEVICE_GRANT),
        ("device_code", device_code),
        ("code_verifier", verifier),
    )
    return _token_form(provider, client, fields, now=now, jti=jti)


def exchange_form(  # noqa: PLR0913 - each is a parameter of the protocol
    provider: Provider,
    client: Client,
    *,
    subject_token: Secret,
    subject_token_type: str,
    audience: str,
    scopes: Sequence[str],
    now: float,
    jti: bytes,
) -> Form:
    """Return the form that turns a foreign token into an access token (RFC 8693 2.1)."""
    fields: Fields = (
        ("grant_type", _EXCHANGE_GRANT),
        ("subject_token", subject_token),
        ("subject_token_type", subject_token_type),
        ("requested_token_type", _ACCESS_TOKEN),
        *((("audience", audience),) if audience else ()),
        *_scope(scopes),
    )
    return _token_form(provider, client, fields, now=now, jti=jti)


def _token_form(
    provider: Provider, client: Client, fields: Fields, *, now: float, jti: bytes
) -> Form:
    url = _required(provider, provider.token_endpoint, "token_endpoint")
    proven = proof(provider, client, now=now, jti=jti)
    return Form(url, (*fields, *proven.fields), proven.authorization)


def _required(provider: Provider, endpoint: str, name: str) -> str:
    if not endpoint:
        raise ProviderFault(f"provider {provider.issuer}: has no {name}")
    return endpoint


def _scope(scopes: Sequence[str]) -> Fields:
    return (("scope", " ".join(scopes)),) if scopes else ()

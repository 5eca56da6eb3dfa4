"""Builds requests to a provider, and parses its answers: tokens, codes, refusals. Pure."""

import base64
import hmac
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import orjson
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from reconciler.core.documents import one_line
from reconciler.core.secret import HIDDEN, Secret
from reconciler.oidc.clients import Client as Client
from reconciler.oidc.clients import Fields, proof
from reconciler.oidc.provider import (
    GrantRefused,
    Provider,
    ProviderFault,
    TokenRefused,
    is_secure,
    text_of,
)


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


def machine_form(  # noqa: PLR0913 - each is a parameter of the protocol
    provider: Provider,
    client: Client,
    *,
    scopes: Sequence[str],
    now: float,
    jti: bytes,
    audience: str = "",
    subject: tuple[Secret, str] | None = None,
) -> Form:
    """Return the form of a machine for itself (RFC 6749 4.4.2), or for a foreign token (RFC 8693).

    `subject` is that token, with its type. Raises as `proof` does.
    """
    grant: Fields = (("grant_type", "client_credentials"),)
    if subject is not None:
        grant = (
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("subject_token", subject[0]),
            ("subject_token_type", subject[1]),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        )
    fields = (*grant, *((("audience", audience),) if audience else ()), *_scope(scopes))
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
    return _token_form(provider, client, fields, now=now, jti=jti, url=url)


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
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("device_code", device_code),
        ("code_verifier", verifier),
    )
    return _token_form(provider, client, fields, now=now, jti=jti)


def _token_form(
    provider: Provider, client: Client, fields: Fields, *, now: float, jti: bytes, url: str = ""
) -> Form:
    url = url or _required(provider, provider.token_endpoint, "token_endpoint")
    proven = proof(provider, client, now=now, jti=jti)
    return Form(url, (*fields, *proven.fields), proven.authorization)


def _required(provider: Provider, endpoint: str, name: str) -> str:
    if not endpoint:
        raise ProviderFault(f"provider {provider.issuer}: has no {name}")
    return endpoint


def _scope(scopes: Sequence[str]) -> Fields:
    return (("scope", " ".join(scopes)),) if scopes else ()


_VISIBLE: Final = re.compile(r"[\x20-\x7e]+")  # RFC 6749 A.12
_ERROR: Final = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749 5.2
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}")  # as all that are registered
# Codes and tokens: a provider may repeat in its description what it was given.
_SECRET_LIKE: Final = re.compile(r"[!-~]{16,}")
# "N_A" where an exchanged token is none for access (RFC 8693 2.2.1).
_TOKEN_TYPES: Final = ("bearer", "n_a")
_ISSUED_TYPES: Final = tuple(
    f"urn:ietf:params:oauth:token-type:{name}" for name in ("access_token", "id_token", "jwt")
)
_LONGEST_DESCRIPTION: Final = 200
_LONGEST_USER_CODE: Final = 64
_DEVICE_INTERVAL: Final = 5.0  # RFC 8628 3.2
_SLOWER: Final = 5.0  # RFC 8628 3.5


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a grant."""

    access_token: Secret
    id_token: Secret | None

    def required_id_token(self) -> Secret:
        """Return the ID token. Raises TokenRefused: there is none; add the scope `openid`."""
        if self.id_token is None:
            raise TokenRefused("missing", "the provider gave no ID token: is scope `openid` there?")
        return self.id_token


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The codes of a device (RFC 8628 3.2). Times are seconds."""

    device_code: Secret
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: float
    interval: float


def tokens_of(status: int, body: bytes) -> Tokens:
    """Read the answer of a token endpoint (RFC 6749 5).

    Raises GrantRefused: an error document came; ProviderFault: neither that nor tokens, or
    tokens of a type that is not known here.
    """
    read = _answered(status, body)
    token_type = text_of(read, "token_type").lower()
    if token_type not in _TOKEN_TYPES:
        raise ProviderFault(f"the provider gave a token of type {token_type[:40]!r}, not Bearer")
    issued = text_of(read, "issued_token_type")
    if issued and issued not in _ISSUED_TYPES:
        raise ProviderFault(f"the provider gave a {issued[:80]!r}, not an access token")
    access_token = _required_secret(read, "access_token")
    id_token = _required_secret(read, "id_token") if read.get("id_token") is not None else None
    return Tokens(access_token, id_token)


def device_code_of(status: int, body: bytes) -> DeviceCode:
    """Read the answer of a device authorization endpoint (RFC 8628 3.2).

    Raises GrantRefused: an error document came; ProviderFault: neither that nor a code, or an
    address that is not secure.
    """
    read = _answered(status, body)
    user_code = text_of(read, "user_code")
    if not user_code.isprintable() or not 1 <= len(user_code) <= _LONGEST_USER_CODE:
        raise ProviderFault("the provider gave no user code that can be shown")
    address, complete = (
        text_of(read, "verification_uri"),
        text_of(read, "verification_uri_complete"),
    )
    if not is_secure(address) or (complete and not is_secure(complete)):
        raise ProviderFault("the provider gave no secure address for the user code")
    expires_in, interval = _seconds(read, "expires_in"), _seconds(read, "interval")
    if not expires_in:
        raise ProviderFault("the provider gives no lifetime of its device code")
    return DeviceCode(
        device_code=_required_secret(read, "device_code"),
        user_code=user_code,
        verification_uri=address,
        verification_uri_complete=complete,
        expires_in=expires_in,
        interval=_DEVICE_INTERVAL if interval is None else max(interval, 1.0),
    )


def after_device_refusal(error: GrantRefused, interval: float) -> float:
    """Return the seconds until the next question (RFC 8628 3.5).

    Raises the error itself where asking again does not help.
    """
    if error.error == "authorization_pending":
        return interval
    if error.error == "slow_down":
        return interval + _SLOWER
    raise error


def callback_problem(provider: Provider, *, iss: str) -> str:
    """Return why a callback is not the provider's, or nothing (RFC 9207 2.4)."""
    if iss:
        return "" if iss == provider.issuer else "the callback is of another issuer"
    if provider.announces_iss:
        return "the callback does not name its issuer, though the provider announces that"
    return ""


def _answered(status: int, body: bytes) -> Mapping[str, object]:
    """Return the document of an answer 200. Raises GrantRefused, ProviderFault."""
    try:
        read = orjson.loads(body)
    except orjson.JSONDecodeError:
        read = None
    if status == 200 and isinstance(read, dict) and "error" not in read:
        return read
    error = text_of(read, "error") if isinstance(read, dict) else ""
    if 400 <= status < 500 and _ERROR.fullmatch(error):
        code = error if _ERROR_CODE.fullmatch(error) else _shown(error)
        raise GrantRefused(code, _shown(text_of(read, "error_description")))
    raise ProviderFault(f"the provider answered {status}, with no document that is known")


def _shown(text: str) -> str:
    """Return a text of a provider, fit for a terminal and a log."""
    return _SECRET_LIKE.sub(HIDDEN, one_line(text))[:_LONGEST_DESCRIPTION]


def _required_secret(read: Mapping[str, object], name: str) -> Secret:
    value = text_of(read, name)
    # No line break: a token becomes part of a header.
    if _VISIBLE.fullmatch(value) is None:
        raise ProviderFault(f"the provider gave no {name}")
    return Secret(value)


def _seconds(read: Mapping[str, object], name: str) -> float | None:
    """Return a time span, or None where there is no usable one. Some providers send a text."""
    value = read.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


_VERIFIER: Final = re.compile(r"[A-Za-z0-9\-._~]{43,128}")
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # 32 bytes, always


def verifier(random: bytes) -> Secret:
    """Return a verifier of 32 random bytes. Raises ValueError: fewer bytes."""
    if len(random) < 32:
        raise ValueError("a verifier needs 32 random bytes (RFC 7636 7.1)")
    return Secret(base64.urlsafe_b64encode(random).rstrip(b"=").decode())


def challenge(verifier: Secret) -> str:
    return str(create_s256_code_challenge(verifier.reveal()))


def matches(challenge: str, verifier: Secret) -> bool:
    """Return whether a verifier is that of a challenge. Takes the same time for each wrong one."""
    text = verifier.reveal()
    if _VERIFIER.fullmatch(text) is None or not is_challenge(challenge):
        return False
    return hmac.compare_digest(str(create_s256_code_challenge(text)), challenge)


def is_challenge(text: str) -> bool:
    """Return whether S256 can have made this challenge."""
    return _CHALLENGE.fullmatch(text) is not None

"""What a provider answers: tokens, device codes, refusals, and the `iss` of a callback."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from reconciler.core.secret import HIDDEN, Secret
from reconciler.oidc.errors import GrantRefused, ProviderFault, TokenRefused
from reconciler.oidc.provider import Provider, is_secure

_VISIBLE: Final = re.compile(r"[\x20-\x7e]+")  # RFC 6749 A.12
_ERROR: Final = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749 5.2
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}")  # as all that are registered
# Codes and tokens: a provider may repeat in its description what it was given.
_SECRET_LIKE: Final = re.compile(r"[A-Za-z0-9_\-.~+/=]{16,}")
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
    """What a grant gave. `expires_in` is of the access token, and None where it is not said."""

    access_token: Secret
    id_token: Secret | None
    expires_in: float | None
    token_type: str

    def required_id_token(self) -> Secret:
        """Return the ID token. Raises TokenRefused: there is none; add the scope `openid`."""
        if self.id_token is None:
            raise TokenRefused("missing", "the provider gave no ID token: is scope `openid` there?")
        return self.id_token


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What a device shows and asks with (RFC 8628 3.2). Times are seconds."""

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
    token_type = _text(read, "token_type").lower()
    if token_type not in _TOKEN_TYPES:
        raise ProviderFault(f"the provider gave a token of type {token_type[:40]!r}, not Bearer")
    issued = _text(read, "issued_token_type")
    if issued and issued not in _ISSUED_TYPES:
        raise ProviderFault(f"the provider gave a {issued[:80]!r}, not an access token")
    access_token = _required_secret(read, "access_token")
    id_token = _required_secret(read, "id_token") if read.get("id_token") is not None else None
    return Tokens(access_token, id_token, _seconds(read, "expires_in"), token_type)


def device_code_of(status: int, body: bytes) -> DeviceCode:
    """Read the answer of a device authorization endpoint (RFC 8628 3.2).

    Raises GrantRefused: an error document came; ProviderFault: neither that nor a code, or an
    address that is not secure.
    """
    read = _answered(status, body)
    user_code = _text(read, "user_code")
    if not user_code.isprintable() or not 1 <= len(user_code) <= _LONGEST_USER_CODE:
        raise ProviderFault("the provider gave no user code that can be shown")
    address, complete = _text(read, "verification_uri"), _text(read, "verification_uri_complete")
    if not is_secure(address) or (complete and not is_secure(complete)):
        raise ProviderFault("the provider gave no secure address for the user code")
    expires_in, interval = _seconds(read, "expires_in"), _seconds(read, "interval")
    if not expires_in:
        raise ProviderFault("the provider does not say how long its device code lives")
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
    error = _text(read, "error") if isinstance(read, dict) else ""
    if 400 <= status < 500 and _ERROR.fullmatch(error):
        code = error if _ERROR_CODE.fullmatch(error) else _shown(error)
        raise GrantRefused(code, _shown(_text(read, "error_description")))
    raise ProviderFault(f"the provider answered {status}, with no document that is known")


def _shown(text: str) -> str:
    """Return a text of a provider, fit for a terminal and a log."""
    visible = "".join(character for character in text if character.isprintable())
    return _SECRET_LIKE.sub(HIDDEN, visible)[:_LONGEST_DESCRIPTION]


def _text(read: Mapping[str, object], name: str) -> str:
    value = read.get(name)
    return value if isinstance(value, str) else ""


def _required_secret(read: Mapping[str, object], name: str) -> Secret:
    value = _text(read, name)
    # No line break: a token becomes part of a header.
    if _VISIBLE.fullmatch(value) is None:
        raise ProviderFault(f"the provider gave no {name}")
    return Secret(value)


def _seconds(read: Mapping[str, object], name: str) -> float | None:
    """Return a time span, or None where none is said that can be used. Some say it as text."""
    value = read.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None

"""Verifies ID tokens of sign-ins, and bearer tokens of requests (RFC 7515, 8725)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson
from authlib.oidc.core import CodeIDToken
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwa import JWSAlgModel

from reconciler.core.secret import Secret
from reconciler.oidc.provider import ALGORITHMS as ALGORITHMS
from reconciler.oidc.provider import KeySet, PublicKey, TokenRefused, UnknownKey

LEEWAY: Final = 30.0  # seconds that two clocks may differ
_LONGEST_SUBJECT: Final = 255
_MOST_BYTES: Final = 16 * 1024
_MOST_HEADER_BYTES: Final = 4096
# Ways to bring a key along, and `crit` with what it announces; none is understood here.
_REFUSED_HEADERS: Final = ("jwk", "jku", "x5u", "crit", "b64", "enc", "zip")


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a checked token."""

    issuer: str
    subject: str
    raw: Mapping[str, object] = field(repr=False)
    expires_at: float


def texts(value: object) -> tuple[str, ...]:
    """Return the texts of a text or a list; truth values and whole numbers as JSON writes them."""
    match value:
        case str():
            return (value,)
        case bool():
            return ("true" if value else "false",)
        case int():
            return (str(value),)
        case list():
            return tuple(item for item in value if isinstance(item, str))
        case _:
            return ()


def vouched(raw: Mapping[str, object]) -> Mapping[str, object]:
    """Return the claims without an address that its user may have made up, as Kubernetes does."""
    if raw.get("email_verified", True) is True:
        return raw
    return {name: value for name, value in raw.items() if name != "email"}


def require_issuer(raw: Mapping[str, object], issuer: str) -> None:
    """Compare the issuer, character by character. Raises TokenRefused."""
    if not issuer or raw.get("iss") != issuer:
        raise TokenRefused("issuer", "the token is of another issuer")


def subject(raw: Mapping[str, object]) -> str:
    """Return the subject. Raises TokenRefused: none, no text, empty, or longer than 255."""
    value = raw.get("sub")
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST_SUBJECT:
        raise TokenRefused("subject", "the token has no subject of 1 to 255 characters")
    return value


def audiences(raw: Mapping[str, object]) -> Sequence[str]:
    """Return the audiences of a token. Raises TokenRefused: nobody, or no texts."""
    value = raw.get("aud")
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(a, str) for a in found):
        raise TokenRefused("audience", "the token has no audience")
    return found


def moment(raw: Mapping[str, object], name: str) -> float | None:
    """Return a claim that is a time. Raises TokenRefused: there, and no number."""
    if name not in raw:
        return None
    value = raw[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TokenRefused("times", f"`{name}` of the token is no time")
    return float(value)


def required_moment(raw: Mapping[str, object], name: str) -> float:
    """Return a time that has to be there. Raises TokenRefused."""
    value = moment(raw, name)
    if value is None:
        raise TokenRefused("times", f"the token has no `{name}`")
    return value


def require_valid_at(raw: Mapping[str, object], now: float) -> float:
    """Return when the token expires. Raises TokenRefused: never, before, or not valid yet."""
    expires_at = required_moment(raw, "exp")
    if expires_at <= now - LEEWAY:
        raise TokenRefused("expired", "the token has expired")
    for name in ("nbf", "iat"):
        value = moment(raw, name)
        if value is not None and value > now + LEEWAY:
            raise TokenRefused("early", f"`{name}` of the token is in the future: compare clocks")
    return expires_at


class _Registry(jws.JWSRegistry):
    """Widens joserfc's limit of headers, 512 bytes, and narrows that of tokens."""

    max_header_length = _MOST_HEADER_BYTES
    max_payload_length = _MOST_BYTES
    max_signature_length = 1400  # RSA of 8,192 bits

    def get_alg(self, name: str) -> JWSAlgModel:
        """Return an algorithm of ours. The name EdDSA is old, not weak: no warning."""
        if name not in ALGORITHMS:
            raise JoseError(f"{name} is not allowed")
        return self.algorithms[name]


# RFC 7515 4: a header that is not understood is passed over.
_REGISTRY: Final = _Registry(algorithms=ALGORITHMS, strict_check_header=False)


@dataclass(frozen=True, slots=True)
class Opened:
    """A token that was taken apart; its claims prove nothing before `require_signed`."""

    header: Mapping[str, object]
    claims: Mapping[str, object]
    parts: jws.CompactSignature = field(repr=False)

    def header_text(self, name: str) -> str:
        value = self.header.get(name)
        return value if isinstance(value, str) else ""

    @property
    def type(self) -> str:
        """The media type, in its short form and lower case (RFC 7515 4.1.9)."""
        return self.header_text("typ").lower().removeprefix("application/")


def opened(token: Secret) -> Opened:
    """Take a token apart. Raises TokenRefused: too long, no signed token, a header to refuse."""
    text = token.reveal()
    if len(text) > _MOST_BYTES:
        raise TokenRefused("size", f"the token is longer than {_MOST_BYTES} characters")
    try:
        parts = jws.extract_compact(text.encode("ascii"), registry=_REGISTRY)
        header = _plain(parts.headers())
        claims = orjson.loads(parts.payload)
    except (JoseError, ValueError, TypeError, RecursionError):
        # Not chained: a JSON error holds the whole document.
        raise TokenRefused("malformed", "this is no signed token (JWT)") from None
    if not isinstance(claims, dict):
        raise TokenRefused("malformed", "the claims of the token are no JSON object")
    return Opened(header, claims, parts)


def require_signed(token: Opened, keys: KeySet, algorithms: Sequence[str]) -> None:
    """Check the signature.

    Raises TokenRefused: an algorithm that is not allowed, or the signature is wrong; UnknownKey:
    no key of the set has the token's id, or it has none and none of the keys fits.
    """
    algorithm, key_id = token.header_text("alg"), token.header_text("kid")
    if algorithm not in ALGORITHMS or algorithm not in algorithms:
        raise TokenRefused("algorithm", f"the token is signed by {ascii(algorithm)[:40]}")
    fitting = keys.fitting(algorithm, key_id)
    if any(_signed(token, key) for key in fitting):
        return
    if fitting and key_id:
        raise TokenRefused("signature", "the signature of the token is wrong")
    raise UnknownKey("key", f"no key of the issuer fits the token's, {ascii(key_id)[:80]}")


def _plain(header: object) -> Mapping[str, object]:
    """Return the header. Raises TokenRefused: no object, or with members to refuse."""
    if not isinstance(header, dict):
        raise TokenRefused("malformed", "the header of the token is no JSON object")
    for name in _REFUSED_HEADERS:
        if name in header:
            raise TokenRefused("header", f"the token has a header `{name}`")
    for name in ("alg", "kid", "typ"):
        if name in header and not isinstance(header[name], str):
            raise TokenRefused("header", f"header `{name}` of the token is no text")
    return header


def _signed(token: Opened, key: PublicKey) -> bool:
    try:
        return jws.validate_compact(token.parts, key.key, registry=_REGISTRY)
    except (JoseError, ValueError, TypeError):
        return False


_OLDEST_SIGN_IN: Final = 600.0
_LONGEST_LIFE: Final = 24 * 3600.0
_ACCESS_TOKEN: Final = "at+jwt"  # RFC 9068 2.1
_LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
# Keycloak has one header for all of its tokens, and tells them apart by a claim `typ`.
_OTHER_THAN_ID: Final = ("bearer", "dpop", "refresh", "offline", "logout")
_OTHER_THAN_BEARER: Final = ("dpop", "refresh", "offline", "logout")


@dataclass(frozen=True, slots=True)
class IdTokenCheck:
    """The rules for an ID token. An empty `nonce`: none was sent, as in the device grant."""

    issuer: str
    client_id: str
    nonce: str
    algorithms: tuple[str, ...]
    access_token: Secret | None = None


@dataclass(frozen=True, slots=True)
class BearerCheck:
    """The rules for a bearer token. Of `audiences` one is enough; of `require` all are needed."""

    issuer: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...]
    require: Mapping[str, tuple[str, ...]]


def id_token(token: Secret, keys: KeySet, check: IdTokenCheck, *, now: float) -> Claims:
    """Check an ID token that came from the token endpoint (OpenID Core 3.1.3.7).

    Raises TokenRefused: it proves nothing; UnknownKey: a newer key set may have its key.
    """
    read = opened(token)
    require_signed(read, keys, check.algorithms)
    raw = vouched(read.claims)
    _require_kind(read, ("", "jwt"), _OTHER_THAN_ID)
    require_issuer(raw, check.issuer)
    _require_for_us(raw, check.client_id)
    expires_at = require_valid_at(raw, now)
    if now - required_moment(raw, "iat") > _OLDEST_SIGN_IN:
        raise TokenRefused("times", "the ID token was issued more than 10 minutes ago")
    named = subject(raw)
    _require_openid_rules(read, check, now)
    return Claims(check.issuer, named, raw, expires_at)


def bearer(token: Secret, keys: KeySet, check: BearerCheck, *, now: float) -> Claims:
    """Check a bearer token: an access token (RFC 9068 4), or an ID token for one of `audiences`.

    Raises TokenRefused: it proves nothing; UnknownKey: a newer key set may have its key.
    """
    read = opened(token)
    require_signed(read, keys, check.algorithms)
    raw = vouched(read.claims)
    _require_kind(read, ("", "jwt", _ACCESS_TOKEN), _OTHER_THAN_BEARER)
    require_issuer(raw, check.issuer)
    if not set(audiences(raw)) & set(check.audiences):
        raise TokenRefused("audience", "the token is for others")
    expires_at = require_valid_at(raw, now)
    _require_short_life(raw, expires_at, now)
    named = subject(raw)
    if read.type == _ACCESS_TOKEN:
        required_moment(raw, "iat")
        client_id = raw.get("client_id")
        if not isinstance(client_id, str) or not client_id:
            raise TokenRefused("claims", "the access token has no `client_id`")
    for name, allowed in check.require.items():
        if not set(texts(raw.get(name))) & set(allowed):
            raise TokenRefused("claims", f"claim `{name}` of the token is not one that is required")
    return Claims(check.issuer, named, raw, expires_at)


def issuer_of(token: Secret) -> str:
    """Return the issuer that a token names, unproven: it only chooses the key set.

    Raises TokenRefused: no signed token, or it names none.
    """
    issuer = opened(token).claims.get("iss")
    if not isinstance(issuer, str) or not issuer:
        raise TokenRefused("issuer", "the token names no issuer")
    return issuer


def audiences_of(token: Secret) -> Sequence[str]:
    """Return the unproven audiences of a token. Raises TokenRefused: no signed token, or nobody."""
    return audiences(opened(token).claims)


def _require_kind(token: Opened, types: tuple[str, ...], others: tuple[str, ...]) -> None:
    """Raises TokenRefused for a token that was made for something else (RFC 8725 3.11)."""
    claim = token.claims.get("typ")
    events = token.claims.get("events")
    if (
        token.type not in types
        or (isinstance(claim, str) and claim.lower() in others)
        or (isinstance(events, dict) and _LOGOUT_EVENT in events)
    ):
        raise TokenRefused("type", "the token was made for something else")


def _require_for_us(raw: Mapping[str, object], client_id: str) -> None:
    """Raises TokenRefused: for others, or the authorized party is another."""
    if not client_id or client_id not in audiences(raw):
        raise TokenRefused("audience", "the ID token is for others")
    if raw.get("azp", client_id) != client_id:
        raise TokenRefused("azp", "the ID token was issued to another client")


def _require_short_life(raw: Mapping[str, object], expires_at: float, now: float) -> None:
    issued_at = moment(raw, "iat")
    if expires_at - (now if issued_at is None else issued_at) > _LONGEST_LIFE:
        raise TokenRefused("life", "the token lives longer than 24 hours")


def _require_openid_rules(token: Opened, check: IdTokenCheck, now: float) -> None:
    """Raises TokenRefused where authlib finds a fault: nonce, at_hash, auth_time, amr."""
    at_hash = token.claims.get("at_hash", "absent")
    if not isinstance(at_hash, str) or not at_hash:
        raise TokenRefused("at_hash", "`at_hash` of the ID token is no text")
    algorithm = token.header_text("alg")
    # authlib knows the hash of Ed25519 by its older name alone.
    header = {"alg": "EdDSA" if algorithm == "Ed25519" else algorithm}
    params = {"nonce": check.nonce or None}
    if check.access_token is not None:
        params["access_token"] = check.access_token.reveal()
    try:
        CodeIDToken(
            dict(token.claims),
            header,
            {"iss": {"essential": True, "value": check.issuer}},
            params,
        ).validate(now=now, leeway=int(LEEWAY))
    except JoseError as error:
        claim = getattr(error, "claim", "claims")
        raise TokenRefused(str(claim), f"`{claim}` of the ID token is wrong or missing") from error

"""Opens tokens: size, header, signature (RFC 7515, 8725). Of claims it knows nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwa import JWSAlgModel

from reconciler.core.secret import Secret
from reconciler.oidc.algorithms import ALGORITHMS
from reconciler.oidc.errors import TokenRefused, UnknownKey
from reconciler.oidc.keys import KeySet, PublicKey

_MOST_BYTES: Final = 16 * 1024
_MOST_HEADER_BYTES: Final = 4096
# Ways to bring a key along, and `crit` with what it announces; none is understood here.
_REFUSED_HEADERS: Final = ("jwk", "jku", "x5u", "crit", "b64", "enc", "zip")


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
        """Return a header that is text, or nothing."""
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

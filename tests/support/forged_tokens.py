"""Tokens that prove nothing: each row of front-door.md 9, as what a provider or a thief sends."""

import base64
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support import issuer_tokens as tokens
from tests.support.browsers import PUBLIC
from tests.support.issuer import CLI, WEB, FakeProvider
from tests.support.issuer_lies import Lies
from tests.support.issuer_tokens import Claims, Signing, SigningKey, signing_key

MALLORY: Final = signing_key("of-mallory")
ENCRYPTS: Final = signing_key("encrypts")  # published for encryption
SMALL: Final = signing_key("small", bits=1024)  # published, too
KIB: Final = 1024


def truth(provider: FakeProvider) -> Lies:
    """Return a provider without lies, that publishes keys which sign nothing."""
    published = [key.jwk() for key in provider.keys]
    return Lies(jwks={"keys": [*published, ENCRYPTS.jwk(use="enc"), _published_small()]})


def _published_small() -> dict[str, str]:
    """Return a key that the library would warn of."""
    assert isinstance(SMALL.private, rsa.RSAPrivateKey)
    numbers = SMALL.private.public_key().public_numbers()
    n, e = (tokens.b64(one.to_bytes((one.bit_length() + 7) // 8)) for one in (numbers.n, numbers.e))
    return {"kty": "RSA", "n": n, "e": e, "kid": SMALL.kid, "alg": SMALL.algorithm, "use": "sig"}


def signed_by(key: SigningKey, **header: Any) -> Signing:
    """Return how a token is signed by another key than the provider's own."""

    def sign(given: Claims, claims: Claims, own: SigningKey) -> str:
        del own
        return tokens.signed({**given, **header}, claims, key)

    return sign


def signed_with(**header: Any) -> Signing:
    """Return how a token is signed with more in its header."""

    def sign(given: Claims, claims: Claims, own: SigningKey) -> str:
        return tokens.signed({**given, **header}, claims, own)

    return sign


def _padded(characters: int) -> Signing:
    def sign(given: Claims, claims: Claims, own: SigningKey) -> str:
        return tokens.signed(given, {**claims, "padding": "x" * characters}, own)

    return sign


# Its own address in a header: where it leads is never asked.
_ELSEWHERE: Final = "http://127.0.0.1:9/keys"
SIGNED_WRONG: Final[Mapping[str, Signing]] = {
    "by another key": tokens.by_another_key,
    "tampered": tokens.tampered,
    "none": tokens.unsigned,
    "HS256 by the public key": tokens.by_public_key,
    "jwk": signed_by(MALLORY, kid=None, jwk=MALLORY.jwk()),
    "jku": signed_by(MALLORY, jku=_ELSEWHERE),
    "x5u": signed_by(MALLORY, x5u=_ELSEWHERE),
    "crit": signed_with(crit=["exp"]),
    "crit of an extension": signed_with(crit=["b64"], b64=True),
    "a key for encryption": signed_by(ENCRYPTS),
    "RSA 1024": signed_by(SMALL),
    "17 KiB": _padded(17 * KIB),
}
# By the name of a row: claims that replace those of a good token; None leaves one out.
Row: TypeAlias = Callable[[], Mapping[str, Any]]
_SUBJECTS: Final[Mapping[str, Row]] = {
    "sub none": lambda: {"sub": None},
    "sub empty": lambda: {"sub": ""},
    "sub an integer": lambda: {"sub": 7},
    "sub 256 long": lambda: {"sub": "s" * 256},
    "sub like that of another issuer": lambda: {"sub": "https://idp.example|alice"},
}
_EACH: Final[Mapping[str, Row]] = {
    "iss other": lambda: {"iss": "https://idp.example"},
    "iss none": lambda: {"iss": None},
    "aud other": lambda: {"aud": "https://other.example.org"},
    "aud list of others": lambda: {"aud": ["https://other.example.org", "somebody"]},
    "aud none": lambda: {"aud": None},
    "exp past": lambda: {"exp": int(time.time()) - 60},
    "exp none": lambda: {"exp": None},
    "nbf to come": lambda: {"nbf": int(time.time()) + 120},
    **_SUBJECTS,
}
WRONG_ID: Final[Mapping[str, Row]] = {
    **_EACH,
    "aud list with another azp": lambda: {"aud": [WEB.id, "somebody"], "azp": "somebody"},
    "azp other": lambda: {"azp": "somebody"},
    "aud other, azp ours": lambda: {"aud": "somebody", "azp": WEB.id},
    "nonce other": lambda: {"nonce": secrets.token_hex(16)},
    "nonce none": lambda: {"nonce": None},
    "iat eleven minutes old": lambda: {"iat": int(time.time()) - 660},
    "iat to come": lambda: {"iat": int(time.time()) + 120},
    "iat none": lambda: {"iat": None},
    "at_hash other": lambda: {"at_hash": base64.urlsafe_b64encode(bytes(16)).decode()[:22]},
}
WRONG_BEARER: Final[Mapping[str, Row]] = {
    **_EACH,
    "aud of the web client": lambda: {"aud": WEB.id},
    "aud of the client of CLIs": lambda: {"aud": CLI.id, "azp": CLI.id},
    "aud of the client of CLIs and another door": lambda: {"aud": [CLI.id, "https://b.example"]},
    "a life of 25 hours": lambda: {"iat": int(time.time()), "exp": int(time.time()) + 25 * 3600},
}


def good(provider: FakeProvider, **claims: Any) -> dict[str, Any]:
    """Return the claims of a bearer token that is taken."""
    now = int(time.time())
    known = {"iss": provider.issuer, "sub": "machine", "aud": PUBLIC, "groups": ["team-a"]}
    return {**known, "iat": now, "exp": now + 300, "jti": secrets.token_hex(8), **claims}


def bearer(provider: FakeProvider, sign: Signing = tokens.signed, **claims: Any) -> str:
    """Return a bearer token that `sign` made; None leaves a claim out."""
    return sign({}, good(provider, **claims), provider.keys[0])

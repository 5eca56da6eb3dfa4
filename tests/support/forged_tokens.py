"""Tokens that prove nothing: each row of front-door.md 9, as what a provider or a thief sends."""

import base64
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from tests.support import issuer_tokens as tokens
from tests.support.browsers import PUBLIC
from tests.support.issuer import CLI, WEB, FakeProvider
from tests.support.issuer_tokens import Claims, Signing, SigningKey, signing_key

MALLORY: Final = signing_key("of-mallory")


def signed_by(key: SigningKey, **header: Any) -> Signing:
    """Return how a token is signed by another key than the provider's own."""

    def sign(given: Claims, claims: Claims, own: SigningKey) -> str:
        del own
        return tokens.signed({**given, **header}, claims, key)

    return sign


def _padded(characters: int) -> Signing:
    def sign(given: Claims, claims: Claims, own: SigningKey) -> str:
        return tokens.signed(given, {**claims, "padding": "x" * characters}, own)

    return sign


SIGNED_WRONG: Final[Mapping[str, Signing]] = {
    "by another key": tokens.by_another_key,
    "none": tokens.unsigned,
    "17 KiB": _padded(17 * 1024),
}
# By the name of a row: claims that replace those of a good token. Of each claim that the door
# compares with words of its own there is a row; tests/unit/oidc has the others.
Row: TypeAlias = Callable[[], Mapping[str, Any]]
_EACH: Final[Mapping[str, Row]] = {
    "iss other": lambda: {"iss": "https://idp.example"},
    "aud other": lambda: {"aud": "https://other.example.org"},
    "exp past": lambda: {"exp": int(time.time()) - 60},
    "sub like that of another issuer": lambda: {"sub": "https://idp.example|alice"},
}
WRONG_ID: Final[Mapping[str, Row]] = {
    **_EACH,
    "azp other": lambda: {"azp": "somebody"},
    "nonce other": lambda: {"nonce": secrets.token_hex(16)},
    "at_hash other": lambda: {"at_hash": base64.urlsafe_b64encode(bytes(16)).decode()[:22]},
}
WRONG_BEARER: Final[Mapping[str, Row]] = {
    **_EACH,
    "aud of the web client": lambda: {"aud": WEB.id},
    "aud of the client of CLIs": lambda: {"aud": CLI.id, "azp": CLI.id},
    "aud of the client of CLIs and another door": lambda: {"aud": [CLI.id, "https://b.example"]},
}


def good(provider: FakeProvider, **claims: Any) -> dict[str, Any]:
    """Return the claims of a bearer token that is taken."""
    now = int(time.time())
    known = {"iss": provider.issuer, "sub": "machine", "aud": PUBLIC, "groups": ["team-a"]}
    return {**known, "iat": now, "exp": now + 300, "jti": secrets.token_hex(8), **claims}


def bearer(provider: FakeProvider, sign: Signing = tokens.signed, **claims: Any) -> str:
    """Return a bearer token that `sign` made; None leaves a claim out."""
    return sign({}, good(provider, **claims), provider.keys[0])

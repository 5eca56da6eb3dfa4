"""Proof keys for codes (RFC 7636), always by S256."""

import base64
import hmac
import re
from typing import Final

from authlib.oauth2.rfc7636 import create_s256_code_challenge

from reconciler.core.secret import Secret

_VERIFIER: Final = re.compile(r"[A-Za-z0-9\-._~]{43,128}")
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # 32 bytes, always


def verifier(random: bytes) -> Secret:
    """Return a verifier of 32 random bytes. Raises ValueError: fewer bytes."""
    if len(random) < 32:
        raise ValueError("a verifier needs 32 random bytes (RFC 7636 7.1)")
    return Secret(base64.urlsafe_b64encode(random).rstrip(b"=").decode())


def challenge(verifier: Secret) -> str:
    """Return what is shown of a verifier beforehand."""
    return str(create_s256_code_challenge(verifier.reveal()))


def matches(challenge: str, verifier: Secret) -> bool:
    """Tell whether a verifier is that of a challenge. Takes the same time for each wrong one."""
    text = verifier.reveal()
    if _VERIFIER.fullmatch(text) is None or not is_challenge(challenge):
        return False
    return hmac.compare_digest(str(create_s256_code_challenge(text)), challenge)


def is_challenge(text: str) -> bool:
    """Tell a challenge that S256 can have made."""
    return _CHALLENGE.fullmatch(text) is not None

"""The identities of one bind: of the app cluster, and of the session in a browser. Pure."""

import hashlib
import string
from typing import Final

DRY_RUN: Final = "dryrun"  # the cluster id of an app cluster without Namespace klutch-bind
_DIGITS: Final = string.digits + string.ascii_lowercase + string.ascii_uppercase
_LENGTH: Final = 6


def cluster_id(uid: str) -> str:
    """Return the id of an app cluster, from the uid of its Namespace klutch-bind (G.2).

    Providers key binding spaces on it.
    """
    return base62(hashlib.sha224(uid.encode()).digest())[:_LENGTH]


def base62(data: bytes) -> str:
    """Return a big-endian number in base 62, digits before lower before upper case."""
    number, digits = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def session_id(random: bytes) -> str:
    """Return the id of a session: safe in a cookie's name, 32 characters of 16 octets."""
    return random.hex()

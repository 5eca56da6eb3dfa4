"""Signs and verifies webhooks by https://www.standardwebhooks.com. Pure.

GitLab signs so with a "signing token", and we do with our own webhooks.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from reconciler.core.secret import Secret

ENCODED: Final = "whsec_"  # begins a secret that is base64
_SHORTEST: Final = 16  # bytes of a key
_TOLERANCE: Final = 300  # seconds
# Without a dot: one in it would leave open where the id ends in what is signed.
_ID: Final = re.compile(r"[!-\-/-~]{1,255}")
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")


def length_fault(key: bytes) -> str:
    """Return the reason to refuse a key, or ""."""
    return "" if len(key) >= _SHORTEST else f"has {len(key)} bytes, and {_SHORTEST} are needed"


def key_of(secret: Secret) -> bytes:
    """Return the key that a secret stands for. Raises ValueError for broken base64."""
    text = secret.reveal()
    if not text.startswith(ENCODED):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(ENCODED).encode(), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError(f"what follows {ENCODED} is not base64") from None


def headers(secret: Secret, message_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of a webhook. Raises ValueError for a secret that is no key."""
    timestamp = str(int(now.timestamp()))
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": _signature(key_of(secret), message_id, timestamp, body),
    }


def verified(given: Mapping[str, str], body: bytes, secret: Secret, now: datetime) -> str | None:
    """Return the id of a webhook that is signed and of now, None of any other."""
    message_id, timestamp = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    if not _ID.fullmatch(message_id) or not _TIMESTAMP.fullmatch(timestamp):
        return None
    try:
        expected = _signature(key_of(secret), message_id, timestamp, body)
    except ValueError:
        return None
    signatures = given.get("webhook-signature", "").split(" ")
    # All of them, whichever fits.
    good = sum(same(signature, expected) for signature in signatures)
    return message_id if good and abs(now.timestamp() - int(timestamp)) <= _TOLERANCE else None


def same(given: str, expected: str) -> bool:
    """Compare a signature from outside, in a time that shows no place of difference."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    mac = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"

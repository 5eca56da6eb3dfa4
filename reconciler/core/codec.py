"""The text encodings of the Klutch protocols: base62, FNV-1a, Go's JSON, base64 payloads.

Decides how bytes become text (protocol-bind.md B.3, G.2) and refuses to know what they mean.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Final

from reconciler.core.manifest import JSON

_BASE62: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_GO_ESCAPES: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"} | {
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def base62(data: bytes) -> str:
    """Return the bytes as one big-endian number in digits 0-9a-zA-Z, without leading zeros."""
    number = int.from_bytes(data, "big")
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits


def hash62(data: bytes) -> str:
    """Return SHA-224 in base62: the hash of cluster ids and of export specs."""
    return base62(hashlib.sha224(data).digest())


def fnv1a32(data: bytes) -> str:
    """Return the 32-bit FNV-1a hash as 8 hex digits."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def go_json(value: JSON) -> str:
    """Return JSON as Go's encoding/json writes it: compact, in the given key order, for HTML."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character, escape in _GO_ESCAPES.items():
        text = text.replace(character, escape)
    return text


def encode_payload(value: JSON) -> str:
    """Return JSON in standard base64 with padding, which every peer can read."""
    return base64.b64encode(go_json(value).encode()).decode()


def decode_payload(text: str) -> Mapping[str, JSON]:
    """Read a JSON object from base64 of either alphabet, padded or not.

    Raises ValueError with a sentence that does not repeat the content, which may be secret.
    """
    standard = text.rstrip("=").replace("-", "+").replace("_", "/")
    padding = "=" * (-len(standard) % 4)
    try:
        data = base64.b64decode(standard + padding, validate=True)
    except ValueError:
        raise ValueError("the payload is not base64") from None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("the payload is base64, but not of JSON") from None
    if not isinstance(value, dict):
        raise ValueError("the payload is JSON, but not an object")
    return value


def oauth_state(*, redirect_url: str, session_id: str, cluster_id: str) -> str:
    """Return the OAuth `state` of the original backend: URL-safe base64 with padding."""
    state = {"redirectURL": redirect_url, "sid": session_id, "cid": cluster_id}
    return base64.urlsafe_b64encode(go_json(state).encode()).decode()

"""Whether a password is the one that PostgreSQL has of a role (RFC 5802, SCRAM-SHA-256). Pure."""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

from reconciler.core.secret import Secret

# PostgreSQL makes 4096. A role may set a verifier of its own, and a billion take minutes to check.
_MOST_ROUNDS: Final = 100_000
_VERIFIER: Final = re.compile(r"SCRAM-SHA-256\$(\d{1,9}):([^$]+)\$([^:]+):.+")


def fits(verifier: str, password: Secret) -> bool:
    """Return whether a role with this `pg_authid.rolpassword` lets this password in.

    False for verifiers of other kinds or with very many rounds, and for passwords beyond ASCII,
    none of which we make.
    """
    parts = _VERIFIER.fullmatch(verifier)
    text = password.reveal()
    if parts is None or not text.isascii() or not 0 < int(parts[1]) <= _MOST_ROUNDS:
        return False
    try:
        salt, stored = (base64.b64decode(part, validate=True) for part in parts.group(2, 3))
    except binascii.Error:
        return False
    salted = hashlib.pbkdf2_hmac("sha256", text.encode(), salt, int(parts[1]))
    client = hmac.digest(salted, b"Client Key", "sha256")
    return hmac.compare_digest(hashlib.sha256(client).digest(), stored)

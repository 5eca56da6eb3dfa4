"""CA certificates in files of the repository: public PEM blocks, and nothing else."""

import base64
import binascii
import re
from typing import Final

_BLOCK: Final = re.compile(
    r"-----BEGIN ([A-Z0-9 ]+)-----\s+([A-Za-z0-9+/=\s]+?)\s*-----END \1-----"
)


class NotCertificates(Exception):
    """`code` and `str()` tell what a file holds instead; nothing of it is quoted."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def read(content: bytes) -> str:
    """Return the certificates as PEM text, without what stands between them.

    Raises NotCertificates.
    """
    if b"PRIVATE KEY" in content:
        message = "holds a private key; a repository never contains credentials"
        raise NotCertificates("private-key", message)
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    blocks = list(_BLOCK.finditer(text))
    if not blocks or text.count("-----BEGIN ") != len(blocks):
        raise NotCertificates("not-certificates", "does not hold PEM certificates")
    if not all(block[1] == "CERTIFICATE" and _is_sequence(block[2]) for block in blocks):
        message = "holds a PEM block that is not a certificate"
        raise NotCertificates("not-certificates", message)
    return "".join(f"{_normal(block[0])}\n" for block in blocks)


def _normal(block: str) -> str:
    return "\n".join(line.strip() for line in block.splitlines())


def _is_sequence(text: str) -> bool:
    """Tell whether the text is base64 of one DER SEQUENCE (X.690 8.1), as certificates are."""
    try:
        der = base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        return False
    if len(der) < 2 or der[0] != 0x30:
        return False
    if der[1] < 0x80:
        return len(der) == 2 + der[1]
    size = der[1] & 0x7F
    return len(der) == 2 + size + int.from_bytes(der[2 : 2 + size], "big")

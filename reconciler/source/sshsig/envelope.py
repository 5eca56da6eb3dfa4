"""A signature in its armor, as `ssh-keygen -Y sign` writes it, and what it says of itself."""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Final

from reconciler.source.signature import Refused, shown
from reconciler.source.sshsig.wire import Reader, string

BEGIN: Final = b"-----BEGIN SSH SIGNATURE-----"
_END: Final = b"-----END SSH SIGNATURE-----"
_MAGIC: Final = b"SSHSIG"
_VERSION: Final = 1
_HASHES: Final = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_MOST_BYTES: Final = 16 << 10  # of the armor; one with RSA of 16,384 bits has 6 kB


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is in the armor: the key that signed, by its own word, and for which purpose."""

    key: bytes
    namespace: bytes
    hash: bytes
    signature: bytes

    def message(self, content: bytes) -> bytes:
        """Return what was signed, of some content."""
        digest = _HASHES[self.hash](content).digest()
        fields = (self.namespace, b"", self.hash, digest)
        return _MAGIC + b"".join(map(string, fields))


def opened(armor: bytes) -> Envelope:
    """Return what is in the armor. Raises Refused."""
    reader = Reader(_bytes_in(armor))
    if reader.take(len(_MAGIC)) != _MAGIC:
        raise Refused("is no SSH signature inside its armor")
    version = reader.number()
    if version != _VERSION:
        raise Refused(f"is of version {version}, and only {_VERSION} is known")
    key, namespace, reserved = reader.string(), reader.string(), reader.string()
    algorithm, signature = reader.string(), reader.string()
    reader.end()
    if reserved:
        raise Refused("uses a field that is reserved")
    if algorithm not in _HASHES:
        raise Refused(f"is over a digest by {shown(algorithm)}, not sha256 or sha512")
    return Envelope(key, namespace, algorithm, signature)


def _bytes_in(armor: bytes) -> bytes:
    if len(armor) > _MOST_BYTES:
        raise Refused(f"has more than {_MOST_BYTES >> 10} KiB")
    lines = armor.split(b"\n")
    while lines and not lines[-1]:
        lines.pop()
    if len(lines) < 2 or (lines[0], lines[-1]) != (BEGIN, _END):
        raise Refused("does not begin and end as an SSH signature does")
    try:
        return base64.b64decode(b"".join(lines[1:-1]), validate=True)
    except binascii.Error:
        raise Refused("holds something else than base64") from None

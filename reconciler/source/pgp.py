"""Verifies GPG signatures by Sequoia (extra `gpg`). No other module imports it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from reconciler.core.errors import HostError
from reconciler.source.signature import Refused

if TYPE_CHECKING:
    from pysequoia import Cert

BEGIN: Final = b"-----BEGIN PGP SIGNATURE-----"
_END: Final = b"-----END PGP SIGNATURE-----"
_MOST_BYTES: Final = 64 << 10  # of a signature
_MOST_OF_KEYS: Final = 16 << 20


def check_installed() -> None:
    """Raise HostError where the extra is missing."""
    try:
        import pysequoia  # noqa: F401 - whether it can be
    except ImportError:
        hint = "Install klutchctl[gpg]: pip install 'klutchctl[gpg]'"
        raise HostError("signatures of GPG cannot be verified here", hint=hint) from None


def keys(content: bytes) -> "list[Cert]":
    """Return the public keys of `gpg --armor --export`. Raises Refused."""
    from pysequoia import Cert

    if len(content) > _MOST_OF_KEYS:
        raise Refused(f"has more than {_MOST_OF_KEYS >> 20} MiB")
    with _in_words("is no list of public keys of GPG"):
        found = Cert.split_bytes(content)
    if not found:
        raise Refused("lists no key")
    return found


def verify(armor: bytes, content: bytes, listed: "list[Cert]", *, now: datetime) -> str:
    """Return the fingerprint of the listed key that signed some content.

    Raises Refused, whose sentence goes on from "its signature".
    """
    import pysequoia

    if len(armor) > _MOST_BYTES:
        raise Refused(f"has more than {_MOST_BYTES >> 10} KiB")
    if armor.count(BEGIN) != 1 or not armor.rstrip().endswith(_END):
        raise Refused("is not one signature of GPG")
    with _in_words("is not one of a listed GPG key over this content"):
        signature = pysequoia.Sig.from_bytes(armor)
        result = pysequoia.verify(bytes=content, store=lambda _ids: listed, signature=signature)
        signed = {str(one.certificate) for one in result.valid_sigs}
        certificate = next(one for one in listed if one.fingerprint in signed)
    _check_alive(certificate, now)
    return str(certificate.fingerprint).upper()


@contextmanager
def _in_words(why: str) -> Iterator[None]:
    """Refuse at every failure: errors of Sequoia hold backtraces, and a panic is no Exception."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise Refused(why) from None


def _check_alive(certificate: "Cert", now: datetime) -> None:
    expiration = certificate.expiration
    if certificate.is_revoked:
        raise Refused("is by a GPG key that was revoked")
    if expiration is not None and expiration.astimezone(UTC) < now:
        raise Refused(f"is by a GPG key that was valid until {expiration.isoformat()}")

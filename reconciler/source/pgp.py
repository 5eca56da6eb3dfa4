"""Signatures of GPG, by Sequoia: the extra `gpg`. The one door to it, imported late."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from reconciler.core.errors import HostError
from reconciler.source.signature import Refused

if TYPE_CHECKING:
    from pysequoia import Cert

BEGIN: Final = b"-----BEGIN PGP SIGNATURE-----"
_MOST_BYTES: Final = 64 << 10  # of a signature
_MOST_OF_KEYS: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Keys:
    """Public keys that may sign."""

    certificates: "list[Cert]"


def check_installed() -> None:
    """Raise HostError where the extra is missing."""
    try:
        import pysequoia  # noqa: F401 - whether it can be
    except ImportError:
        hint = "Install klutchctl[gpg]: pip install 'klutchctl[gpg]'"
        raise HostError("signatures of GPG cannot be verified here", hint=hint) from None


def keys(content: bytes) -> Keys:
    """Return the keys of `gpg --armor --export`. Raises Refused.

    An error of Sequoia holds a backtrace of its own, so none is passed on, here and below.
    """
    from pysequoia import Cert

    if len(content) > _MOST_OF_KEYS:
        raise Refused(f"has more than {_MOST_OF_KEYS >> 20} MiB")
    try:
        found = Cert.split_bytes(content)
    except Exception:
        raise Refused("is no list of public keys of GPG") from None
    if not found:
        raise Refused("lists no key")
    return Keys(found)


def verify(armor: bytes, content: bytes, listed: Keys, *, now: datetime) -> str:
    """Return the fingerprint of the listed key that signed some content.

    Raises Refused, whose sentence goes on from "its signature".
    """
    from pysequoia import Sig, verify

    if len(armor) > _MOST_BYTES:
        raise Refused(f"has more than {_MOST_BYTES >> 10} KiB")
    if armor.count(BEGIN) != 1:
        raise Refused("is more than one signature of GPG")
    try:
        signature = Sig.from_bytes(armor)
        result = verify(bytes=content, store=lambda _ids: listed.certificates, signature=signature)
        signed = {str(one.certificate) for one in result.valid_sigs}
    except Exception:
        raise Refused("is not one of a listed GPG key over this content") from None
    for certificate in listed.certificates:
        if certificate.fingerprint in signed:
            _check_alive(certificate, now)
            return str(certificate.fingerprint).upper()
    raise Refused("is not one of a listed GPG key over this content")


def _check_alive(certificate: "Cert", now: datetime) -> None:
    expiration = certificate.expiration
    if certificate.is_revoked:
        raise Refused("is by a GPG key that was revoked")
    if expiration is not None and expiration.astimezone(UTC) < now:
        raise Refused(f"is by a GPG key that was valid until {expiration.isoformat()}")

"""What the operating system and OpenSSL say of a failed connection."""

import ssl
from typing import Final

_TRUSTED: Final = ("builtins", "socket", "ssl")  # the modules of errors whose words are theirs


def system_text(error: Exception) -> str:
    """Return the system's or OpenSSL's words of an error; never a library's, which name URLs."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message
    if isinstance(cause, ssl.SSLError):
        return (cause.reason or "TLS error").replace("_", " ").lower()
    if isinstance(cause, OSError) and cause.strerror and type(cause).__module__ in _TRUSTED:
        return cause.strerror
    return type(cause).__name__

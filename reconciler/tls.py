"""What a client trusts and shows of itself, made of PEM texts in memory; and what TLS says failed.

No path of a file is taken: the texts come from kubeconfigs and Secrets.
"""

import contextlib
import errno
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from reconciler.core.errors import ConfigError, HostError
from reconciler.core.secret import Secret

_TRUSTED: Final = ("builtins", "socket", "ssl")  # the modules of errors whose words are theirs


def client_context(ca: str | None, *, insecure: bool = False) -> ssl.SSLContext:
    """Return a new context that trusts a PEM text, or without one the system's authorities.

    Raises ssl.SSLError for a text that cannot be used.
    """
    if ca is not None and not ca.isascii():
        raise ssl.SSLError("not ASCII, as PEM is")
    context = ssl.create_default_context(cadata=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def show_certificate(context: ssl.SSLContext, certificate: str, key: Secret, *, where: str) -> None:
    """Have a context show a client's certificate.

    Raises ConfigError for unusable PEM text, and HostError where this machine is at its limits.
    """
    pem = f"{certificate.strip()}\n{key.reveal().strip()}\n"
    try:
        with _readable_path(pem.encode()) as path:
            # Without a password callback OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password=lambda: "")
    except ssl.SSLError:
        message = "the client certificate and its key are not usable PEM, or do not match"
        raise ConfigError(message, where=where) from None
    except OSError as error:
        message = f"the client certificate cannot be loaded: {error.strerror or 'unknown reason'}"
        hint = "Read fewer clusters at once (--parallelism), or raise `ulimit -n`"
        raise HostError(message, hint=hint if error.errno == errno.EMFILE else "") from None


@contextlib.contextmanager
def _readable_path(content: bytes) -> Iterator[str]:
    """Give bytes a path for as long as OpenSSL reads it: in memory where the system can."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("klutchctl-tls", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.TemporaryDirectory(prefix="klutchctl-") as folder:  # mode 0700
        path = Path(folder, "client.pem")
        path.write_bytes(content)
        yield str(path)


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

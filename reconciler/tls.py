"""Builds TLS contexts for clients and servers, and words their failures.

A client's is made of PEM texts in memory, which come from kubeconfigs and Secrets; a server's comes
from files, which may change.
"""

import contextlib
import errno
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.core.errors import ConfigError, HostError
from reconciler.core.secret import Secret
from reconciler.files import LastGood

_log = logging.getLogger(__name__)
_TRUSTED: Final = ("builtins", "socket", "ssl")  # the modules of errors whose words are theirs


def client_context(
    ca: str | None, *, insecure: bool = False, protocols: tuple[str, ...] = ()
) -> ssl.SSLContext:
    """Return a new context that trusts a PEM text, or without one the system's authorities.

    `protocols` are offered by ALPN, the best first. Raises ssl.SSLError for a text that cannot be
    used.
    """
    if ca is not None and not ca.isascii():
        raise ssl.SSLError("not ASCII, as PEM is")
    context = ssl.create_default_context(cadata=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
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


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of a server: its certificate with those that lead to its root, and its key."""

    cert: Path
    key: Path


def certificates(files: TlsFiles, clock: Callable[[], float]) -> Callable[[], ssl.SSLContext]:
    """Return a callback that gives each new connection the last good certificate of these files.

    What cannot be read is logged once. Raises HostError where there is none to begin with.
    """
    fields = {"certificate": str(files.cert)}

    def noted(error: Exception | None) -> None:
        if error is None:
            _log.info("the new certificate is in use", extra=fields)
            return
        reason = {"reason": system_text(error)}
        _log.warning("the new certificate is unusable and ignored", extra={**fields, **reason})

    try:
        return LastGood((files.cert, files.key), lambda: _loaded(files), clock, noted).current
    except (OSError, ValueError) as error:
        raise HostError(
            f"cannot use the certificate {files.cert} with the key {files.key}: "
            + system_text(error),
            hint="Give PEM files that belong together; the key without a passphrase",
        ) from None


def _loaded(files: TlsFiles) -> ssl.SSLContext:
    """Return a context of its own: one into which half a pair was loaded is of no use."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # Without a password OpenSSL would ask for one on the terminal.
    context.load_cert_chain(files.cert, files.key, password="")
    return context

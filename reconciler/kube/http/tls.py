"""TLS settings for one connection, from PEM text only: no key ever needs a path."""

import contextlib
import errno
import functools
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from reconciler.core.errors import ConfigError, HostError
from reconciler.kube.connection import ClientCertificate, Connection


def ssl_context(connection: Connection, certificate: ClientCertificate | None) -> ssl.SSLContext:
    """Return the context for a connection, to be left as it is: others may share it.

    Raises ConfigError for unusable PEM text, and HostError where this machine is at its limits.
    """
    # The system's trust store may change while we run, and a client's key is for one alone.
    make = _made if connection.ca is None or certificate is not None else _shared
    try:
        context = make(connection.ca, insecure=connection.insecure)
    except ssl.SSLError:
        message = "certificate-authority-data is not a usable PEM certificate"
        raise ConfigError(message, where=connection.name) from None
    if certificate is not None:
        _load(context, certificate, connection.name)
    return context


def _made(ca: str | None, *, insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


# Many clusters may share one CA, and OpenSSL takes its time.
_shared: Final = functools.lru_cache(maxsize=64)(_made)


def _load(context: ssl.SSLContext, certificate: ClientCertificate, name: str) -> None:
    pem = f"{certificate.certificate.strip()}\n{certificate.key.reveal().strip()}\n"
    try:
        with _readable_path(pem.encode()) as path:
            # Without a password callback OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password=lambda: "")
    except ssl.SSLError:
        message = "the client certificate and its key are not usable PEM, or do not match"
        raise ConfigError(message, where=name) from None
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

"""What a client trusts and what it shows of itself, made of PEM texts in memory.

No path of a file is taken: the texts come from kubeconfigs and Secrets.
"""

import contextlib
import errno
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reconciler.core.errors import ConfigError, HostError
from reconciler.core.secret import Secret


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

"""The certificate of a server, which is read again when its files change."""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from reconciler.core.errors import HostError

_log = logging.getLogger(__name__)
_LOOK_EVERY: Final = 1.0  # seconds
_Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the certificate, with those that lead to its root, and its key are, as PEM."""

    cert: Path
    key: Path


class Certificates:
    """The last good certificate that these files held.

    `context` is for one connection: each new one gets what is good then. What cannot be read is
    logged once. Raises HostError where there is none to begin with.
    """

    def __init__(self, files: TlsFiles, clock: Callable[[], float]) -> None:
        self._files, self._clock = files, clock
        self._stamp = self._look()
        try:
            self._context = _loaded(files)
        except (OSError, ValueError) as error:
            raise HostError(
                f"cannot use the certificate {files.cert} with the key {files.key}: "
                + _reason(error),
                hint="Give PEM files that belong together; the key without a passphrase",
            ) from None
        self._looked_at = clock()

    def context(self) -> ssl.SSLContext:
        """Return what the next connection is to be served with."""
        now = self._clock()
        if abs(now - self._looked_at) >= _LOOK_EVERY:
            self._looked_at = now
            self._read_if_changed()
        return self._context

    def _read_if_changed(self) -> None:
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp  # also of what is not good: it is read again once it changes again
        try:
            self._context = _loaded(self._files)
        except (OSError, ValueError) as error:
            fields = {"certificate": str(self._files.cert), "reason": _reason(error)}
            _log.warning("a new certificate cannot be used: the last one is kept", extra=fields)
        else:
            _log.info("a new certificate is used", extra={"certificate": str(self._files.cert)})

    def _look(self) -> _Stamp:
        try:
            stats = [path.stat() for path in (self._files.cert, self._files.key)]
        except OSError:
            return ()
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def _loaded(files: TlsFiles) -> ssl.SSLContext:
    """Return a context of its own: one into which half a pair was loaded is of no use."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # Without a password OpenSSL would ask for one on the terminal.
    context.load_cert_chain(files.cert, files.key, password="")
    return context


def _reason(error: Exception) -> str:
    """Return it without what the files hold."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or "they cannot be read"

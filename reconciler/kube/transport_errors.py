"""Words network failures. No other module reads aiohttp's exceptions.

Those hold request headers and proxy URLs, with tokens and passwords. So none of them is ever
chained or kept: only the operating system's and OpenSSL's own words are passed on.
"""

import socket
import ssl
from typing import Final

import aiohttp

from reconciler.tls import system_text


class NoAnswer(Exception):
    """No complete answer came. `sent`: the request may have reached the server.

    `permanent`: the next try will fail the same way (a certificate, a proxy's refusal), or this
    one has waited long enough: the system sends a SYN again within a time-out, and a server that
    has stopped would cost the time of all tries.
    """

    def __init__(self, message: str, *, sent: bool, permanent: bool = False) -> None:
        super().__init__(message)
        self.message, self.sent, self.permanent = message, sent, permanent


class Excess(NoAnswer):
    """The answer is more than is read: to ask for the same again is no use."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=True, permanent=True)


# The first that fits is taken: subclasses stand before their bases.
_BEFORE_SENDING: Final[tuple[tuple[tuple[type[Exception], ...], str, bool], ...]] = (
    (
        (aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError),
        "the server's certificate is not trusted ({reason}): check certificate-authority, "
        "tls-server-name and the clock of this machine",
        True,
    ),
    ((aiohttp.ClientHttpProxyError,), "the proxy refused with HTTP {status}", True),
    ((aiohttp.ClientSSLError, ssl.SSLError), "no TLS connection: {reason}", True),
    ((aiohttp.ClientConnectorDNSError, socket.gaierror), "the host name cannot be resolved", False),
    ((aiohttp.ClientProxyConnectionError,), "no connection to the proxy: {reason}", False),
    ((aiohttp.ClientConnectorError,), "no connection: {reason}", False),
    ((aiohttp.ConnectionTimeoutError,), "no connection in time", True),
    ((aiohttp.InvalidURL,), "the server's URL is not valid", True),
)
_AFTER_SENDING: Final[tuple[tuple[type[Exception], str], ...]] = (
    (TimeoutError, "no answer in time"),
    (aiohttp.ClientPayloadError, "the answer was cut short"),
    (aiohttp.ServerDisconnectedError, "the connection was cut before the answer"),
    (ConnectionError, "the connection was cut before the answer"),
    (aiohttp.ClientResponseError, "the answer is not HTTP"),
)


def explain(error: Exception, *, connected: bool = True) -> NoAnswer:
    """Explain a library exception, in words that hold no header and no credential.

    Without aiohttp it does not show whether there was a connection, but for `connected`.
    """
    if not connected and isinstance(error, TimeoutError):
        error = aiohttp.ConnectionTimeoutError()
    words = {"reason": system_text(error), "status": str(getattr(error, "status", ""))}
    for kinds, sentence, permanent in _BEFORE_SENDING:
        if isinstance(error, kinds):
            return NoAnswer(sentence.format(**words), sent=False, permanent=permanent)
    if not connected:
        return NoAnswer(f"no connection: {words['reason']}", sent=False)
    for kind, sentence in _AFTER_SENDING:
        if isinstance(error, kind):
            return NoAnswer(sentence, sent=True)
    return NoAnswer(f"the connection failed: {words['reason']}", sent=True)

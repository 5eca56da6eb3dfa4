"""Words network failures.

Only the operating system's and OpenSSL's own words are passed on, and no error is chained.
"""

import socket
import ssl
from typing import Final

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
_SENTENCES: Final[tuple[tuple[type[Exception], str, bool], ...]] = (
    (
        ssl.SSLCertVerificationError,
        "the server's certificate is not trusted ({reason}): check certificate-authority, "
        "tls-server-name and the clock of this machine",
        True,
    ),
    (ssl.SSLError, "no TLS connection: {reason}", True),
    (socket.gaierror, "the host name cannot be resolved", False),
    (TimeoutError, "no connection in time", True),
)


def explain(error: Exception, *, proxied: bool) -> NoAnswer:
    """Explain why there is no connection. Nothing was sent."""
    for kind, sentence, permanent in _SENTENCES:
        if isinstance(error, kind):
            message = sentence.format(reason=system_text(error))
            return NoAnswer(message, sent=False, permanent=permanent)
    end = " to the proxy" if proxied else ""
    return NoAnswer(f"no connection{end}: {system_text(error)}", sent=False)

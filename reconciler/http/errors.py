"""Words network failures.

Only the operating system's and OpenSSL's own words are passed on, and no error is chained.
"""

import socket
import ssl
from typing import Final

from reconciler.tls import system_text

LATE: Final = "no answer in time"
UNREACHED: Final = "no connection in time"


class NoAnswer(Exception):
    """No complete answer came. `sent`: the request may have reached the server.

    `permanent`: the next try will fail the same way (a certificate, a proxy's refusal), or this
    one has waited long enough: the system sends a SYN again within a time-out, and a server that
    has stopped would cost the time of all tries.
    """

    def __init__(self, message: str, *, sent: bool, permanent: bool = False) -> None:
        super().__init__(message)
        self.message, self.sent, self.permanent = message, sent, permanent


class Untrusted(NoAnswer):
    """The server's certificate is not trusted."""


class Excess(NoAnswer):
    """The answer is more than is read: to ask for the same again is no use."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=True, permanent=True)


# The first that fits is taken: subclasses stand before their bases.
_SENTENCES: Final[tuple[tuple[type[Exception], str, bool], ...]] = (
    (ssl.SSLError, "no TLS connection: {reason}", True),
    (socket.gaierror, "the host name cannot be resolved", False),
    (TimeoutError, UNREACHED, True),
)


def explain(error: Exception, *, proxied: bool) -> NoAnswer:
    """Explain why there is no connection. Nothing was sent."""
    reason = system_text(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        message = f"the server's certificate is not trusted ({reason})"
        return Untrusted(message, sent=False, permanent=True)
    for kind, sentence, permanent in _SENTENCES:
        if isinstance(error, kind):
            return NoAnswer(sentence.format(reason=reason), sent=False, permanent=permanent)
    end = " to the proxy" if proxied else ""
    return NoAnswer(f"no connection{end}: {reason}", sent=False)

"""Is a server ready, and if it died, what did it say?"""

import http.client
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from klutchctl.sandbox.control_planes import Probe

_TELLING = re.compile(
    r"^[EF]\d{4} |^(?:Error|error|panic|fatal)\b|\"level\":\"(?:error|fatal|panic)\""
)
_TAIL_BYTES: Final = 64 * 1024
_WIDEST: Final = 400  # etcd puts whole stack traces into one line


def is_ready(probe: Probe, *, timeout: float) -> bool:
    """Ask once. False covers refused, hanging, and 'not yet'."""
    try:
        context = ssl.create_default_context(cafile=probe.authority)
        context.load_cert_chain(probe.certificate, probe.key)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", probe.port, timeout=timeout, context=context
        )
        try:
            connection.request("GET", probe.path)
            return connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False


def last_words(log: Path, *, count: int = 5) -> Sequence[str]:
    """Return the last error lines of a log, or its last lines where none looks like an error."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ()
    lines = [line.rstrip() for line in lines if line.strip()]
    last = ([line for line in lines if _TELLING.search(line)] or lines)[-count:]
    return [line if len(line) <= _WIDEST else f"{line[:_WIDEST]}..." for line in last]

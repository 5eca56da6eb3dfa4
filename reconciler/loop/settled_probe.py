"""`GET /settled?after=CLUSTER:RESOURCEVERSION&within=SECONDS`, for those on the same machine.

200 once the process has seen what was written and is at rest, else 503 and what is missing. An
answer costs a list of each view, so only one request is worked on at a time, once a second, and
none that comes over a network: `kubectl port-forward` and `kubectl exec` are on the machine.
"""

import asyncio
import ipaddress
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

from reconciler.loop.listener import Answer, plain
from reconciler.loop.settled import Written

_LONGEST: Final = 4.0  # seconds: the listener cuts off after five
_REST: Final = 1.0  # seconds from one answer to the next
_BAD: Final = "400 Bad Request"
_USAGE: Final = f"ask for after=CLUSTER:RESOURCEVERSION and within=0 to {_LONGEST:g}"


class Settled(Protocol):
    """Manager.settled."""

    def __call__(self, written: Written, *, within: float) -> Coroutine[Any, Any, str]:
        """Return why the process is not at rest after so many seconds, "" once it is."""
        ...


class SettledProbe:
    """Asks the event loop that it was made in, from the threads of a listener."""

    def __init__(self, settled: Settled) -> None:
        self._settled, self._loop = settled, asyncio.get_running_loop()
        self._turn = threading.Lock()
        self._next = 0.0

    def __call__(self, client: str, query: str) -> Answer:
        """Answer a client at this address."""
        if not _is_here(client):
            return plain("only those on this machine may ask", status="403 Forbidden")
        try:
            written, within = _asked(query)
        except ValueError:
            return plain(_USAGE, status=_BAD)
        if not self._turn.acquire(blocking=False):
            return plain("another request is worked on", status="429 Too Many Requests")
        try:
            time.sleep(max(self._next - time.monotonic(), 0.0))
            return plain(self._ask(written, within))
        finally:
            self._next = time.monotonic() + _REST
            self._turn.release()

    def _ask(self, written: Written, within: float) -> str:
        asking = self._settled(written, within=within)
        answer = asyncio.run_coroutine_threadsafe(asking, self._loop)
        try:
            return answer.result(_LONGEST)
        except (TimeoutError, CancelledError):
            answer.cancel()
            return "there was no answer in time"


def _asked(query: str) -> tuple[Written, float]:
    """Raises ValueError."""
    fields = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=8)
    written: dict[str, str] = {}
    for one in fields.pop("after", []):
        cluster, _, version = one.rpartition(":")
        if not cluster or not (version.isascii() and version.isdigit()):
            raise ValueError(one)
        written[cluster] = version
    within = float(fields.pop("within", ["0"])[-1])
    if fields or not 0 <= within <= _LONGEST:
        raise ValueError(query)
    return written, within


def _is_here(client: str) -> bool:
    address = ipaddress.ip_address(client.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback

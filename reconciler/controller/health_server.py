"""`/metrics`, `/healthz` and `/readyz` over HTTP, from threads of their own.

So they answer while the event loop is busy, and can tell that it is stuck. Nobody who asks is
known, so nothing is told that only some may know.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from http.client import LineTooLong
from io import BufferedReader
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from reconciler.core.errors import HostError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_AT_ONCE: Final = 16
_LONGEST: Final = 16 * 1024  # bytes of a request, which is a head and no more
_SLOWEST: Final = 5.0  # seconds for a request to come in, and for its answer to be taken
_PLAIN: Final = ("Content-Type", "text/plain; charset=utf-8")
_JSON: Final = ("Content-Type", "application/json")
_EVERYWHERE: Final = "::"


class Answer(NamedTuple):
    """What a probe is told. `content` is a header."""

    status: str
    content: tuple[str, str]
    body: bytes


def plain(reason: str, *, status: str = "503 Service Unavailable") -> Answer:
    """Return the status and the reason why something is wrong, or 200 and `ok` for ""."""
    return Answer(status if reason else "200 OK", _PLAIN, f"{reason or 'ok'}\n".encode())


def leader_election(reason: str) -> Answer:
    """Return the answer of konnectors, which has no room for the reason.

    The shape is that of protocol-konnector.md A.4.
    """
    state = {"leaderElection": "degraded" if reason else "ok"}
    return Answer(
        "500 Internal Server Error" if reason else "200 OK", _JSON, json.dumps(state).encode()
    )


@contextmanager
def served(
    address: tuple[str, int],
    *,
    metrics: Callable[[], CollectorRegistry] | None = None,
    ailment: Callable[[], str] | None = None,
    unready: Callable[[], str] | None = None,
    healthz: Callable[[str], Answer] = plain,
    settled: Callable[[str, str], Answer] | None = None,
) -> Iterator[tuple[str, int]]:
    """Serve for as long as the block lasts; yield where, as port 0 is any free one.

    The host "" is every address, of IPv6 and IPv4. `metrics` is asked for what is counted now,
    `ailment` tells why the program is not healthy, `unready` why it cannot do its work yet, or "".
    What is not given is not served. `healthz` is the form in which an ailment is told. `settled`
    answers a client, by its address and the query, whether the program is at rest.

    Raises HostError.
    """
    probes: dict[str, Callable[[], Answer]] = {}
    if ailment is not None:
        probes["/healthz"] = lambda: healthz(ailment())
    if unready is not None:
        probes["/readyz"] = lambda: plain(unready())
    app = _App(metrics, probes, settled)
    try:
        server = _Server(address)
    except OSError as error:
        host, port = address
        raise HostError(
            f"cannot listen on {host or 'any address,'} port {port}: {error.strerror}",
            hint="Give another address",
        ) from error
    server.set_app(app)
    thread = threading.Thread(target=server.serve_forever, name="health server", daemon=True)
    thread.start()
    try:
        yield server.server_name, server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _App:
    def __init__(
        self,
        metrics: Callable[[], CollectorRegistry] | None,
        probes: Mapping[str, Callable[[], Answer]],
        settled: Callable[[str, str], Answer] | None,
    ) -> None:
        self._metrics, self._probes, self._settled = metrics, probes, settled
        others = {"/metrics": metrics, "/settled": settled}
        places = sorted([*probes, *(path for path, served in others.items() if served)])
        some, last = ", ".join(places[:-1]), places[-1]
        self._signpost = f"there are {some} and {last}\n" if some else f"there is {last}\n"

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start_response("405 Method Not Allowed", [_PLAIN, ("Allow", "GET, HEAD")])
            return [b"only GET\n"]
        if environ["PATH_INFO"] == "/metrics" and self._metrics is not None:
            answer: Iterable[bytes] = make_wsgi_app(self._metrics())(environ, start_response)
            return answer
        probe = self._probes.get(environ["PATH_INFO"])
        if self._settled is not None and environ["PATH_INFO"] == "/settled":
            probe = partial(self._settled, environ["REMOTE_ADDR"], environ["QUERY_STRING"])
        if probe is not None:
            answered = probe()
            start_response(answered.status, [answered.content])
            return [answered.body]
        start_response("404 Not Found", [_PLAIN])
        return [self._signpost.encode()]


class _Head(BufferedReader):
    """Limits a request: `http.client` by itself takes 100 headers of 64 KiB each."""

    left = _LONGEST

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line. Raises LineTooLong, which ends the request, with 431 in headers."""
        line = super().readline(self.left + 1)
        self.left -= len(line)
        if self.left < 0:
            raise LineTooLong("head")
        return line


class _Handler(WSGIRequestHandler):
    timeout = _SLOWEST

    def setup(self) -> None:
        """Bound what is read of a connection, whoever is at its other end."""
        super().setup()
        self.rfile = _Head(self.rfile.detach())

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: probes come all the time."""


class _Server(ThreadingMixIn, WSGIServer):
    """Answers so many at once, each for so long at most.

    One more is answered, and the oldest is cut off: answers take milliseconds, so that one is
    slow, on purpose or not. Probes get through, and nobody can use up threads.
    """

    daemon_threads = True
    request_queue_size = 128  # who does not fit in is only heard again after a second

    def __init__(self, address: tuple[str, int]) -> None:
        host, port = address
        if not host and socket.has_dualstack_ipv6():
            host = _EVERYWHERE
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Those that are cut off may need a moment to end.
        self._permits = threading.BoundedSemaphore(2 * _AT_ONCE)
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}  # since when, the oldest first
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server who we are, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.server_address[0] == _EVERYWHERE:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a request, if one may be started."""
        if not self._permits.acquire(blocking=False):
            super().shutdown_request(request)
            return
        with self._lock:
            self._open[request] = time.monotonic()
            self._cut(list(self._open)[:-_AT_ONCE])
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and let another one have the thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._permits.release()

    def service_actions(self) -> None:
        """Cut off those whose time is over: a byte now and then makes no request longer."""
        latest = time.monotonic() - _SLOWEST
        with self._lock:
            self._cut([one for one, since in self._open.items() if since < latest])

    def shutdown_request(self, request: Any) -> None:
        """End a connection, which from now on is nobody's to cut."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: whoever asked has left, or was too slow."""

    def _cut(self, late: Iterable[socket.socket]) -> None:
        """Let the threads of these connections end; the lock is held."""
        for one in late:
            del self._open[one]
            with suppress(OSError):  # it has left by itself
                one.shutdown(socket.SHUT_RDWR)

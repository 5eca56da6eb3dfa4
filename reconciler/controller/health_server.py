"""`/metrics`, `/healthz` and `/readyz` over HTTP, from a thread with an event loop of its own.

So they answer while the event loop of the program is busy, and can tell that it is stuck. Nobody
who asks is known, so nothing is told that only some may know.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from math import inf
from typing import Final

from prometheus_client import CollectorRegistry, make_wsgi_app

from reconciler.web.requests import Request, RequestRefused, Response

_LONGEST: Final = 16 * 1024  # bytes of a request, which is a head and no more
_SLOWEST: Final = 5.0  # seconds for a request to come in, and for its answer to be taken
_SETTLING: Final = 6.0  # seconds for an answer
_QUERY: Final = "query"


def plain(reason: str, *, status: int = 503) -> Response:
    """Return the status and the reason why something is wrong, or 200 and `ok` for ""."""
    return Response(status if reason else 200, f"{reason or 'ok'}\n".encode())


def leader_election(reason: str) -> Response:
    """Return the answer of konnectors, which has no room for the reason.

    The shape is that of protocol-konnector.md A.4.
    """
    state = {"leaderElection": "degraded" if reason else "ok"}
    return Response(500 if reason else 200, json.dumps(state).encode(), "application/json")


@contextmanager
def served(
    address: tuple[str, int],
    *,
    metrics: Callable[[], CollectorRegistry] | None = None,
    ailment: Callable[[], str] | None = None,
    unready: Callable[[], str] | None = None,
    healthz: Callable[[str], Response] = plain,
    settled: Callable[[str, str], Awaitable[Response]] | None = None,
) -> Iterator[tuple[str, int]]:
    """Serve for as long as the block lasts; yield where, as port 0 is any free one.

    The host "" is every address, of IPv6 and IPv4. `metrics` is asked for what is counted now,
    `ailment` tells why the program is not healthy, `unready` why it cannot do its work yet, or "".
    What is not given is not served. `healthz` is the form in which an ailment is told. `settled`
    answers a client, by its address and the query, whether the program is at rest.

    Raises HostError.
    """
    from reconciler.web import connections, serve  # late: it costs 1 MiB

    probes: dict[str, Callable[[Request], Response]] = {}
    if ailment is not None:
        probes["/healthz"] = lambda _: healthz(ailment())
    if unready is not None:
        probes["/readyz"] = lambda _: plain(unready())
    if metrics is not None:
        probes["/metrics"] = lambda request: _counted(metrics(), request)
    limits = connections.Limits(
        line=_LONGEST,
        head=_LONGEST,
        body=1024,
        head_time=_SLOWEST,
        take_time=_SLOWEST,
        answer_time=_SETTLING,
        stop_time=1.0,
        connections=16,
        rate=inf,
    )
    listening = serve.Listening(address, limits=limits, query=lambda text: {_QUERY: text})
    server = serve.served(listening, _Answering(probes, settled).answer)
    begun: Future[tuple[tuple[str, int], Callable[[], object]]] = Future()
    task = _serve(server, begun)
    thread = threading.Thread(target=asyncio.run, args=[task], name="health server", daemon=True)
    thread.start()
    where, stop = begun.result()
    try:
        yield where
    finally:
        stop()
        thread.join()


async def _serve(
    server: AbstractAsyncContextManager[tuple[str, int]],
    begun: "Future[tuple[tuple[str, int], Callable[[], object]]]",
) -> None:
    """Serve until what `begun` gets is called; or `begun` gets why that cannot be."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    try:
        async with server as where:
            begun.set_result((where, lambda: loop.call_soon_threadsafe(stopped.set)))
            await stopped.wait()
    except Exception as error:
        begun.set_exception(error)


class _Answering:
    def __init__(
        self,
        probes: Mapping[str, Callable[[Request], Response]],
        settled: Callable[[str, str], Awaitable[Response]] | None,
    ) -> None:
        self._probes, self._settled = probes, settled
        places = sorted([*probes, *(["/settled"] if settled else [])])
        some, last = ", ".join(places[:-1]), places[-1]
        self._signpost = f"there are {some} and {last}" if some else f"there is {last}"

    async def answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise RequestRefused(405, "only GET", headers=(("Allow", "GET, HEAD"),))
        if request.path == "/settled" and self._settled is not None:
            return await self._settled(request.address, request.query[_QUERY])
        if (probe := self._probes.get(request.path)) is None:
            raise RequestRefused(404, self._signpost)
        return probe(request)


def _counted(registry: CollectorRegistry, request: Request) -> Response:
    """Return metrics in a form that the client reads: of OpenMetrics, or packed."""
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": request.path,
        "QUERY_STRING": request.query[_QUERY],
        "HTTP_ACCEPT": request.headers.get("accept", ""),
        "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
    }
    begun: dict[str, str] = {}
    parts = make_wsgi_app(registry)(environ, lambda status, headers: begun.update(headers))
    kind = begun.pop("Content-Type")
    return Response(200, b"".join(parts), kind, tuple(begun.items()))

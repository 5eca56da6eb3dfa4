"""Serves `/metrics`, `/healthz`, `/readyz` and `/settled` over HTTP, from a thread of its own.

So it answers while the program's event loop is busy, and can report that it is stuck. Clients are
not authenticated, so answers contain nothing confidential.

A program is at rest if its informers are up to date and its queues are empty. No queue shows an
event in flight, so an informer is compared with a new list. If both are equal, and no work waits
before and after the list, no event is in flight.

`GET /settled?after=CLUSTER:RESOURCEVERSION&within=SECONDS` answers 200 once the process has seen
that version and is at rest, else 503 with the reason. An answer costs a list of each informer, so
the server handles one request at a time, once a second, and only from loopback addresses:
`kubectl port-forward` and `kubectl exec` are on the machine.
"""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from math import inf
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, make_wsgi_app

from reconciler.controller.queue import WorkQueue
from reconciler.controller.tasks import a_few
from reconciler.core.addresses import address_of
from reconciler.core.errors import ClusterError
from reconciler.kube.informer import Informer
from reconciler.web.requests import Request, RequestRefused, Response

_LONGEST: Final = 16 * 1024  # bytes of a request, which is a head and no more
_SLOWEST: Final = 5.0  # seconds for a request to come in, and for its answer to be taken
_SETTLING: Final = 6.0  # seconds for an answer
_QUERY: Final = "query"
# resourceVersions by cluster: what was written there.
Written: TypeAlias = Mapping[str, str]
NOTHING: Final[Written] = MappingProxyType({})
# Returns why the process is not at rest after so many seconds, "" once it is.
Settled: TypeAlias = Callable[[Written, float], Coroutine[Any, Any, str]]
SOON: Final = 1.0  # seconds: a delay that ends within these counts as work
_AT_ONCE: Final = 8  # lists
_LONGEST_WAIT: Final = 4.0  # seconds: the health server cuts off after five
_REST: Final = 1.0  # seconds from one answer to the next
_USAGE: Final = f"ask for after=CLUSTER:RESOURCEVERSION and within=0 to {_LONGEST_WAIT:g}"


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
    `ailment` is why the program is not healthy, `unready` why it cannot do its work yet, or "".
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


class Activity:
    """The views, the queues and the other work of one process, while they run.

    A view whose cluster cannot be read is never current, so such a program is not settled.
    """

    def __init__(self) -> None:
        self._views: list[Informer] = []
        self._queues: list[tuple[str, WorkQueue[Any]]] = []
        self._others: list[str] = []

    def view(self, view: Informer) -> Callable[[], None]:
        """Count a view in, until a call of the returned function."""
        self._views.append(view)
        return lambda: self._views.remove(view)

    def queue(self, name: str, queue: WorkQueue[Any]) -> Callable[[], None]:
        """Count a queue in, until a call of the returned function."""
        entry = (name, queue)
        self._queues.append(entry)
        return lambda: self._queues.remove(entry)

    @contextmanager
    def work(self, name: str) -> Iterator[None]:
        """Count in, for as long as the block lasts, work that comes from no queue."""
        self._others.append(name)
        try:
            yield
        finally:
            self._others.remove(name)

    def queued(self, soon: float = SOON) -> str:
        """Return the keys that wait, are worked on or are due soon, or ""."""
        found = (word for name, queue in self._queues for word in _queued(name, queue, soon))
        return "; ".join(found)

    def _pending(self, soon: float) -> str:
        """Return the undone work that queues and views know of, or ""."""
        unread = [f"{view.ref} was not read yet" for view in self._views if not view.synced]
        return "; ".join(filter(None, [*self._others, *unread, self.queued(soon)]))

    async def unsettled(self, written: Written, *, soon: float = SOON) -> str:
        """Return why the program is not at rest, "" if it is.

        At rest, every view shows what was written and whatever else is there, no key waits or is
        worked on, and no delay ends within `soon` seconds.
        """
        if reason := self._pending(soon):
            return reason
        before = self._state()
        if reason := await self._outdated(written):
            return reason
        if reason := self._pending(soon):
            return reason
        return "" if self._state() == before else "there was work in the meantime"

    def _state(self) -> object:
        """Return a value that differs after any work."""
        return [*self._views], [(queue, queue.taken) for _, queue in self._queues]

    async def _outdated(self, written: Written) -> str:
        views = list(self._views)
        clusters = {view.ref.cluster for view in views}
        if unknown := sorted(written.keys() - clusters):
            return f"no cluster is called {unknown[0]}; there are {', '.join(sorted(clusters))}"

        async def reason(view: Informer) -> str:
            try:
                is_current = await view.is_current(written.get(view.ref.cluster, ""))
            except ClusterError as error:
                return str(error)
            return "" if is_current else f"{view.ref} lacks changes"

        return "; ".join(filter(None, await asyncio.gather(*a_few(_AT_ONCE, reason, views))))


def _queued(name: str, queue: WorkQueue[Any], soon: float) -> Iterator[str]:
    if queue.waiting:
        yield f"{name}: {queue.waiting} keys wait"
    if queue.working:
        yield f"{name}: {queue.working} keys are worked on"
    if queue.due < soon:
        yield f"{name}: a key is due in {max(queue.due, 0):.1f} s"


class SettledProbe:
    """Asks the event loop that it was made in, from that of a health server."""

    def __init__(self, settled: Settled) -> None:
        self._settled, self._loop = settled, asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._next = 0.0

    async def __call__(self, client: str, query: str) -> Response:
        address = address_of(client.partition("%")[0])
        if address is None or not address.is_loopback:
            return plain("only those on this machine may ask", status=403)
        try:
            written, within = _asked(query)
        except ValueError:
            return plain(_USAGE, status=400)
        if self._turn.locked():
            return plain("another request is worked on", status=429)
        async with self._turn:
            try:
                await asyncio.sleep(self._next - time.monotonic())
                return plain(await self._ask(written, within))
            finally:
                self._next = time.monotonic() + _REST

    async def _ask(self, written: Written, within: float) -> str:
        asking = asyncio.run_coroutine_threadsafe(self._settled(written, within), self._loop)
        answer = asyncio.wrap_future(asking)
        try:
            ended, _ = await asyncio.wait([answer], timeout=_LONGEST_WAIT)
            if ended and not answer.cancelled():
                return answer.result()
            return "there was no answer in time"
        finally:
            answer.cancel()


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
    if fields or not 0 <= within <= _LONGEST_WAIT:
        raise ValueError(query)
    return written, within

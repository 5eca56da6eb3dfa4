"""Stand-ins for hundreds of API servers, in one process of its own.

Every answer takes `LATENCY` seconds. `GET /-/counts` tells how many calls there were, as the
servers saw them, and starts counting anew. Beside the server there is a port that accepts
connections and never says a word: a black hole. Real API servers are what the tests use; this is
for counts of clusters that no machine can run.
"""

import asyncio
import pickle
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final, NamedTuple, cast
from urllib.parse import parse_qs, unquote, urlsplit

import orjson
import uvloop

from reconciler import api
from reconciler.core.refs import CRD, LEASE, NAMESPACE, SECRET, SERVICE_ACCOUNT
from reconciler.kube.requests import APPLY_PATCH, JSON_PATCH
from tests.bench import store as stores
from tests.bench.large_fleet import CONTROL_PLANE
from tests.bench.peers import DELAY, Peers
from tests.bench.store import Collection, Object, Refusal, Store

LATENCY: Final = 0.020
COUNTS: Final = "/-/counts"
_PLURALS: Final = frozenset(
    one.plural
    for one in (
        *(NAMESPACE, SECRET, SERVICE_ACCOUNT, LEASE, CRD, api.CLUSTER_BINDING),
        *(api.API_SERVICE_EXPORT, api.API_SERVICE_EXPORT_REQUEST, api.API_SERVICE_BINDING),
    )
)
_REASONS: Final = {200: "OK", 201: "Created", 404: "Not Found", 409: "Conflict", 422: "Invalid"}


class Ports(NamedTuple):
    """Where the stand-ins are, on loopback."""

    server: int
    black_hole: int


class Call(NamedTuple):
    """One request."""

    method: str
    target: str
    accept: str
    content_type: str
    body: bytes


class Place(NamedTuple):
    """What a path leads to."""

    cluster: str
    collection: Collection
    namespace: str
    name: str


class Counts:
    """The calls since they were last asked for."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._writes: list[tuple[float, str]] = []

    def note(self, call: Call, cluster: str, status: int) -> None:
        """Count one, by where, verb and kind."""
        where = "control plane" if cluster == CONTROL_PLANE else "app clusters"
        path = call.target.partition("?")[0]
        kind = next((one for one in reversed(path.split("/")) if one in _PLURALS), "others")
        verb = call.method.lower()
        if verb == "get" and path.endswith(kind):
            verb = "list"
        self._calls[f"{where}: {verb} {kind}"] += 1
        if verb not in ("get", "list") and kind != LEASE.plural:
            self._writes.append((time.monotonic(), f"{verb} {path}: {status}"))

    def taken(self) -> bytes:
        """Return them, and start anew. Times are those of CLOCK_MONOTONIC. Leases are no writes."""
        reported = orjson.dumps({"calls": self._calls, "writes": self._writes})
        self.__init__()  # type: ignore[misc]
        return reported


class Servers:
    """All stand-ins: from a call to an answer."""

    def __init__(self, store: Store, peers: Peers, later: Callable[..., object]) -> None:
        self._store, self._peers, self._later = store, peers, later
        self._counts = Counts()

    def answer(self, call: Call) -> tuple[int, bytes]:
        """Return status and body; the first segment of the path is the cluster."""
        if call.target == COUNTS:
            return 200, self._counts.taken()
        url = urlsplit(call.target)
        cluster, *rest = map(unquote, url.path.strip("/").split("/"))
        try:
            status, body = self._answer(call, cluster, rest, parse_qs(url.query))
        except Refusal as refusal:
            status, body = refusal.code, refusal.body
        self._counts.note(call, cluster, status)
        return status, body

    def _answer(
        self, call: Call, cluster: str, rest: list[str], query: dict[str, list[str]]
    ) -> tuple[int, bytes]:
        if len(rest) <= (2 if rest[0] == "api" else 3):
            return self._discover(cluster, rest)
        place = self._place(cluster, rest)
        if place is None:
            return 404, b"404 page not found\n"
        manager = query.get("fieldManager", [""])[0]
        if call.method == "GET":
            return self._read(call, place, query)
        if call.method == "POST":
            return self._create(place, orjson.loads(call.body), manager)
        live = self._store.read(place.cluster, place.collection.kind, *place[2:])
        if live is None:
            raise _absent(place)
        if call.method == "DELETE":
            options = orjson.loads(call.body or b"{}")
            return 200, self._store.delete(place.cluster, place.collection.kind, live, options)
        changed = _patched(call, live, manager)
        return 200, self._store.replace(place.cluster, place.collection.kind, live, changed)

    def _place(self, cluster: str, rest: list[str]) -> Place | None:
        size = 1 if rest[0] == "api" else 2
        api_version, rest = "/".join(rest[1 : 1 + size]), rest[1 + size :]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            _, namespace, *rest = rest
        found = self._store.clusters.get(cluster, {}).get((api_version, rest[0]))
        if found is None or len(rest) > 2:
            return None
        return Place(cluster, found, namespace, rest[1] if len(rest) == 2 else "")

    def _read(self, call: Call, place: Place, query: dict[str, list[str]]) -> tuple[int, bytes]:
        metadata = "PartialObjectMetadata" in call.accept
        if place.name:
            found = place.collection.get(place.namespace, place.name)
            if found is None:
                raise _absent(place)
            return 200, found.shown(metadata=metadata)
        version = self._store.version()
        return 200, place.collection.page(
            query, namespace=place.namespace, version=version, metadata=metadata
        )

    def _create(self, place: Place, given: Object, manager: str) -> tuple[int, bytes]:
        kind = place.collection.kind
        if place.namespace:
            given["metadata"]["namespace"] = place.namespace
        body = self._store.create(place.cluster, kind, given, manager=manager)
        follows = self._peers.answer_to(place.cluster, kind, given)
        if follows is not None:
            self._later(DELAY, follows)
        return 201, body

    def _discover(self, cluster: str, rest: list[str]) -> tuple[int, bytes]:
        served = [one.kind for one in self._store.clusters[cluster].values()]
        if len(rest) == 1:
            versions = sorted({(one.group, one.api_version) for one in served if one.group})
            groups = [
                {"name": group, "versions": [{"groupVersion": version}]}
                for group, version in versions
            ]
            return 200, orjson.dumps({"kind": "APIGroupList", "groups": groups})
        wanted = "/".join(rest[1:])
        found = [
            {"name": one.plural, "namespaced": one.namespaced}
            for one in served
            if one.api_version == wanted
        ]
        if not found:
            return 404, b"404 page not found\n"
        return 200, orjson.dumps({"kind": "APIResourceList", "resources": found})


def _patched(call: Call, live: Object, manager: str) -> Object:
    given = orjson.loads(call.body)
    if call.content_type == JSON_PATCH:
        return stores.patched(live, given)
    if call.content_type == APPLY_PATCH:
        return stores.applied(live, given, manager=manager)
    return stores.merged(live, given)


def _absent(place: Place) -> Refusal:
    message = f'{place.collection.kind.plural} "{place.name}" not found'
    return Refusal(404, "NotFound", message, place.name)


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection, a request at a time."""

    def __init__(self, servers: Servers) -> None:
        self._servers, self._held = servers, b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._held += data
        while (call := self._next()) is not None:
            status, body = self._servers.answer(call)
            media = "application/json" if body.startswith(b"{") else "text/plain"
            head = (
                f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {media}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            asyncio.get_running_loop().call_later(LATENCY, self._send, head.encode() + body)

    def _next(self) -> Call | None:
        head, end, rest = self._held.partition(b"\r\n\r\n")
        if not end:
            return None
        line, *fields = head.decode("latin-1").split("\r\n")
        headers = {key.lower(): value for key, _, value in (one.partition(": ") for one in fields)}
        size = int(headers.get("content-length", "0"))
        if len(rest) < size:
            return None
        self._held = rest[size:]
        method, target, _ = line.split(" ")
        accept, media = headers.get("accept", ""), headers.get("content-type", "")
        return Call(method, target, accept, media, rest[:size])

    def _send(self, answer: bytes) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(answer)


async def _serve(folder: Path, fleet: str) -> None:
    with (folder / "state.pickle").open("rb") as file:
        store = Store(pickle.load(file))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    loop = asyncio.get_running_loop()
    servers = Servers(store, Peers(store, fleet), loop.call_later)
    server = await loop.create_server(
        lambda: Connection(servers), "127.0.0.1", 0, ssl=tls, backlog=2048
    )
    hole = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(server.sockets[0].getsockname()[1], hole.getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the bench closes our input
    server.close()
    hole.close()


@contextmanager
def running(folder: Path, fleet: str) -> Iterator[Ports]:
    """Serve what lies in `folder`: state.pickle, server.crt and server.key."""
    command = [sys.executable, "-m", "tests.bench.stand_in", str(folder), fleet]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the stand-in servers ended early; see their error above")
        yield Ports(*map(int, line.split()))
        process.stdin.close()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), sys.argv[2]))

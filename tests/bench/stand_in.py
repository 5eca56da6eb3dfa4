"""Stand-ins for hundreds of API servers, in one process of its own: reads only, from memory.

Every answer takes `LATENCY` seconds. Beside the server there is a port that accepts connections
and never says a word: a black hole. Real API servers are what the tests use; this is for counts
of clusters that no machine can run.
"""

import asyncio
import json
import pickle
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

import uvloop

from reconciler.core.refs import Kind

LATENCY: Final = 0.020


@dataclass(frozen=True, slots=True)
class Item:
    """One object, as JSON: whole, and as PartialObjectMetadata."""

    namespace: str
    name: str
    body: bytes
    metadata: bytes


@dataclass(frozen=True, slots=True)
class State:
    """What each cluster holds; a kind that is not named is not served there."""

    clusters: Mapping[str, Mapping[Kind, Sequence[Item]]]


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the stand-ins are, on loopback."""

    server: int
    black_hole: int


class Collection:
    """All objects of a kind in one cluster."""

    def __init__(self, kind: Kind, items: Sequence[Item]) -> None:
        self._kind, self._items = kind, sorted(items, key=lambda one: (one.namespace, one.name))

    @cached_property
    def _by_name(self) -> Mapping[tuple[str, str], Item]:
        return {(item.namespace, item.name): item for item in self._items}

    def get(self, namespace: str, name: str, *, metadata: bool) -> bytes | None:
        """Return one object."""
        item = self._by_name.get((namespace, name))
        return None if item is None else item.metadata if metadata else item.body

    def page(self, namespace: str, query: Mapping[str, Sequence[str]], *, metadata: bool) -> bytes:
        """Return a page of a list, as large and from where the query says."""
        wanted = query.get("fieldSelector", [""])[0].removeprefix("metadata.name=")
        found = [
            item
            for item in self._items
            if (not namespace or item.namespace == namespace)
            and (not wanted or item.name == wanted)
        ]
        start = int(query.get("continue", ["0"])[0])
        limit = int(query.get("limit", ["0"])[0]) or len(found)
        facts: dict[str, object] = {"resourceVersion": "184467"}
        left = len(found) - start - limit
        if left > 0:
            facts["continue"] = str(start + limit)
            if not wanted:
                facts["remainingItemCount"] = left
        head = {"kind": f"{self._kind.kind}List", "apiVersion": self._kind.api_version}
        if metadata:
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        shown = [item.metadata if metadata else item.body for item in found[start : start + limit]]
        opening = json.dumps({**head, "metadata": facts})[:-1].encode()
        return opening + b', "items": [' + b", ".join(shown) + b"]}"


class Router:
    """From a request to an answer: status and body."""

    def __init__(self, state: State) -> None:
        self._collections = {
            (cluster, kind.api_version, kind.plural): Collection(kind, items)
            for cluster, kinds in state.clusters.items()
            for kind, items in kinds.items()
        }

    def answer(self, target: str, accept: str) -> tuple[int, bytes]:
        """Return what `GET target` gives; the first segment of the path is the cluster."""
        url = urlsplit(target)
        cluster, root, *rest = map(unquote, url.path.strip("/").split("/"))
        api_version = "/".join(rest[: 1 if root == "api" else 2])
        rest = rest[1 if root == "api" else 2 :]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            _, namespace, *rest = rest
        metadata = "PartialObjectMetadata" in accept
        found = self._collections.get((cluster, api_version, rest[0]))
        if found is None:
            return 404, b"404 page not found\n"
        if len(rest) == 1:
            return 200, found.page(namespace, parse_qs(url.query), metadata=metadata)
        body = found.get(namespace, rest[1], metadata=metadata)
        return (404, _absent(rest[0], rest[1])) if body is None else (200, body)


def _absent(plural: str, name: str) -> bytes:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'{plural} "{name}" not found',
        "reason": "NotFound",
        "details": {"name": name, "kind": plural},
        "code": 404,
    }
    return json.dumps(status).encode()


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection, a request at a time."""

    def __init__(self, router: Router) -> None:
        self._router, self._held = router, b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete; none has a body."""
        self._held += data
        while b"\r\n\r\n" in self._held:
            head, _, self._held = self._held.partition(b"\r\n\r\n")
            line, *headers = head.decode("latin-1").split("\r\n")
            accept = next((one for one in headers if one.lower().startswith("accept:")), "")
            status, body = self._router.answer(line.split(" ")[1], accept)
            reason = "OK" if status == 200 else "Not Found"
            media = "application/json" if body.startswith(b"{") else "text/plain"
            answer = (
                f"HTTP/1.1 {status} {reason}\r\nContent-Type: {media}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            ).encode() + body
            asyncio.get_running_loop().call_later(LATENCY, self._send, answer)

    def _send(self, answer: bytes) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(answer)


async def _serve(folder: Path) -> None:
    with (folder / "state.pickle").open("rb") as file:
        router = Router(pickle.load(file))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(router), "127.0.0.1", 0, ssl=tls, backlog=2048
    )
    hole = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(server.sockets[0].getsockname()[1], hole.getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the bench closes our input
    server.close()
    hole.close()


@contextmanager
def running(folder: Path) -> Iterator[Ports]:
    """Serve what lies in `folder`: state.pickle, server.crt and server.key."""
    command = [sys.executable, "-m", "tests.bench.stand_in", str(folder)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the stand-in servers ended early; see their error above")
        yield Ports(*map(int, line.split()))
        process.stdin.close()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))

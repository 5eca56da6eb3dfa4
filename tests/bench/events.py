"""What a cache costs: CPU for each event of a watch beside bare aiohttp + orjson, and memory.

A stand-in sends 10,000 events one by one, each in a TLS record of its own, as fast as a busy API
server would. Both clients take turns in this process, on uvloop, and only this process is
measured. Ours lists first, keeps the objects, an index, and wakes a consumer; the bare one does
no more than decode each line.
"""

import asyncio
import gc
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
import uvloop

from klutchctl.sandbox import credentials
from klutchctl.sandbox.credentials import Use
from reconciler.controller import process
from reconciler.core.manifest import Manifest, get_text, name_of
from reconciler.core.refs import Kind
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from reconciler.kube.informer import Informer
from reconciler.kube.store import Index, Store
from tests.bench.plans import verdict
from tests.support.raw import http_session

T = TypeVar("T")

EVENTS: Final = 10_000
PACE: Final = 2_500  # events a second
OBJECTS: Final = 1_000
ROUNDS: Final = 7
RATIO: Final = 1.3
CACHED: Final = 20_000
WIDGET: Final = Kind("bench.example", "v1", "Widget", "widgets")
_LAST: Final = "last"
_START: Final = 1_000_000  # the resourceVersion of the list
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def widget(number: int, version: int, name: str = "") -> dict[str, Any]:
    """Return an object of about 1.5 kB, and 0.5 kB of managed fields beside that."""
    labels = {"app.kubernetes.io/managed-by": "bench", "team": f"team-{number % 50}"}
    conditions = [
        {
            "type": one,
            "status": "True",
            "reason": "AsExpected",
            "message": f"{one} since the service instance was provisioned",
            "lastTransitionTime": "2026-11-22T03:04:05Z",
            "observedGeneration": 3,
        }
        for one in ("Ready", "Connected", "SecretValid")
    ]
    fields: dict[str, Any] = {f"f:parameter-{index}": {} for index in range(20)}
    return {
        "apiVersion": WIDGET.api_version,
        "kind": WIDGET.kind,
        "metadata": {
            "annotations": {"bench.example/source": f"bindings/team-{number % 50}/databases.yaml"},
            "creationTimestamp": "2026-11-22T03:04:05Z",
            "finalizers": ["bench.example/keep"],
            "generation": 3,
            "labels": labels,
            "managedFields": [
                {
                    "manager": "bench",
                    "operation": "Apply",
                    "apiVersion": WIDGET.api_version,
                    "time": "2026-11-22T03:04:05Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": fields},
                }
            ],
            "name": name or f"widget-{number:05}",
            "namespace": f"space-{number % 100}",
            "resourceVersion": str(version),
            "uid": f"00000000-0000-4000-8000-{number:012}",
        },
        "spec": {f"parameter-{index}": f"value-{number + index}" for index in range(20)},
        "status": {"conditions": conditions, "phase": "Bound"},
    }


# The stand-in


def listing() -> bytes:
    """Return the list from which the watch starts."""
    items = [widget(number, number + 1) for number in range(OBJECTS)]
    metadata = {"resourceVersion": str(_START)}
    kind = f"{WIDGET.kind}List"
    return orjson.dumps(
        {"kind": kind, "apiVersion": WIDGET.api_version, "metadata": metadata, "items": items}
    )


def chunks() -> Sequence[bytes]:
    """Return the events as they go over the wire."""
    numbers = range(1, EVENTS + 1)
    objects = [
        widget(number % OBJECTS, _START + number, _LAST if number == EVENTS else "")
        for number in numbers
    ]
    lines = [orjson.dumps({"type": "MODIFIED", "object": one}) + b"\n" for one in objects]
    return [b"%x\r\n%b\r\n" % (len(line), line) for line in lines]


def serve(folder: Path) -> None:
    """Answer lists and watches, one connection at a time each, until the bench ends us."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    listed, events = listing(), chunks()
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            raw, _ = server.accept()
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with tls.wrap_socket(raw, server_side=True) as connection:
                if b"watch=1" in _request(connection):
                    _stream(connection, events)
                else:
                    length = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(listed)
                    connection.sendall(_HEAD + length + listed)


def _request(connection: ssl.SSLSocket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    return received


def _stream(connection: ssl.SSLSocket, events: Sequence[bytes]) -> None:
    connection.sendall(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    began = time.monotonic()
    try:
        for number, event in enumerate(events):
            time.sleep(max(0.0, began + number / PACE - time.monotonic()))
            connection.sendall(event)
        connection.recv(1)  # until the client leaves
    except OSError:
        return


@contextmanager
def stand_in(folder: Path) -> Iterator[Connection]:
    now = datetime.now(UTC)
    authority = credentials.authority("bench", now=now)
    server = credentials.issue(authority, "kube-apiserver", use=Use.SERVER, now=now)
    (folder / "server.crt").write_bytes(server.certificate_pem)
    (folder / "server.key").write_bytes(server.key_pem)
    command = [sys.executable, "-m", "tests.bench.events", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield Connection(
                name="bench",
                server=f"https://127.0.0.1:{port}",
                ca=authority.certificate_pem.decode(),
            )
        finally:
            process.terminate()


# The clients


def indexes() -> dict[str, Index]:
    """Return what a controller needs: the object itself, and what it belongs to."""
    return {
        "name": lambda one: [name_of(one)],
        "team": lambda one: [get_text(one, "metadata", "labels", "team")],
    }


async def ours(connection: Connection) -> float:
    """Return the CPU seconds of an informer from its list to the last event."""
    over = asyncio.Event()
    woken: set[str] = set()

    def enqueue(name: str) -> None:
        woken.add(name)
        if name == _LAST:
            over.set()

    async with KubeCluster(connection) as cluster:
        informer = Informer(cluster, WIDGET, indexes=indexes())
        informer.store.subscribe("name", enqueue)
        running = asyncio.create_task(informer.run())
        await informer.wait_synced()
        began = time.process_time()
        await over.wait()
        spent = time.process_time() - began
        running.cancel()
    if len(informer.store) != OBJECTS + 1 or len(woken) != OBJECTS + 1:
        raise SystemExit("the cache is not what was sent")
    return spent


async def bare(connection: Connection) -> float:
    """Return the CPU seconds of decoding each line."""
    path = f"/apis/{WIDGET.api_version}/{WIDGET.plural}?watch=1"
    async with http_session(connection) as session:
        began = time.process_time()
        async with session.get(path) as response:
            left = EVENTS
            async for line in response.content:
                orjson.loads(line)
                left -= 1
                if not left:
                    break
        return time.process_time() - began


def bench_cpu(connection: Connection) -> None:
    """Measure the CPU of both, in turn, after a round that is not counted."""
    rounds: list[tuple[float, float]] = []
    process.tune_memory()  # as in our programs
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for number in range(ROUNDS + 1):
            pair = []
            for client in (ours, bare):
                gc.collect()
                pair.append(runner.run(client(connection)) / EVENTS * 1e6)
            if number:
                rounds.append((pair[0], pair[1]))
    our, their = (statistics.median(one) for one in zip(*rounds, strict=True))
    ratio = statistics.median(one / other for one, other in rounds)
    print(
        f"\nwatch of {EVENTS} events, {PACE} a second (median of {ROUNDS} alternating pairs): "
        f"informer {our:.1f} us CPU an event, bare aiohttp + orjson {their:.1f}: "
        f"{ratio:.2f}x, {verdict(ratio, RATIO)} {RATIO}x"
    )


def bench_memory() -> None:
    """Measure what cached objects take, and what they would take decoded."""
    lines = [orjson.dumps(widget(number, number)) for number in range(CACHED)]

    def cached() -> Store:
        store = Store(WIDGET, indexes())
        for line in lines:
            store.put(orjson.loads(line))
        return store

    def decoded() -> list[Manifest]:
        return [orjson.loads(line) for line in lines]

    store, kept = _memory(cached)
    _, plain = _memory(decoded)
    text = sum(len(orjson.dumps(one)) for one in store.all())
    print(
        f"\n{CACHED} cached objects with two indexes: {kept / CACHED:.0f} bytes each, of which "
        f"{text / CACHED:.0f} are JSON; with managed fields and decoded it would be "
        f"{plain / CACHED:.0f}"
    )


def _memory(make: Callable[[], T]) -> tuple[T, int]:
    """Return what was made, and the bytes that it holds."""
    gc.collect()
    tracemalloc.start()
    made = make()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return made, held


def main() -> None:
    bench_memory()
    with (
        tempfile.TemporaryDirectory(prefix="klutchctl-bench-") as name,
        stand_in(Path(name)) as connection,
    ):
        bench_cpu(connection)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))

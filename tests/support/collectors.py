"""A collector of traces that speaks OTLP over HTTP, and one that never answers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Received:
    """What a collector was sent: the bodies, and their spans."""

    url: str
    bodies: list[bytes] = field(default_factory=list)

    @property
    def spans(self) -> list[Any]:
        """The spans of all bodies, in their order."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        resources = [one for request in requests for one in request.resource_spans]
        scopes = [one for resource in resources for one in resource.scope_spans]
        return [span for scope in scopes for span in scope.spans]

    def children(self) -> dict[str, set[str]]:
        """Return the names of the spans within each span, by its name; "" is none."""
        names = {span.span_id: span.name for span in self.spans}
        found: dict[str, set[str]] = {}
        for span in self.spans:
            found.setdefault(names.get(span.parent_span_id, ""), set()).add(span.name)
        return found


@contextmanager
def collector(*, hangs: bool = False) -> Iterator[Received]:
    """Collect for the length of the block; one that hangs answers at its end."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            if hangs:
                over.wait()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received = Received(f"http://127.0.0.1:{server.server_port}")
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield received
        finally:
            over.set()
            server.shutdown()
            serving.join()

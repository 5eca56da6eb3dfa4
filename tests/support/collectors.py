"""A collector of traces that speaks OTLP over HTTP, and one that never answers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.answering import Answer, Asked, answering


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
    over, received = threading.Event(), Received("")

    def answer(asked: Asked) -> Answer:
        received.bodies.append(asked.body)
        if hangs:
            over.wait()
        return 200, {"Content-Type": "application/x-protobuf"}, b""

    with answering(answer) as port:
        received.url = f"http://127.0.0.1:{port}"
        try:
            yield received
        finally:
            over.set()

"""Exports spans by OpenTelemetry: the extra `otel`, imported only where spans are collected.

OpenTelemetry reads the rest of its variables (headers, certificates, sampling) by itself.
"""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags

from reconciler.controller import log_context
from reconciler.controller.tracing import Ended, TraceId

_NANO: Final = 1_000_000_000
_LAST: Final = 5.0  # seconds for the last spans, when a program ends


class _Ids:
    """Random ids, but for the first span of an object's trace."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.given: TraceId | None = None

    def generate_trace_id(self) -> int:
        return self._random.generate_trace_id() if self.given is None else self.given.trace

    def generate_span_id(self) -> int:
        return self._random.generate_span_id() if self.given is None else self.given.root

    def is_trace_id_random(self) -> bool:
        return self.given is None


class OpenTelemetry:
    """A tracer that gives its spans to a processor."""

    def __init__(self, program: str, processor: SpanProcessor) -> None:
        self._ids = _Ids()
        named = {"service.name": program, "service.version": version("klutchctl")}
        self.provider = TracerProvider(
            resource=Resource.create(named),
            id_generator=cast("IdGenerator", self._ids),
            shutdown_on_exit=False,
        )
        self.provider.add_span_processor(processor)
        self._tracer = self.provider.get_tracer("klutchctl")

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, str]) -> Iterator[None]:
        """Open a span for the length of a block, within that which is open already.

        Of an error only its type is exported: texts may hold values.
        """
        opened = self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        )
        with opened as span:
            context = span.get_span_context()
            ids = {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
            try:
                with log_context.fields(**ids):
                    yield
            except asyncio.CancelledError:
                raise  # that it is to end is no failure
            except BaseException as error:
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise

    def record(self, span: Ended) -> None:
        self._ids.given = span.of if span.is_root else None
        try:
            made = self._tracer.start_span(
                span.name,
                Context() if span.is_root else self._below(span),
                attributes=span.attributes,
                start_time=int(span.began * _NANO),
            )
        finally:
            self._ids.given = None
        made.end(int(span.ended * _NANO))

    def _below(self, span: Ended) -> Context:
        """Return the context of a child, which is sampled where its root is."""
        found = self.provider.sampler.should_sample(Context(), span.of.trace, span.name)
        flags = TraceFlags(
            TraceFlags.SAMPLED if found.decision is Decision.RECORD_AND_SAMPLE else 0
        )
        root = SpanContext(span.of.trace, span.of.root, is_remote=True, trace_flags=flags)
        return trace.set_span_in_context(NonRecordingSpan(root), Context())


@contextmanager
def exporter(program: str) -> Iterator[OpenTelemetry]:
    """Yield a tracer that exports in a thread of its own, and export the last spans at the end."""
    tracer = OpenTelemetry(program, BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield tracer
    finally:
        # A collector that hangs must not keep a program from its end.
        ending = threading.Thread(target=tracer.provider.shutdown, daemon=True)
        ending.start()
        ending.join(_LAST)

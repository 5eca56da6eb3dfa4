"""Spans: of what, in which trace, and nothing where nobody collects them."""

import hashlib
import os
import sys
from contextlib import nullcontext

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from reconciler.controller import log_context, tracing
from reconciler.controller.tracing import Ended, TraceId, Trips, Write, secret_down, trace_of
from reconciler.controller.tracing.otel import OpenTelemetry
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest
from tests.support.spans import Collector

CLAIM: Manifest = {"metadata": {"uid": "u-1", "generation": 3}}
OF = TraceId.of("u-1", 3)


@pytest.fixture
def collector():
    made = Collector()
    with tracing.collected(made):
        yield made


@pytest.fixture
def finished():
    """Collect by OpenTelemetry, and return what it would export."""
    exporter = InMemorySpanExporter()
    tracer = OpenTelemetry("konnector", SimpleSpanProcessor(exporter))
    with tracing.collected(tracer):
        yield exporter.get_finished_spans
    tracer.provider.shutdown()


def test_the_trace_of_an_object_follows_from_what_both_sides_know():
    assert f"{OF.trace:032x}{OF.root:016x}" == hashlib.sha256(b"u-1/3").hexdigest()[:48]
    assert trace_of(CLAIM) == OF
    assert trace_of({"metadata": {"uid": "u-1", "generation": 4}}) != OF
    assert trace_of({"metadata": {"uid": "u-2"}}) == TraceId.of("u-2", 0)


def test_where_nobody_collects_there_is_nothing():
    assert not tracing.is_on()
    assert isinstance(tracing.span("read"), nullcontext)
    assert tracing.span("read") is tracing.span("plan")
    tracing.record(Ended(name="up", of=OF, began=0, ended=1))


def test_without_an_endpoint_nothing_is_exported():
    with tracing.exported({"OTEL_SERVICE_NAME": "x"}, "konnector"):
        assert not tracing.is_on()


def test_an_endpoint_without_the_extra_is_a_mistake_that_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "reconciler.controller.tracing.otel", None)
    monkeypatch.delattr(tracing, "otel", raising=False)
    exported = tracing.exported({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "konnector")
    with pytest.raises(ConfigError, match=r"Install klutchctl\[otel\]"), exported:
        pass


def test_a_claim_goes_up_waits_for_its_provider_and_its_status_comes_down(collector):
    trips = Trips(resource="databases.anynines.com")
    trips.up("team-a/db", CLAIM, Write(100.0, 100.2))
    trips.down("team-a/db", CLAIM, Write(107.0, 107.1), is_ready=False)
    trips.down("team-a/db", CLAIM, Write(130.0, 130.3), is_ready=True)
    trips.down("team-a/db", CLAIM, Write(900.0, 900.3), is_ready=True)  # that was it
    assert collector.lines() == [
        "up 100.0-100.2",
        "provider 100.2-107.0",
        "status.down 107.0-107.1",
        "provider 107.1-130.0",
        "status.down 130.0-130.3",
        "klutch.claim 100.0-130.3 root",
    ]
    assert {one.of for one in collector.ended} == {OF}
    assert {tuple(one.attributes.items()) for one in collector.ended} == {
        (("resource", "databases.anynines.com"),)
    }


def test_another_generation_is_another_trace(collector):
    after: Manifest = {"metadata": {"uid": "u-1", "generation": 4}}
    trips = Trips()
    trips.up("db", CLAIM, Write(100.0, 100.2))
    trips.up("db", after, Write(200.0, 200.2))
    trips.down("db", after, Write(201.0, 201.5), is_ready=True)
    assert [one.of for one in collector.ended] == [OF, *[trace_of(after)] * 4]
    assert collector.lines()[-1] == "klutch.claim 200.0-201.5 root"


def test_a_trip_whose_beginning_nobody_saw_is_not_traced(collector):
    trips = Trips()
    trips.down("db", CLAIM, Write(201.0, 201.5), is_ready=True)
    trips.up("db", CLAIM, Write(300.0, 300.1))
    trips.forget("db")
    trips.down("db", CLAIM, Write(301.0, 301.5), is_ready=True)
    assert collector.lines() == ["up 300.0-300.1"]


def test_both_sides_of_a_claim_are_one_trace_in_what_is_exported(finished):
    trips = Trips(resource="databases.anynines.com")
    trips.up("db", CLAIM, Write(100.0, 100.2))
    trips.down("db", CLAIM, Write(107.0, 107.1), is_ready=True)
    secret_down(OF, Write(108.0, 108.5))
    spans = {span.name: span for span in finished()}
    assert set(spans) == {"klutch.claim", "up", "provider", "status.down", "secret.down"}
    assert {span.context.trace_id for span in spans.values()} == {OF.trace}
    root = spans.pop("klutch.claim")
    assert (root.context.span_id, root.parent) == (OF.root, None)
    assert {span.parent.span_id for span in spans.values()} == {OF.root}
    assert (root.start_time, root.end_time) == (100_000_000_000, 107_100_000_000)
    assert root.resource.attributes["service.name"] == "konnector"


def test_spans_of_a_round_lie_within_each_other_and_the_log_names_them(finished):
    with tracing.span("klutchctl.round", fleet="acme"):
        outer = log_context.current()
        with tracing.span("read"):
            inner = log_context.current()
    read, whole = finished()
    assert (read.name, whole.name) == ("read", "klutchctl.round")
    assert read.parent.span_id == whole.context.span_id
    assert outer["trace_id"] == inner["trace_id"] == f"{whole.context.trace_id:032x}"
    assert inner["span_id"] == f"{read.context.span_id:016x}"
    assert log_context.current() == {}


def test_of_an_error_only_its_type_is_exported(finished):
    with pytest.raises(ConfigError), tracing.span("klutchctl.round"):
        raise ConfigError("hunter2canary", where="x")
    (span,) = finished()
    assert (span.status.is_ok, span.status.description, span.events) == (False, "ConfigError", ())
    assert "hunter2canary" not in span.to_json()


def test_children_are_sampled_where_their_root_is(monkeypatch):
    monkeypatch.setitem(os.environ, "OTEL_TRACES_SAMPLER", "always_off")
    exporter = InMemorySpanExporter()
    tracer = OpenTelemetry("konnector", SimpleSpanProcessor(exporter))
    with tracing.collected(tracer):
        Trips().up("db", CLAIM, Write(100.0, 100.2))
    assert exporter.get_finished_spans() == ()
    tracer.provider.shutdown()

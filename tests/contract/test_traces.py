"""Traces as a collector gets them, by OTLP over HTTP."""

import time

import pytest

from reconciler.controller import tracing
from reconciler.controller.tracing import TraceId, Trips, Write, otel
from reconciler.core.manifest import Manifest
from tests.support.apply_runs import mode, scene
from tests.support.collectors import collector
from tests.support.eventually import eventually
from tests.support.role_holders import operator
from tests.support.watching import watching

__all__ = ["mode", "scene"]
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
CLAIM: Manifest = {"metadata": {"uid": "u-1", "generation": 1}}


def test_spans_are_exported_at_the_latest_when_a_program_ends(monkeypatch):
    with collector() as received:
        monkeypatch.setenv(ENDPOINT, received.url)
        with tracing.exported({ENDPOINT: received.url}, "konnector"):
            assert tracing.is_on()
            trips = Trips(resource="databases.anynines.com")
            trips.up("db", CLAIM, Write(100.0, 100.2))
            trips.down("db", CLAIM, Write(107.0, 107.1), is_ready=True)
        assert not tracing.is_on()
    assert received.children() == {
        "": {"klutch.claim"},
        "klutch.claim": {"up", "provider", "status.down"},
    }
    of = TraceId.of("u-1", 1)
    assert {span.trace_id for span in received.spans} == {of.trace.to_bytes(16)}
    assert b"konnector" in received.bodies[0]


def test_a_collector_that_hangs_keeps_no_program_from_its_end(monkeypatch):
    monkeypatch.setattr(otel, "_LAST", 0.1)
    with collector(hangs=True) as received:
        monkeypatch.setenv(ENDPOINT, received.url)
        began = time.monotonic()
        with tracing.exported({ENDPOINT: received.url}, "konnector"):
            Trips().up("db", CLAIM, Write(100.0, 100.2))
        assert time.monotonic() - began < 5


@pytest.fixture
async def person(scene):
    async with operator((scene.plane, scene.app), scene.fleet.folder) as somebody:
        scene.kubeconfig, scene.user = somebody
        yield scene


async def test_a_round_is_a_trace_without_a_secret(person):
    folder = person.fleet.folder / "fleet"
    folder.mkdir()
    person.fleet.folder = folder
    person.fleet.write()
    with collector() as received:
        environ = {ENDPOINT: received.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        async with (
            person.peers(),
            watching(person.kubeconfig, str(folder), "--poll", "0.5", environ=environ) as watch,
        ):
            await eventually(lambda: "klutchctl.round" in received.children())
            assert await watch.end() == 143
    found = received.children()
    assert found[""] == {"klutchctl.round"}
    assert found["klutchctl.round"] == {"read", "plan", "apply"}
    tokens = [line for line in person.kubeconfig.read_text().splitlines() if "token" in line]
    secrets = [line.split()[-1].encode() for line in tokens]
    assert len(secrets) > 0
    assert [one for one in secrets for body in received.bodies if one in body] == []

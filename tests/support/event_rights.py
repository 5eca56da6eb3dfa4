"""Whether an account may write Events: one that is told twice, a minute later."""

import asyncio
import uuid

from reconciler.controller.events import EventRecorder, Source
from reconciler.controller.fence import WriteFence
from reconciler.controller.metrics import Metrics
from reconciler.core import refs
from reconciler.core.decision import Note
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from tests.support.eventually import eventually
from tests.support.fake_clock import FakeClock


async def recorded_and_counted(way: Connection, namespace: str, *, inside: bool = False) -> None:
    """Tell an Event about a Namespace, or an object in it, twice, with a minute in between."""
    clock, metrics = FakeClock(), Metrics()
    async with KubeCluster(way) as cluster:
        recorder = EventRecorder(
            cluster,
            WriteFence(),
            source=Source("klutchctl.dev/tests", "tests-1"),
            manager="tests",
            clock=clock,
            metrics=metrics,
        )
        about = Ref(cluster.name, refs.NAMESPACE, "", namespace)
        if inside:
            about = Ref(cluster.name, refs.LEASE, namespace, "tests")
        live: Manifest = {"metadata": {"uid": uuid.uuid4().hex}}
        running = asyncio.create_task(recorder.run())
        for result in ("sent", "counted"):
            recorder.record(about, live, Note("Tried", "the rights suffice"))
            await clock.advance(61)
            await _reported(metrics, result)
        recorder.stop()
        await running


async def _reported(metrics: Metrics, result: str) -> None:
    def counted():
        return metrics.registry.get_sample_value("klutch_events_total", {"result": result})

    await eventually(counted)

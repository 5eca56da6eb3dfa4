"""A konnector, as a process, exports the trace of a claim."""

import hashlib
import sys

from reconciler.core.manifest import uid_of
from tests.support.bound_scenes import Scene
from tests.support.collectors import collector
from tests.support.eventually import eventually
from tests.support.konnector_claims import bound
from tests.support.provider_news import READY, says
from tests.support.replicas import replicas


async def test_a_claim_is_a_trace(scene: Scene, tmp_path, monkeypatch) -> None:
    command = (sys.executable, "-m", "konnector")
    with collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        async with (
            scene.backend(),
            replicas(scene.app, scene.app_namespace, tmp_path, command=command) as made,
        ):
            await made.leader(await made.start())
            await bound(scene)
            await says(scene, READY)
            await eventually(lambda: "klutch.claim" in received.children())
            uid = uid_of(await scene.instance())
    assert received.children() == {
        "": {"klutch.claim"},
        "klutch.claim": {"up", "provider", "status.down"},
    }
    digest = hashlib.sha256(f"{uid}/1".encode()).digest()
    assert {span.trace_id for span in received.spans} == {digest[:16]}

"""What the metrics and traces of a konnector and a backend say of a claim, from end to end."""

from reconciler.controller import tracing
from reconciler.controller.tracing import TraceId, trace_of
from reconciler.core.manifest import name_of, uid_of
from reconciler.core.refs import SECRET
from tests.support.bound_scenes import Scene, gone, remove, until
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound, claim, data
from tests.support.provider_news import READY, WAITS, says
from tests.support.settled import settled
from tests.support.spans import Collector


async def test_a_claim_is_one_trace_over_both_sides(scene: Scene) -> None:
    collector = Collector()
    with tracing.collected(collector):
        async with scene.backend(), konnector(scene.app.connection) as made:
            there, here = await bound(scene, claim("secrets", "Provider"))
            await says(scene, WAITS)
            await says(scene, READY)
            copy = await scene.copy()
            owner = {
                "apiVersion": copy["apiVersion"],
                "kind": copy["kind"],
                "name": name_of(copy),
                "uid": uid_of(copy),
            }
            await there.make(SECRET, "creds", metadata={"ownerReferences": [owner]}, **data("one"))
            await until(lambda: here.holds(SECRET, "creds", "one"))
            foreign = await there.make(SECRET, "foreign", **data("two"))
            await until(lambda: here.holds(SECRET, "foreign", "two"))
            await settled(made)
            of = trace_of(await scene.instance())

    assert of == TraceId.of(uid_of(await scene.instance()), 1)
    assert [one.name for one in collector.ended if one.of == of] == [
        *("up", "provider", "status.down", "provider", "status.down", "klutch.claim"),
        "secret.down",
    ]
    assert [one.of for one in collector.ended if one.of != of] == [trace_of(foreign)]
    root = next(one for one in collector.ended if one.is_root)
    inside = [one for one in collector.ended if one.of == of and one.name != "secret.down"]
    assert min(one.began for one in inside) == root.began
    assert max(one.ended for one in inside) == root.ended


async def test_claims_syncs_spaces_and_heartbeats_are_counted(scene: Scene) -> None:
    resource = scene.offer.name
    async with scene.backend() as backend, konnector(scene.app.connection) as made:

        def value(name: str, **labels: str) -> float | None:
            return made.metrics.registry.get_sample_value(f"klutch_{name}", labels)

        await bound(scene)
        await says(scene, READY)
        await settled(made)
        assert value("claims", resource=resource, state="synced") == 1
        assert value("claims", resource=resource, state="pending") == 0
        assert value("sync_seconds_count", resource=resource, direction="up") == 1
        assert value("sync_seconds_count", resource=resource, direction="down") == 1
        assert (value("heartbeat_timestamp_seconds") or 0) > 0
        await settled(backend)
        spaces = backend.metrics.registry.get_sample_value
        assert spaces("klutch_spaces", {"state": "connected"}) == 1
        assert spaces("klutch_spaces", {"state": "pending"}) == 0

        await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
        await until(lambda: gone(scene.instance()))
        await settled(made)
        assert value("claims", resource=resource, state="synced") == 0
        assert value("claims", resource=resource, state="deleting") == 0
    assert value("heartbeat_timestamp_seconds") is None  # nobody serves the space any more

"""What does not answer is told once it is late, and nothing else waits for it.

protocol-konnector.md A.7, H16, H27, between real API servers.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from konnector.provider.provider import LATE
from reconciler.blueprints.objects import build
from reconciler.controller.elections import Term
from reconciler.core.errors import ClusterError
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from tests.support.bound_scenes import Scene, conditions, gone, has, remove, says, shown, until
from tests.support.cues import Gate
from tests.support.eventually import eventually
from tests.support.faults import Faults, on
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import konnector
from tests.support.konnector_claims import is_idle
from tests.support.konnector_faults import mortal
from tests.support.konnector_scenes import equals, event, refusal
from tests.support.konnector_ways import fronting

WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
OTHERS: Final = tuple(f"db{number}" for number in range(5))


async def test_a_provider_that_never_answered_is_told_once_it_is_late(scene: Scene) -> None:
    """H16: for the original it is synced by then."""
    clock = ForwardClock()
    async with fronting(scene.plane) as way, scene.backend():
        led = replace(scene.plane, connection=way.connection)
        await replace(scene, plane=led).make_space()
        await scene.request()
        way.refuse()
        async with konnector(scene.app.connection, clock=clock) as made:
            await scene.bind()
            await until(lambda: says(scene.binding(), "SecretValid"))
            before = looks(made)
            clock.put_forward(timedelta(seconds=LATE / 2))
            await eventually(lambda: looks(made) > before)
            await eventually(lambda: is_idle(made))
            pending = ("False", "Info", "Pending")
            assert shown(await scene.binding()) == [
                ("Ready", *pending),
                ("Connected", *pending),
                ("SecretValid", "True"),
            ]

            clock.put_forward(timedelta(seconds=LATE / 2))
            await until(lambda: is_late(scene, clock))
            late = ("False", "Error", "InformerSyncTimeout")
            assert shown(await scene.binding()) == [
                ("Ready", *late),
                ("Connected", "Unknown", "Unknown"),
                ("InformersSynced", *late),
                ("SecretValid", "True"),
            ]
            await until(lambda: is_explained(scene, clock))

            await way.accept()
            await until(lambda: says(scene.binding(), "InformersSynced"))
            await until(lambda: says(scene.binding(), "Ready"))


def looks(made: Term) -> float:
    """Return how often a binding came to be looked at."""
    name = {"name": "servicebinding"}
    return made.metrics.registry.get_sample_value("workqueue_adds_total", name) or 0


async def is_late(scene: Scene, clock: ForwardClock) -> bool:
    """Tell whether it is said; let the konnector look at the binding again until it is."""
    clock.put_forward(timedelta(seconds=5))
    return await says(scene.binding(), "InformersSynced", "False", "InformerSyncTimeout")


async def is_explained(scene: Scene, clock: ForwardClock) -> bool:
    """Tell whether it is said what was not read, and why."""
    clock.put_forward(timedelta(seconds=5))
    message = conditions(await scene.binding())["InformersSynced"]["message"]
    for kind in ("ClusterBinding", "APIServiceExport", "APIServiceNamespace"):
        assert f"list {kind} list in namespace {scene.space}: no connection" in message
    return True


async def test_no_instance_waits_for_a_slow_one(scene: Scene) -> None:
    """H27: neither those that come, nor those that change, nor those that go."""
    faults, gate = Faults(), Gate()
    async with scene.backend(), mortal(scene.app.connection, faults):
        await scene.bound()
        await scene.create_instance(size="1Gi")
        await until(scene.copy)
        faults.add(on("create", "apply", kind=scene.offer.kind, name="slow"), gate)
        await scene.create_instance("slow")
        await gate.reached.wait()
        try:
            await others_come_change_and_go(scene)
            assert await scene.copy("slow") is None
        finally:
            gate.open()
        await until(lambda: scene.copy("slow"))


@asynccontextmanager
async def failing_webhook(scene: Scene) -> AsyncIterator[None]:
    """Let the control plane ask a webhook about instances that nobody serves."""
    kind, live = scene.offer.kind, scene.plane.cluster
    rule: Manifest = {
        "apiGroups": [kind.group],
        "apiVersions": ["*"],
        "resources": [kind.plural],
        "operations": ["CREATE"],
    }
    webhook: Manifest = {
        "name": f"judge.{kind.group}",
        "clientConfig": {"url": "https://127.0.0.1:1/judge"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    made = build(WEBHOOKS, kind.group, webhooks=[webhook])
    await live.create(made, WEBHOOKS, manager="provider")

    async def asked() -> bool:
        probe = scene.offer.instance("probe", namespace=scene.space, spec={})
        try:
            await live.create(probe, kind, manager="tests", dry_run=True)
        except ClusterError:
            return True
        return False

    try:
        await until(asked)
        yield
    finally:
        await remove(scene.plane, WEBHOOKS, "", kind.group)


async def test_a_failure_of_the_control_plane_itself_is_told_until_it_is_over(scene: Scene) -> None:
    """H17: to an API server, a webhook that cannot be asked is a failure of its own."""
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound()
        async with failing_webhook(scene):
            await scene.create_instance(size="1Gi")
            told = await until(lambda: event(scene, "orders", "SyncDenied"))
            assert "failed calling webhook" in told["note"]
            assert f"{scene.app_namespace}/orders" in await until(lambda: refusal(scene))
        await until(scene.copy)
        await until(lambda: equals(refusal(scene), ""))


async def others_come_change_and_go(scene: Scene) -> None:
    for name in OTHERS:
        await scene.create_instance(name)
    for name in OTHERS:
        await until(partial(scene.copy, name))
    await scene.patch_instance({"spec": {"size": "2Gi"}})
    await until(lambda: has(scene.copy(), "2Gi", "spec", "size"))
    await scene.patch_copy({"status": {"phase": "Ready"}}, subresource="status")
    await until(lambda: has(scene.instance(), "Ready", "status", "phase"))
    await remove(scene.app, scene.offer.kind, scene.app_namespace, OTHERS[0])
    await until(lambda: gone(scene.copy(OTHERS[0])))
    await until(lambda: gone(scene.instance(OTHERS[0])))

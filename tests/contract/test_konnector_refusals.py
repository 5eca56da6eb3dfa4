"""What API servers refuse a konnector, or change of what it writes: rights, webhooks, policies."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest

from reconciler.blueprints.objects import build
from reconciler.core import keys
from reconciler.core.errors import ClusterError
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import CONFIG_MAP, SECRET, Kind
from tests.support.bound_scenes import Scene, remove, until
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound, claim, data, degraded, offer
from tests.support.konnector_scenes import (
    Side,
    equals,
    event,
    mutated,
    redefine,
    refusal,
    story,
    stripped,
)

SECRETS = claim("secrets", "Provider")
MAPS = claim("configmaps", "Provider")
WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)


async def test_a_kind_that_was_not_offered_stays_forbidden_and_alone(scene: Scene) -> None:
    """The rights come from what the export claims, whatever a binding accepts."""
    clock = ForwardClock()
    async with scene.backend(), konnector(scene.app.connection, clock=clock):
        there, here = await bound(scene, SECRETS, MAPS, offers=[SECRETS])
        await there.make(SECRET, "creds", **data("zero"))

        async def comes_down(text: str) -> None:
            await there.patch(SECRET, "creds", **data(text))
            await until(lambda: here.holds(SECRET, "creds", text))

        await there.make(CONFIG_MAP, "settings", **data("one", "ConfigMap"))
        await comes_down("one")

        async def reported() -> str:
            clock.put_forward(timedelta(minutes=1))
            return await degraded(scene)

        assert "configmaps" in await until(reported)
        await comes_down("two")
        assert await here.lacks(CONFIG_MAP, "settings")

        async def well() -> bool:
            return not await reported()

        await offer(scene, SECRETS, MAPS)
        await until(lambda: here.holds(CONFIG_MAP, "settings", "one"))
        await until(well)


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
    await live.create(build(WEBHOOKS, kind.group, webhooks=[webhook]), WEBHOOKS, manager="provider")

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


async def test_a_failure_of_the_control_plane_is_reported_until_it_is_over(scene: Scene) -> None:
    """H17: to an API server, a webhook that cannot be asked is a failure of its own."""
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound()
        async with failing_webhook(scene):
            await scene.create_instance(size="1Gi")
            reported = await until(lambda: event(scene, "orders", "SyncDenied"))
            assert "failed calling webhook" in reported["note"]
            assert f"{scene.app_namespace}/orders" in await until(lambda: refusal(scene))
        await until(scene.copy)
        await until(lambda: equals(refusal(scene), ""))


def with_nulls(version: dict[str, Any]) -> None:
    time = {"type": "string", "format": "date-time", "nullable": True}
    known = {"doneAt": time, "updates": {"type": "array", "nullable": True, "items": time}}
    status: dict[str, Any] = {"type": "object", "required": ["doneAt"], "properties": known}
    status["x-kubernetes-preserve-unknown-fields"] = True
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = status


async def test_a_status_comes_down_with_its_nulls(scene: Scene) -> None:
    """D.3. A required field may be null; a null may come, stay, and go."""
    await redefine(scene.plane, scene, with_nulls)
    async with story(scene) as account:
        await account.here.make()
        await until(account.there.read)
        ref, cluster = account.there.ref("orders"), account.there.live.cluster

        async def comes_down(status: JSON) -> None:
            change: Manifest = {"op": "add", "path": "/status", "value": status}
            await cluster.json_patch(ref, (change,), manager="provider", subresource="status")
            await until(partial(account.here.has_status, status))

        await comes_down({"doneAt": None})
        for side in (account.here, account.there):
            await until(partial(_is_marked, side))
        statuses: tuple[JSON, ...] = (
            {"phase": "Running", "doneAt": None},
            {"doneAt": None, "updates": [None], "inner": {"a": None}},
            {"doneAt": "2026-01-01T00:00:00Z", "updates": None},
        )
        for status in statuses:
            await account.begin()
            await comes_down(status)
            assert await account.writes() == ["patch/status here orders"]


async def _is_marked(side: Side) -> bool:
    return await equals(side.annotations(), {keys.BOUND: "true"})


@pytest.mark.parametrize("part", ["finalizers", "annotations"])
async def test_marks_that_an_app_cluster_takes_away_are_reported(scene: Scene, part: str) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await bound(scene)
        async with stripped(scene, part):
            await scene.create_instance("bare", size="1Gi")
            reported = await until(lambda: event(scene, "bare", "SyncDenied"))
            assert f"takes away metadata.{part}" in reported["note"]
            assert "bare" in await until(lambda: refusal(scene))
            assert (await scene.copy("bare") is None) == (part == "finalizers")
        await until(lambda: scene.copy("bare"), within=120)  # it tries again after a minute


async def test_what_a_provider_puts_back_is_no_war(scene: Scene) -> None:
    """H26: an admission policy of the control plane knows better, whatever is applied."""
    async with story(scene) as reported, mutated(scene, "/spec/size", "5Gi"):
        await reported.settle()
        await until(lambda: equals(reported.there.spec(), {"size": "5Gi"}))
        await reported.writes()
        for phase in ("Pending", "Ready"):
            await reported.begin()
            await reported.there.patch({"status": {"phase": phase}}, subresource="status")
            await until(partial(reported.here.has_status, {"phase": phase}))
            assert await reported.writes() == ["patch/status here orders"]
        await reported.begin()
        await reported.here.patch({"spec": {"size": "2Gi", "note": "n"}})
        await until(lambda: equals(reported.there.spec(), {"size": "5Gi", "note": "n"}))
        assert await reported.writes() == ["patch there orders"]

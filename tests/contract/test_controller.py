"""`klutchctl controller` on real clusters, with backend and konnector at work."""

import asyncio
import time
import urllib.request

import pytest

from reconciler.core.manifest import Manifest, get_list
from tests.support import webhooks
from tests.support.apply_runs import mode, scene
from tests.support.controllers import controller, forget, repository
from tests.support.eventually import eventually
from tests.support.role_holders import operator

__all__ = ["mode", "scene"]

SELDOM = ("--poll", "600", "--interval", "600")
OFTEN = ("--poll", "0.5", "--interval", "1")
IDLE = 'rounds_total{result="nothing",trigger="drift"}'
DRIFT: Manifest = {"spec": {"permissionClaims": []}}


@pytest.fixture
async def files(scene, tmp_path):
    """The repository of a scene, and an operator whose writes are known by name."""
    async with operator((scene.plane, scene.app), tmp_path) as somebody:
        scene.kubeconfig, scene.user = somebody
        scene.fleet.folder = tmp_path / "fleet"
        scene.fleet.folder.mkdir()
        with repository(scene, tmp_path) as found:
            yield found
        await forget(scene)


def bound_with(scene, number):
    async def probe():
        bound = await scene.at(scene.binding)
        return bound is not None and len(get_list(bound, "spec", "permissionClaims")) == number

    return eventually(probe)


async def shows(running, *path, value):
    async def probe():
        found = await running.status()
        for key in path:
            found = found.get(key, {})
        return found == value

    await eventually(probe)


async def test_a_push_is_in_place_within_seconds_and_silence_writes_nothing(scene, files, tmp_path):
    files.push()
    (tmp_path / "secret").write_text(webhooks.KEY)
    hook = ("--hooks", "127.0.0.1:0", "--hook", f"push=github:{tmp_path / 'secret'}")
    async with scene.peers(), controller(scene, files, *SELDOM, *hook) as running:
        await bound_with(scene, 1)
        await eventually(lambda: running.lines("a round"))
        scene.fleet.claims = ", claims: []"
        commit = files.push()
        began = time.monotonic()
        url = await running.where("webhooks are received") + "/hooks/push"
        called = urllib.request.Request(url, webhooks.BODY, webhooks.github())
        assert (await asyncio.to_thread(urllib.request.urlopen, called)).status == 202
        await bound_with(scene, 0)
        assert time.monotonic() - began < 5
        await shows(running, "status", "source", "revision", value=commit)
        assert await running.end() == 143
    assert await scene.lines() == []


async def test_when_idle_only_the_lease_is_renewed(scene, files):
    files.push()
    async with scene.peers(), controller(scene, files, *OFTEN) as running:

        async def is_shown_ready():
            return (await running.condition("Ready")).get("status") == "True"

        await eventually(is_shown_ready)
        marks, rounds = scene.marks(), await running.metric(IDLE)

        async def has_looked_and_renewed():
            made = await running.metric(IDLE)
            renewals = [one for one in scene.writes(marks) if one.resource == "leases"]
            return made >= rounds + 5 and len(renewals) >= 3

        await eventually(has_looked_and_renewed)
        assert {one.resource for one in scene.writes(marks)} == {"leases"}
        assert await running.end() == 143

"""The kubeconfig in an app cluster follows its source by one apply, and no konnector is cut off."""

import base64
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from klutchctl import repository
from reconciler.api import CLUSTER_BINDING
from reconciler.apply import GOOD, Status
from reconciler.core import conditions, keys, names
from reconciler.core.manifest import get_text
from reconciler.core.refs import SECRET, SERVICE_ACCOUNT, Ref
from reconciler.doctor import examine
from reconciler.doctor.diagnosis import Level
from reconciler.doctor.rights import Task
from reconciler.health.survey import survey
from reconciler.kube import registry
from reconciler.kube.registry import Surroundings
from reconciler.observe import Pace
from tests.kit import virtual_time
from tests.support import removal
from tests.support.apply_runs import inhabit, mode, runs, scene
from tests.support.bound_scenes import until

__all__ = ["mode", "runs", "scene"]

OLD, NEW = "https://control-plane.example:6443", "https://new.example:6443"


@pytest.fixture(autouse=True)
def short(runs):
    runs.wait_seconds = 20.0  # less than until a konnector tries again


def copy_of(scene):
    """Return where the kubeconfig in the app cluster is."""
    name = names.kubeconfig_secret(scene.space)
    return Ref(scene.app.name, SECRET, names.KLUTCH_NAMESPACE, name)


async def kubeconfig(scene):
    live = await scene.at(copy_of(scene))
    return base64.b64decode(get_text(live, "data", "kubeconfig")).decode()


async def leads_to(scene, server):
    return server in await kubeconfig(scene)


async def connected(scene):
    return conditions.get(await scene.at(scene.binding), conditions.CONNECTED)


async def is_connected(scene):
    said = await connected(scene)
    return said is not None and said.status == conditions.TRUE


async def reports(scene, cause):
    said = await connected(scene)
    return said is not None and said.reason == cause.reason


async def revoke(scene, wires, *kinds):
    """Delete the token in the binding space, with its account or without."""
    ref = Ref(scene.plane.name, SECRET, scene.space, names.BINDER)
    token = base64.b64decode(get_text(await scene.at(ref), "data", "token")).decode()
    for kind in kinds:
        ref = Ref(scene.plane.name, kind, scene.space, names.BINDER)
        await removal.remove(scene.plane.cluster, ref)
    wires.revoked.add(token)
    return token


async def finished(runs):
    """Apply once, after which nothing is left to do."""
    report = await runs.run(wait=True)
    assert {one.status for one in report.outcomes} <= GOOD, report.outcomes
    assert report.not_ready == ()
    assert await runs.todo() == []
    return report


async def test_one_apply_brings_a_new_address_to_a_live_konnector(scene, runs, wires):
    async with scene.peers():
        await runs.finish()
        wires.models[NEW] = wires.models[OLD]
        scene.fleet.plane = f", endpoint: {NEW!r}"
        report = await finished(runs)
        assert await leads_to(scene, NEW)
        messages = {one.change.ref.name: one.message for one in report.outcomes}
        assert messages[copy_of(scene).name] == "its konnector tried it, and wrote it"
        mark = len(wires.calls)
        await inhabit(scene)
        asked = [target for server, target in wires.calls[mark:] if server == NEW]
        assert any(scene.offer.kind.plural in target for target in asked)


async def test_a_new_address_that_is_dead_cuts_no_konnector_off(scene, runs, wires):
    async with scene.peers():
        await runs.finish()
        scene.fleet.plane = f", endpoint: {NEW!r}"
        report = await runs.run()
        late = [one for one in report.outcomes if one.status is not Status.DONE]
        assert [(one.change.ref.name, one.status) for one in late] == [
            (copy_of(scene).name, Status.UNCONFIRMED)
        ]
        assert "does not work from here" in late[0].message
        assert await leads_to(scene, OLD)
        await inhabit(scene)
        (line,) = await runs.todo()
        assert "leads to the old address; its konnector tries the new one" in line
        wires.models[NEW] = wires.models[OLD]  # it is mended
        runs.wait_seconds = 120.0
        await finished(runs)
        assert await leads_to(scene, NEW)


async def test_what_a_konnector_has_not_tried_is_written_by_force(scene, runs):
    async with scene.peers():
        await runs.finish()
        scene.fleet.plane = f", endpoint: {NEW!r}"
        report = await runs.run(force=True)
        assert {one.status for one in report.outcomes} == {Status.DONE}
        assert await leads_to(scene, NEW)


async def test_without_a_konnector_a_new_address_is_written_at_once(scene, runs, wires):
    async with scene.peers():
        await runs.finish()
    beat = {"status": {"lastHeartbeatTime": "2001-01-01T00:00:00Z"}}
    heart = Ref(scene.plane.name, CLUSTER_BINDING, scene.space, names.CLUSTER_BINDING)
    await scene.meddle(heart, beat, "status")
    scene.fleet.plane = f", endpoint: {NEW!r}"
    report = await runs.run()
    assert {one.status for one in report.outcomes} == {Status.DONE}
    assert await leads_to(scene, NEW)
    assert await runs.todo() == []


async def test_what_an_old_address_cut_off_is_led_to_the_new_one_at_once(scene, runs, wires):
    async with scene.peers():
        await runs.finish()
        by_konnector = "https://way-of-the-konnector.example:6443"
        wires.models[by_konnector] = wires.models[OLD]
        scene.fleet.plane = f", endpoint: {by_konnector!r}"
        await finished(runs)
        del wires.models[by_konnector]
        await until(lambda: reports(scene, conditions.CONTROL_PLANE_UNREACHABLE))
        wires.models[NEW] = wires.models[OLD]
        scene.fleet.plane = f", endpoint: {NEW!r}"
        await finished(runs)
        assert await leads_to(scene, NEW)


async def test_an_address_that_somebody_chose_stays(scene, runs, wires):
    async with scene.peers():
        await runs.finish()
        chosen = "https://chosen.example:6443"
        wires.models[chosen] = wires.models[OLD]
        text = (await kubeconfig(scene)).replace(OLD, chosen)
        data = {"data": {"kubeconfig": base64.b64encode(text.encode()).decode()}}
        await scene.meddle(copy_of(scene), data)
        wires.models[NEW] = wires.models[OLD]
        scene.fleet.plane = f", endpoint: {NEW!r}"
        await finished(runs)
        assert await leads_to(scene, chosen)


@pytest.mark.parametrize("kinds", [[SECRET], [SECRET, SERVICE_ACCOUNT]], ids=["token", "account"])
@pytest.mark.parametrize("noticed", [False, True], ids=["at once", "once the konnector says so"])
async def test_one_apply_mends_a_revoked_token(scene, runs, wires, kinds, noticed):
    async with scene.peers():
        await runs.finish()
        token = await revoke(scene, wires, *kinds)
        if noticed:
            await until(lambda: reports(scene, conditions.CONTROL_PLANE_REFUSES))
        assert any(copy_of(scene).name in line for line in await runs.todo())
        await finished(runs)
        assert token not in await kubeconfig(scene)
        await until(lambda: is_connected(scene))
        await inhabit(scene)


async def test_a_token_that_is_refused_is_reported_within_half_a_minute(scene, runs, wires):
    async with scene.peers():
        await runs.finish()
        began = virtual_time.now()
        await revoke(scene, wires, SECRET)
        await until(lambda: reports(scene, conditions.CONTROL_PLANE_REFUSES))
        assert virtual_time.now() - began < timedelta(seconds=30)
        said = await connected(scene)
        assert "klutchctl apply" in said.message
        assert keys.KLUTCH_GROUP not in said.message


@asynccontextmanager
async def reached(scene):
    """Reach the clusters of the fleet as a command does."""
    scene.fleet.write()
    fleet = repository.fleet_in(scene.fleet.folder, check_owner=False)
    around = Surroundings(kubeconfigs=[scene.kubeconfig], environ={})
    async with registry.of(fleet, around) as clusters:
        yield fleet, clusters


async def examined(scene):
    async with reached(scene) as (fleet, clusters):
        found, _ = await examine.findings(fleet, clusters, {"shop"}, task=Task.APPLY, pace=Pace())
    return [(one.level, one.message) for one in found.get("shop", ())]


async def status(scene):
    async with reached(scene) as (fleet, clusters):
        board = await survey(fleet, clusters, now=virtual_time.now)
    return [one.health for one in board.units]


async def test_doctor_and_status_say_what_an_apply_would_mend(scene, runs, wires):
    async with scene.peers():
        await runs.finish()
        assert await examined(scene) == []
        scene.fleet.plane = f", endpoint: {NEW!r}"
        await runs.run()
        ((level, message),) = await examined(scene)
        assert level is Level.WARNING
        assert (
            f"Secret {copy_of(scene).namespace}/{copy_of(scene).name}: leads to the old" in message
        )
        (health,) = await status(scene)
        assert (health.ready, health.reason, health.note) == (True, "OldAddress", "old address")
        assert "does not work from here" in health.message
        await revoke(scene, wires, SECRET)
        assert {level for level, _ in await examined(scene)} == {Level.PROBLEM}
        wires.models[NEW] = wires.models[OLD]
        await finished(runs)
        assert await examined(scene) == []
        (health,) = await status(scene)
        assert (health.ready, health.reason) == (True, "")

"""What is absent is no deletion: catalogues that are empty, CRDs that go, claims torn off."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from bind.osb.settings import Settings
from reconciler.api.osb import BROKER_RECORD, SERVICE_BROKER
from reconciler.controller.tasks import SystemClock
from reconciler.core import conditions, keys
from reconciler.core.manifest import get_map, get_text, name_of
from reconciler.core.refs import CRD, Ref
from reconciler.core.times import format_time
from tests.support import osb_faults, removal
from tests.support.eventually import eventually
from tests.support.faults import Faults, on, unreachable
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_faults import Fault
from tests.support.osb_scenes import BINDING, INSTANCE, OsbScene, at_rest
from tests.support.osb_stories import is_provisioned, is_ready_and_logs_in, says

DELETIONS = ("deprovision", "unbind")
LONG = 3600.0


async def all_is_made(osb: OsbScene) -> None:
    await osb.claim()
    await eventually(lambda: is_provisioned(osb))
    await osb.bind()
    await eventually(lambda: is_ready_and_logs_in(osb))


async def test_an_empty_catalogue_deletes_nothing(osb: OsbScene) -> None:
    async with osb.program():
        await all_is_made(osb)
        osb.broker.catalogue = {"services": []}
        await asyncio.sleep(LONG)
        assert await is_ready_and_logs_in(osb)
    async with osb.program():  # which never read another
        await asyncio.sleep(LONG)
        assert await is_ready_and_logs_in(osb)
        assert osb.broker.count(*DELETIONS) == 0


async def test_a_kind_that_another_broker_takes_over_keeps_its_instances(osb: OsbScene) -> None:
    other = replace(osb, name="other", url="https://other.example", broker=ScriptedBroker())
    osb.wires.brokers[other.url] = other.broker
    async with osb.program() as term:
        await all_is_made(osb)
        await other.install()  # the same kinds: their CRDs name the other broker from now on
        await at_rest(term)
        await osb.claim("new")
        await osb.in_phase(INSTANCE, "Ready", "new")
        assert await is_ready_and_logs_in(osb)
        for kind in (BINDING, INSTANCE):
            await osb.delete(kind)
            await osb.gone(kind)
    assert osb.broker.inventory.is_empty
    assert (other.broker.count(*DELETIONS), len(other.broker.inventory.instances)) == (0, 1)


async def test_crds_that_go_delete_nothing_before_that_is_confirmed(osb: OsbScene) -> None:
    async with osb.program():
        await all_is_made(osb)
        for kind in (INSTANCE, BINDING):
            await removal.remove(osb.plane.cluster, Ref(osb.plane.name, CRD, "", kind.resource))
        await asyncio.sleep(LONG)
        assert osb.broker.count(*DELETIONS) == 0
        assert await says(osb, INSTANCE, "DeletesAllowed") == "False/MassDeletion"
        now = SystemClock().now()
        for word in ("yes", format_time(now - timedelta(hours=1)), format_time(now)):
            assert osb.broker.count(*DELETIONS) == 0
            await osb.annotate(SERVICE_BROKER, osb.name, confirm_mass_delete=word)
            await asyncio.sleep(60)
        await eventually(lambda: osb.broker.inventory.is_empty, within=LONG)


@pytest.mark.parametrize("kind", [INSTANCE, BINDING], ids=["instance", "binding"])
async def test_what_lost_its_finalizer_is_an_orphan_within_a_minute(osb: OsbScene, kind) -> None:
    async with osb.program():
        await all_is_made(osb)
        torn = Ref(osb.plane.name, kind, osb.namespace, "orders")
        bare = {"metadata": {"finalizers": None}}
        await osb.plane.cluster.merge_patch(torn, bare, manager="tests")
        await removal.remove(osb.plane.cluster, torn)
        wanted = "Instance" if kind == INSTANCE else "Binding"

        async def is_orphan() -> bool:
            records = {get_text(one, "spec", "kind"): one for one in await osb.records()}
            return get_text(records[wanted], "spec", "state") == "Orphaned"

        await eventually(is_orphan, within=60)
        assert osb.broker.count(*DELETIONS) == 0
        await asyncio.sleep(LONG)
        assert osb.broker.count(*DELETIONS) == 0
        await osb.delete(BINDING)
        if kind == BINDING:
            await wish(osb, wanted)
            await osb.delete(INSTANCE)
        else:
            await eventually(lambda: not osb.broker.inventory.bindings, within=LONG)
            await wish(osb, wanted)
        await eventually(lambda: osb.broker.inventory.is_empty, within=LONG)


async def wish(osb: OsbScene, kind: str) -> None:
    """Have what is left without claim deleted."""
    (record,) = (one for one in await osb.records() if get_text(one, "spec", "kind") == kind)
    note = {"metadata": {"annotations": {keys.OSB_ORPHAN: keys.ORPHAN_DEPROVISION}}}
    ref = Ref(osb.plane.name, BROKER_RECORD, osb.home, name_of(record))
    await osb.plane.cluster.merge_patch(ref, note, manager="tests")


FAILED = osb_faults.says(200, {"state": "failed", "description": "of a later operation"})


@pytest.mark.parametrize(("hours", "fault"), [(48, osb_faults.refuses(404)), (2, FAILED)])
async def test_an_old_record_deletes_nothing(osb: OsbScene, hours: int, fault: Fault) -> None:
    """A backup is restored that was made while the instance was made: it is used for days since."""
    osb.broker.modes.asynchronous = frozenset({"provision"})
    async with osb.program(settings=Settings()):
        await osb.claim()

        async def is_going() -> bool:
            return any(get_map(one, "spec", "operation") for one in await osb.records())

        await eventually(is_going)
        (backup,) = await osb.records()
        await eventually(lambda: is_provisioned(osb), within=LONG)
    (live,) = await osb.records()
    spec = {**dict.fromkeys(get_map(live, "spec")), **get_map(backup, "spec")}
    ref = Ref(osb.plane.name, BROKER_RECORD, osb.home, name_of(live))
    await osb.plane.cluster.merge_patch(ref, {"spec": spec}, manager="tests")
    await asyncio.sleep(hours * LONG)
    osb.broker.faults.add("poll", osb_faults.gateway(502), times=9)
    osb.broker.faults.add("poll", fault)
    async with osb.program(settings=Settings()):
        await asyncio.sleep(LONG)
        assert osb.broker.count(*DELETIONS) == 0
        provisioned = await says(osb, INSTANCE, "Provisioned")
        assert provisioned == ("False/Failed" if fault is FAILED else "True/")


async def test_claims_are_held_while_crds_cannot_be_seen(osb: OsbScene) -> None:
    faults = Faults()
    faults.add(on("watch", kind=CRD), unreachable())
    async with osb.program(faults=faults):
        await all_is_made(osb)
        for kind in (INSTANCE, BINDING):
            await removal.remove(osb.plane.cluster, Ref(osb.plane.name, CRD, "", kind.resource))
        await asyncio.sleep(LONG)
        assert osb.broker.count(*DELETIONS) == 0
        assert await says(osb, BINDING, "DeletesAllowed") == "False/CrdsNotRead"
        faults.clear()
        await asyncio.sleep(LONG)
        assert osb.broker.count(*DELETIONS) == 0
        assert await says(osb, INSTANCE, "DeletesAllowed") == "False/MassDeletion"


async def test_kinds_are_said_to_be_served_as_soon_as_they_are(osb: OsbScene) -> None:
    """Their CRDs are there before their ServiceBroker is."""
    place = Ref(osb.plane.name, SERVICE_BROKER, osb.home, osb.name)
    await removal.remove(osb.plane.cluster, place)
    faults = Faults()
    faults.add(on("list", kind=INSTANCE), unreachable())

    async def is_served() -> bool:
        said = conditions.get(await osb.plane.cluster.get(place), "KindsServed")
        return said is not None and said.status == "True"

    async with osb.program(faults=faults) as term:
        await osb.install()
        await asyncio.sleep(30)
        assert not await is_served()
        faults.clear()
        await eventually(is_served, within=60)
        await at_rest(term)

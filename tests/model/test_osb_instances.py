"""Instances of service brokers, whole: claim, record, calls, status, deletion."""

from collections.abc import AsyncIterator

import pytest

from reconciler.core import conditions, keys
from reconciler.core.manifest import finalizers_of, get, get_text, name_of, uid_of
from tests.support.clusters import LiveCluster
from tests.support.osb_scenes import INSTANCE, OsbScene, modelled


@pytest.fixture
async def osb(control_plane: LiveCluster, namespace: str) -> AsyncIterator[OsbScene]:
    async with modelled(control_plane, namespace) as scene:
        yield scene
    assert scene.broker.violations == []


async def test_a_claim_becomes_an_instance_and_goes_with_it(osb: OsbScene) -> None:
    async with osb.program():
        made = await osb.claim(parameters={"max_connections": 50})
        live = await osb.in_phase(INSTANCE, "Ready")
        assert list(osb.broker.inventory.instances) == [uid_of(made)]
        assert finalizers_of(live) == [keys.OSB]
        assert get_text(live, "status", "instanceID") == uid_of(made)
        assert get_text(live, "status", "plan") == "small"
        assert {one.type: one.status for one in conditions.of(live)} == {
            "Ready": "True",
            "Provisioned": "True",
            "UpToDate": "True",
        }
        (record,) = await osb.records()
        assert name_of(record) == uid_of(made)
        assert get(record, "spec", "state") == "Present"
        await osb.delete(INSTANCE)
        await osb.gone(INSTANCE)
        assert osb.broker.inventory.is_empty
        assert await osb.records() == []
    assert [entry.verb for entry in osb.broker.journal if entry.verb != "catalogue"] == [
        "provision",
        "deprovision",
    ]


async def test_an_operation_is_waited_for(osb: OsbScene) -> None:
    osb.broker.modes.asynchronous = frozenset({"provision", "update", "deprovision"})
    osb.broker.modes.polls = 3
    async with osb.program():
        await osb.claim()
        await osb.in_phase(INSTANCE, "Ready")
        await osb.change(INSTANCE, plan="big")
        await osb.in_phase(INSTANCE, "Updating")
        live = await osb.in_phase(INSTANCE, "Ready")
        assert get_text(live, "status", "plan") == "big"
        await osb.delete(INSTANCE)
        await osb.gone(INSTANCE)
    assert osb.broker.inventory.is_empty

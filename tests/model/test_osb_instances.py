"""Instances of service brokers, whole: claim, record, calls, status, deletion."""

import asyncio

from reconciler.core import conditions, keys, refs
from reconciler.core.manifest import finalizers_of, get, get_text, name_of, uid_of
from reconciler.core.refs import Kind
from tests.support import osb_catalogues
from tests.support.eventually import eventually
from tests.support.osb_scenes import BINDING, INSTANCE, MANAGER, OsbScene, at_rest


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


async def test_what_a_plan_refuses_is_named_and_never_sent(osb: OsbScene) -> None:
    size = {"properties": {"size": {"type": "integer"}, "zone": {"type": "string"}}}
    schemas = {
        "service_instance": {
            "create": {"parameters": {**size, "required": ["size"]}},
            "update": {"parameters": {"properties": {"size": {"maximum": 5}}}},
        },
        "service_binding": {"create": {"parameters": {"additionalProperties": False}}},
    }
    small = osb_catalogues.plan("small", schemas=schemas)
    osb.broker.catalogue = osb_catalogues.catalogue(osb_catalogues.offering(plans=[small]))
    for crd in osb.generated():
        await osb.plane.cluster.apply(crd, refs.CRD, manager=MANAGER, force=True)
    loop = asyncio.get_running_loop()

    async def refused(kind: Kind, what: str) -> str:
        began = loop.time()

        async def found() -> str:
            said = conditions.get(await osb.read(kind), what)
            return said.message if said and said.reason == "InvalidParameters" else ""

        message = await eventually(found)
        assert loop.time() - began < 5
        assert "s3cret" not in message
        return message

    async with osb.program() as term:
        await osb.claim(parameters={"size": "s3cret", "zone": "a"})
        wrong = 'plan small refuses it: parameters.size does not fit type: "integer"'
        assert await refused(INSTANCE, "Provisioned") == wrong
        await at_rest(term)
        assert await osb.records() == []
        await osb.change(INSTANCE, parameters={"size": 2})
        await osb.in_phase(INSTANCE, "Ready")
        await osb.change(INSTANCE, parameters={"size": 6, "zone": "b"})
        wrong = (
            "plan small refuses it: parameters.zone cannot be changed; "
            "parameters.size does not fit maximum: 5"
        )
        assert await refused(INSTANCE, "UpToDate") == wrong
        await osb.change(INSTANCE, parameters={"size": 3, "zone": "a"})
        await osb.bind(parameters={"role": "s3cret"})
        wrong = "plan small refuses it: parameters.role is no parameter"
        assert await refused(BINDING, "Bound") == wrong
        await at_rest(term)
    calls = [entry.verb for entry in osb.broker.journal if entry.verb != "catalogue"]
    assert calls == ["provision", "update"]

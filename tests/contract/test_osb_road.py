"""A broker that is not ours, from its catalogue to an app cluster and back, by real programs.

It has other ids at each start, answers at once or later without an operation, 202 to each PUT that
it knows already, and 200 to a DELETE of what it does not know.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from reconciler.core.errors import Rejected
from reconciler.core.manifest import Manifest
from tests.support import osb_catalogues, osb_faults
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.osb_inventory import Modes
from tests.support.osb_roads import Road, road, running
from tests.support.osb_script import scripted
from tests.support.osb_wire import MUTATING, Members

_NESTED: Final[dict[str, Any]] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "storage": {
            "type": "object",
            "properties": {"size.gb": {"type": "integer"}, "class": {"enum": ["ssd", "hdd"]}},
            "required": ["size.gb"],
        },
        "region": {"type": "string"},
        "tenant": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    },
    "required": ["storage"],
}

_CHANGES: Final = {
    "type": "object",
    "properties": {name: one for name, one in _NESTED["properties"].items() if name != "region"},
}


def catalogue() -> Members:
    """Return the same offering with other ids."""
    plans = [
        osb_catalogues.plan(
            name,
            schemas={
                "service_instance": {
                    "create": {"parameters": _NESTED},
                    "update": {"parameters": _CHANGES},
                }
            },
        )
        for name in ("Nano 1.0", "huge/XL")
    ]
    return osb_catalogues.catalogue(osb_catalogues.offering("Graph.Store 3", plans))


@pytest.fixture
async def made(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str, tmp_path: Path
) -> AsyncIterator[Road]:
    folder = tmp_path / "fleet"
    folder.mkdir()
    with scripted(catalogue()) as broker:
        async with road(control_plane, app_cluster, namespace, folder, broker) as made:
            yield made


AT_ONCE: Final = Modes(repeated=202, unknown_delete=200, retry_after=1)
LATER: Final = replace(AT_ONCE, asynchronous=MUTATING, gives_operation=False)


async def test_what_an_unseen_broker_offers_is_used_in_an_app_cluster(
    made: Road, tmp_path: Path
) -> None:
    broker = made.broker
    async with running(made, tmp_path):
        await made.klutchctl("apply", str(made.folder), "--auto-approve", "--wait")
        broker.modes = AT_ONCE
        for verb in MUTATING - {"update"}:  # the first answer to each is heard by nobody
            broker.faults.add(verb, osb_faults.cuts(processed=True), times=1)
        await is_provided_and_rotated(made, "first")
        await what_the_broker_would_refuse_is_refused_below(made)
        broker.stop()
        broker.catalogue, broker.modes = catalogue(), LATER
        broker.start()
        await other_ids_are_taken_by_consent_alone(made)
        await is_provided_and_rotated(made, "second")
        for name in ("first", "second"):
            for kind in reversed(made.kinds):
                await made.delete(kind, name)
        await eventually(lambda: is_empty(made))
    answered = {(one.method, one.status) for one in broker.journal}
    assert answered >= {("PUT", 202), ("DELETE", 202), ("DELETE", 200)}
    assert broker.violations == []
    assert broker.inventory.doubles == []


async def is_provided_and_rotated(made: Road, name: str) -> None:
    """Claim, bind and rotate, as a developer does."""
    instances, bindings = made.kinds
    secret = f"{name}-creds"
    parameters = {"storage": {"size.gb": 5}, "region": "eu"}
    await made.claim(instances, name, plan="Nano 1.0", parameters=parameters)
    await made.claim(bindings, name, instanceRef=name)
    await made.is_ready(instances, name)
    await made.is_ready(bindings, name)
    first = await eventually(lambda: logs_in(made, secret))
    await made.rotate(bindings, name, request="1", overlap="0s")
    await eventually(lambda: logs_in(made, secret, other_than=first))
    await eventually(lambda: not made.broker.log_in(first))


async def what_the_broker_would_refuse_is_refused_below(made: Road) -> None:
    """The CRD of the app cluster says which plans and parameters there are, and what stays."""
    instances, _ = made.kinds
    for spec in (
        {"plan": "Nano", "parameters": {"storage": {"size.gb": 5}}},
        {"plan": "huge/XL", "parameters": {"storage": {"class": "ssd"}}},
        {"plan": "huge/XL"},
    ):
        with pytest.raises(Rejected):
            await made.claim(instances, "wrong", **spec)
    moved: Manifest = {"spec": {"parameters": {"region": "us"}}}
    with pytest.raises(Rejected):
        await made.app.cluster.merge_patch(made.ref(instances, "first"), moved, manager="developer")


async def other_ids_are_taken_by_consent_alone(made: Road) -> None:
    refused = await made.catalogue(code=6)
    assert "offering Graph.Store 3 has another id" in refused.stderr
    await made.catalogue("--allow-narrowing")


async def logs_in(made: Road, secret: str, *, other_than: Any = None) -> Any:
    """Return the credentials in the app cluster, once the broker takes them."""
    found = await made.credentials(secret)
    return found if found != other_than and made.broker.log_in(found) else None


async def is_empty(made: Road) -> bool:
    assert await made.left() == []
    return made.broker.inventory.is_empty

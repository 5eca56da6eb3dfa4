"""`python -m bind.osb` on a real API server: killed at each call, restarted at rest, and silent."""

import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from reconciler.api.osb import BROKER_RECORD, SERVICE_BROKER
from reconciler.core.refs import EVENT
from tests.support import osb_faults, osb_stories
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.osb_inventory import Modes
from tests.support.osb_scenes import BINDING, INSTANCE, OsbScene, served
from tests.support.osb_script import ServedBroker
from tests.support.osb_wire import MUTATING, Verb
from tests.support.replicas import Replica, Replicas, replicas

OSB: Final = (
    sys.executable,
    "-m",
    "bind.osb",
    "--namespace=klutch-osb",
    "--allow-plain-http",
    "--allow-loopback",
    "--leader-election=false",
)
STEPS: Final[tuple[tuple[Verb, Callable[[OsbScene], Awaitable[object]], osb_stories.Goal], ...]] = (
    ("provision", lambda scene: scene.claim(parameters={"a": 1}), osb_stories.is_provisioned),
    ("bind", lambda scene: scene.bind(), osb_stories.is_bound),
    (
        "update",
        lambda scene: scene.change(INSTANCE, plan="big"),
        osb_stories.has(plan="big", parameters={"a": 1}),
    ),
    ("bind", osb_stories.rotate, osb_stories.is_ready_and_logs_in),
    ("unbind", lambda scene: scene.delete(BINDING), osb_stories.is_unbound),
    ("deprovision", lambda scene: scene.delete(INSTANCE), osb_stories.is_gone),
)


@pytest.fixture
async def osb(control_plane: LiveCluster, namespace: str) -> AsyncIterator[Any]:
    async with served(control_plane, namespace) as scene:
        yield scene
    assert scene.broker.violations == []
    assert scene.broker.inventory.doubles == []


@pytest.fixture
async def made(osb: OsbScene, tmp_path: Path) -> AsyncIterator[Replicas]:
    async with replicas(osb.plane, osb.namespace, tmp_path, command=OSB) as made:
        yield made


@pytest.mark.soak
async def test_a_kill_within_each_call_doubles_and_loses_nothing(
    osb: OsbScene, made: Replicas
) -> None:
    """The broker does what it is asked, and nobody hears of it."""
    assert isinstance(osb.broker, ServedBroker)
    broker = osb.broker
    process = await made.start()
    for verb, deed, goal in STEPS:
        osb.broker.faults.add(verb, osb_faults.hangs(processed=True), times=1)
        before = osb.broker.count(verb)
        await deed(osb)
        await eventually(lambda verb=verb, before=before: osb.broker.count(verb) > before)  # type: ignore[misc]
        process.send(signal.SIGKILL)
        await process.ended()
        await eventually(lambda: broker.under_way == 0)
        process = await made.start()
        await eventually(lambda goal=goal: goal(osb))  # type: ignore[misc]
    assert len(osb.broker.provisioned()) == 1
    await ends(process)


async def ends(process: Replica) -> None:
    process.send(signal.SIGTERM)
    assert await process.ended() == 0


async def test_a_restart_at_rest_writes_nothing_and_no_output_holds_a_credential(
    osb: OsbScene, made: Replicas
) -> None:
    osb.broker.modes = Modes(asynchronous=MUTATING, retry_after=1)
    process = await made.start("-v=4")
    for deed, goal in osb_stories.LIFE[:2]:
        await deed(osb)
        await eventually(lambda goal=goal: goal(osb))  # type: ignore[misc]
    _, metrics = await process.ask("/metrics")
    secrets = await known_secrets(osb)
    await ends(process)
    asked = len(osb.broker.journal)
    mark = osb.plane.audit.mark()
    process = await made.start("-v=4")
    await eventually(lambda: osb.broker.count("fetch") > count(osb, asked, "fetch"))
    await at_rest(process)
    await ends(process)
    assert process.writes_since(mark) == []
    assert {one.verb for one in osb.broker.journal[asked:]} <= {"catalogue", "fetch"}
    shown = [metrics, *(path.read_text() for one in made.started for path in (one.log, one.out))]
    shown += [str(one) for one in await objects(osb)]
    assert len(shown) > len(made.started) * 2 + 3
    for secret in secrets:
        assert not [text for text in shown if secret in text]


def count(osb: OsbScene, until: int, verb: str) -> int:
    return sum(one.verb == verb for one in osb.broker.journal[:until])


async def at_rest(process: Replica) -> None:
    """Wait until the process says that nothing is left to do."""

    async def idle() -> bool:
        return (await process.ask("/settled"))[0] == 200

    await eventually(idle)


async def known_secrets(osb: OsbScene) -> list[str]:
    """Return what no output may hold."""
    held = await osb_stories.credentials(osb)
    return [osb.broker.password, held["password"], held["uri"], "task:"]


async def objects(osb: OsbScene) -> list[Any]:
    """Return all objects but Secrets in which something could stand."""
    namespaces = ((INSTANCE, ""), (BINDING, ""), (EVENT, ""))
    own = ((SERVICE_BROKER, osb.home), (BROKER_RECORD, osb.home), (EVENT, osb.home))
    return [one for kind, where in (*namespaces, *own) for one in await osb.all_of(kind, where)]

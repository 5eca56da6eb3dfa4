"""The front for compositions, whole: what Crossplane makes, a broker and a backup manager."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from bind.osb.dataservices import managed as kinds
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys
from reconciler.core.manifest import JSON, Manifest, get
from reconciler.core.refs import CRD, Ref
from reconciler.core.times import format_time
from tests.kit.osb import BrokerWires
from tests.support import osb_compositions, osb_faults, removal
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.osb_backup_manager import BackupManager
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_compositions import Compositions, Modelled, reached, state
from tests.support.osb_wire import MUTATING
from tests.support.settled import settled

URL = osb_compositions.URL
INSTANCE, BINDING = kinds.SERVICE_INSTANCE, kinds.SERVICE_BINDING
BACKUP, RESTORE = kinds.BACKUP, kinds.RESTORE
BOTH = pytest.mark.parametrize("namespaced", [False, True], ids=["claims", "namespaced"])


@pytest.fixture
def namespaced() -> bool:
    return False


@pytest.fixture
async def modelled(
    control_plane: LiveCluster, namespace: str, namespaced: bool
) -> AsyncIterator[Modelled]:
    async with osb_compositions.modelled(control_plane, namespace, namespaced=namespaced) as made:
        yield made


@pytest.fixture
def broker(modelled: Modelled) -> ScriptedBroker:
    return modelled.broker


@pytest.fixture
def manager(modelled: Modelled) -> BackupManager:
    return modelled.manager


@pytest.fixture
def front(modelled: Modelled) -> Compositions:
    return modelled.front


async def all_four(front: Compositions) -> None:
    await front.instance(parameters={"max_connections": 50})
    await front.binding()
    await front.make(BACKUP, {"instanceName": "orders"})
    await front.make(RESTORE, {"backupName": "orders"})
    for kind in (INSTANCE, BINDING, BACKUP, RESTORE):
        await front.ready(kind)


async def bound(front: Compositions) -> Manifest:
    made = await front.instance()
    await front.binding()
    await front.ready(BINDING)
    return made


@BOTH
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_four_objects_become_ready_and_go(
    front: Compositions, broker: ScriptedBroker, manager: BackupManager, asynchronous: bool
) -> None:
    if asynchronous:
        broker.modes.asynchronous, broker.modes.polls = MUTATING, 2
    async with front.program():
        await all_four(front)
        assert broker.log_in(await front.credentials())
        assert (manager.count("create-backup"), manager.count("create-restore")) == (1, 1)
        used = await front.read(kinds.PROVIDER_CONFIG, osb_compositions.BROKER)
        assert get(used, "status", "users") == 2
        await front.end(RESTORE, BACKUP, INSTANCE, BINDING)
    assert (broker.inventory.is_empty, manager.backups) == (True, {})
    assert await front.credentials() == {}


@BOTH
async def test_a_restart_writes_nothing_and_asks_only_to_look(
    front: Compositions, broker: ScriptedBroker, manager: BackupManager
) -> None:
    async with front.program() as term:
        await all_four(front)
        await settled(term)
    mark = front.plane.audit.mark()
    asked, posts = broker.count(*MUTATING), len(manager.journal)
    async with front.program() as term:
        await settled(term)
    assert front.plane.audit.writes_since(mark) == []
    assert broker.count(*MUTATING) == asked
    assert {line.method for line in manager.journal[posts:]} <= {"GET", "HEAD"}


async def test_a_take_over_asks_for_nothing(front: Compositions, broker: ScriptedBroker) -> None:
    """What the original left is served on: its ids, its states, its annotations."""
    async with front.program() as term:
        await front.instance(parameters={"max_connections": 50})
        await front.binding()
        await front.ready(BINDING)
        await settled(term)
    # The original knows none of our annotations, and has its own word for a state.
    for kind in (INSTANCE, BINDING):
        marks = {keys.OSB_SENT: None, keys.OSB_BINDINGS: None, keys.OSB_OPERATION: None}
        await front.change(kind, {"metadata": {"annotations": marks}})
    ref = front.ref(INSTANCE, "orders")
    body = {"status": {"atProvider": {"state": "available"}}}
    await front.plane.cluster.merge_patch(ref, body, manager="original", subresource="status")
    asked = broker.count(*MUTATING)
    async with front.program() as term:
        await front.ready(BINDING)
        await settled(term)
    assert broker.count(*MUTATING) == asked


async def test_a_creation_whose_answer_was_lost_is_found_and_not_repeated(
    front: Compositions, manager: BackupManager
) -> None:
    manager.faults.add("create-backup", osb_faults.cuts(processed=True), times=1)
    manager.faults.add("create-restore", osb_faults.hangs(processed=True), times=1)
    async with front.program():
        await all_four(front)
    assert (len(manager.backups), len(manager.restores)) == (1, 1)


@BOTH
async def test_backups_at_once_are_different(front: Compositions, manager: BackupManager) -> None:
    names = [f"orders-{number}" for number in range(5)]
    async with front.program():
        await front.instance()
        for name in names:
            await front.make(BACKUP, {"instanceName": "orders"}, name)
        found = [await front.ready(BACKUP, name=name) for name in names]
    assert {state(one) for one in found} == {"done"}
    numbers = {get(one, "status", "atProvider", "id") for one in found}
    assert (numbers, len(numbers)) == (set(manager.backups), 5)


@BOTH
async def test_what_goes_with_its_crd_waits_for_a_word(
    front: Compositions, broker: ScriptedBroker, manager: BackupManager
) -> None:
    """A package of Crossplane that is removed takes the CRDs along."""
    async with front.program():
        await all_four(front)
        confirm = partial(front.annotate, kinds.PROVIDER_CONFIG, keys.CONFIRM_MASS_DELETE)
        held = (RESTORE, BACKUP, BINDING, INSTANCE)
        package = (kinds.PROVIDER_CONFIG_USAGE, kinds.PROVIDER_CONFIG, *held)
        crds = [Ref(front.plane.name, CRD, "", kind.resource) for kind in package]
        for name in (configs := (osb_compositions.BROKER, osb_compositions.BACKUP_MANAGER)):
            await confirm("2026-01-01T00:00:00Z", name)
        for crd in crds:
            await removal.remove(front.plane.cluster, crd)
        for kind in held:
            await front.saying(kind, "Synced", "ReconcileError")
        await asyncio.sleep(900)
        assert (broker.count("unbind", "deprovision"), len(manager.backups)) == (0, 1)
        await front.absent(crds[0])
    async with front.program():  # the package's remains, and at last nothing, are no obstacle
        for name in configs:
            await confirm(format_time(SystemClock().now()), name)
        for crd in crds:
            await front.absent(crd)
    assert (broker.inventory.is_empty, manager.backups) == (True, {})
    async with front.program() as term:
        await settled(term)


async def test_a_new_password_is_read_again(front: Compositions, broker: ScriptedBroker) -> None:
    async with front.program():
        await front.instance()
        await front.ready(INSTANCE)
        broker.password = "another-password"
        await front.binding()
        await front.saying(BINDING, "Synced", "ReconcileError")
        await front.configure(osb_compositions.BROKER, URL, broker.user, broker.password)
        await front.ready(BINDING)


async def test_a_stuck_broker_delays_no_other(front: Compositions, broker: ScriptedBroker) -> None:
    other = ScriptedBroker(now=broker.now)
    other.faults.add(None, osb_faults.hangs())
    await front.configure("other", "https://other.example", other.user, other.password)
    with BrokerWires({URL: broker, "https://other.example": other}).plugged():
        async with front.program():
            for number in range(100):
                asked: dict[str, JSON] = {"serviceName": "database", "planName": "small"}
                asked |= {"organizationGuid": "o", "spaceGuid": "s"}
                await front.make(
                    INSTANCE, asked, f"hanging-{number}", providerConfigRef={"name": "other"}
                )
            await eventually(lambda: other.count("catalogue") > 1, within=7200)
            began = asyncio.get_running_loop().time()
            await front.instance()
            await front.ready(INSTANCE)
            assert asyncio.get_running_loop().time() - began < 10


async def test_a_provider_config_says_how_it_is_and_stays_while_it_is_used(
    front: Compositions, broker: ScriptedBroker
) -> None:
    name = osb_compositions.BROKER

    async def said(well: bool) -> bool:
        live = await front.read(kinds.PROVIDER_CONFIG, name)
        return bool(get(live, "status", "health", "lastStatus")) == well

    async with front.program() as term:
        await reached(partial(said, True))
        broker.password, old = "elsewhere", broker.password
        await reached(partial(said, False))
        broker.password = old
        await reached(partial(said, True))
        await front.instance()
        await front.ready(INSTANCE)
        await front.delete(kinds.PROVIDER_CONFIG, name)
        await settled(term)
        assert await front.read(kinds.PROVIDER_CONFIG, name) is not None
        await front.end(INSTANCE)
        await front.gone(kinds.PROVIDER_CONFIG, name)


async def test_no_other_broker_is_asked(front: Compositions, broker: ScriptedBroker) -> None:
    other, there = ScriptedBroker(now=broker.now), "https://other.example"
    with BrokerWires({URL: broker, there: other}).plugged():
        async with front.program() as term:
            await bound(front)
            await front.configure(osb_compositions.BROKER, there, other.user, other.password)
            await front.saying(INSTANCE, "Synced", "ReconcileError")
            for kind in (BINDING, INSTANCE):
                await front.delete(kind)
                await front.saying(kind, "Synced", "ReconcileError")
            await settled(term)
            assert {line.verb for line in other.journal} <= {"catalogue", None}
            assert broker.log_in(await front.credentials())
            await front.configure(osb_compositions.BROKER, URL, broker.user, broker.password)
            await front.gone(BINDING)
            await front.gone(INSTANCE)
    assert broker.inventory.is_empty


async def test_a_catalogue_is_of_one_broker(front: Compositions, broker: ScriptedBroker) -> None:
    other, there = ScriptedBroker(now=broker.now), "https://other.example"
    other.faults.add("catalogue", osb_faults.hangs(), times=1)
    with BrokerWires({URL: broker, there: other}).plugged():
        async with front.program():
            await front.instance()
            await front.ready(INSTANCE)
            await front.configure(osb_compositions.BROKER, there, other.user, other.password)
            await front.instance("caches")
            await front.ready(INSTANCE, name="caches")
    assert other.violations == []

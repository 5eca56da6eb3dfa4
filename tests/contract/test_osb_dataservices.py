"""The front for compositions on a real API server: its CRDs, and what Crossplane makes."""

import uuid
from collections.abc import Iterator

import pytest

from bind.osb.dataservices import kinds
from reconciler.core import keys
from reconciler.core.errors import Rejected
from reconciler.core.manifest import get, labels_of
from tests.support import osb_compositions, osb_faults
from tests.support.clusters import LiveCluster
from tests.support.osb_backup_manager import BackupManager, managing
from tests.support.osb_compositions import Compositions
from tests.support.osb_script import ServedBroker, scripted
from tests.support.osb_wire import MUTATING
from tests.support.settled import settled

INSTANCE, BINDING = kinds.SERVICE_INSTANCE, kinds.SERVICE_BINDING
BACKUP, RESTORE = kinds.BACKUP, kinds.RESTORE


@pytest.fixture
def broker() -> Iterator[ServedBroker]:
    with scripted() as made:
        yield made
    assert made.violations == []


@pytest.fixture
def manager(broker: ServedBroker) -> Iterator[BackupManager]:
    with managing(lambda instance: instance in broker.provisioned()) as made:
        yield made
    assert made.violations == []


@pytest.fixture
async def front(
    control_plane: LiveCluster, namespace: str, broker: ServedBroker, manager: BackupManager
) -> Compositions:
    made = Compositions(control_plane, namespace, prefix=f"t{uuid.uuid4().hex[:8]}-")
    await made.install()
    await made.configure(osb_compositions.BROKER, broker.url, broker.user, broker.password)
    await made.configure(
        osb_compositions.BACKUP_MANAGER,
        manager.url,
        manager.user,
        manager.password,
        serviceType="backupmanager",
    )
    return made


async def test_four_objects_become_ready_are_taken_over_and_go(
    front: Compositions, broker: ServedBroker, manager: BackupManager
) -> None:
    broker.modes.asynchronous, broker.modes.retry_after = frozenset({"provision"}), 1
    broker.faults.add("bind", osb_faults.cuts(processed=True), times=1)
    async with front.program() as term:
        await front.instance(parameters={"max_connections": 50, "extensions": ["a"]})
        await front.binding()
        await front.make(BACKUP, {"instanceName": "orders"})
        await front.make(RESTORE, {"backupName": "orders"})
        for kind in (INSTANCE, BINDING, BACKUP, RESTORE):
            await front.ready(kind)
        assert broker.log_in(await front.credentials())
        assert (len(manager.backups), len(manager.restores)) == (1, 1)
        live = await front.read(INSTANCE)
        assert get(live, "status", "atProvider", "parameters", "max_connections") == 50
        await settled(term)
    asked, mark = broker.count(*MUTATING), front.plane.audit.mark()
    async with front.program() as term:
        await settled(term)
        assert broker.count(*MUTATING) == asked
        assert not [one for one in front.plane.audit.writes_since(mark) if _is_ours(front, one)]
        for kind in (RESTORE, BACKUP, BINDING, INSTANCE):
            await front.delete(kind)
        for kind in (RESTORE, BACKUP, BINDING, INSTANCE):
            await front.gone(kind)
        for config in (osb_compositions.BROKER, osb_compositions.BACKUP_MANAGER):
            await front.delete(kinds.PROVIDER_CONFIG, config)
            await front.gone(kinds.PROVIDER_CONFIG, config)
    assert broker.inventory.is_empty
    assert not manager.backups


def _is_ours(front: Compositions, write: object) -> bool:
    return front.prefix in repr(write) or front.namespace in repr(write)


REFUSED = [
    ("no plan", INSTANCE, {"serviceName": "a", "organizationGuid": "o", "spaceGuid": "s"}, {}),
    ("an unknown policy", RESTORE, {"backupName": "a"}, {"managementPolicies": ["Guess"]}),
    ("an unknown deletion", BACKUP, {"instanceName": "a"}, {"deletionPolicy": "Never"}),
]


@pytest.mark.parametrize(("_", "kind", "asked", "spec"), REFUSED, ids=[row[0] for row in REFUSED])
async def test_an_api_server_refuses(front: Compositions, _, kind, asked, spec) -> None:
    with pytest.raises(Rejected):
        await front.make(kind, asked, **spec)


async def test_what_is_not_said_has_the_defaults_of_crossplane(front: Compositions) -> None:
    made = await front.make(
        INSTANCE,
        {"serviceName": "a", "planName": "b", "organizationGuid": "o", "spaceGuid": "s"},
        claim="defaults",
    )
    assert get(made, "spec", "deletionPolicy") == "Delete"
    assert get(made, "spec", "managementPolicies") == ["*"]
    assert get(made, "spec", "forProvider", "acceptsIncomplete") is True
    assert labels_of(made)[keys.CLAIM_NAME] == "defaults"
    await front.delete(INSTANCE)

"""The CRDs of the front for compositions, on a real API server."""

import uuid

import pytest

from bind.osb.dataservices import managed as kinds
from reconciler.core import keys
from reconciler.core.errors import Rejected
from reconciler.core.manifest import get, labels_of
from tests.support.clusters import LiveCluster
from tests.support.osb_compositions import Compositions

INSTANCE, BINDING = kinds.SERVICE_INSTANCE, kinds.SERVICE_BINDING
BACKUP, RESTORE = kinds.BACKUP, kinds.RESTORE


@pytest.fixture
async def front(control_plane: LiveCluster, namespace: str) -> Compositions:
    made = Compositions(control_plane, namespace, prefix=f"t{uuid.uuid4().hex[:8]}-")
    await made.install()
    return made


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

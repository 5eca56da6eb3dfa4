"""What bind/deploy gives to klutch-osb, with what `klutchctl catalog` makes, and a life on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bind.osb.decisions import causes
from bind.osb.settings import Settings
from reconciler.api.osb import SERVICE_BROKER
from reconciler.blueprints.offering import files
from reconciler.core import conditions, keys, refs
from reconciler.core.manifest import get_maps, get_text, labels_of
from tests.support import deployed
from tests.support.deployed import Right, rights_of
from tests.support.eventually import eventually
from tests.support.osb_scenes import BINDING, INSTANCE, NAME, OsbScene
from tests.support.osb_stories import credentials, is_gone

SETTINGS: Final = Settings(allow_plain_http=True, allow_loopback=True)
_ROLES: Final = (refs.CLUSTER_ROLE.kind, refs.ROLE.kind)


def shipped(folder: Path = deployed.OSB) -> list[Any]:
    """Return the manifests of a folder, and what klutch-osb gets for the broker of a scene."""
    made = files.rights(NAME, [INSTANCE, BINDING], secrets=True)
    label = f"{keys.OWN_PREFIX}aggregate-to-{keys.MANAGER_OSB}"
    return [*deployed.built(folder), *(one for one in made if label in labels_of(one))]


def given(made: Sequence[Any]) -> frozenset[Right]:
    roles = [one for one in made if get_text(one, "kind") in _ROLES]
    return rights_of(rule for one in roles for rule in get_maps(one, "rules"))


async def lives(scene: OsbScene) -> None:
    """Claim, bind, rotate, let the old credentials go, and delete, at a broker that is well."""

    async def is_well() -> bool:
        (broker,) = await scene.all_of(SERVICE_BROKER, scene.home)
        found = conditions.get(broker, causes.REACHABLE)
        return found is not None and found.status == "True"

    await eventually(is_well)
    await scene.claim(parameters={"a": 1})
    await scene.in_phase(INSTANCE, "Ready")
    await scene.bind(rotation={"overlap": "0s"})
    await scene.in_phase(BINDING, "Ready")
    before = await credentials(scene)
    assert scene.broker.log_in(before)
    await scene.change(BINDING, rotation={"overlap": "0s", "request": "1"})

    async def rotated() -> bool:
        now = await credentials(scene)
        return now != before and scene.broker.log_in(now) and not scene.broker.log_in(before)

    await eventually(rotated)
    for kind in (BINDING, INSTANCE):
        await scene.delete(kind)
    await eventually(lambda: is_gone(scene))

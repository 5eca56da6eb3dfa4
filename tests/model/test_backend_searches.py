"""S5: what tenants' ended app namespaces cost the others: a search of each reads every kind."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.core import keys
from reconciler.core.refs import NAMESPACE
from tests.support.backend import backend
from tests.support.clusters import LiveCluster
from tests.support.cues import Cue, Gate
from tests.support.eventually import eventually
from tests.support.faults import Faults
from tests.support.offers import offered
from tests.support.removal import remove
from tests.support.served_spaces import a_space, gone, place_of

# How many app namespaces end at once, in spaces of which fleets ("": of none).
ENDING = {
    "of one space": (40, [""]),
    "of a fleet": (10, ["acme"] * 4),
    "of many owners": (10, ["a", "b", "c", "d"]),
}


@pytest.mark.parametrize(("count", "fleets"), ENDING.values(), ids=ENDING)
async def test_none_waits_for_searches_that_hang(
    control_plane: LiveCluster, namespace: str, count: int, fleets: Sequence[str]
) -> None:
    cluster, faults, gate = control_plane.cluster, Faults(), Gate()
    async with offered(cluster, namespace=namespace) as offer, AsyncExitStack() as stack:
        other = await stack.enter_async_context(a_space(cluster, offer))
        ending = [await stack.enter_async_context(a_space(cluster, offer)) for _ in fleets]
        for space, fleet in zip(ending, fleets, strict=True):
            if fleet:
                itself = space.everywhere(NAMESPACE, space.name)
                await space.patch(itself, {"metadata": {"labels": {keys.FLEET: fleet}}})
            for n in range(count):
                await space.make(API_SERVICE_NAMESPACE, f"n{n}")
        await stack.enter_async_context(backend(control_plane.connection, faults=faults))
        places = {await place_of(space, f"n{n}"): space for space in ending for n in range(count)}
        faults.add(Cue(lambda call: call.verb == "list" and call.ref.namespace in places), gate)
        for space in ending:
            for n in range(count):
                await remove(cluster, space.ref(API_SERVICE_NAMESPACE, f"n{n}"))
        await gate.reached.wait()
        try:
            for n in range(3):
                await other.make(API_SERVICE_NAMESPACE, f"n{n}")
                place = await place_of(other, f"n{n}")
            if len({*fleets}) == 1:  # another owner's search does not wait either
                await remove(cluster, other.ref(API_SERVICE_NAMESPACE, "n2"))
                await gone(cluster, other.everywhere(NAMESPACE, place))
        finally:
            gate.open()

        async def all_gone() -> bool:
            live = [await cluster.get(one.everywhere(NAMESPACE, p)) for p, one in places.items()]
            return not any(live)

        await eventually(all_gone)

"""T19: one app cluster takes neither the service namespace nor the space of another, live."""

from dataclasses import replace

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.blueprints import objects as spaces
from reconciler.core.refs import NAMESPACE
from tests.support import removal
from tests.support.backend import USUAL, backend
from tests.support.clusters import LiveCluster
from tests.support.offers import offered
from tests.support.served_spaces import APP, a_space, gone, place_of

HASHED = replace(USUAL, hashed_names=True)


async def test_names_that_an_attacker_chooses_take_nothing(
    control_plane: LiveCluster, namespace: str
) -> None:
    cluster = control_plane.cluster
    async with offered(cluster, namespace=namespace) as offer, a_space(cluster, offer) as space:
        victim = replace(space, name=f"{space.name}-b")
        taken = [f"b-{APP}", "b"]  # the plain service namespace, and the space itself
        try:
            async with backend(control_plane.connection, HASHED):
                for one in taken:
                    await space.make(API_SERVICE_NAMESPACE, one, spec={})
                theirs = {await place_of(space, one) for one in (APP, *taken)}
                made = spaces.namespace(victim.name)
                await cluster.create(made, NAMESPACE, manager="tests")
                await victim.make(API_SERVICE_NAMESPACE, APP, spec={})
                assert await place_of(victim, APP) not in theirs
                # They go with what they are for, as plain ones do.
                left = await place_of(space, "b")
                await removal.remove(cluster, space.ref(API_SERVICE_NAMESPACE, "b"))
                await gone(cluster, space.everywhere(NAMESPACE, left))
        finally:
            await removal.remove(cluster, space.everywhere(NAMESPACE, victim.name))

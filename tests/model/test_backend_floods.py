"""T9: many requests of one tenant delay no other."""

from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.core.manifest import get_text
from tests.support.backend import backend
from tests.support.clusters import LiveCluster
from tests.support.offers import offered
from tests.support.served_spaces import a_space, flood

MANY = 1000


async def test_many_requests_of_one_tenant_delay_no_other(
    control_plane: LiveCluster, namespace: str
) -> None:
    cluster = control_plane.cluster
    async with (
        offered(cluster, namespace=namespace) as offer,
        a_space(cluster, offer) as flooding,
    ):
        await flood(flooding, MANY)
        async with backend(control_plane.connection), a_space(cluster, offer) as other:
            await other.has(other.export)
            # First come first served, none would be waiting by now.
            listing = await cluster.list(API_SERVICE_EXPORT_REQUEST, namespace=flooding.name)
            phases = [get_text(request, "status", "phase") for request in listing.items]
            assert phases.count("Pending") > MANY / 10

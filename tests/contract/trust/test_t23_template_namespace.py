"""T23: templates count from the namespace that the operator names, on a real kube-apiserver."""

from dataclasses import replace

from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.core import conditions
from reconciler.core.manifest import get_list
from tests.support.backend import USUAL, backend
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.offers import offered
from tests.support.served_spaces import a_space


async def test_a_template_elsewhere_offers_nothing(
    control_plane: LiveCluster, namespace: str
) -> None:
    cluster = control_plane.cluster
    async with offered(cluster, namespace=namespace) as offer, a_space(cluster, offer) as space:

        async def refused() -> bool:
            live = await space.at(space.ref(API_SERVICE_EXPORT_REQUEST, offer.name))
            held = conditions.parse(get_list(live, "status", "conditions"))
            told = conditions.find(held, "ExportsReady")
            return told is not None and told.reason == "TemplateNotFound"

        async with backend(control_plane.connection, replace(USUAL, template_namespace="other")):
            await eventually(refused)
        assert await space.at(space.export) is None
        async with backend(control_plane.connection, replace(USUAL, template_namespace=namespace)):
            await space.has(space.export)

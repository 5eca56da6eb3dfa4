"""S5: forty app namespaces that end beside sixty kinds delay no other tenant, live.

`tests/model/test_backend_searches.py` has searches that hang, and owners of several spaces.
"""

import time
from contextlib import AsyncExitStack

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.core.refs import NAMESPACE
from tests.support.backend import backend, idle
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.offers import offered
from tests.support.removal import remove
from tests.support.served_spaces import a_space, place_of

ENDING = 40
KINDS = 60


async def test_ended_app_namespaces_of_one_tenant_delay_no_other(
    control_plane: LiveCluster, namespace: str
) -> None:
    cluster = control_plane.cluster
    async with AsyncExitStack() as stack:
        offer = await stack.enter_async_context(offered(cluster, namespace=namespace))
        for _ in range(KINDS - 1):  # each has a template, so that each may have copies anywhere
            await stack.enter_async_context(offered(cluster, namespace=namespace))
        ending = await stack.enter_async_context(a_space(cluster, offer))
        names = [f"n{n}" for n in range(ENDING)]
        for name in names:
            await ending.make(API_SERVICE_NAMESPACE, name)
        made = await stack.enter_async_context(backend(control_plane.connection))
        places = [await place_of(ending, name) for name in names]
        await idle(made)
        for name in names:
            await remove(cluster, ending.ref(API_SERVICE_NAMESPACE, name))
        began = time.monotonic()
        other = await stack.enter_async_context(a_space(cluster, offer))
        await other.has(other.export)
        await place_of(other, "dev")
        assert time.monotonic() - began < 2

        async def gone() -> bool:
            live = [await cluster.get(ending.everywhere(NAMESPACE, one)) for one in places]
            return not any(live)

        await eventually(gone, within=120)

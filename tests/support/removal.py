"""Taking objects away at the end of a test, when nobody is there who would let go of them."""

import contextlib

from reconciler.core.errors import Missing
from reconciler.core.manifest import Manifest, finalizers_of
from reconciler.core.refs import Ref
from reconciler.kube.requests import Preconditions, Propagation
from tests.support.clusters import LiveCluster


async def remove_for_good(live: LiveCluster, ref: Ref) -> None:
    """Delete an object, whoever holds it with a finalizer."""
    cluster, nothing = live.cluster, Preconditions(uid=None)
    await cluster.delete(ref, preconditions=nothing, propagation=Propagation.BACKGROUND)
    if finalizers_of(await cluster.get(ref) or {}):
        free: Manifest = {"metadata": {"finalizers": None}}
        with contextlib.suppress(Missing):
            await cluster.merge_patch(ref, free, manager="tests")

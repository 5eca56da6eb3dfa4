"""Taking objects away, also where nobody is there who would let go of them."""

import contextlib

from reconciler.core.errors import Missing
from reconciler.core.manifest import Manifest, finalizers_of, ref_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.requests import Preconditions, Propagation
from tests.support.clusters import LiveCluster


async def remove(cluster: Cluster, ref: Ref) -> None:
    """Delete an object if it is there, whatever it is now, and wait for nothing."""
    await cluster.delete(
        ref, preconditions=Preconditions(uid=None), propagation=Propagation.BACKGROUND
    )


async def remove_manifest(cluster: Cluster, kind: Kind, manifest: Manifest) -> None:
    await remove(cluster, ref_of(cluster.name, kind, manifest))


async def remove_for_good(live: LiveCluster, ref: Ref) -> None:
    """Delete an object, whoever holds it with a finalizer."""
    await remove(live.cluster, ref)
    if finalizers_of(await live.cluster.get(ref) or {}):
        free: Manifest = {"metadata": {"finalizers": None}}
        with contextlib.suppress(Missing):
            await live.cluster.merge_patch(ref, free, manager="tests")

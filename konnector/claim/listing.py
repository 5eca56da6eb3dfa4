"""Lists copies in each version that a control plane serves."""

from collections.abc import Iterable
from contextlib import suppress

from reconciler.core.errors import NotServed
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from reconciler.kube.cluster import Cluster


async def all_in(
    cluster: Cluster, kind: Kind, namespaces: Iterable[str], *, whole: bool = False
) -> list[tuple[Kind, Manifest]]:
    """Return the objects of a kind in these namespaces, their metadata or all. Raises NotServed."""
    return [
        (kind, one)
        for namespace in namespaces
        for one in (await cluster.list(kind, namespace=namespace, metadata_only=not whole)).items
    ]


async def copies_in(
    plane: Cluster, kind: Kind, namespaces: Iterable[str]
) -> list[tuple[Kind, Manifest]]:
    """Return the copies in these namespaces, in whichever version the control plane has them.

    An export, and the CRD of the app cluster, may be behind: that a version is served no more does
    not tell that there is nothing. It may be "" where none is known. Another scope has no copies.
    """
    places = sorted(namespaces)
    if kind.version:
        with suppress(NotServed):
            return await all_in(plane, kind, places)
    for version in await plane.versions(kind.group):
        with suppress(NotServed):
            served = await plane.kind(kind.group, version, kind.plural)
            alike = served.namespaced == kind.namespaced
            return await all_in(plane, served, places) if alike else []
    return []

"""Finds the objects of a service: instances in an app cluster, copies on the control plane.

Finds them in whichever version the cluster serves, and counts, frees, releases and deletes them,
with the Secrets that the service brought into the app cluster. Decides nothing about when.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from reconciler import api
from reconciler.apply import patches
from reconciler.apply.credential_notes import list_bindings
from reconciler.apply.object_writer import ClusterWriter
from reconciler.apply.patches import Stale
from reconciler.controller.tasks import gather_or_cancel
from reconciler.core import keys, names
from reconciler.core import manifest as m
from reconciler.core.errors import Forbidden, NotServed
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, SECRET, Kind, Ref
from reconciler.fleet.wanted import Placement
from reconciler.kube.requests import Propagation

_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Service:
    """A service's kind as one cluster serves it, and its CRD there."""

    kind: Kind
    crd: Ref
    uid: str


async def served(writer: ClusterWriter, name: str) -> Service | None:
    """Return the service named `plural.group`, or None where the cluster has no such CRD.

    Raises NotServed where there is a CRD that serves no version: it may hold objects.
    """
    ref = Ref(writer.cluster.name, CRD, "", name)
    crd = await writer.read(ref)
    if crd is None:
        return None
    version = api.preferred_version(api.served_versions(crd))
    if not version:
        raise NotServed("the CRD serves no version", ref=ref, verb="list")
    return Service(api.kind_of(crd, version), ref, m.uid_of(crd))


async def count(writer: ClusterWriter, name: str) -> int:
    """Return how many objects of a service there are now, of all namespaces."""
    service = await served(writer, name)
    return 0 if service is None else await writer.cluster.count(service.kind)


async def service_namespaces(plane: ClusterWriter, space: str) -> Mapping[str, str]:
    found = await plane.cluster.list(api.API_SERVICE_NAMESPACE, namespace=space)
    pairs = ((m.name_of(item), m.get_text(item, "status", "namespace")) for item in found.items)
    return {name: namespace for name, namespace in pairs if namespace}


async def copies(plane: ClusterWriter, name: str, space: str) -> Sequence[tuple[Kind, Manifest]]:
    """Return the copies on a control plane that stand for instances of one app cluster."""
    service = await served(plane, name)
    if service is None:
        return []
    kind = service.kind
    if not kind.namespaced:
        everything = await plane.cluster.list(kind, metadata_only=True)
        return [
            (kind, item)
            for item in everything.items
            if m.annotations_of(item).get(keys.CLUSTER_NAMESPACE) == space
        ]
    namespaces = sorted(set((await service_namespaces(plane, space)).values()))
    found = [
        await plane.cluster.list(kind, namespace=namespace, metadata_only=True)
        for namespace in namespaces
    ]
    return [(kind, item) for listing in found for item in listing.items]


async def release_copies(plane: ClusterWriter, name: str, space: str, *, now: datetime) -> None:
    """Unbind the copies of one app cluster and mark them as released.

    A konnector deletes bound copies whose twin is gone, and adopts unbound ones (mapping.md 9).
    """
    bound = [
        Ref(plane.cluster.name, kind, m.namespace_of(one), m.name_of(one))
        for kind, one in await copies(plane, name, space)
        if keys.BOUND in m.annotations_of(one)
    ]
    await _each(bound, lambda ref: plane.change(ref, patches.unbind(now)))


async def free_instances(app: ClusterWriter, name: str) -> None:
    """Take the konnector's finalizer off all instances."""
    bound = [ref for ref, one in await _instances(app, name) if keys.SYNCER in m.finalizers_of(one)]
    free = patches.without_finalizer(keys.SYNCER)
    await _each(bound, lambda ref: app.change(ref, free))


async def warn_of_end(app: ClusterWriter, name: str) -> str:
    """Have the API server warn those who use a service that is bound no more.

    A konnector that works has seen to that. Returns a sentence where it may not be done, or "".
    """
    if any(m.name_of(one) == name for one in await list_bindings(app, "")):
        return ""  # in another namespace, to another control plane
    crd = Ref(app.cluster.name, CRD, "", name)
    try:
        await app.change(crd, patches.unserved)
    except Forbidden:
        return f"no right to change {crd.object}: users of the kind get no warning of the release"
    return ""


async def delete_instances(app: ClusterWriter, name: str, at_most: int | None) -> None:
    """Ask for the deletion of all instances; the konnector carries it.

    Raises Stale where there are more than `at_most`, None for any number: nothing is deleted then.
    """
    found = await _instances(app, name)
    if at_most is not None and len(found) > at_most:
        raise Stale(f"{len(found)} {name} are there, not {at_most}")

    async def delete(ref: Ref, uid: str) -> None:
        # Another of that name was made meanwhile: the count that follows will find it.
        try:
            await app.delete(ref, uid=uid, propagation=Propagation.BACKGROUND)
        except Stale:
            return

    uids = {ref: m.uid_of(one) for ref, one in found}
    await _each(uids, lambda ref: delete(ref, uids[ref]))


async def finalizers(app: ClusterWriter, name: str) -> Sequence[str]:
    """Return what holds instances of a service back from going."""
    return sorted({held for _, one in await _instances(app, name) for held in m.finalizers_of(one)})


async def what_is_left(plane: ClusterWriter, app: ClusterWriter, space: str) -> str:
    """Return a sentence about what is still there, "" for nothing.

    Looks for every service that the control plane offers, or exports to this space; and for those
    of which a konnector has noted that copies were released here, offered or not.
    """
    offered = await plane.cluster.list(api.API_SERVICE_EXPORT_TEMPLATE)
    exported = await plane.cluster.list(api.API_SERVICE_EXPORT, namespace=space, metadata_only=True)
    mapped = await plane.cluster.list(
        api.API_SERVICE_NAMESPACE, namespace=space, metadata_only=True
    )
    selector = ("spec", "APIServiceSelector")
    known = {
        names.resource_name(
            m.get_text(item, *selector, "resource"),
            m.get_text(item, *selector, "group"),
        )
        for item in offered.items
    } | set(map(m.name_of, exported.items))
    known = known.union(*map(api.released_kinds, mapped.items))
    for name in sorted(known):
        if found := await copies(plane, name, space):
            return f"{len(found)} {name} are left on the control plane"
        if instances := await count(app, name):
            return f"{instances} {name} are left in the app cluster"
    return ""


async def delete_copied_secrets(
    app: ClusterWriter, plane: ClusterWriter, placement: Placement
) -> str:
    """Delete the Secrets that the provider owns and no other live binding claims (mapping.md 9).

    Returns a sentence about those that may not be looked for, or "". Looks only into namespaces
    that hold, or held, instances.
    """
    claims = [
        claim for binding in await _bindings(app, plane, placement) for claim in _down(binding)
    ]
    unread = []
    for namespace in sorted(await service_namespaces(plane, placement.space)):
        try:
            found = await app.cluster.list(SECRET, namespace=namespace, metadata_only=True)
        except Forbidden:
            unread.append(namespace)
            continue
        for secret in found.items:
            is_copy = m.annotations_of(secret).get(keys.RESOURCE_OWNER) == keys.OWNER_PROVIDER
            if is_copy and not _is_claimed(claims, namespace, m.name_of(secret)):
                await _remove(app, namespace, secret)
    if not unread:
        return ""
    places = ", ".join(unread)
    return f"no right to list Secrets in {places}: copies that came down may be left there"


async def _instances(app: ClusterWriter, name: str) -> list[tuple[Ref, Manifest]]:
    service = await served(app, name)
    if service is None:
        return []
    found = await app.cluster.list(service.kind, metadata_only=True)
    return [
        (
            Ref(app.cluster.name, service.kind, m.namespace_of(item), m.name_of(item)),
            item,
        )
        for item in found.items
    ]


async def _each(refs: Iterable[Ref], do: Callable[[Ref], Awaitable[object]]) -> None:
    """Do it for each, a few at once; the first failure ends it."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(ref: Ref) -> None:
        async with slots:
            await do(ref)

    await gather_or_cancel(one(ref) for ref in sorted(refs))


async def _bindings(
    app: ClusterWriter, plane: ClusterWriter, placement: Placement
) -> list[Manifest]:
    """Return the live bindings of an app cluster: there, or in its space (mapping.md 8)."""
    place = "" if placement.bindings_cluster_scoped else names.KLUTCH_NAMESPACE
    found: list[Manifest] = []
    for writer, namespace in ((app, place), (plane, placement.space)):
        found += await list_bindings(writer, namespace)
    return found


async def _remove(app: ClusterWriter, namespace: str, secret: Manifest) -> None:
    ref = Ref(app.cluster.name, SECRET, namespace, m.name_of(secret))
    try:
        await app.delete(ref, uid=m.uid_of(secret), propagation=Propagation.BACKGROUND)
    except Stale:  # deleted and created again by another: that one is not ours
        return


def _down(binding: Manifest) -> Iterator[Manifest]:
    """Yield the accepted claims by which Secrets of the provider come down."""
    for claim in m.get_maps(binding, "spec", "permissionClaims"):
        secrets = (m.get_text(claim, "group"), m.get_text(claim, "resource")) == (
            "",
            "secrets",
        )
        down = m.get_text(claim, "selector", "owner") in ("", keys.OWNER_PROVIDER)
        if secrets and down and m.get_text(claim, "state") == "Accepted":
            yield claim


def _is_claimed(claims: Sequence[Manifest], namespace: str, name: str) -> bool:
    return any(
        _selects(m.get_texts(claim, "selector", "namespaces"), namespace)
        and _selects(m.get_texts(claim, "selector", "names"), name)
        for claim in claims
    )


def _selects(listed: Sequence[str], name: str) -> bool:
    return not listed or "*" in listed or name in listed

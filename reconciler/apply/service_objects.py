"""Finds the objects of a service: instances in an app cluster, copies on the control plane.

Finds them in whichever version the cluster serves, and counts, frees, releases and deletes them.
Decides nothing about when.

Also writes digests of kubeconfigs, so that a plan compares them without the Secrets (trust.md T2).
The note is on the ClusterBinding or AppClusterBinding that names the kubeconfig. In Direct mode,
what the Secret in the app cluster is stands on our APIServiceBindings: where no konnector mirrors
it any more, a plan compares both.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from reconciler import api
from reconciler.apply import patches
from reconciler.apply.object_writer import Clusters, ClusterWriter
from reconciler.apply.patches import Stale, annotate
from reconciler.blueprints import objects
from reconciler.controller.tasks import a_few, gather_or_cancel
from reconciler.core import identity, keys, names
from reconciler.core import manifest as m
from reconciler.core.errors import Forbidden, NotServed
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, NAMESPACE, SECRET, Kind, Ref
from reconciler.fleet.wanted import Placement
from reconciler.kube.requests import Propagation
from reconciler.observe.objects import observed
from reconciler.planning.changes import Action, Change

_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Service:
    """A service's kind as one cluster serves it, and its CRD there."""

    kind: Kind
    crd: Ref
    live: Manifest


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
    return Service(api.kind_of(crd, version), ref, crd)


async def brought(
    app: ClusterWriter, plane: ClusterWriter, name: str, placement: Placement
) -> Service | None:
    """Return a service of an app cluster that came with the binding of this space, or None.

    Another CRD of its name is somebody else's, with all its objects.
    """
    service = await served(app, name)
    if service is None or not api.is_from_konnector(service.live):
        return None
    if mark := m.annotations_of(service.live).get(keys.SPACE_UID):
        return service if mark == m.uid_of(await _space(plane, placement.space)) else None
    place = "" if placement.bindings_cluster_scoped else names.KLUTCH_NAMESPACE
    bound = [one for one in await list_bindings(app, "") if m.name_of(one) == name]
    return service if all(m.namespace_of(one) == place for one in bound) else None


async def _space(plane: ClusterWriter, name: str) -> Manifest:
    return await plane.read(Ref(plane.cluster.name, NAMESPACE, "", name)) or {}


async def _lives(plane: ClusterWriter, space: str) -> set[str]:
    """Return the uids of a space; without any in the object, it may be the space."""
    return {*identity.lives(await _space(plane, space)), identity.NONE}


async def count(writer: ClusterWriter, service: Service | None) -> int:
    """Return how many objects of a service there are now, of all namespaces."""
    return 0 if service is None else await writer.cluster.count(service.kind)


async def service_namespaces(plane: ClusterWriter, space: str) -> Collection[str]:
    """Return the service namespaces of a space, also without a mapping: they go with it."""
    mapped = await plane.cluster.list(api.API_SERVICE_NAMESPACE, namespace=space)
    lives = await _lives(plane, space)
    everything = await plane.cluster.list(NAMESPACE, metadata_only=True)
    marked = {
        m.name_of(one)
        for one in everything.items
        if m.annotations_of(one).get(keys.API_SERVICE_NAMESPACE, "").startswith(f"{space}/")
        and identity.recorded(one, keys.SPACE_UID) in lives
    }
    return marked | {m.get_text(one, "status", "namespace") for one in mapped.items} - {""}


async def copies(plane: ClusterWriter, name: str, space: str) -> Sequence[tuple[Kind, Manifest]]:
    """Return the copies on a control plane that stand for instances of one app cluster."""
    service = await served(plane, name)
    if service is None:
        return []
    kind, lives = service.kind, await _lives(plane, space)
    within = sorted(await service_namespaces(plane, space)) if kind.namespaced else [""]
    return [
        (kind, item)
        for namespace in within
        for item in (await plane.cluster.list(kind, namespace=namespace, metadata_only=True)).items
        if kind.namespaced or identity.is_of_space(item, space, lives)
    ]


async def release_copies(plane: ClusterWriter, name: str, space: str, *, now: datetime) -> None:
    """Unbind the copies of one app cluster and mark them as released.

    A konnector deletes bound copies whose twin is gone, and adopts unbound ones (mapping.md 9).
    """
    left = [
        m.ref_of(plane.cluster.name, kind, one)
        for kind, one in await copies(plane, name, space)
        if objects.is_to_release(one)
    ]
    await _each(left, lambda ref: plane.change(ref, patches.unbind(now)))


async def free_instances(app: ClusterWriter, service: Service | None) -> None:
    """Take the konnector's finalizer off all instances."""
    bound = [
        ref for ref, one in await instances(app, service) if keys.SYNCER in m.finalizers_of(one)
    ]
    await _each(bound, lambda ref: app.change(ref, patches.unfinalized(keys.SYNCER)))


async def warn_of_end(app: ClusterWriter, name: str) -> str:
    """Make the API server warn users of a service that is bound no more.

    A konnector that works has seen to that. Returns a sentence where it may not be done, or "".
    """
    if any(m.name_of(one) == name for one in await list_bindings(app, "")):
        return ""  # in another namespace, to another control plane
    crd, cost = Ref(app.cluster.name, CRD, "", name), "its users get no warning of the release"
    return await _if_allowed(app, crd, patches.unserved, cost)


async def own_crd(app: ClusterWriter, crd: Ref, binding: Manifest | None) -> str:
    """Make a binding the owner of its CRD. Returns a sentence where it may not be done, or "".

    Servers that guard owners ask for `delete` on the CRD; our konnector takes it over itself.
    """
    return await _if_allowed(
        app, crd, patches.own(binding), "its konnector has to make the binding its owner"
    )


async def _if_allowed(app: ClusterWriter, crd: Ref, change: patches.Decide, cost: str) -> str:
    try:
        await app.change(crd, change)
    except Forbidden:
        return f"no right to change {crd.object}: {cost}"
    return ""


async def delete_instances(
    app: ClusterWriter, service: Service | None, at_most: int | None
) -> None:
    """Ask for the deletion of all instances; the konnector carries it.

    Raises Stale where there are more than `at_most`, None for any number: nothing is deleted then.
    """
    found = await instances(app, service)
    if service is not None and at_most is not None and len(found) > at_most:
        raise Stale(f"{len(found)} {service.kind.resource} are there, not {at_most}")

    async def delete(ref: Ref, uid: str) -> None:
        # Another of that name was made since then: the count that follows will find it.
        with suppress(Stale):
            await app.delete(ref, uid=uid, propagation=Propagation.BACKGROUND)

    uids = {ref: m.uid_of(one) for ref, one in found}
    await _each(uids, lambda ref: delete(ref, uids[ref]))


async def left_over(plane: ClusterWriter, app: ClusterWriter, space: str) -> str:
    """Return a sentence about the remaining objects, "" for none.

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
    }.union(map(m.name_of, exported.items), *map(api.released_kinds, mapped.items))
    for name in sorted(known):
        if found := await copies(plane, name, space):
            return f"{len(found)} {name} are left on the control plane"
        if left := await count(app, await served(app, name)):
            return f"{left} {name} are left in the app cluster"
    return ""


async def instances(app: ClusterWriter, service: Service | None) -> list[tuple[Ref, Manifest]]:
    if service is None:
        return []
    found = await app.cluster.list(service.kind, metadata_only=True)
    return [(m.ref_of(app.cluster.name, service.kind, one), one) for one in found.items]


async def _each(refs: Iterable[Ref], do: Callable[[Ref], Awaitable[object]]) -> None:
    """Do it for each, a few at once; the first failure ends it."""
    await gather_or_cancel(a_few(_AT_ONCE, do, sorted(refs)))


def carrier_after(change: Change) -> Ref | None:
    """Return the object that notes a kubeconfig once a line is done, or None."""
    if change.ref.kind == api.APP_CLUSTER_BINDING and change.action is Action.CREATE:
        return change.ref
    wanted = change.wanted
    here = wanted is not None and wanted.kubeconfig is not None and change.ref.kind == SECRET
    if not here or change.ref.cluster == change.cluster or change.placement is None:
        return None
    return _carrier(change.ref.cluster, change.placement)


def _carrier(plane: str, placement: Placement) -> Ref:
    if placement.app_cluster_binding != ("", ""):
        return Ref(plane, api.APP_CLUSTER_BINDING, *placement.app_cluster_binding)
    return Ref(plane, api.CLUSTER_BINDING, placement.space, names.CLUSTER_BINDING)


async def note_kubeconfig(plane: ClusterWriter, ref: Ref) -> None:
    """Note the facts of the kubeconfig that an object names; nothing where either is absent."""
    live = await plane.read(ref)
    if live is None:
        return
    namespace, name = api.secret_of(live)
    place = namespace or m.namespace_of(live), name or names.KUBECONFIG
    secret = await plane.read(Ref(ref.cluster, SECRET, *place))
    facts = None if secret is None else api.kubeconfig_facts_of(observed(SECRET, secret))
    if facts is None:
        return

    def decide(found: Manifest) -> Manifest | None:
        return annotate(keys.CREDENTIAL, api.credential_note(facts, m.uid_of(found)))(found)

    await plane.change(ref, decide, manager=keys.MANAGER_NOTES)


async def binding_note(app: ClusterWriter, secret: Ref, plane: ClusterWriter, space: str) -> str:
    """Return the note on APIServiceBindings about their Secret; "" where there is none to make."""
    bound = await plane.read(
        Ref(plane.cluster.name, api.CLUSTER_BINDING, space, names.CLUSTER_BINDING)
    )
    kubeconfig = await app.read(secret)
    source = api.noted_facts(m.annotations_of(bound or {}).get(keys.CREDENTIAL, ""))
    facts = None if kubeconfig is None else api.mirrored_facts(observed(SECRET, kubeconfig), source)
    return "" if facts is None or bound is None else api.credential_note(facts, m.uid_of(bound))


async def note_binding(app: ClusterWriter, ref: Ref, plane: ClusterWriter, space: str) -> None:
    live = await app.read(ref)
    if live is not None:
        secret = Ref(ref.cluster, SECRET, *api.secret_of(live))
        await put_note(app, ref, await binding_note(app, secret, plane, space))


async def put_note(app: ClusterWriter, binding: Ref, note: str) -> None:
    await app.change(binding, annotate(keys.CREDENTIAL, note), manager=keys.MANAGER_NOTES)


async def note_bindings(change: Change, clusters: Clusters, plane: str) -> None:
    """Note the facts of a changed Secret on those of our APIServiceBindings that name it."""
    assert change.wanted is not None, change
    assert change.placement is not None, change
    secret, placed, app = change.ref, change.placement, clusters(change.ref.cluster)
    fleet = m.labels_of(change.wanted.manifest)[keys.FLEET]
    place = "" if placed.bindings_cluster_scoped else secret.namespace
    note = await binding_note(app, secret, clusters(plane), placed.space)
    for binding in await list_bindings(app, place):
        is_ours = m.labels_of(binding).get(keys.FLEET) == fleet
        if is_ours and api.secret_of(binding) == (secret.namespace, secret.name):
            ref = Ref(secret.cluster, api.API_SERVICE_BINDING, place, m.name_of(binding))
            await put_note(app, ref, note)


async def list_bindings(writer: ClusterWriter, namespace: str) -> Sequence[Manifest]:
    """Return the live APIServiceBindings; a cluster without their CRD has none."""
    with suppress(NotServed):
        return (await writer.cluster.list(api.API_SERVICE_BINDING, namespace=namespace)).items
    return ()

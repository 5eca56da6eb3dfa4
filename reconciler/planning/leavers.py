"""App clusters that left the files as a whole: their units first, then what they stood on.

Mapping.md 9, "Cluster leaves". The space, or the AppClusterBinding, stays: it holds the data.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.core import keys, names
from reconciler.core.manifest import Manifest, get_text, labels_of, name_of, uid_of
from reconciler.core.refs import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEPLOYMENT,
    NAMESPACE,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
)
from reconciler.fleet.footing import Footing
from reconciler.fleet.values import DeletionPolicy, Fleet, UnitKey
from reconciler.planning import leaving
from reconciler.planning.app_cluster_bindings import release_steps, resources_of
from reconciler.planning.changes import Action, Change, Step
from reconciler.planning.compare import before_digest, is_ours
from reconciler.planning.index import Index
from reconciler.planning.leaving import Departure
from reconciler.planning.placement import belongs_to_another
from reconciler.planning.units import Site

_KONNECTOR: tuple[tuple[Kind, str], ...] = (
    (DEPLOYMENT, names.KONNECTOR),
    (SERVICE_ACCOUNT, names.KONNECTOR),
    (CLUSTER_ROLE_BINDING, names.KONNECTOR_CLUSTER_ROLE),
    (CLUSTER_ROLE, names.KONNECTOR_CLUSTER_ROLE),
)


@dataclass(frozen=True, slots=True)
class Leaving:
    """A cluster that left: the object that still stands for it, and its units.

    `stranger`: why the cluster that was reached is not the one that left, or "". The way to it
    is an annotation, which others may have written.
    """

    name: str
    kind: Kind  # of `carrier`: Namespace in Direct mode, else AppClusterBinding
    carrier: Manifest
    site: Site
    departures: tuple[Departure, ...]
    stranger: str = ""


def leavings(fleet: Fleet, name: str, plane: Index, app: Index) -> tuple[Leaving, ...]:
    """Return what this control plane still holds for a cluster that no document names."""
    found = (*_spaces(fleet, name, plane, app), *_app_cluster_bindings(fleet, name, plane, app))
    return tuple(_checked(one, app) for one in found)


def change_of(gone: Leaving) -> Change:
    """Return the line for the cluster itself."""
    policy = gone.site.fleet.guards.on_cluster_leave
    change = Change(
        cluster=gone.name,
        subject="cluster",
        ref=gone.site.control_plane.ref(gone.kind, gone.carrier),
        action=Action.RELEASE,
        reason="no document names this cluster; its data stays",
        before=before_digest(gone.carrier, {}),
        uid=uid_of(gone.carrier),
        steps=tuple(_steps(gone)),
    )
    if gone.stranger:
        return replace(change, action=Action.BLOCKED, reason=gone.stranger, steps=())
    match policy:
        case DeletionPolicy.RELEASE:
            return change
        case DeletionPolicy.BLOCK:
            reason = "no document names this cluster, and prune.onClusterLeave is Block"
            return replace(change, action=Action.BLOCKED, reason=reason, steps=())
        case DeletionPolicy.DELETE:
            last = Step("delete", change.ref, "once no instance of any kind is left")
            reason = "no document names this cluster, and prune.onClusterLeave is Delete"
            steps = (*change.steps, last)
            return replace(change, action=Action.DELETE, reason=reason, steps=steps)


def _checked(gone: Leaving, app: Index) -> Leaving:
    stranger = belongs_to_another(name_of(gone.carrier), gone.carrier, app)
    if stranger is None:
        return gone
    return replace(gone, departures=(), stranger=stranger.reason)


def _spaces(fleet: Fleet, name: str, plane: Index, app: Index) -> Iterator[Leaving]:
    for space in plane.all(NAMESPACE):
        if _left(space, fleet, name):
            site = Site(fleet, _footing(name_of(space), plane, app), plane, app)
            found = leaving.departures(site, name)
            yield Leaving(name, NAMESPACE, space, site, _by_rule(fleet, found))


def _app_cluster_bindings(fleet: Fleet, name: str, plane: Index, app: Index) -> Iterator[Leaving]:
    for one in plane.all(APP_CLUSTER_BINDING):
        if not _left(one, fleet, name):
            continue
        ref = plane.ref(APP_CLUSTER_BINDING, one)
        space = names.app_cluster_binding_space(ref.namespace, ref.name)
        site = Site(fleet, _footing(space, plane, app), plane, app)
        found = []
        for resource in sorted(resources_of(one), key=lambda each: each.name):
            key = UnitKey(name, resource.group, resource.plural)
            steps = tuple(release_steps(site, key, ref))
            found.append(Departure(key, key.name, ref, one, DeletionPolicy.RELEASE, steps))
        yield Leaving(name, APP_CLUSTER_BINDING, one, site, _by_rule(fleet, tuple(found)))


def _left(carrier: Manifest, fleet: Fleet, name: str) -> bool:
    released = get_text(carrier, "metadata", "annotations", keys.RELEASED)
    return is_ours(carrier, fleet=fleet.name, cluster=name) and not released


def _by_rule(fleet: Fleet, found: tuple[Departure, ...]) -> tuple[Departure, ...]:
    """The rule for clusters decides for all their units."""
    return tuple(replace(one, policy=fleet.guards.on_cluster_leave) for one in found)


def _footing(space: str, plane: Index, app: Index) -> Footing:
    binding = plane.get(CLUSTER_BINDING, space, names.CLUSTER_BINDING)
    path = ("spec", "kubeconfigSecretRef", "name")
    return Footing(
        space=space,
        kubeconfig_namespace=space,
        kubeconfig_name=(get_text(binding, *path) if binding else "") or names.KUBECONFIG,
        consumer_secret=names.kubeconfig_secret(space),
        identity="",
        bindings_cluster_scoped=app.seen.bindings_cluster_scoped,
        cluster_uid=app.seen.uid,
        address=plane.seen.address,
    )


def _steps(gone: Leaving) -> Iterator[Step]:
    site, ref = gone.site, gone.site.control_plane.ref(gone.kind, gone.carrier)
    app, plane, space = site.app, site.control_plane, site.footing.space
    if gone.kind == APP_CLUSTER_BINDING:
        yield Step("apply", ref, "apiExports [], konnector.deploy false, annotation released")
        return
    for kind, name in _KONNECTOR:
        live = app.get(kind, names.KLUTCH_NAMESPACE if kind.namespaced else "", name)
        if live is not None and is_ours(live, fleet=site.fleet.name, cluster=gone.name):
            yield Step("delete", app.ref(kind, live), "the konnector that we deployed")
    for secret in app.inside(SECRET, names.KLUTCH_NAMESPACE):
        if labels_of(secret).get(keys.CLUSTER) == gone.name:
            yield Step("delete", app.ref(SECRET, secret), "the way to the control plane")
    for name in (names.BINDER, site.footing.kubeconfig_name):
        held = plane.get(SECRET, space, name)
        if held is not None:
            yield Step("delete", plane.ref(SECRET, held), "revokes the access")
    yield Step("apply", ref, "annotation released; the space and its data stay")

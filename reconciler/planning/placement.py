"""Places an app cluster on its control plane: found, taken over, or new (mapping.md 2-4)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconciler import api
from reconciler.core import keys, manifest, names
from reconciler.core.manifest import Manifest
from reconciler.core.refs import NAMESPACE, SECRET
from reconciler.fleet.values import AppCluster, Fleet
from reconciler.fleet.wanted import Placement, default_placement
from reconciler.planning.objects import is_of
from reconciler.planning.site import Index, Site


@dataclass(frozen=True, slots=True)
class Blocked:
    """A cluster about which nothing is decided until a person has looked, and why."""

    guard: str
    reason: str
    by_apply: bool = False  # an apply decides, which may read the credentials (trust.md T2)


LOOKED_AT: Final = "apply compares its credentials"
_UNDECIDED: Final = Blocked("credentials", LOOKED_AT, by_apply=True)


def place(
    fleet: Fleet, cluster: AppCluster, control_plane: Index, app: Index
) -> Placement | Blocked:
    """Find the binding space of a cluster in Direct mode, or name a new one."""
    found = _spaces(fleet, cluster, control_plane, app)
    if isinstance(found, Blocked):
        return found
    if len(found) > 1:
        listed = ", ".join(sorted(map(manifest.name_of, found)))
        return Blocked("ambiguous-space", f"several binding spaces fit this cluster: {listed}")
    if not found:
        return _unknowable(fleet, cluster, app) or _new(fleet, cluster, control_plane, app)
    return _known(fleet, cluster, found[0], control_plane, app)


def wrong_identity(cluster: AppCluster, app: Index) -> Blocked | None:
    """Refuse a cluster that is not the one that the files mean."""
    if not cluster.identity or cluster.identity == app.seen.uid:
        return None
    return Blocked(
        "identity",
        f"the cluster reached has the identity {app.seen.uid}, not {cluster.identity}: its "
        "kubeconfig leads elsewhere",
    )


def unreadable(control_plane: Index, namespace: str, name: str) -> Blocked | None:
    """Refuse a cluster whose kubeconfig on the control plane is out of reach of this account.

    Objects of others may name any Secret: that stops those clusters, and no others (trust.md T6).
    """
    if (namespace, name) not in control_plane.seen.unreadable:
        return None
    return Blocked(
        "unreadable-kubeconfig",
        f"its kubeconfig on the control plane is Secret {namespace}/{name}, which this account may "
        "not read; if that is right, let it `list` that Secret, else repair the object that names "
        "it",
    )


def belongs_to_another(subject: str, live: Manifest, app: Index) -> Blocked | None:
    """Refuse an object that was made for an app cluster with another identity."""
    known = recorded(live)
    if not known or known == app.seen.uid:
        return None
    return Blocked(
        "identity",
        f"{subject} belongs to the app cluster with the identity {known}, and the one reached "
        f"has {app.seen.uid}: correct the kubeconfig, or see `klutchctl explain identity`",
    )


def recorded(carrier: Manifest) -> str:
    """Return the identity of the app cluster that a space or AppClusterBinding is for, or ""."""
    return manifest.annotations_of(carrier).get(keys.APP_CLUSTER_UID, "")


def is_claimed(cluster: AppCluster, carrier: Manifest, space: str) -> bool:
    """Return whether the files give a cluster the root of `space`.

    The identity that a cluster reports never does: any cluster may report any (trust.md T1).
    """
    known = recorded(carrier)
    return cluster.adopt == space or (bool(known) and cluster.identity == known)


def unproved(cluster: AppCluster, carrier: Manifest, space: str) -> Blocked:
    """Hold a cluster with no proof but its own word that a space was made for it."""
    released = keys.RELEASED in manifest.annotations_of(carrier)
    was = "was released" if released else f"is that of {manifest.labels_of(carrier)[keys.CLUSTER]}"
    return Blocked(
        "unproved-space",
        f"binding space {space} {was}, and nothing proves that {cluster.name} is "
        f"the cluster that it was made for; add `adopt: {{space: {space}}}` to the spec of its "
        f"Cluster document, or `identity: {recorded(carrier)}`, if it is",
    )


def _spaces(
    fleet: Fleet, cluster: AppCluster, control_plane: Index, app: Index
) -> Sequence[Manifest] | Blocked:
    """Return the spaces that are this cluster's, by the first rule that finds any."""
    if cluster.adopt:
        return _adopted(fleet, cluster, control_plane)
    by_cluster = control_plane.labelled(NAMESPACE, keys.CLUSTER)
    labelled = [
        one
        for one in by_cluster.get(cluster.name, ())
        if manifest.labels_of(one).get(keys.FLEET) == fleet.name
    ]
    current = [space for space in labelled if keys.RELEASED not in manifest.annotations_of(space)]
    if current:
        return current
    former = labelled or [
        space
        for space in control_plane.labelled(NAMESPACE, keys.FLEET).get(fleet.name, ())
        if not fleet.has_document(manifest.labels_of(space).get(keys.CLUSTER, ""))
        and recorded(space) in {app.seen.uid, cluster.identity} - {""}
    ]
    # What is noted in an app cluster proves nothing: that takes the token itself.
    proved = () if app.blind else _taken_over(control_plane, app)
    if isinstance(proved, Blocked):
        return proved
    given = [
        space
        for space in former
        if space in proved or is_claimed(cluster, space, manifest.name_of(space))
    ]
    if former and not given:
        first = min(former, key=manifest.name_of)
        refused = unproved(cluster, first, manifest.name_of(first))
        # Where nothing is bound, there is no token of a space either.
        return _renamed(cluster, first) if app.blind and bindings(app) else refused
    if not given and app.blind and _may_be_taken_over(fleet, control_plane, app):
        return _UNDECIDED
    return given or proved


def _renamed(cluster: AppCluster, space: Manifest) -> Blocked:
    """Leave a cluster to apply that reports a space as its own; name its former name."""
    former = manifest.labels_of(space).get(keys.CLUSTER, "")
    if former == cluster.name:
        return _UNDECIDED
    note = f"it was called {former}, if these prove it, and its objects get the new name"
    return replace(_UNDECIDED, reason=f"{LOOKED_AT}: {note}")


def _may_be_taken_over(fleet: Fleet, control_plane: Index, app: Index) -> bool:
    """Return whether a space without our labels offers the resources of another tool's bindings."""
    bound = {
        manifest.name_of(binding)
        for binding in bindings(app)
        if not is_of(binding, fleet, app.name)
    }
    free = {
        namespace
        for binding in control_plane.all(api.CLUSTER_BINDING)
        if (namespace := manifest.namespace_of(binding))
        and keys.APP_CLUSTER_BINDING_NAME not in manifest.labels_of(binding)
        and (space := control_plane.get(NAMESPACE, "", namespace)) is not None
        and keys.FLEET not in manifest.labels_of(space)
    }
    return any(
        manifest.name_of(offer) in bound
        for kind in (api.API_SERVICE_EXPORT, api.API_SERVICE_EXPORT_REQUEST)
        for namespace in free
        for offer in control_plane.inside(kind, namespace)
    )


def _adopted(
    fleet: Fleet, cluster: AppCluster, control_plane: Index
) -> Sequence[Manifest] | Blocked:
    """Return the space that the files name; none where that is the name of a new one."""
    live = control_plane.get(NAMESPACE, "", cluster.adopt)
    if live is not None:
        return [live]
    if cluster.adopt == names.direct_space(fleet.name, cluster.name):
        return []
    reason = f"there is no binding space {cluster.adopt}, which spec.adopt names"
    return Blocked("unknown-space", reason)


def _taken_over(control_plane: Index, app: Index) -> Sequence[Manifest] | Blocked:
    """Return the spaces that kubeconfig Secrets of live bindings lead to, with the same token."""
    found: dict[str, Manifest] = {}
    for secret in _referenced(app):
        facts = api.kubeconfig_facts_of(secret)
        if facts is None or not facts.namespace:
            continue
        space = control_plane.get(NAMESPACE, "", facts.namespace)
        binding = control_plane.get(api.CLUSTER_BINDING, facts.namespace, names.CLUSTER_BINDING)
        if space is None or binding is None:
            continue
        source = facts.namespace, secret_name(binding)
        if refused := unreadable(control_plane, *source):
            return refused
        kubeconfig = control_plane.get(SECRET, *source)
        theirs = api.kubeconfig_facts_of(kubeconfig) if kubeconfig is not None else None
        if theirs is not None and theirs.same_token(facts.token_digest):
            found[facts.namespace] = space
    return [found[name] for name in sorted(found)]


def _referenced(app: Index) -> Iterator[Manifest]:
    """Yield the kubeconfig Secrets that the app cluster's bindings name, each once."""
    seen = set()
    for binding in bindings(app):
        namespace, name = api.secret_of(binding)
        secret = app.get(SECRET, namespace, name)
        if secret is not None and (namespace, name) not in seen:
            seen.add((namespace, name))
            yield secret


def _unknowable(fleet: Fleet, cluster: AppCluster, app: Index) -> Blocked | None:
    """Refuse a new space for a unit with an unknown present one: that holds its data."""
    if app.blind:
        return None
    wanted = {unit.name for unit in fleet.units if unit.cluster == cluster.name}
    for binding in bindings(app):
        namespace, name = api.secret_of(binding)
        secret = app.get(SECRET, namespace, name)
        unread = secret is None or api.kubeconfig_facts_of(secret) is None
        if (
            unread
            and manifest.name_of(binding) in wanted
            and not is_of(binding, fleet, cluster.name)
        ):
            problem = "does not exist" if secret is None else "contains no kubeconfig"
            reason = (
                f"{manifest.name_of(binding)} is bound already, and its target is unknown: its "
                f"Secret {namespace}/{name} {problem}; repair the Secret first"
            )
            return Blocked("unreadable-kubeconfig", reason)
    return None


def bindings(app: Index) -> Sequence[Manifest]:
    """Return the APIServiceBindings where konnectors look for them, by name.

    In other namespaces tenants of the app cluster may write what they like.
    """
    return app.once("bindings", _bindings)


def own_bindings(site: Site) -> Iterator[Manifest]:
    return filter(site.owns, bindings(site.app))


def _bindings(app: Index) -> Sequence[Manifest]:
    place = "" if app.seen.bindings_cluster_scoped else names.KLUTCH_NAMESPACE
    return sorted(app.inside(api.API_SERVICE_BINDING, place), key=manifest.name_of)


def _new(
    fleet: Fleet, cluster: AppCluster, control_plane: Index, app: Index
) -> Placement | Blocked:
    space = names.direct_space(fleet.name, cluster.name)
    live = control_plane.get(NAMESPACE, "", space)
    if live is not None:
        identity = manifest.annotations_of(live).get(keys.IDENTITY, "")
        if identity != names.direct_identity(fleet.name, cluster.name):
            return Blocked(
                "foreign-space",
                f"namespace {space} exists on the control plane with another identity",
            )
        if keys.RELEASED in manifest.annotations_of(live) and not is_claimed(cluster, live, space):
            return unproved(cluster, live, space)
        return _known(fleet, cluster, live, control_plane, app)
    return replace(
        default_placement(fleet, cluster),
        cluster_uid=app.seen.uid,
        bindings_cluster_scoped=app.seen.bindings_cluster_scoped,
        address=control_plane.seen.address,
    )


def _known(
    fleet: Fleet, cluster: AppCluster, space: Manifest, control_plane: Index, app: Index
) -> Placement | Blocked:
    name = manifest.name_of(space)
    foreign = belongs_to_another(f"binding space {name}", space, app)
    if foreign is not None:
        return foreign
    binding = control_plane.get(api.CLUSTER_BINDING, name, names.CLUSTER_BINDING)
    kubeconfig = secret_name(binding or {})
    identity = manifest.annotations_of(space).get(keys.IDENTITY, "")
    return Placement(
        space=name,
        kubeconfig_namespace=name,
        kubeconfig_name=kubeconfig,
        consumer_secret=_consumer_secret(
            fleet, control_plane.get(SECRET, name, kubeconfig), name, app
        ),
        identity=identity if identity == names.direct_identity(fleet.name, cluster.name) else "",
        cluster_binding={} if binding is None else manifest.get_map(binding, "spec"),
        bindings_cluster_scoped=app.seen.bindings_cluster_scoped,
        cluster_uid=app.seen.uid,
        address=control_plane.seen.address,
    )


def _consumer_secret(fleet: Fleet, source: Manifest | None, space: str, app: Index) -> str:
    """Return K: the Secret of the space's live bindings, else one with its token, else new.

    A space of that name may be on another control plane too: what leads there without the token
    of `source` counts only where the binding is ours. So does a Secret of ours that is gone.
    """
    used = set()
    # Nearly all bindings of a cluster name one Secret, which is looked at once.
    ways = {(*api.secret_of(binding), is_of(binding, fleet, app.name)) for binding in bindings(app)}
    for namespace, name, ours in ways:
        secret = app.get(SECRET, namespace, name)
        same = same_way(secret, source, space)
        if same or ((ours or app.blind) and (secret is None or leads_to(secret) == space)):
            used.add((not same, not ours, name))
    free = {
        (False, False, manifest.name_of(secret))
        for secret in app.inside(SECRET, names.KLUTCH_NAMESPACE)
        if same_way(secret, source, space)
    }
    best = min(used or free, default=None)
    return names.kubeconfig_secret(space) if best is None else best[-1]


def leads_to(secret: Manifest | None) -> str:
    """Return the namespace that a kubeconfig Secret leads to, or ""."""
    facts = None if secret is None else api.kubeconfig_facts_of(secret)
    return "" if facts is None else facts.namespace


def same_way(secret: Manifest | None, source: Manifest | None, space: str) -> bool:
    """Return whether a kubeconfig leads to a space with the token of `source`, the Secret there."""
    issued = None if source is None else api.kubeconfig_facts_of(source)
    facts = None if secret is None else api.kubeconfig_facts_of(secret)
    if facts is None or issued is None or facts.namespace != space:
        return False
    return facts.same_token(issued.token_digest)


def secret_name(cluster_binding: Manifest) -> str:
    return api.secret_of(cluster_binding).name or names.KUBECONFIG

"""Units that live objects carry and the files no longer name: released, deleted or held.

The steps are those of mapping.md 9, Direct mode.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core import keys
from reconciler.core.live import instances
from reconciler.core.manifest import Manifest, annotations_of, labels_of, name_of, uid_of
from reconciler.core.refs import CRD, SECRET, Ref
from reconciler.fleet.values import DeletionPolicy, UnitKey
from reconciler.planning.changes import Action, Change, Step
from reconciler.planning.compare import before_digest, is_of
from reconciler.planning.guards import leaving_policy
from reconciler.planning.placement import bindings
from reconciler.planning.units import Site


@dataclass(frozen=True, slots=True)
class Departure:
    """One unit that left, and the steps of its release.

    `live` is the object of ours that still carries it.
    """

    key: UnitKey
    subject: str
    ref: Ref
    live: Manifest
    policy: DeletionPolicy
    release: tuple[Step, ...]
    own: DeletionPolicy  # what the unit's own Binding said, whatever else decides


def departures(site: Site, cluster: str) -> tuple[Departure, ...]:
    """Return the units of a cluster in Direct mode that are ours, live, and not in the files.

    A binding tells; where it is gone already, the request does.
    """
    carriers = (
        *((site.app, API_SERVICE_BINDING, one) for one in bindings(site.app)),
        *(
            (site.control_plane, API_SERVICE_EXPORT_REQUEST, one)
            for one in site.control_plane.inside(API_SERVICE_EXPORT_REQUEST, site.footing.space)
        ),
    )
    found: dict[UnitKey, Departure] = {}
    for index, kind, live in carriers:
        key = _key(cluster, name_of(live))
        ours = is_of(live, site.fleet, cluster)
        if ours and key not in site.fleet.units and key not in found:
            ref, policy = index.ref(kind, live), _policy(live)
            steps = tuple(_release(site, key, ref))
            found[key] = Departure(key, _subject(live), ref, live, policy, steps, policy)
    return tuple(found[key] for key in sorted(found))


def strangers(site: Site, cluster: str) -> list[Manifest]:
    """Return the bindings in an app cluster that nobody adopted and no file names."""
    return [
        one
        for one in bindings(site.app)
        if not is_of(one, site.fleet, cluster)
        and _key(cluster, name_of(one)) not in site.fleet.units
    ]


def unmanaged(site: Site, cluster: str) -> set[str]:
    """Return a sentence that lists them, if any (mapping.md 0, Ownership)."""
    found = sorted(map(name_of, strangers(site, cluster)))
    return {f"{cluster}: unmanaged, and left alone: {', '.join(found)}"} if found else set()


def change_of(site: Site, departure: Departure, *, in_use: int | None) -> Change:
    """Return the line for one unit that left. `in_use` counts its instances, None = not asked."""
    change = Change(
        cluster=departure.key.cluster,
        subject=departure.subject,
        ref=departure.ref,
        action=Action.RELEASE,
        reason=f"not in the files: {_instances(in_use)} stay, sync stops",
        unit=departure.key,
        before=before_digest(departure.live, {}),
        uid=uid_of(departure.live),
        steps=departure.release,
    )
    match departure.policy:
        case DeletionPolicy.RELEASE:
            return change
        case DeletionPolicy.BLOCK:
            reason = "not in the files, and its deletionPolicy is Block"
            return replace(change, action=Action.BLOCKED, reason=reason, steps=())
        case DeletionPolicy.DELETE:
            reason = f"not in the files, and its deletionPolicy is Delete: {_instances(in_use)}"
            steps = tuple(_delete(site, departure))
            return replace(change, action=Action.DELETE, reason=reason, steps=steps)


def _key(cluster: str, name: str) -> UnitKey:
    resource, _, group = name.partition(".")
    return UnitKey(cluster, group, resource)


def _subject(live: Manifest) -> str:
    return labels_of(live).get(keys.BINDING) or name_of(live)


def _policy(live: Manifest) -> DeletionPolicy:
    return leaving_policy(annotations_of(live).get(keys.DELETION_POLICY, ""))


def _instances(count: int | None) -> str:
    if count is None:
        return "its instances"
    return "1 instance" if count == 1 else f"{count} instances"


def _release(site: Site, key: UnitKey, carrier: Ref) -> Iterator[Step]:
    cp, space = site.control_plane, site.footing.space
    if carrier.kind == API_SERVICE_BINDING:
        yield Step("apply", carrier, "annotation deletion-policy Release")
        yield Step("delete", carrier, "propagationPolicy Orphan: the CRD stays")
        yield Step("wait", carrier, "until the konnector has stopped its sync")
    for kind in (API_SERVICE_EXPORT_REQUEST, API_SERVICE_EXPORT):
        ref = Ref(cp.name, kind, space, key.name)
        if cp.at(ref) is not None:
            yield Step("delete", ref, "the backend takes the rights away")
    yield Step("patch", all_of(key, cp.name), "provider copies: unbound and released")
    yield Step("patch", all_of(key, site.app.name), "instances: without our finalizer")


def _delete(site: Site, departure: Departure) -> Iterator[Step]:
    key = departure.key
    instances = all_of(key, site.app.name)
    yield Step("delete", instances, "through the app cluster; the konnector carries it")
    yield Step("wait", instances, "until there is none")
    # Neither copies nor instances are left to let go.
    yield from (step for step in departure.release if step.verb != "patch")
    yield Step("delete", Ref(site.app.name, CRD, "", key.name), "after a fresh count of 0")
    copies = Ref(site.app.name, SECRET, "", "")
    yield Step("delete", copies, "with resource-owner Provider that no other binding claims")


def all_of(key: UnitKey, cluster: str) -> Ref:
    """Return the ref of all objects of a unit's kind; their version is the CRD's to say."""
    return Ref(cluster, instances(key.group, key.resource), "", "")

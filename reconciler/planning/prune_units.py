"""Prunes units that left the files: released, deleted or held back.

The steps are those of mapping.md 9, Direct mode.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.live import instances
from reconciler.core.manifest import Manifest, annotations_of, labels_of, name_of, uid_of
from reconciler.core.refs import CRD, NAMESPACE, SECRET, Kind, Ref
from reconciler.fleet.values import DeletionPolicy, UnitKey, read_unit_policies
from reconciler.planning.changes import Action, Change, Step, Verb
from reconciler.planning.guards import leaving_policy
from reconciler.planning.objects import before_digest
from reconciler.planning.placement import bindings
from reconciler.planning.site import Index, Site

_NOT_FOR_DELETES: Final = frozenset(
    {Verb.REMEMBER, Verb.POLICY, Verb.RELEASE_COPIES, Verb.FREE_INSTANCES, Verb.FORGET}
)


@dataclass(frozen=True, slots=True)
class Prune:
    """One unit that left, and the steps of its release.

    `live` is the object of ours that still carries it, at `ref`; `home` remembers that it is
    being let go.
    """

    key: UnitKey
    subject: str
    ref: Ref
    live: Manifest
    policy: DeletionPolicy
    release: tuple[Step, ...]
    own: DeletionPolicy  # what the unit's own Binding said, whatever else decides
    home: Ref


def remembered(home: Manifest | None) -> Mapping[str, DeletionPolicy]:
    """Return the units (`plural.group`) that are being released, and how each.

    A unit's objects go one by one, and after the first of them nothing else shows that the rest is
    still to do. So the space, or the AppClusterBinding, carries the annotation `leaving` from
    before the first step until after the last (mapping.md 9).
    """
    return read_unit_policies("" if home is None else annotations_of(home).get(keys.LEAVING, ""))


def prunes(site: Site) -> tuple[Prune, ...]:
    """Return the units of a cluster in Direct mode that are ours, live, and not in the files.

    A binding tells; where it is gone already, the request does, or the space remembers, or an
    export that only we can have requested.
    """
    letting_go = remembered(site.live_home)
    found: dict[UnitKey, Prune] = {}
    for index, kind, live, name in _carriers(site):
        key = unit_of(site.app.name, name)
        if key in site.fleet.units or key in found:
            continue
        ref = index.ref(kind, live)
        policy = letting_go.get(name) or _policy(live)
        steps = tuple(_release(site, key, ref))
        found[key] = Prune(key, _subject(live, name), ref, live, policy, steps, policy, site.home)
    return tuple(found[key] for key in sorted(found))


def _carriers(site: Site) -> Iterator[tuple[Index, Kind, Manifest, str]]:
    """Yield what carries a unit of ours and its name, the best witness first."""
    app, cp, space = site.app, site.control_plane, site.placement.space
    bound = set(map(name_of, bindings(app)))
    for binding in bindings(app):
        if site.owns(binding):
            yield app, api.API_SERVICE_BINDING, binding, name_of(binding)
    for one in cp.inside(api.API_SERVICE_EXPORT_REQUEST, space):
        # Under a binding that is not ours, nothing is taken away.
        if site.owns(one) and name_of(one) not in bound:
            yield cp, api.API_SERVICE_EXPORT_REQUEST, one, name_of(one)
    home = site.live_home
    if home is None:
        return
    for name in remembered(home):
        yield cp, NAMESPACE, home, name
    identity = annotations_of(home).get(keys.IDENTITY, "")
    if identity.startswith(names.direct_identities(site.fleet.name)):
        for one in cp.inside(api.API_SERVICE_EXPORT, space):
            if name_of(one) not in bound:
                yield cp, api.API_SERVICE_EXPORT, one, name_of(one)


def interrupted(site: Site) -> tuple[Prune, ...]:
    """Return the units that the files want again, and whose release has not come to its end.

    Where the binding is gone, the copies are let go first: a konnector that meets copies that
    are still bound deletes those whose twin is gone.
    """
    home, live = site.home, site.live_home
    bound = set(map(name_of, bindings(site.app)))
    found = []
    for name in sorted(remembered(live)):
        key = unit_of(site.app.name, name)
        if live is None or key not in site.fleet.units:
            continue
        rest = () if name in bound else tuple(let_go(site, key))
        steps = (*rest, Step(Verb.FORGET, home))
        keep = DeletionPolicy.RELEASE
        found.append(Prune(key, name, home, live, keep, steps, keep, home))
    return tuple(found)


def unmanaged_bindings(site: Site) -> list[Manifest]:
    """Return the bindings in an app cluster that were not adopted and no file names."""
    return [binding for binding in unnamed_bindings(site) if not site.owns(binding)]


def unnamed_bindings(site: Site) -> list[Manifest]:
    """Return the bindings in an app cluster that no file names, ours too."""
    found = bindings(site.app)
    return [one for one in found if unit_of(site.app.name, name_of(one)) not in site.fleet.units]


def unmanaged_warning(site: Site) -> set[str]:
    """Return a sentence that lists them, if any (mapping.md 0, Ownership)."""
    return left_alone(site, map(name_of, unmanaged_bindings(site)))


def left_alone(site: Site, unmanaged: Iterable[str]) -> set[str]:
    """Return a sentence about services that are bound in a cluster beside the files, if any."""
    listed = ", ".join(sorted(unmanaged))
    return {f"{site.app.name}: unmanaged, and left alone: {listed}"} if listed else set()


def change_of(site: Site, prune: Prune, *, in_use: int | None = None) -> Change:
    """Return the line for one unit that left. `in_use` counts its instances, None = not asked."""
    change = Change(
        cluster=prune.key.cluster,
        subject=prune.subject,
        ref=prune.ref,
        action=Action.RELEASE,
        reason=f"not in the files: {_instances(in_use)} {_stay(in_use)}, sync stops",
        unit=prune.key,
        before=before_digest(prune.live, {}),
        uid=uid_of(prune.live),
        steps=prune.release,
    )
    match prune.policy:
        case DeletionPolicy.RELEASE:
            return change
        case DeletionPolicy.BLOCK:
            reason = "not in the files, and its deletionPolicy is Block"
            return replace(change, action=Action.BLOCKED, reason=reason, steps=())
        case DeletionPolicy.DELETE:
            reason = f"not in the files, and its deletionPolicy is Delete: {_instances(in_use)}"
            # With none of them there, those that a developer makes meanwhile are not meant.
            meant = prune.own is DeletionPolicy.DELETE and not site.fleet.guards.keep_if_in_use
            along = meant and in_use != 0
            return replace(
                change,
                action=Action.DELETE,
                reason=reason,
                steps=tuple(_delete(site, prune, with_instances=along)),
                instances=in_use if along else None,
            )


def unit_of(cluster: str, name: str) -> UnitKey:
    """Return the unit that objects named `plural.group` are of."""
    resource, _, group = name.partition(".")
    return UnitKey(cluster, group, resource)


def _subject(live: Manifest, name: str) -> str:
    return labels_of(live).get(keys.BINDING) or name


def _policy(live: Manifest) -> DeletionPolicy:
    return leaving_policy(annotations_of(live).get(keys.DELETION_POLICY, ""))


def _instances(count: int | None) -> str:
    if count is None:
        return "its instances"
    return "1 instance" if count == 1 else f"{count} instances"


def _stay(count: int | None) -> str:
    return "stays" if count == 1 else "stay"


def _release(site: Site, key: UnitKey, carrier: Ref) -> Iterator[Step]:
    yield Step(Verb.REMEMBER, site.home, "that it is being let go")
    if carrier.kind == api.API_SERVICE_BINDING:
        yield Step(Verb.POLICY, carrier, "deletion-policy Release")
    yield from _unbind(site, key, carrier)
    yield from let_go(site, key)
    yield Step(Verb.FORGET, site.home)


def _unbind(site: Site, key: UnitKey, carrier: Ref) -> Iterator[Step]:
    cp, space = site.control_plane, site.placement.space
    request = Ref(cp.name, api.API_SERVICE_EXPORT_REQUEST, space, key.name)
    export = Ref(cp.name, api.API_SERVICE_EXPORT, space, key.name)
    if carrier.kind == api.API_SERVICE_BINDING:
        yield Step(Verb.ORPHAN, carrier, "the CRD stays, and every instance")
    if cp.at(export) is not None:
        yield Step(Verb.AWAIT_STOP, export, "until the konnector has stopped its sync")
    for ref in (request, export):
        if cp.at(ref) is not None:
            yield Step(Verb.DELETE, ref, "the backend takes the rights away")


def let_go(site: Site, key: UnitKey) -> Iterator[Step]:
    """Yield the steps after which no konnector deletes synced objects, on either side."""
    yield Step(Verb.RELEASE_COPIES, all_of(key, site.control_plane.name), "unbound and released")
    yield Step(Verb.FREE_INSTANCES, all_of(key, site.app.name), "without our finalizer")


def _delete(site: Site, prune: Prune, *, with_instances: bool) -> Iterator[Step]:
    key = prune.key
    instances = all_of(key, site.app.name)
    if with_instances:
        yield Step(Verb.REMEMBER, prune.home, "that it is being deleted")
        yield Step(
            Verb.DELETE_INSTANCES, instances, "through the app cluster; the konnector carries it"
        )
        yield Step(Verb.AWAIT_NO_INSTANCES, instances, "until there is none")
    else:
        yield Step(Verb.CHECK_NO_INSTANCES, instances, "that there still is none")
        yield Step(Verb.REMEMBER, prune.home, "that it is being deleted")
    # Neither copies nor instances are left to let go.
    yield from (step for step in prune.release if step.verb not in _NOT_FOR_DELETES)
    yield Step(Verb.DELETE_CRD, Ref(site.app.name, CRD, "", key.name), "after a fresh count of 0")
    copied = Ref(site.app.name, SECRET, "", "")
    yield Step(Verb.DELETE_COPIED, copied, "with resource-owner Provider, claimed by no other")
    yield Step(Verb.FORGET, prune.home)


def all_of(key: UnitKey, cluster: str) -> Ref:
    """Return the ref of all objects of a unit's kind; their version is the CRD's to say."""
    return Ref(cluster, instances(key.group, key.resource), "", "")

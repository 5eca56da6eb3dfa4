"""Prunes units that left the files, and applies guards to releases, replacements, deletions.

The steps are those of mapping.md 9, Direct mode; the guards those of product.md, prune.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.live import instances
from reconciler.core.manifest import Manifest, annotations_of, labels_of, name_of, uid_of
from reconciler.core.refs import CRD, NAMESPACE, Kind, Ref
from reconciler.fleet.values import (
    DeletionPolicy,
    Fleet,
    Guards,
    PruneMode,
    UnitKey,
    read_unit_policies,
)
from reconciler.planning.changes import Action, Change, Step, Tripped, Verb
from reconciler.planning.objects import before_digest
from reconciler.planning.placement import bindings, own_bindings
from reconciler.planning.site import Index, Site

PRUNING: Final = frozenset({Action.RELEASE, Action.DELETE, Action.REPLACE})
_NOT_FOR_DELETES: Final = frozenset({Verb.REMEMBER, Verb.POLICY, Verb.FREE_INSTANCES, Verb.FORGET})


@dataclass(frozen=True, slots=True)
class Prune:
    """A unit that left, and the steps of its release.

    `live` is the object of ours that still carries it, at `ref`; `root` remembers its release.
    """

    key: UnitKey
    subject: str
    ref: Ref
    live: Manifest
    policy: DeletionPolicy
    release: tuple[Step, ...]
    own: DeletionPolicy  # what the unit's own Binding said, whatever else decides
    root: Ref


def remembered(root: Manifest | None) -> Mapping[str, DeletionPolicy]:
    """Return the units (`plural.group`) that are being released, and how each.

    A unit's objects go one by one, and after the first of them nothing else shows that the rest is
    still to do. So the space, or the AppClusterBinding, carries the annotation `leaving` from
    before the first step until after the last (mapping.md 9).
    """
    return read_unit_policies("" if root is None else annotations_of(root).get(keys.LEAVING, ""))


def prunes(site: Site) -> tuple[Prune, ...]:
    """Return the units of a cluster in Direct mode that are ours, live, and not in the files.

    A binding tells; where it is gone already, the request does, or the space remembers, or an
    export that only we can have requested.
    """
    letting_go = remembered(site.live_root)
    found: dict[UnitKey, Prune] = {}
    for index, kind, live, name in _carriers(site):
        key = unit_of(site.app.name, name)
        if key in site.fleet.units or key in found:
            continue
        ref = index.ref(kind, live)
        own = annotations_of(live).get(keys.DELETION_POLICY, "")
        own = own if own in set(DeletionPolicy) else DeletionPolicy.RELEASE
        policy = letting_go.get(name) or DeletionPolicy(own)
        steps = tuple(_release(site, key, ref))
        subject = labels_of(live).get(keys.BINDING) or name
        found[key] = Prune(key, subject, ref, live, policy, steps, policy, site.root)
    return tuple(found[key] for key in sorted(found))


def _carriers(site: Site) -> Iterator[tuple[Index, Kind, Manifest, str]]:
    """Yield the objects that prove a unit of ours, with its name, the best proof first."""
    app, cp, space = site.app, site.control_plane, site.placement.space
    bound = set(map(name_of, bindings(app)))
    for binding in own_bindings(site):
        yield app, api.API_SERVICE_BINDING, binding, name_of(binding)
    for one in cp.inside(api.API_SERVICE_EXPORT_REQUEST, space):
        # Under a binding that is not ours, nothing is taken away.
        if site.owns(one) and name_of(one) not in bound:
            yield cp, api.API_SERVICE_EXPORT_REQUEST, one, name_of(one)
    root = site.live_root
    if root is None:
        return
    yield from ((cp, NAMESPACE, root, name) for name in remembered(root))
    identity = annotations_of(root).get(keys.IDENTITY, "")
    if identity.startswith(names.direct_identities(site.fleet.name)):
        for one in cp.inside(api.API_SERVICE_EXPORT, space):
            if name_of(one) not in bound:
                yield cp, api.API_SERVICE_EXPORT, one, name_of(one)


def interrupted(site: Site) -> tuple[Prune, ...]:
    """Return the units that the files want again, and whose release has not come to its end.

    Where the binding is gone, the copies are let go first: a konnector that meets copies that
    are still bound deletes those whose twin is gone.
    """
    root, live = site.root, site.live_root
    bound = set(map(name_of, bindings(site.app)))
    found = []
    for name in sorted(remembered(live)):
        key = unit_of(site.app.name, name)
        if live is None or key not in site.fleet.units:
            continue
        steps = (*(() if name in bound else let_go(site, key)), Step(Verb.FORGET, root))
        keep = DeletionPolicy.RELEASE
        found.append(Prune(key, name, root, live, keep, steps, keep, root))
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
    stay = "stays" if in_use == 1 else "stay"
    change = Change(
        cluster=prune.key.cluster,
        subject=prune.subject,
        ref=prune.ref,
        action=Action.RELEASE,
        reason=f"not in the files: {_instances(in_use)} {stay}, sync stops",
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


def _instances(count: int | None) -> str:
    if count is None:
        return "its instances"
    return "1 instance" if count == 1 else f"{count} instances"


def _release(site: Site, key: UnitKey, carrier: Ref) -> Iterator[Step]:
    yield Step(Verb.REMEMBER, site.root, "that it is being released")
    if carrier.kind == api.API_SERVICE_BINDING:
        yield Step(Verb.POLICY, carrier, "deletion-policy Release")
    yield from _unbind(site, key, carrier)
    yield from let_go(site, key)
    yield Step(Verb.FORGET, site.root)


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
    yield Step(
        Verb.FREE_INSTANCES,
        all_of(key, site.app.name),
        "without our finalizer; their CRD warns of it",
    )


def _delete(site: Site, prune: Prune, *, with_instances: bool) -> Iterator[Step]:
    key = prune.key
    instances = all_of(key, site.app.name)
    if with_instances:
        yield Step(Verb.REMEMBER, prune.root, "that it is being deleted")
        yield Step(
            Verb.DELETE_INSTANCES, instances, "through the app cluster; the konnector carries it"
        )
        yield Step(Verb.AWAIT_NO_INSTANCES, instances, "until there is none")
    else:
        yield Step(Verb.CHECK_NO_INSTANCES, instances, "that there still is none")
        yield Step(Verb.REMEMBER, prune.root, "that it is being deleted")
    # No instances are left to free. A copy that is left is an orphan, which outlives its space.
    yield from (step for step in prune.release if step.verb not in _NOT_FOR_DELETES)
    yield Step(Verb.DELETE_CRD, Ref(site.app.name, CRD, "", key.name), "after a fresh count of 0")
    yield Step(Verb.FORGET, prune.root)


def all_of(key: UnitKey, cluster: str) -> Ref:
    """Return the ref of all objects of a unit's kind; the CRD decides their version."""
    return Ref(cluster, instances(key.group, key.resource), "", "")


SMALL: Final = 20  # units; of a fleet with less, half may go in a run


def budget(guards: Guards, known: int) -> int:
    """Return how many units may be pruned: the smaller of both limits; percent rounds up.

    Of a small fleet half may go: a few percent of it are one unit, and a cluster has several.
    """
    percent = guards.max_delete_percent if known >= SMALL else max(guards.max_delete_percent, 50)
    return min(guards.max_deletes, max(1, math.ceil(known * percent / 100)))


def run_guards(
    fleet: Fleet,
    changes: Sequence[Change],
    known: Iterable[Change],
    unread: frozenset[UnitKey] = frozenset(),
) -> tuple[Tripped, ...]:
    """Return the guards that trip for the run as a whole; each holds back all pruning.

    `known` are all lines of the plan. `unread` units leave as well, once their clusters can be
    read: else all that leaves would go in portions.
    """
    guards, pruning = fleet.guards, [change for change in changes if change.action in PRUNING]
    if not pruning:
        return ()
    # A cluster that leaves is a line without a unit.
    pruned = {change.unit for change in pruning if change.unit} | unread
    units = {*fleet.units, *unread, *(one.unit for one in known if one.unit is not None)}
    clusters = tuple(sorted({change.cluster for change in pruning}))
    tripped = []
    if guards.mode is PruneMode.REPORT and any(change.leaves for change in pruning):
        message = "prune.mode is report: releases and deletions are only shown"
        tripped.append(Tripped("report", message, clusters))
    if not fleet.units and not guards.allow_empty:
        message = (
            "the files have no unit left, so nothing is released, replaced or deleted; "
            "set prune.allowEmpty if that is intended"
        )
        tripped.append(Tripped("allow-empty", message, clusters))
    limit = budget(guards, len(units))
    if len(pruned) > limit:
        hidden = f" ({len(unread)} where nothing is planned)" if unread else ""
        message = (
            f"{len(pruned)} units{hidden} would be released, replaced or deleted, and {limit} may "
            f"be (prune.maxDeletes {guards.max_deletes}, maxDeletePercent "
            f"{guards.max_delete_percent} of {len(units)}, but half below {SMALL}): none is; "
            "raise the budget in the files, take smaller steps, or name them to `klutchctl release`"
        )
        tripped.append(Tripped("max-deletes", message, clusters))
    return tuple(tripped)


def units_in_use(
    guards: Guards,
    changes: Sequence[Change],
    in_use: Mapping[UnitKey, int | None],
    consented: Collection[UnitKey],
) -> dict[UnitKey, Tripped]:
    """Return the units that may not be replaced or deleted because instances of them may exist.

    `in_use` counts instances; None, or nothing, is unknown, which is not none. `consented` are
    units whose own policy is Delete: with keepIfInUse false their instances go as well.
    """
    tripped = {}
    for change in changes:
        risky = change.action in (Action.REPLACE, Action.DELETE) and not change.keeps_data
        if not risky or change.unit is None:
            continue
        count = in_use.get(change.unit)
        meant = change.action is Action.REPLACE or change.unit in consented
        if count == 0 or (meant and not guards.keep_if_in_use):
            continue
        exist = "it is not known whether instances" if count is None else f"{count} instances"
        message = (
            f"{change.unit}: {exist} exist, so it is not {change.action.value}d; "
            "remove them first, or release the unit instead"
        )
        tripped[change.unit] = Tripped("in-use", message, (change.cluster,))
    return tripped


def marked(
    changes: Sequence[Change], in_use: Mapping[UnitKey, Tripped], run_wide: Sequence[Tripped]
) -> tuple[Change, ...]:
    """Return the lines, each with the guards that hold it back.

    A cluster that leaves goes only after all its units, so what holds one of them holds it. What
    a cluster needs once carries all that is built upon it.
    """
    leaving = {unit.cluster for unit in in_use}
    blocked = {one.cluster for one in changes if one.unit is None and one.action is Action.BLOCKED}

    def holding(change: Change) -> Iterator[str]:
        if change.cluster in blocked and change.acts:
            yield "blocked"
        if change.action in PRUNING:
            if change.unit in in_use or (change.unit is None and change.cluster in leaving):
                yield "in-use"
            for tripped in run_wide:
                if tripped.guard != "report" or change.leaves:
                    yield tripped.guard

    return tuple(
        replace(change, held=held) if (held := tuple(holding(change))) else change
        for change in changes
    )

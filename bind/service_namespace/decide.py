"""Decides the creation and removal of a service namespace. Pure.

protocol-bind.md C.4, mended as F6, F41 and F46 tell. A Namespace is the service namespace of an
APIServiceNamespace exactly if its annotation `api-service-namespace` says so, and `space-uid` names
the space as it lives, or a former one that a person gave to it (rule S1); a konnector can write
neither annotation nor `status.namespace` (B.5). Whatever else bears the name is left alone.
APIServiceNamespace has no conditions: an Event and the ClusterBinding's condition
`ServiceNamespacesReady` report an `obstacle`.

A service namespace holds data, so it is deleted only if everything says so (`decide`). Refuses to
know what the data are.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from bind import rbac_changes
from bind.bounds import UNBOUNDED, Bounds, hard, quota
from bind.service_namespace import facts
from bind.service_namespace.facts import Contents, Removal, Seen
from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.blueprints import objects, rbac
from reconciler.blueprints.export import Scope
from reconciler.blueprints.objects import Marks
from reconciler.core import conditions, decision, identity, keys, manifest
from reconciler.core.conditions import Cause
from reconciler.core.decision import Create, Decision, Note, Step, Task
from reconciler.core.identity import Life
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import NAMESPACE, ROLE_BINDING
from reconciler.core.times import created, format_time, moment

# By how much the clocks of the backend and of the API server may differ.
_SKEW: Final = timedelta(minutes=5)
# Before that, none is deleted whose APIServiceNamespace was never seen: it may be on its way.
_YOUNG: Final = timedelta(hours=1)
# When to look again at a Namespace that is kept, since no event marks the end of its reason.
_AGAIN: Final = timedelta(minutes=5)
_SOON: Final = timedelta(seconds=1)
_SEARCH_AGAIN: Final = timedelta(minutes=30)


def needs_search(seen: Seen) -> bool:
    """Return whether nothing but the Namespace's content can keep `decide` from deleting it."""
    live, removal = facts.leaving(seen), seen.removal
    if live is None or seen.unsure or removal is None or removal.mapping is not None:
        return False
    return (_doubt(live, removal) or _unmarked(seen, live)) is None


def obstacle(seen: Seen) -> tuple[Cause, str] | None:
    """Return why an app namespace cannot have its service namespace, if it cannot."""
    if seen.mapping is None or seen.space is None or manifest.is_deleting(seen.mapping):
        return None
    app, name, live, mine = seen.key.name, facts.chosen(seen), facts.target(seen), facts.own(seen)
    left = [] if mine else [one for one in facts.marked(seen) if not manifest.is_deleting(one)]
    if left:
        former = identity.recorded(left[0], keys.SPACE_UID)
        return conditions.NAMESPACE_OF_FORMER_SPACE, (
            f"Namespace {manifest.name_of(left[0])} is of an earlier space {seen.key.space}, and "
            f"may have its data, so app namespace {app} does not get it. To give all that that "
            f"space had to this one: {identity.confirmation(NAMESPACE, seen.space, former)}; else "
            "delete the Namespace"
        )
    if live is not None and mine is None and not manifest.is_deleting(live):
        message = f"Namespace {name} is there already and does not belong to app namespace {app}"
        return conditions.NAMESPACE_COLLISION, message
    return None


def decide(seen: Seen, *, scope: Scope, now: datetime, bounds: Bounds = UNBOUNDED) -> Decision:
    """Return the steps that make the service namespace, or end it.

    `status.namespace` is told only when the Namespace is seen to be ours and its konnector has its
    rights there. Without an APIServiceNamespace the Namespace is deleted; but it is kept while the
    view is incomplete, while anything in it is or may be `released`, while a copy in it is bound
    though its space stays, and where the APIServiceNamespaces may have gone with their CRD, which
    is absent, on its way out, or younger than the Namespace. Where its APIServiceNamespace was
    never seen beside it, it is also kept for an hour, and for good without the mark of when it was
    made (rule T15). One that comes from a backup comes before its APIServiceNamespace, and is kept,
    too: it is younger than what it says.

    Notes are about the APIServiceNamespace; where it is gone, about the Namespace. A Namespace that
    is being deleted is waited for: its end is an event.
    """
    revoked = decision.writes_each(revocations(seen))
    if seen.mapping is None:
        part = replace(revoked, again=_SOON) if revoked.tasks else decision.NOTHING
        return Decision.merge([part, _without_mapping(seen, now)])
    if found := obstacle(seen):
        cause, message = found
        return replace(revoked, notes=(Note(cause.reason, message, "Warning"),))
    live = facts.target(seen)
    # Objects created for a space in deletion would stay behind.
    if (
        seen.space is None
        or any(map(manifest.is_deleting, filter(None, (seen.space, live))))
        or revoked.tasks
    ):
        return revoked
    if live is None:
        return _made(seen, scope, now)
    if steps := _names_former(seen, live) or (*_stamped(seen, live), *_rights(seen, scope)):
        return decision.writes(*steps)
    fields: dict[str, JSON] = {"namespace": facts.chosen(seen)}
    return Decision(tasks=_bounds(seen, bounds), fields=fields, again=seen.counted.again)


def revocations(seen: Seen) -> Iterator[Step]:
    """Yield the steps that revoke rights in each service namespace without a living space (S1).

    The subject of a RoleBinding is a name: the next space of that name would have its rights.
    """
    lives = seen.space is not None and not manifest.is_deleting(seen.space)
    gone = {
        manifest.name_of(o)
        for o in facts.marked(seen)
        if not (lives and facts.is_of_space(o, seen))
    }
    for one in seen.role_bindings:
        if manifest.namespace_of(one) in gone and not manifest.is_deleting(one):
            yield decision.deletion(seen.cluster, ROLE_BINDING, one)


def _names_former(seen: Seen, live: Manifest) -> tuple[Step, ...]:
    """Return the step after which a new mapping names the app namespace of these data.

    The konnector holds what names another app namespace than there is, until a person gives it
    away; then the mapping, which is served by now, decides.
    """
    mapping, former = seen.mapping or {}, manifest.annotations_of(live).get(keys.APP_NAMESPACE_UID)
    if (
        not former
        or facts.named(seen)
        or identity.of_mark(former, mapping, keys.APP_NAMESPACE_UID) is Life.SAME
    ):
        return ()
    notes: dict[str, JSON] = {keys.APP_NAMESPACE_UID: former, keys.UIDS_SINCE: None}
    metadata: dict[str, JSON] = {"annotations": notes}
    return (decision.modification(seen.cluster, API_SERVICE_NAMESPACE, mapping, metadata=metadata),)


def _stamped(seen: Seen, live: Manifest) -> tuple[Step, ...]:
    """Return the mark for a Namespace that another backend made, or that a person gave away."""
    wanted, notes = _uids(seen), manifest.annotations_of(live)
    born = manifest.get_text(live, "metadata", "creationTimestamp")
    if born and keys.MADE_AT not in notes:  # a copy of it is known by that
        wanted[keys.MADE_AT] = born
    if manifest.covers(notes, wanted):
        return ()
    return (decision.modification(seen.cluster, NAMESPACE, live, metadata={"annotations": wanted}),)


def _uids(seen: Seen) -> dict[str, str]:
    notes = manifest.annotations_of(seen.mapping or {})
    uids = {
        keys.SPACE_UID: manifest.uid_of(seen.space or {}),
        keys.ACCOUNT_UID: seen.account,
        keys.APP_NAMESPACE_UID: notes.get(keys.APP_NAMESPACE_UID, ""),
    }
    return {key: uid for key, uid in uids.items() if uid}


def _bounds(seen: Seen, bounds: Bounds) -> tuple[Task, ...]:
    """Return the bounds, but not before its konnector knows of it.

    A backend that may not write quotas still serves it.
    """
    if facts.named(seen) != facts.chosen(seen):
        return ()
    wanted = hard(bounds.in_service_namespace, seen.counted)
    steps = quota(seen.cluster, seen.quota, facts.chosen(seen), wanted)
    return (Task(steps),) if steps else ()


def _made(seen: Seen, scope: Scope, now: datetime) -> Decision:
    if manifest.is_deleting(seen.mapping or {}):
        return decision.NOTHING
    name = facts.chosen(seen)
    made_at = {keys.API_SERVICE_NAMESPACE: seen.key.mark, keys.MADE_AT: format_time(now)}
    notes = made_at | _uids(seen)
    made = Create(NAMESPACE, objects.namespace(name, marks=Marks(annotations=notes)))
    return decision.writes(made, *_rights(seen, scope))


def _rights(seen: Seen, scope: Scope) -> tuple[Step, ...]:
    if scope == "Cluster":  # the konnector has them everywhere
        return ()
    place = facts.chosen(seen)
    live = next((one for one in seen.role_bindings if manifest.namespace_of(one) == place), None)
    wanted = rbac.binding_in_service_namespace(seen.key.space, place)
    return rbac_changes.role_binding(seen.cluster, ROLE_BINDING, live, wanted)


def _without_mapping(seen: Seen, now: datetime) -> Decision:
    live, removal = facts.leaving(seen), seen.removal
    if live is None:
        return decision.NOTHING
    if seen.unsure or removal is None:
        return Decision(again=_AGAIN)
    if removal.mapping is not None:
        return decision.NOTHING  # it is back, and its event is on the way
    doubt = _doubt(live, removal) or _unmarked(seen, live)
    age = now - (created(live) or now)
    if doubt is None and not seen.witnessed and age < _YOUNG:
        return Decision(again=_YOUNG - age)  # a restore may yet bring its APIServiceNamespace
    reason = doubt or _kept_for(seen, live, removal.contents)
    if reason is not None:
        note = Note(*reason, "Warning", action="Keep")
        return Decision(notes=(note,), again=_AGAIN if doubt else _SEARCH_AGAIN)
    return decision.writes(decision.deletion(seen.cluster, NAMESPACE, live))


def _doubt(live: Manifest, removal: Removal) -> tuple[str, str] | None:
    """Return the reason and the message of the Event where it need not have lost its mapping."""
    name, crd = manifest.name_of(live), removal.crd
    kind = API_SERVICE_NAMESPACE.resource
    if crd is None or manifest.is_deleting(crd):
        return "CustomResourceDefinitionGone", (
            f"Namespace {name} is kept: CustomResourceDefinition {kind} is gone, and all "
            "APIServiceNamespaces with it"
        )
    made, defined = created(live), created(crd)
    if made is None or defined is None or defined > made:
        return "CustomResourceDefinitionMadeAnew", (
            f"Namespace {name} is kept: CustomResourceDefinition {kind} was made after it, so its "
            "APIServiceNamespace may have been lost. Delete the Namespace if nobody needs its data"
        )
    if _is_restored(live):
        return "NamespaceMadeAnew", (
            f"Namespace {name} is kept: it was made again, as from a backup, which need not have "
            "brought its APIServiceNamespace. Delete the Namespace if nobody needs its data"
        )
    return None


def _unmarked(seen: Seen, live: Manifest) -> tuple[str, str] | None:
    """Return the reason and the message of the Event about a possible copy."""
    if seen.witnessed or keys.MADE_AT in manifest.annotations_of(live):
        return None
    name = manifest.name_of(live)
    return "NamespaceUnmarked", (
        f"Namespace {name} is kept: it has no APIServiceNamespace and no annotation {keys.MADE_AT},"
        " so it may come from a backup. If nobody needs its data: `kubectl delete namespace"
        f" {name}`"
    )


def _kept_for(seen: Seen, live: Manifest, contents: Contents | None) -> tuple[str, str] | None:
    """Return the reason and the message of the Event where its content keeps it."""
    name = manifest.name_of(live)
    if contents is None or contents.hidden:
        kind = "what is in it" if contents is None else contents.hidden
        return "ContentsUnknown", (
            f"Namespace {name} is kept: klutch-bind may not list {kind}, so it cannot see whether "
            f"any of it carries {keys.RELEASED} or {keys.BOUND}. Grant it that right, or delete the"
            " Namespace if nobody needs its data"
        )
    if contents.released:
        return "ReleasedDataKept", (
            f"Namespace {name} is kept: objects in it carry {keys.RELEASED}. It goes when they are "
            "gone or no longer carry it"
        )
    if not contents.bound or goes_with_space(seen):
        return None
    kept = f"Namespace {name} is kept: {contents.bound} in it carries {keys.BOUND}, and "
    if not facts.is_of_space(live, seen):
        return "BoundDataKept", (
            f"{kept}its space {seen.key.space} is gone, while klutch-bind was away. If nobody"
            f" needs its data: `kubectl delete namespace {name}`"
        )
    return "BoundDataKept", (
        f"{kept}nobody deletes it, so its claim may have been lost. The Namespace goes when no such"
        " copy is left. Bring app namespace and claim back, or delete the copy if nobody needs its"
        " data"
    )


def is_bound(live: Manifest) -> bool:
    """Return whether an object is a copy that would be lost though nobody deletes it."""
    return keys.BOUND in manifest.annotations_of(live) and not manifest.is_deleting(live)


def goes_with_space(seen: Seen) -> bool:
    """Return whether its space is being deleted, or went after both were seen: with all data."""
    if seen.space is None:
        return seen.witnessed
    live = facts.leaving(seen)
    is_its_own = seen.witnessed or (live is not None and facts.is_of_space(live, seen))
    return is_its_own and manifest.is_deleting(seen.space)


def _is_restored(namespace: Manifest) -> bool:
    made_at, born = (
        moment(manifest.annotations_of(namespace).get(keys.MADE_AT, "")),
        created(namespace),
    )
    return made_at is not None and born is not None and born - made_at > _SKEW

"""Decides when an APIServiceNamespace is created, marked and deleted. Pure.

protocol-konnector.md D.1 and H6, mapping.md 9 and 10. The end of a mapping is the end of its
service namespace, with all objects in it. So it is deleted only if the app namespace was seen in
deletion; otherwise an absent app namespace makes its mapping an orphan. An app namespace that was
made again has another uid: nothing is synced there until a person gives it the mapping, or nothing
is behind the mapping. Does not know what the backend makes of a mapping.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from konnector import CONTROL_PLANE
from konnector.claim import orphans
from konnector.claim.orphans import Terms
from konnector.mass_loss import decide as mass_loss_decide
from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.blueprints.objects import Marks, build
from reconciler.core import conditions, decision, identity, keys
from reconciler.core.decision import Create, Decision, Note, Patch
from reconciler.core.identity import Life
from reconciler.core.manifest import JSON, Manifest, annotations_of, get_text, is_deleting, uid_of
from reconciler.core.times import format_time

# When to look again at a mapping that is kept, since no event marks the end of its reason.
_AGAIN: Final = timedelta(minutes=5)
_RECHECK: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The reads, not from a view, before a mapping goes (`leaving`).

    `gone`: the app cluster says that the Namespace does not exist, or is another one. `released`:
    an object in the service namespace carries `klutchctl.dev/released`, or nobody can tell, as of a
    kind that was released and is not bound any more. `brought`: objects there were brought to or
    from the app namespace. `unsynced`: copies may be there of what is not synced.
    """

    gone: bool
    released: bool
    brought: bool = False
    unsynced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that concerns one name of an app namespace in one space.

    `app_namespace` and `mapping` are as the views have them, None: absent. `wanted`: a claim that
    is not being deleted, or an object that the consumer owns and a claim selects, needs the
    mapping. `app_cluster_uid` is "" where it is not known. `ended`: the Namespace was seen on its
    way out. `occupied`: there are copies behind the mapping, which would go with it. `terms`: on
    which an orphan goes at the time `now`. `confirmed`: this app cluster is meant, whatever was
    recorded. `confirmed_uid` is that of the app namespace that a person gives the mapping to.
    `vouched`: a claim or a Secret in the app namespace has its counterpart behind the mapping.
    `stamped`: each copy behind it has its claim's uid.
    """

    name: str
    space: str
    terms: Terms
    now: datetime
    app_cluster_uid: str = ""
    app_namespace: Manifest | None = field(default=None, repr=False)
    mapping: Manifest | None = field(default=None, repr=False)
    wanted: bool = False
    ended: bool = False
    occupied: bool = False
    confirmed: bool = False
    confirmed_uid: str = ""
    vouched: bool = False
    stamped: bool = False
    removal: Removal | None = None


def marked(mapping: Manifest, kinds: Collection[str]) -> Patch:
    """Return the patch by which a mapping states that copies of these resources were released."""
    return _noted(mapping, {keys.RELEASED_KINDS: ",".join(sorted(kinds))})


def leaving(seen: Seen) -> bool:
    """Return whether the mapping would go, so that `removal` has to be read."""
    if seen.mapping is None or is_deleting(seen.mapping):
        return False
    if seen.app_namespace is None:
        return not seen.wanted
    return is_unproven(seen.mapping, seen.app_namespace) and not _is_given(seen, seen.mapping)


def is_unproven(mapping: Manifest | None, app_namespace: Manifest | None) -> bool:
    """Return whether an app namespace is not known to be the one that was mapped.

    A mapping without its uid is judged first. What ends without it may end.
    """
    if mapping is None or app_namespace is None:
        return False
    match identity.of_mark(uid_of(app_namespace), mapping, keys.APP_NAMESPACE_UID):
        case Life.UNKNOWN:
            return not _is_ending(app_namespace)
        case life:
            return life is Life.ANOTHER


def is_later(live: Manifest, ended: str) -> bool:
    """Return whether an object is in a later app namespace than the one that ended then."""
    made = get_text(live, "metadata", "creationTimestamp")
    # Of one second, an object that goes is the ended one's: it would wait for its own end.
    return made > ended or (made == ended and not is_deleting(live))


def _is_given(seen: Seen, mapping: Manifest) -> bool:
    """Return whether the mapping is to be that of the app namespace that is there now."""
    uid, known = uid_of(seen.app_namespace or {}), annotations_of(mapping)
    if uid and seen.confirmed_uid == uid:
        return True
    if seen.confirmed and known.get(keys.APP_CLUSTER_UID) != seen.app_cluster_uid:
        return True
    return seen.vouched and is_unmarked(mapping)


def is_unmarked(mapping: Manifest | None) -> bool:
    """Return whether nothing was recorded that speaks against an app namespace."""
    against = {keys.APP_NAMESPACE_UID, keys.APP_NAMESPACE_DELETED, keys.ORPHANED}
    return mapping is not None and not against & annotations_of(mapping).keys()


def is_marked(mapping: Manifest) -> bool:
    """Return whether each copy behind a mapping had its claim's uid at some time."""
    return keys.UIDS_SINCE in annotations_of(mapping)


def has_ended(mapping: Manifest | None) -> bool:
    """Return whether the app namespace of a mapping was seen on its way out."""
    return mapping is not None and keys.APP_NAMESPACE_DELETED in annotations_of(mapping)


def decide(seen: Seen) -> Decision:
    """Return the steps that make the mapping, end it, or record its owner.

    The mapping of an app namespace that is on its way out stays until that is gone; none is made
    for it, nor for one that is not there. What a claim still needs stays, too. Another app
    cluster's mapping is re-recorded only where this one is confirmed: it is what holds the
    guard. A note is about the mapping.
    """
    mapping = seen.mapping
    if mapping is None:
        return _made(seen)
    if is_deleting(mapping):
        return decision.NOTHING  # its end is an event
    if seen.app_namespace is None:
        return _without_namespace(seen, mapping)
    return _of_another(seen, mapping) if leaving(seen) else _recorded(seen, mapping)


def _made(seen: Seen) -> Decision:
    live = seen.app_namespace
    if not seen.wanted or live is None or _is_ending(live):
        return decision.NOTHING
    uids = {keys.APP_CLUSTER_UID: seen.app_cluster_uid, keys.APP_NAMESPACE_UID: uid_of(live)}
    since = {keys.UIDS_SINCE: format_time(seen.now)} if seen.stamped else {}
    marks = Marks(annotations={key: uid for key, uid in (uids | since).items() if uid})
    kind = API_SERVICE_NAMESPACE
    made = build(kind, seen.name, namespace=seen.space, marks=marks, spec={})
    return decision.writes(Create(kind, made, CONTROL_PLANE))


def _without_namespace(seen: Seen, mapping: Manifest) -> Decision:
    removal = seen.removal
    if not leaving(seen) or removal is None:
        return Decision(again=_AGAIN)  # if a guard stops it, the ClusterBinding has a condition
    if removal.unsynced or not removal.gone:  # or the view is behind, and an event is on the way
        return Decision(again=_RECHECK if removal.unsynced else None)
    if removal.released:
        return _kept(seen, mapping)
    kind = API_SERVICE_NAMESPACE
    meant = seen.ended or has_ended(mapping)
    if not meant and not orphans.is_orphan(mapping):
        step = orphans.mark(kind, mapping, seen.terms, seen.now)
        return replace(decision.writes(step), again=_AGAIN)
    if seen.occupied or not (meant or orphans.may_go(mapping, seen.terms, seen.now)):
        return Decision(again=orphans.changes_in(mapping, seen.terms, seen.now) or _AGAIN)
    return decision.writes(decision.deletion(CONTROL_PLANE, kind, mapping))


def _of_another(seen: Seen, mapping: Manifest) -> Decision:
    """Give the mapping of a former app namespace to this one, unless anything is behind it."""
    removal = seen.removal
    if removal is None or not removal.gone:
        return decision.NOTHING  # the view is behind
    if seen.occupied or removal.released or removal.brought or removal.unsynced:
        others = {seen.name: uid_of(seen.app_namespace or {})}
        message = mass_loss_decide.another_namespace(others, seen.space)
        note = Note(conditions.ANOTHER_NAMESPACE.reason, message, "Warning", action="Hold")
        return Decision(notes=(note,), again=_RECHECK)
    if not is_unmarked(mapping) and not get_text(mapping, "status", "namespace"):
        return decision.NOTHING  # its service namespace is not known yet
    return _recorded(seen, mapping)


def _is_ending(namespace: Manifest) -> bool:
    return is_deleting(namespace) or get_text(namespace, "status", "phase") == "Terminating"


def _recorded(seen: Seen, mapping: Manifest) -> Decision:
    """Note the owner of the mapping, and the state of its app namespace."""
    notes: dict[str, JSON] = {}
    noted = annotations_of(mapping)
    known, uid = noted.get(keys.APP_CLUSTER_UID), seen.app_cluster_uid
    if uid and known != uid and (not known or seen.confirmed):
        notes[keys.APP_CLUSTER_UID] = uid
    if seen.app_namespace is not None:
        notes |= _of_namespace(seen.app_namespace, mapping, seen.now)
        if is_unproven(mapping, seen.app_namespace):
            notes[keys.APP_NAMESPACE_UID] = uid_of(seen.app_namespace)
    if seen.stamped and not is_marked(mapping):
        notes[keys.UIDS_SINCE] = format_time(seen.now)
    found = decision.writes(_noted(mapping, notes)) if notes else decision.NOTHING
    return found if seen.stamped or is_marked(mapping) else replace(found, again=_RECHECK)


def _noted(mapping: Manifest, notes: Manifest) -> Patch:
    metadata: Manifest = {"annotations": notes}
    return decision.modification(CONTROL_PLANE, API_SERVICE_NAMESPACE, mapping, metadata=metadata)


def _of_namespace(live: Manifest, mapping: Manifest, now: datetime) -> dict[str, JSON]:
    """Return the changes of a mapping whose app namespace is there, or on its way out."""
    notes = orphans.unmarks(mapping)
    ended, ends = has_ended(mapping), _is_ending(live)
    if ended != ends:
        notes[keys.APP_NAMESPACE_DELETED] = format_time(now) if ends else None
    return notes


def _kept(seen: Seen, mapping: Manifest) -> Decision:
    message = (
        f"App namespace {seen.name} is gone, and its APIServiceNamespace is kept: objects in its"
        f" service namespace carry {keys.RELEASED}. It goes when they are gone or no longer carry"
        " it; where their kind is not bound any more, delete it yourself then"
    )
    note = Note("ReleasedDataKept", message, "Warning", action="Keep")
    # A record of another cluster would keep the guard tripped for ever. A missing one stays
    # missing: no proof is left that the mapping was ever this cluster's.
    foreign = bool(annotations_of(mapping).get(keys.APP_CLUSTER_UID))
    tasks = _recorded(seen, mapping).tasks if foreign else ()
    return Decision(tasks=tasks, notes=(note,), again=_AGAIN)

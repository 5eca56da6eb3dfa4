"""Where the copies of an app namespace live on the control plane, and when that place goes. Pure.

protocol-bind.md C.4, mended as F6, F41 and F46 tell. A Namespace is the service namespace of an
APIServiceNamespace exactly if its annotation `api-service-namespace` says so; a konnector can
write neither that annotation nor `status.namespace` (B.5). Whatever else bears the name is left
alone. APIServiceNamespace has no conditions: an Event and the ClusterBinding's condition
`ServiceNamespacesReady` tell of it (`obstacle`).

A service namespace holds data, so it is deleted only if everything says so (`decide`). Refuses to
know what the data are.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from bind import rbac_changes
from bind.bounds import NONE_COUNTED, UNBOUNDED, Bounds, Countable, hard, quota
from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.blueprints import objects, rbac
from reconciler.blueprints.export import Scope
from reconciler.blueprints.objects import Marks
from reconciler.core import conditions, keys, manifest, names
from reconciler.core.conditions import Cause
from reconciler.core.decision import (
    NOTHING,
    Create,
    Decision,
    Note,
    Step,
    Task,
    deletion,
    modification,
    writes,
)
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import NAMESPACE, ROLE_BINDING
from reconciler.core.times import created, format_time, moment

# By how much the clocks of the backend and of the API server may differ.
_SKEW: Final = timedelta(minutes=5)
# Before that, none is deleted whose APIServiceNamespace was never seen: it may be on its way.
_YOUNG: Final = timedelta(hours=1)
# When to look again at a Namespace that is kept, since no event tells that its reason ended.
_AGAIN: Final = timedelta(minutes=5)
_SEARCH_AGAIN: Final = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Home:
    """The binding space and the name of an APIServiceNamespace, which is an app namespace's."""

    space: str
    name: str

    @property
    def mark(self) -> str:
        """The value of the annotation on its service namespace."""
        return f"{self.space}/{self.name}"

    @property
    def target(self) -> str:
        """The name of its service namespace, unless its status names another of its own."""
        return names.service_namespace(self.space, self.name)

    def hashed(self, space_uid: str) -> str:
        """Return the name that its service namespace has where names are hashed (rule T19)."""
        return names.hashed_service_namespace(self.space, self.name, space_uid)


def home_of(mark: str) -> Home | None:
    """Return whose service namespace an annotation says that it is, or None."""
    space_name, slash, name = mark.partition("/")
    return Home(space_name, name) if slash and space_name and name and "/" not in name else None


@dataclass(frozen=True, slots=True)
class Contents:
    """What was found in a service namespace.

    `released` tells whether any object there carries the annotation `klutchctl.dev/released`.
    `bound` is a copy that nobody deletes, as its annotation says: a konnector lets none go but by
    deleting it, or marking it as released. `hidden` is a resource of which nobody could tell. Each
    is "" where there is none, or none was found before something else that keeps the Namespace.
    """

    released: bool
    hidden: str = ""
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Removal:
    """What must be read anew, not from a cache, before a service namespace goes.

    `mapping` and `crd` are the APIServiceNamespace and the CRD of its kind, None where they are
    absent. `contents` is there only if `needs_search` asked for it: it takes a call for each kind.
    """

    mapping: Manifest | None = field(repr=False)
    crd: Manifest | None = field(repr=False)
    contents: Contents | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """All that concerns one app namespace; objects are whole, None where they are not there.

    `space` is the Namespace of the binding space. `namespace` is the Namespace of `home.target`,
    `elsewhere` that of the mapping's `status.namespace` where this is another name, and `hashed`
    that of a hashed name, which new ones get if `hashing`.
    `role_binding` is `klutch-binder` in `chosen(seen)`, and `quota` ours in it; `counted` of the
    resources that the konnector may write there. `unsure` says why the view of the
    APIServiceNamespaces may be incomplete, "" where it is not. `removal` is there only if
    `leaving(seen)` asked for it and all of it could be read. `witnessed`
    tells whether this backend saw the APIServiceNamespace beside this very Namespace. `cluster`
    names the control plane in a Ref.
    """

    cluster: str
    home: Home
    mapping: Manifest | None = field(default=None, repr=False)
    space: Manifest | None = field(default=None, repr=False)
    namespace: Manifest | None = field(default=None, repr=False)
    elsewhere: Manifest | None = field(default=None, repr=False)
    hashed: Manifest | None = field(default=None, repr=False)
    hashing: bool = False
    role_binding: Manifest | None = field(default=None, repr=False)
    quota: Manifest | None = field(default=None, repr=False)
    counted: Countable = NONE_COUNTED
    unsure: str = ""
    removal: Removal | None = None
    witnessed: bool = False


def chosen(seen: Seen) -> str:
    """Return the name of the service namespace: the status counts only where it is ours (F6)."""
    for live in (seen.elsewhere, seen.namespace, seen.hashed):
        if live is not None and _is_ours(live, seen.home):
            return manifest.name_of(live)
    named, own = (
        manifest.get_text(seen.mapping, "status", "namespace"),
        hashed_name(seen.home, seen.space),
    )
    # One that was deleted is made again where it was, whatever new ones are called by now.
    return own if own and (named == own or (seen.hashing and not named)) else seen.home.target


def target(seen: Seen) -> Manifest | None:
    """Return the Namespace of the `chosen` name, whoever's it is."""
    known, name = (seen.namespace, seen.elsewhere, seen.hashed), chosen(seen)
    return next((one for one in known if one is not None and manifest.name_of(one) == name), None)


def hashed_name(home: Home, space_: Manifest | None) -> str:
    """Return the hashed name of a service namespace; "" while its space is not there."""
    return "" if space_ is None else home.hashed(manifest.uid_of(space_))


def is_hashed(live: Manifest, home: Home) -> bool:
    """Tell whether it is ours under its hashed name, also when its space is gone."""
    return _is_ours(live, home) and manifest.name_of(live) == home.hashed(
        manifest.annotations_of(live).get(keys.SPACE_UID, "")
    )


def leaving(seen: Seen) -> Manifest | None:
    """Return the Namespace that `decide` would delete, so that `removal` is read; else None.

    It is one of ours under its plain or its hashed name: a copy of it under another, as backups
    make it, is none, whatever its annotation says.
    """
    if seen.mapping is not None:
        return None
    plain, hashed = seen.namespace, seen.hashed
    if plain is not None and not manifest.is_deleting(plain) and _is_ours(plain, seen.home):
        return plain
    if hashed is not None and not manifest.is_deleting(hashed) and is_hashed(hashed, seen.home):
        return hashed
    return None


def needs_search(seen: Seen) -> bool:
    """Tell whether nothing but what is in the Namespace can keep `decide` from deleting it."""
    live, removal = leaving(seen), seen.removal
    if live is None or seen.unsure or removal is None or removal.mapping is not None:
        return False
    return (_doubt(live, removal) or _unmarked(seen, live)) is None


def obstacle(seen: Seen) -> tuple[Cause, str] | None:
    """Return why an app namespace cannot have its service namespace, if it cannot."""
    if seen.mapping is None or manifest.is_deleting(seen.mapping):
        return None
    app, name, live = seen.home.name, chosen(seen), target(seen)
    if live is not None and not _is_ours(live, seen.home):
        message = f"Namespace {name} is there already and does not belong to app namespace {app}"
        return conditions.NAMESPACE_COLLISION, message
    if live is None and (problem := names.label_problem(name)):
        return conditions.NAMESPACE_NAME_INVALID, f"App namespace {app} cannot be served: {problem}"
    return None


def decide(seen: Seen, *, scope: Scope, now: datetime, bounds: Bounds = UNBOUNDED) -> Decision:
    """Return what brings the service namespace about, or ends it.

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
    if seen.mapping is None:
        return _without_mapping(seen, now)
    if found := obstacle(seen):
        cause, message = found
        return Decision(notes=(Note(cause.reason, message, "Warning"),))
    live = target(seen)
    if live is None:
        return _made(seen, scope, now)
    if manifest.is_deleting(live):
        return NOTHING
    if steps := _rights(seen, scope):
        return writes(*steps)
    fields: dict[str, JSON] = {"namespace": chosen(seen)}
    tasks = (*_bounds(seen, bounds), *_marked(seen, live))
    return Decision(tasks=tasks, fields=fields, again=seen.counted.again)


def _marked(seen: Seen, live: Manifest) -> tuple[Task, ...]:
    """Return what marks a Namespace that another backend made: a copy of it is known by that."""
    is_named = manifest.get_text(seen.mapping, "status", "namespace") == manifest.name_of(live)
    born = manifest.get_text(live, "metadata", "creationTimestamp")
    if not is_named or not born or keys.MADE_AT in manifest.annotations_of(live):
        return ()
    notes = {"annotations": {keys.MADE_AT: born}}
    return (Task((modification(seen.cluster, NAMESPACE, live, metadata=notes),)),)


def _bounds(seen: Seen, bounds: Bounds) -> tuple[Task, ...]:
    """Return what bounds it, but not before its konnector knows of it.

    A backend that may not write quotas still serves it.
    """
    if manifest.get_text(seen.mapping, "status", "namespace") != chosen(seen):
        return ()
    wanted = hard(bounds.in_service_namespace, seen.counted)
    steps = quota(seen.cluster, seen.quota, chosen(seen), wanted)
    return (Task(steps),) if steps else ()


def _is_ours(namespace: Manifest, home: Home) -> bool:
    return manifest.annotations_of(namespace).get(keys.API_SERVICE_NAMESPACE) == home.mark


def _made(seen: Seen, scope: Scope, now: datetime) -> Decision:
    # What is made for a space that goes would stay behind.
    if seen.space is None or manifest.is_deleting(seen.space) or _is_leaving(seen.mapping):
        return NOTHING
    name = chosen(seen)
    notes = {keys.API_SERVICE_NAMESPACE: seen.home.mark, keys.MADE_AT: format_time(now)}
    if name != seen.home.target:
        notes[keys.SPACE_UID] = manifest.uid_of(seen.space)
    made = Create(NAMESPACE, objects.namespace(name, marks=Marks(annotations=notes)))
    return writes(made, *_rights(seen, scope))


def _is_leaving(mapping: Manifest | None) -> bool:
    return mapping is not None and manifest.is_deleting(mapping)


def _rights(seen: Seen, scope: Scope) -> tuple[Step, ...]:
    if scope == "Cluster":  # the konnector has them everywhere
        return ()
    wanted = rbac.binding_in_service_namespace(seen.home.space, chosen(seen))
    return rbac_changes.role_binding(seen.cluster, ROLE_BINDING, seen.role_binding, wanted)


def _without_mapping(seen: Seen, now: datetime) -> Decision:
    live, removal = leaving(seen), seen.removal
    if live is None:
        return NOTHING
    if seen.unsure or removal is None:
        return Decision(again=_AGAIN)
    if removal.mapping is not None:
        return NOTHING  # it is back, and its event is on the way
    doubt = _doubt(live, removal) or _unmarked(seen, live)
    age = now - (created(live) or now)
    if doubt is None and not seen.witnessed and age < _YOUNG:
        return Decision(again=_YOUNG - age)  # a restore may yet bring its APIServiceNamespace
    reason = doubt or _kept_for(seen, live, removal.contents)
    if reason is not None:
        note = Note(*reason, "Warning", action="Keep")
        return Decision(notes=(note,), again=_AGAIN if doubt else _SEARCH_AGAIN)
    return writes(deletion(seen.cluster, NAMESPACE, live))


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
            f"Namespace {name} is kept: it was made anew, as from a backup, which need not have "
            "brought its APIServiceNamespace. Delete the Namespace if nobody needs its data"
        )
    return None


def _unmarked(seen: Seen, live: Manifest) -> tuple[str, str] | None:
    """Return the reason and the message of the Event where nobody can tell if it is a copy."""
    if seen.witnessed or keys.MADE_AT in manifest.annotations_of(live):
        return None
    name = manifest.name_of(live)
    return "NamespaceUnmarked", (
        f"Namespace {name} is kept: it has no APIServiceNamespace and no annotation {keys.MADE_AT},"
        " so it may come from a backup. If nobody needs its data: `kubectl delete namespace"
        f" {name}`"
    )


def _kept_for(seen: Seen, live: Manifest, contents: Contents | None) -> tuple[str, str] | None:
    """Return the reason and the message of the Event where what is in it keeps it."""
    name = manifest.name_of(live)
    if contents is None or contents.hidden:
        what = "what is in it" if contents is None else contents.hidden
        return "ContentsUnknown", (
            f"Namespace {name} is kept: klutch-bind may not list {what}, so it cannot tell whether "
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
    if seen.space is None:
        return "BoundDataKept", (
            f"{kept}its space {seen.home.space} is gone, while klutch-bind was away. If nobody"
            f" needs its data: `kubectl delete namespace {name}`"
        )
    return "BoundDataKept", (
        f"{kept}nobody deletes it, so its claim may have been lost. The Namespace goes when no such"
        " copy is left. Bring app namespace and claim back, or delete the copy if nobody needs its"
        " data"
    )


def is_bound(live: Manifest) -> bool:
    """Tell whether an object is a copy that would be lost though nobody deletes it."""
    return keys.BOUND in manifest.annotations_of(live) and not manifest.is_deleting(live)


def goes_with_space(seen: Seen) -> bool:
    """Tell whether its space is on its way out, or went after both were seen: with all its data."""
    return seen.witnessed if seen.space is None else manifest.is_deleting(seen.space)


def _is_restored(namespace: Manifest) -> bool:
    said, born = (
        moment(manifest.annotations_of(namespace).get(keys.MADE_AT, "")),
        created(namespace),
    )
    return said is not None and born is not None and born - said > _SKEW

"""The mapping of one app namespace: when its APIServiceNamespace is made, marked and deleted. Pure.

protocol-konnector.md D.1 and H6, mapping.md 9 and 10. A mapping's end is the end of its service
namespace, with all that is in it. Refuses to know what the backend makes of a mapping.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from konnector.decisions.sides import CONTROL_PLANE
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys
from reconciler.core.decision import (
    NOTHING,
    Create,
    Decision,
    Note,
    Patch,
    Task,
    deletion,
    preconditions_of,
)
from reconciler.core.manifest import Manifest, annotations_of, get_text, is_deleting, ref_of

# When to look again at a mapping that is kept, since no event tells that its reason ended.
_AGAIN: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What must be read anew, not from a view, before a mapping goes (`leaving`).

    `gone`: the app cluster says that the Namespace does not exist. `released`: an object in the
    service namespace carries `klutchctl.dev/released`, or nobody can tell, as of a kind that was
    released and is not bound any more.
    """

    gone: bool
    released: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that concerns one name of an app namespace in one space.

    `app_namespace` and `mapping` are as the views have them, None: absent. `wanted`: a claim that
    is not being deleted, or an object that the consumer owns and a claim selects, needs the
    mapping. `app_cluster_uid` is "" where it is not known. `deletes_held`: why no mapping goes,
    or nothing of a kind that has bound copies behind this one (`guard.deletes`): those would go
    with it. `confirmed`: a mass delete is allowed.
    """

    name: str
    space: str
    app_cluster_uid: str = ""
    app_namespace: Manifest | None = field(default=None, repr=False)
    mapping: Manifest | None = field(default=None, repr=False)
    wanted: bool = False
    deletes_held: str = ""
    confirmed: bool = False
    removal: Removal | None = None


def marked(mapping: Manifest, kinds: Collection[str]) -> Patch:
    """Return the patch after which a mapping says that copies of these resources were released."""
    notes: Manifest = {keys.RELEASED_KINDS: ",".join(sorted(kinds))}
    metadata: Manifest = {**preconditions_of(mapping), "annotations": notes}
    return Patch(ref_of(CONTROL_PLANE, API_SERVICE_NAMESPACE, mapping), {"metadata": metadata})


def leaving(seen: Seen) -> bool:
    """Tell whether the mapping would go, so that `removal` has to be read."""
    return (
        seen.mapping is not None
        and not is_deleting(seen.mapping)
        and seen.app_namespace is None
        and not seen.wanted
        and not seen.deletes_held
    )


def decide(seen: Seen) -> Decision:
    """Return what brings the mapping about, ends it, or records whose it is.

    The mapping of an app namespace that is on its way out stays until that is gone; none is made
    for it, nor for one that is not there. What a claim still needs stays, too. Another app
    cluster's mapping is re-recorded only where a mass delete is confirmed: it is what holds the
    guard. A note is about the mapping.
    """
    mapping = seen.mapping
    if mapping is None:
        return _made(seen)
    if is_deleting(mapping):
        return NOTHING  # its end is an event
    if seen.app_namespace is not None:
        return _recorded(seen, mapping)
    return _without_namespace(seen, mapping)


def _made(seen: Seen) -> Decision:
    live = seen.app_namespace
    if not seen.wanted or live is None or _is_ending(live):
        return NOTHING
    notes = {keys.APP_CLUSTER_UID: seen.app_cluster_uid} if seen.app_cluster_uid else {}
    marks = Marks(annotations=notes)
    kind = API_SERVICE_NAMESPACE
    made = build(kind, seen.name, namespace=seen.space, marks=marks, spec={})
    return Decision(tasks=(Task((Create(kind, made, CONTROL_PLANE),)),))


def _without_namespace(seen: Seen, mapping: Manifest) -> Decision:
    removal = seen.removal
    if not leaving(seen) or removal is None:
        return Decision(again=_AGAIN)  # if a guard holds it, the ClusterBinding tells
    if not removal.gone:
        return NOTHING  # the view is behind, and an event is on the way
    if removal.released:
        return _kept(seen, mapping)
    step = deletion(CONTROL_PLANE, API_SERVICE_NAMESPACE, mapping)
    return Decision(tasks=(Task((step,)),))


def _is_ending(namespace: Manifest) -> bool:
    return is_deleting(namespace) or get_text(namespace, "status", "phase") == "Terminating"


def _recorded(seen: Seen, mapping: Manifest) -> Decision:
    held = annotations_of(mapping).get(keys.APP_CLUSTER_UID)
    if not seen.app_cluster_uid or held == seen.app_cluster_uid:
        return NOTHING
    if held and not seen.confirmed:
        return NOTHING
    notes: Manifest = {keys.APP_CLUSTER_UID: seen.app_cluster_uid}
    metadata: Manifest = {**preconditions_of(mapping), "annotations": notes}
    ref = ref_of(CONTROL_PLANE, API_SERVICE_NAMESPACE, mapping)
    return Decision(tasks=(Task((Patch(ref, {"metadata": metadata}),)),))


def _kept(seen: Seen, mapping: Manifest) -> Decision:
    message = (
        f"App namespace {seen.name} is gone, and its APIServiceNamespace is kept: objects in its"
        f" service namespace carry {keys.RELEASED}. It goes when they are gone or no longer carry"
        " it; where their kind is not bound any more, delete it yourself then"
    )
    note = Note("ReleasedDataKept", message, "Warning", action="Keep")
    # A stranger's record would hold the guard for ever. One that lacks stays so: that the
    # mapping was ever this cluster's, nothing shows any more.
    foreign = bool(annotations_of(mapping).get(keys.APP_CLUSTER_UID))
    tasks = _recorded(seen, mapping).tasks if foreign else ()
    return Decision(tasks=tasks, notes=(note,), again=_AGAIN)

"""Whose a Namespace is that bears the name of a binding space (protocol-bind.md F6, F33).

`klutch-bind-a-b-c` is the name for `a`/`b-c` and for `a-b`/`c`, and a service namespace of a
third tenant may be called so, too. Nothing is written into a Namespace, and nothing deleted,
before it is proven to be the AppClusterBinding's own: that of its uid, not of its name (rule S1).
To give it to another one takes an annotation on the Namespace, which no author of
AppClusterBindings may write.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final

from bind.app_cluster_binding.facts import Seen, Space
from reconciler import api
from reconciler.core import identity, keys, names
from reconciler.core.manifest import Manifest, annotations_of, labels_of, name_of, uid_of
from reconciler.core.refs import DEPLOYMENT, NAMESPACE, SECRET, Kind
from reconciler.core.times import created

# The backend makes Namespace and ClusterBinding one after the other; it may be restarted between.
_AT_ONCE: Final = timedelta(minutes=5)


class Ownership(Enum):
    """What a Namespace is to an AppClusterBinding."""

    ABSENT = "absent"
    OURS = "ours"
    FREE = "free"  # nobody's, and nothing of value is in it
    TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is a sentence about the Namespace where it is taken, else ""."""

    standing: Ownership
    reason: str = ""


def name_problem(seen: Seen) -> str:
    """Return why there can be no binding space for this AppClusterBinding, or ""."""
    wrong = names.label_problem(seen.space_name)
    if not wrong:
        return ""
    return f"The binding space cannot have its name: {wrong}. Use a shorter or simpler name."


def verdict(seen: Seen) -> Verdict:
    """Tell whose the Namespace is.

    The ClusterBinding decides, because there is only one in a Namespace and no konnector may
    write it. Without one its labels do, which only an administrator may write, then what else
    is in it: klutchctl makes the APIServiceBindings before the AppClusterBinding.
    """
    space = seen.space
    if space is None:
        return Verdict(Ownership.ABSENT)
    for marked in (_cluster_binding(space), space.namespace):
        owner = _owner(marked, seen)
        if owner is not None and owner != seen.place:
            return _of_another(seen, owner)
        if owner is not None:
            return _of_earlier(seen, space) or Verdict(Ownership.OURS)
    used = _other_use(space)
    if used:
        return _taken(seen, used)
    return _by_content(seen, space)


def was_found(seen: Seen, space: Space) -> bool:
    """Tell whether the Namespace may have been there before it became a binding space.

    Then it may hold what is nobody's here. One that the backend makes has its ClusterBinding at
    once; and with both labels an administrator hands over whatever is in it.
    """
    if is_ours(space.namespace, seen):
        return False
    binding = _cluster_binding(space)
    bound = None if binding is None else created(binding)
    made = created(space.namespace)
    return bound is None or made is None or bound - made > _AT_ONCE


def is_ours(manifest: Manifest, seen: Seen) -> bool:
    """Tell whether an object bears both labels of the AppClusterBinding."""
    return seen.labels.items() <= labels_of(manifest).items()


def _cluster_binding(space: Space) -> Manifest | None:
    """Return the ClusterBinding, but none of an earlier Namespace of that name.

    The two come through two watches, of which one may lag.
    """
    bound = None if space.cluster_binding is None else created(space.cluster_binding)
    made = created(space.namespace)
    older = bound is not None and made is not None and bound < made
    return None if older else space.cluster_binding


def _by_content(seen: Seen, space: Space) -> Verdict:
    owners = {_owner(one, seen) for _, one in _content(space)} - {None}
    others = sorted(owner for owner in owners if owner is not None and owner != seen.place)
    if others:
        return _of_another(seen, others[0])
    if owners:
        return _of_earlier(seen, space) or Verdict(Ownership.OURS)
    stranger = next(_content(space), None)
    if stranger is None:
        return Verdict(Ownership.FREE)
    kind, one = stranger
    return _taken(seen, f"holds {kind} {name_of(one)}, which is of no AppClusterBinding")


def _other_use(space: Space) -> str:
    notes = annotations_of(space.namespace)
    if keys.API_SERVICE_NAMESPACE in notes:
        return f"is the service namespace of {notes[keys.API_SERVICE_NAMESPACE]}"
    if keys.IDENTITY in notes:
        return "is the binding space of an app cluster without AppClusterBinding"
    return ""


def _content(space: Space) -> Iterator[tuple[Kind, Manifest]]:
    if (bound := _cluster_binding(space)) is not None:
        yield api.CLUSTER_BINDING, bound
    if space.deployment is not None:
        yield DEPLOYMENT, space.deployment
    for kind, found in (
        (api.API_SERVICE_BINDING, space.bindings),
        (api.API_SERVICE_EXPORT, space.exports),
        (api.API_SERVICE_EXPORT_REQUEST, space.requests),
        (api.API_SERVICE_NAMESPACE, space.service_namespaces),
        (SECRET, space.secrets),
    ):
        for one in found:
            yield kind, one


def _owner(manifest: Manifest | None, seen: Seen) -> tuple[str, str] | None:
    """Return whom the labels name, (namespace, name); None without any. One may be missing."""
    labels = {} if manifest is None else labels_of(manifest)
    said = (keys.APP_CLUSTER_BINDING_NAMESPACE, keys.APP_CLUSTER_BINDING_NAME)
    if not any(key in labels for key in said):
        return None
    namespace, name = seen.place
    return labels.get(said[0], namespace), labels.get(said[1], name)


def _of_another(seen: Seen, owner: tuple[str, str]) -> Verdict:
    return _taken(seen, f"is of AppClusterBinding {'/'.join(owner)}")


def _of_earlier(seen: Seen, space: Space) -> Verdict | None:
    """Refuse what an earlier AppClusterBinding of this name left, maybe another tenant's.

    Without a recorded uid, its ClusterBinding tells: nobody makes it before the AppClusterBinding.
    """
    recorded = identity.recorded(space.namespace, keys.APP_CLUSTER_BINDING_UID)
    if recorded in identity.lives(space.namespace) | {uid_of(seen.app_cluster_binding)}:
        return None
    binding = _cluster_binding(space)
    bound = None if binding is None else created(binding)
    asked = created(seen.app_cluster_binding)
    if recorded == identity.NONE and not (bound and asked and bound < asked):
        return None
    line = identity.confirmation(NAMESPACE, space.namespace, recorded)
    return Verdict(
        Ownership.TAKEN,
        f"Namespace {seen.space_name} is of an earlier AppClusterBinding {'/'.join(seen.place)}, "
        f"and holds its data. To give it to this one: {line}; else name this AppClusterBinding "
        "otherwise.",
    )


def _taken(seen: Seen, reason: str) -> Verdict:
    return Verdict(
        Ownership.TAKEN,
        f"Namespace {seen.space_name} {reason}, so it is not used: name this AppClusterBinding"
        " otherwise.",
    )

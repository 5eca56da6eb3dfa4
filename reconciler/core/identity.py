"""Decides whether a live object is the expected one, by uid and marks. Pure.

Identity is a uid, never a name, and a uid counts only at its place: a claim, a space, a namespace
or an origin that comes again under its name is another one. Does not know what follows.
"""

from enum import Enum
from typing import Final

from reconciler.core import keys
from reconciler.core import manifest as m
from reconciler.core.manifest import Manifest, annotations_of, uid_of
from reconciler.core.refs import NAMESPACE, Kind

NONE: Final = "none"  # for the uid of an object that was made before uids were recorded


class Life(Enum):
    """The relation of an object to the one that was recorded at its place."""

    SAME = "same"
    ANOTHER = "another"
    UNKNOWN = "unknown"  # nothing was recorded, or the object's uid is not known


def compare(found: str, recorded: str, *, stamped: bool = False) -> Life:
    """Compare the uid that an object has with the recorded one; "" is none.

    `stamped`: uids were recorded wherever one belongs, so that none is another life.
    """
    if found and (recorded or stamped):
        return Life.SAME if found == recorded else Life.ANOTHER
    return Life.UNKNOWN


def of_mark(found: str, marked: Manifest | None, key: str, *, stamped: bool = False) -> Life:
    """Compare the uid that an object has with the one in an annotation of another object."""
    return compare(found, m.get_text(marked, "metadata", "annotations", key), stamped=stamped)


def recorded(marked: Manifest, key: str) -> str:
    """Return the uid in an annotation, NONE without one."""
    return annotations_of(marked).get(key, "") or NONE


def space_of(copy: Manifest) -> str:
    """Return the uid of a cluster-scoped copy's space: as marked, else its owner's, else NONE."""
    owners = m.get_maps(copy, "metadata", "ownerReferences")
    uids = [m.get_text(one, "uid") for one in owners if one.get("kind") == NAMESPACE.kind]
    return annotations_of(copy).get(keys.SPACE_UID) or [NONE, *uids][-1]


def is_of_space(copy: Manifest, space: str, lives: frozenset[str] | set[str]) -> bool:
    """Return whether a cluster-scoped copy is of a space: no name proves that (H3, S1)."""
    return annotations_of(copy).get(keys.CLUSTER_NAMESPACE) == space and space_of(copy) in lives


def lives(owner: Manifest) -> frozenset[str]:
    """Return the uid of a space or AppClusterBinding, and the former ones that it was given."""
    given = annotations_of(owner).get(keys.CONFIRM_SPACE, "").split(",")
    return frozenset({uid_of(owner), *map(str.strip, given)}) - {""}


def confirmation(kind: Kind, owner: Manifest, former: str) -> str:
    """Return the command by which a person gives an object the leavings of a namesake."""
    given = ",".join(sorted({*lives(owner) - {uid_of(owner)}, former}))
    where = f" -n {m.namespace_of(owner)}" if kind.namespaced else ""
    return (
        f"`kubectl annotate{where} {kind.kind.lower()} {m.name_of(owner)}"
        f" {keys.CONFIRM_SPACE}={given} --overwrite`"
    )

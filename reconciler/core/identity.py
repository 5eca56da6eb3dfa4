"""Decides whether an object is the one that is meant. Pure.

Identity is a uid, never a name, and a uid counts only at its place: a claim, a space, a namespace
or an origin that comes again under its name is another one. Refuses to know what follows.
"""

from enum import Enum

from reconciler.core.manifest import Manifest, annotations_of


class Life(Enum):
    """How an object stands to the one that was recorded at its place."""

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
    return compare(found, annotations_of(marked or {}).get(key, ""), stamped=stamped)

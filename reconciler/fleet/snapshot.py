"""The files of a fleet repository as one value: text at a revision, not a checkout."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.core.problems import Problem


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Paths relative to the fleet's folder, with "/", and the bytes of the files that were read.

    `revision` is as in `fleet.values.Fleet`. `entry` is the file to begin with; "" for the one
    that bears the usual name. `unread` are files that could not be read, and why: whoever needs
    one has this problem. `folder` is where all this lies in its Git repository: "" for the top,
    else with "/" at the end.
    """

    files: Mapping[str, bytes] = field(repr=False)
    revision: str
    entry: str = ""
    unread: Mapping[str, Problem] = field(default_factory=dict)
    folder: str = ""

"""The files of a fleet repository as one value: text at a revision, not a checkout."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tree:
    """Paths relative to the repository, with "/", and the bytes of the files that were read.

    `revision` is as in `fleet.values.Fleet`.
    """

    files: Mapping[str, bytes]
    revision: str

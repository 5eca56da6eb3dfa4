"""Limits the memory for objects that other parties write.

A limit belongs to the writer of an object, not to the server: tenants write to our own server, too.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from weakref import WeakSet

from reconciler.core.documents import weight
from reconciler.kube.host import memory_limit

# Whoever writes an object chooses what it takes, on each server. Any object that etcd takes is
# decoded within this share, and only one at a time.
MEMORY: Final = memory_limit() // 6
# A write of an object that takes more, decoded, costs an API server a tenth of a second and more.
WIDE: Final = 4 * 2**20


class Sized(Protocol):
    """A holder of so many octets."""

    octets: int


@dataclass(frozen=True, eq=False)
class Budget:
    """The limits of views, in octets: for one decoded `object`, and in `total`.

    What is larger is known by its metadata. Small objects are held beyond the total. All views
    of one budget share its total.
    """

    object: int = MEMORY
    total: int = 2**63
    small: int = 16 * 1024
    views: WeakSet[Sized] = field(default_factory=WeakSet)
    hot: dict[Any, None] = field(default_factory=dict)  # places that have changed: the oldest first

    def admits(self, view: Sized, content: bytes, beside: int) -> bool:
        """Return whether a view may hold an object as JSON beside so much else."""
        if len(content) <= self.small:
            return True
        others = sum(one.octets for one in self.views if one is not view)
        fits = others + beside + len(content) <= self.total
        is_json = type(content) is bytes
        return fits and is_json and weight(content, most=self.object) <= self.object


USUAL: Final = Budget()
# Of what developers and providers write nothing can be left out, and some are decoded at once.
OF_CLAIMS: Final = Budget(MEMORY // 8, MEMORY)

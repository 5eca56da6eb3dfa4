"""Limits for calls to a cluster, and for the memory of objects that other parties write.

A limit of memory belongs to the writer of an object, not to the server: tenants write to our own
server, too.

The owner of an app cluster controls its answers, and our reader also serves other clusters.

A page of a list is held whole, and whether it has Secrets of 1 MiB or small claims shows only once
it is there: a list begins with one object. A continue token is a key and a version
(k8s.io/apiserver, pkg/storage), so the pages of one list may differ in size, and in what they show.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from weakref import WeakSet

from reconciler.core.documents import weight
from reconciler.http.stream import Excess
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

_MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds for the calls to one cluster. Times are in seconds, sizes in bytes.

    `deadline` bounds one call with all its repetitions, from when it is first sent: waiting
    for a free slot, for the rate or for a credential plug-in does not count. `read_timeout`
    bounds the silence inside an answer. `max_body` bounds one answer without its compression,
    `max_items` the objects in it, `max_memory` what is made of it, and `max_list` all pages of a
    list together. What is made of one page of a list should take `page`.
    """

    concurrency: int = 32
    qps: float = 100.0
    burst: int = 300
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    deadline: float = 60.0
    max_body: int = min(256 * _MIB, MEMORY)
    max_items: int = 1_000_000
    max_memory: int = MEMORY
    max_list: int = 8192 * _MIB

    @property
    def page(self) -> int:
        """The usual octets of a page of a list: more is slow to give back."""
        return min(self.max_memory // 8, 8 * _MIB)


def of_app_cluster(limits: Limits) -> Limits:
    """Return these limits with the bounds for answers of a cluster that may lie."""
    memory = min(limits.max_memory, 160 * _MIB)
    body = min(limits.max_body, 16 * _MIB)
    return replace(limits, max_body=body, max_items=50_000, max_memory=memory, max_list=1024 * _MIB)


class Look:
    """The octets left for all answers of a cluster, in one look at it.

    `over` is why nothing more is asked: what answers too much once would do so each time.
    """

    def __init__(self, *, octets: int = 64 * _MIB, memory: int = 320 * _MIB) -> None:
        self._most, self._octets, self._memory = octets, octets, memory
        self.over = ""

    def take(self, octets: int) -> None:
        """Count a part of an answer. Raises Excess."""
        self._octets -= octets
        if self._octets < 0:
            raise Excess(f"answered more than {size(self._most)} in one look")

    def spend(self, memory: int) -> None:
        """Count the memory of an answer's values. Raises Excess."""
        self._memory -= memory
        if self._memory < 0:
            raise Excess("answered more values in one look than are read of one cluster")


_look: ContextVar[Look | None] = ContextVar("look", default=None)


@contextmanager
def one_look() -> Iterator[None]:
    """Count all answers that are read within the block, by this task and its own, as one look."""
    before = _look.set(Look())
    try:
        yield
    finally:
        _look.reset(before)


def current_look() -> Look | None:
    """Return the look that answers count for, if any."""
    return _look.get()


def size(octets: int) -> str:
    """Return a number of octets for people."""
    return f"{octets // _MIB} MiB" if octets >= _MIB else f"{octets} bytes"


# How many times as many as before: how large the next are is not known.
MORE: Final = 25
FEW_MORE: Final = 2  # once some were too large


def first_page(at_most: int) -> int:
    """Return for how many objects to ask at first; 0 for no limit stays so."""
    return min(at_most, 1)


def next_page(at_most: int, *, items: int, memory: int, page: int, growth: int) -> int:
    """Return for how many objects to ask after so many, that took this memory, in octets.

    `page` is what a page should take, and `growth` how many times as many are dared.
    """
    if not at_most:
        return 0
    return max(1, min(at_most, items * page // max(memory, 1), items * growth))


_FIRST_PAUSE: Final = 0.2  # seconds
_LONGEST_PAUSE: Final = 30.0


def pause(failures: int, *, asked: float | None, jitter: float) -> float:
    """Return the seconds until the next attempt, after so many failures in a row.

    `asked` is what the server wants; `jitter` is in [0, 1).
    """
    longest = _FIRST_PAUSE * 2.0 ** min(failures, 10)
    backoff = min(longest, _LONGEST_PAUSE) * (1 + jitter) / 2
    return max(backoff, asked or 0.0)

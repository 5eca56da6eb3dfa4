"""Counts deletions in a minute, and stops them above a limit (T11).

A claim that goes with its Namespace is not counted by itself: the Namespace is, among all those of
the space with claims. Both are counted by one rule, `rules.too_many`.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, Generic, TypeAlias, TypeVar

from konnector.mass_loss import rules
from reconciler.core import conditions, keys, manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import ObjectKey
from reconciler.core.times import format_time, moment
from reconciler.kube.store import Index, Store

# So long a Namespace is on its way out before its claims may go, so that all of many are seen.
SEEN_WHOLE: Final = timedelta(seconds=5)
_APPS: Final = "apps"
_LEAVING: Final = "leaving"
_ENDING: Final = "ending"
_NAMESPACES: Final = "namespaces"
_COUNTED: Final = re.compile(r"(\S+) (\S+Z) ([0-9]{1,6})")

_moment = lru_cache(maxsize=1024)(moment)  # times have whole seconds, and many share one

K = TypeVar("K", bound=Hashable)
_Deletion: TypeAlias = tuple[str, ObjectKey]  # when, and of which claim


class Record:
    """The last deletions of each sort, by the second: the ClusterBinding keeps them.

    They are there before the first copy goes: after "5 gone, crash, 5 more" the next process counts
    ten. All times are of the app cluster's clock. `text` is to be written; "" for nothing.
    """

    def __init__(self) -> None:
        self._noted, self._written = dict[str, Counter[datetime]](), dict[str, Counter[datetime]]()
        self.text = ""

    def read(self, cluster_binding: Manifest | None) -> None:
        found, self._written = conditions.get(cluster_binding, conditions.DELETIONS_COUNTED), {}
        for sort, time, count in _COUNTED.findall("" if found is None else found.message):
            if (since := _moment(time)) is not None:
                self._written.setdefault(sort, Counter())[since] = int(count)

    def gone(self, sort: str, there: Iterable[datetime]) -> list[datetime]:
        """Return when objects were deleted that are not there any more."""
        counted = self._noted.get(sort) or self._written.get(sort) or Counter()
        return [*(counted - Counter(there)).elements()]

    def note(self, sort: str, times: Iterable[datetime]) -> None:
        self._noted[sort] = Counter(times)

    def lacks(self, until: datetime) -> bool:
        """Return whether deletions up to a time are not written yet."""
        return any(
            since <= until and count > self._written.get(sort, Counter())[since]
            for sort, since, count in self._last()
        )

    def update(self) -> None:
        counts = (f"{sort} {format_time(since)} {count}" for sort, since, count in self._last())
        self.text = "; ".join(counts)

    def _last(self) -> list[tuple[str, datetime, int]]:
        newest = max(max(times) for times in self._noted.values()) if self._noted else None
        return [
            (sort, since, count)
            for sort, times in sorted({**self._written, **self._noted}.items())
            for since, count in sorted(times.items())
            if newest and abs(newest - since) < rules.AT_ONCE
        ]


class Wave(Generic[K]):
    """The deletions of objects of one sort. A guarded one stays so, whatever comes beside it."""

    def __init__(self, sort: str, record: Record) -> None:
        self._sort, self._record = sort, record
        self._times: dict[K, datetime] = {}
        self._gone: list[datetime] | None = None  # of processes before this one; None: not read
        self._guarded: dict[K, int] = {}

    def too_many(
        self, key: K, there: Mapping[K, datetime], living: Callable[[], int], few: int
    ) -> bool:
        """Return whether a deletion is one of more at once than can be meant.

        `there` is when each object was deleted that is still there, this one among them, and
        `living` returns how many are not being deleted. `few` are never too many.
        """
        if self._guarded.get(key, -1) >= few:
            return True
        if self._gone is None:
            self._gone = self._record.gone(self._sort, there.values())
        mine = there[key]
        for one in [one for one in self._times if one not in there]:
            if mine - self._times[one] >= rules.AT_ONCE:
                del self._times[one]
                self._guarded.pop(one, None)
        self._times |= there
        times = [*self._times.values(), *self._gone]
        if not rules.too_many(times, mine, living, few):
            self._record.note(self._sort, times)
            return False
        self._guarded[key] = few
        return True

    def leave_out(self, is_apart: Callable[[K], bool]) -> None:
        """Count no more the objects that turned out to be of another sort."""
        for one in [*filter(is_apart, self._times)]:
            del self._times[one]


class EndingNamespaces:
    """The Namespaces of the app cluster that are being deleted with claims of one space."""

    def __init__(self, namespaces: Store, monotonic: Callable[[], float], record: Record) -> None:
        self._namespaces, self._monotonic, self.record = namespaces, monotonic, record
        self._wave = Wave[tuple[str, str]](_NAMESPACES, record)
        self._claims: dict[str, Store] = {}
        self._since: dict[str, float] = {}  # by uid, when each was first asked about

    def follow(self, resource: str, claims: Store | None) -> None:
        """Count where there are claims of a resource; None: it is not synced any more."""
        self._claims.pop(resource, None)
        if claims is not None:
            self._claims[resource] = claims

    def times(self) -> dict[str, datetime]:
        """Return since when Namespaces are on their way out, by name, as the view shows it."""
        found = self._namespaces.values(_ENDING)
        return {name: since for time, name, _ in found if (since := _moment(time)) is not None}

    def shown(self, name: str) -> Manifest | None:
        """Return a Namespace that is on its way out, as the view shows it; None for all others."""
        found = self._namespaces.get("", name)
        return found if found is not None and manifest.is_deleting(found) else None

    def wait(self, namespace: Manifest) -> timedelta:
        """Return how long the claims of a Namespace wait until all that go with it are seen."""
        now, uid = self._monotonic(), manifest.uid_of(namespace)
        there = {one for _, _, one in self._namespaces.values(_ENDING)} | {uid}
        self._since = {one: self._since.get(one, now) for one in there}
        return SEEN_WHOLE - timedelta(seconds=now - self._since[uid])

    def too_many(self, namespace: Manifest, few: int) -> bool:
        """Return whether a Namespace is one of more that are deleted at once than can be meant."""
        apps = {app for store in self._claims.values() for app in store.values(_APPS)}
        endings = self._namespaces.values(_ENDING)
        mine = _ending(namespace)
        there = {
            (name, uid): since
            for time, name, uid in (*endings, *mine)
            if name in apps and (since := _moment(time)) is not None
        }
        living = apps - {"", *(name for _, name, _ in endings)}
        ((_, name, uid),) = mine
        return self._wave.too_many((name, uid), there, lambda: len(living), few)


class ClaimDeletions:
    """The deletions of the claims of one kind that no Namespace takes along."""

    def __init__(self, claims: Store, namespaces: EndingNamespaces) -> None:
        self._claims, self._namespaces = claims, namespaces
        self._wave = Wave[_Deletion](claims.kind.resource, namespaces.record)

    def too_many(self, claim: Manifest, few: int) -> bool:
        """Return whether the deletion of a claim is one of more at once than can be meant."""
        ends, mine = self._namespaces.times(), _leaving(claim)
        if not mine:
            return False

        def is_apart(key: _Deletion) -> bool:
            time, place = key
            end, since = ends.get(place.namespace), _moment(time)
            return since is None or (end is not None and end <= since and key != mine[0])

        self._wave.leave_out(is_apart)
        found = (one for one in self._claims.values(_LEAVING) if not is_apart(one))
        there = {one: since for one in (*found, *mine) if (since := _moment(one[0])) is not None}
        count = self._claims.count
        return self._wave.too_many(mine[0], there, lambda: count(_APPS) - count(_LEAVING), few)


def _app(claim: Manifest) -> tuple[str, ...]:
    """Return the namespace of a claim that we hold, "" if it has none, as an index does."""
    is_ours = keys.SYNCER in manifest.finalizers_of(claim)
    return (manifest.namespace_of(claim),) if is_ours else ()


def _leaving(claim: Manifest) -> tuple[_Deletion, ...]:
    """Return when such a claim was deleted, and its place, as an index does."""
    time = manifest.get_text(claim, "metadata", "deletionTimestamp")
    return ((time, ObjectKey(*manifest.identity_of(claim))),) if time and _app(claim) else ()


def _ending(namespace: Manifest) -> tuple[tuple[str, str, str], ...]:
    """Return when a Namespace was deleted, its name and its uid, as an index does."""
    time = manifest.get_text(namespace, "metadata", "deletionTimestamp")
    return ((time, manifest.name_of(namespace), manifest.uid_of(namespace)),) if time else ()


CLAIM_INDEXES: Final[Mapping[str, Index]] = {_APPS: _app, _LEAVING: _leaving}
NAMESPACE_INDEXES: Final[Mapping[str, Index]] = {_ENDING: _ending}

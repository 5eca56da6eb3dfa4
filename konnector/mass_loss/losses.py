"""Which copies were lost, and which claims deleted, of one kind and lately.

Of copies that a watch saw deleted though their claims stay, one alone is made again (T16). Many
claims that are deleted at once are hardly meant (T11).
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from konnector.claim import copies
from konnector.mass_loss import decide
from reconciler.core import keys
from reconciler.core.manifest import Manifest, finalizers_of, get_text, identity_of, is_deleting
from reconciler.core.refs import ObjectKey
from reconciler.core.times import moment
from reconciler.kube.store import Store

BOUND: Final = "bound"
LEAVING: Final = "leaving"


class Losses:
    """Remembers when the copy of each claim was lost."""

    def __init__(self) -> None:
        self._times: dict[ObjectKey, datetime] = {}

    def note(self, place: ObjectKey, now: datetime) -> None:
        """Remember that the copy of a claim was lost now."""
        self._times[place] = now

    def forget(self, now: datetime, *, but: Collection[ObjectKey]) -> None:
        """Forget those that are too long ago to be part of a loss that comes, `but` some."""
        self._times = {
            place: time
            for place, time in self._times.items()
            if place in but or abs(now - time) < decide.AT_ONCE
        }

    def is_alone(self, place: ObjectKey) -> bool:
        """Tell whether the loss of this copy was watched, and was no part of a larger one."""
        return decide.alone(place, self._times)

    def settles_in(self, place: ObjectKey, now: datetime) -> timedelta | None:
        """Return how long to wait for further losses before this one counts as alone, if it may.

        The copies of a space that goes are deleted one after the other: the first is never alone,
        and looks so.
        """
        time = self._times.get(place)
        if time is None or now - time >= decide.FOLLOWED:
            return None
        return min(decide.FOLLOWED - (now - time), decide.FOLLOWED)


class Deletions:
    """Follows a view of claims that has the indexes BOUND and LEAVING."""

    def __init__(self, claims: Store) -> None:
        self._claims = claims
        self._times: dict[ObjectKey, datetime] = {}
        self._gone: set[ObjectKey] = set()  # those of them that are no more
        claims.subscribe(LEAVING, self._changed)

    def too_many(self, place: ObjectKey) -> bool:
        """Tell whether the deletion of a claim is one of more at once than can be meant."""
        mine = self._times.get(place)
        if mine is None:
            return False
        total = self._claims.count(BOUND) + len(self._gone)
        if decide.too_many(self._times.values(), mine, total):
            return True
        old = {one for one in self._gone if mine - self._times[one] >= decide.AT_ONCE}
        self._gone -= old
        for one in old:
            del self._times[one]
        return False

    def _changed(self, value: tuple[str, ObjectKey]) -> None:
        time, place = value
        since = moment(time)
        if since is None:
            return
        if self._claims.has(LEAVING, value):
            self._times[place] = since
            self._gone.discard(place)
        elif self._times.get(place) == since:
            self._gone.add(place)


def bound(claim: Manifest) -> tuple[ObjectKey, ...]:
    """Return the place of a claim that has, or had, a copy, as an index does."""
    return (ObjectKey(*identity_of(claim)),) if copies.is_managed(claim) else ()


def leaving(claim: Manifest) -> tuple[tuple[str, ObjectKey], ...]:
    """Return when such a claim was deleted while we hold it, and its place, as an index does."""
    held = copies.is_managed(claim) and keys.SYNCER in finalizers_of(claim)
    if not held or not is_deleting(claim):
        return ()
    time = get_text(claim, "metadata", "deletionTimestamp")
    return ((time, ObjectKey(*identity_of(claim))),)

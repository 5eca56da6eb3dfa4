"""Which claims of one kind are being deleted, and were lately: many at once are hardly meant."""

from typing import TYPE_CHECKING, Final

from konnector.claim import copies
from konnector.mass_loss import decide as mass_loss_decide
from reconciler.core import keys
from reconciler.core.manifest import Manifest, finalizers_of, get_text, identity_of, is_deleting
from reconciler.core.refs import ObjectKey
from reconciler.core.times import moment
from reconciler.kube.cache.store import Store

if TYPE_CHECKING:
    from datetime import datetime

BOUND: Final = "bound"
LEAVING: Final = "leaving"


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
        if mass_loss_decide.too_many(self._times.values(), mine, total):
            return True
        old = {one for one in self._gone if mine - self._times[one] >= mass_loss_decide.AT_ONCE}
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

"""Makes the copies of claims: which claims are marked and have none so far, and what follows.

A claim is marked before its copy is made (protocol-konnector.md D.6). Whoever finds a marked claim
without a copy cannot tell whether it lost one, so a claim whose copy cannot be made is marked no
more, and only so many are in between that a death is not taken for a loss (mapping.md 10).
"""

from collections.abc import Callable, Iterable, Sequence, Set
from datetime import timedelta
from typing import Final

from konnector.controllers.in_between import InBetween
from konnector.decisions import copies, instance
from konnector.decisions.instance import Seen
from konnector.decisions.pair import Pair
from konnector.hands import Known
from konnector.link import Link
from reconciler.core.decision import Decision
from reconciler.core.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    KlutchError,
    Missing,
    Rejected,
)
from reconciler.core.moments import created
from reconciler.core.refs import ObjectKey, Ref
from reconciler.kube.recent import Recent

# Whoever is younger had no copy for long, if any: what a konnector left in between that died.
_NEW: Final = timedelta(minutes=10)


class Making:
    """The claims of one kind that are marked, by this konnector, and have no copy so far.

    `here` are the claims, `bound_copies` counts the copies there are, `wake(place)` is called for a
    claim that had to wait.
    """

    def __init__(
        self,
        pair: Pair,
        link: Link,
        here: Recent,
        bound_copies: Callable[[], int],
        wake: Callable[[ObjectKey], None],
    ) -> None:
        self._pair, self._link, self._here = pair, link, here
        self._in_between = InBetween(bound_copies, wake)
        self._ours: set[ObjectKey] = set()
        self._new: set[ObjectKey] = set()  # those of them that had no mark before

    @property
    def ours(self) -> Set[ObjectKey]:
        """The places of these claims: they have lost nothing."""
        return self._ours

    @property
    def is_told(self) -> bool:
        """Whether `take_up` was called."""
        return self._in_between.is_told

    def take_up(self, lacking: Iterable[ObjectKey], *, held: str) -> None:
        """Take in, once, which marked claims of others have no copy.

        The new ones of them become ours: somebody died with them in between. Not so if they, with
        others, may not be made again, which is what `held` says.
        """
        places = set(lacking)
        left = set() if held else {place for place in places if self._is_new(place)}
        self._ours |= left
        self._new |= left
        self._in_between.tell(left=left, lost=places - left)

    def enter(self, place: ObjectKey) -> bool:
        """Tell whether a claim may be marked and get a copy now; else it is woken later."""
        return self._in_between.enter(place)

    def ended(self, place: ObjectKey) -> None:
        """Forget a claim: it has a copy, or needs none."""
        self._ours.discard(place)
        self._new.discard(place)
        self._in_between.leave(place)

    async def make(self, seen: Seen, decision: Decision, known: Sequence[Known]) -> None:
        """Make a copy; where that fails, a claim that was marked for it is marked no more.

        Raises as `Hands.carry_out` does.
        """
        place = seen.place
        self._ours.add(place)
        if seen.claim is not None and not copies.is_managed(seen.claim):
            self._new.add(place)
        try:
            await self._link.hands.carry_out(decision, known)
        except AlreadyExists:
            self._in_between.leave(place)
            raise
        except KlutchError as error:
            if await self._is_unmarked(place, error, known):
                self._in_between.give_up(place)
            raise
        self._in_between.leave(place)

    async def _is_unmarked(
        self, place: ObjectKey, error: KlutchError, known: Sequence[Known]
    ) -> bool:
        """Take the mark off a claim that has no copy; False where it may still be marked.

        Then it takes up room in between, and so it does while a conflict, with a quota for one, has
        it tried again at once. What the app cluster refuses for good leaves nothing to wait for.
        """
        claim = self._here.get(*place)
        if claim is None or place not in self._new:
            return True
        if not copies.is_managed(claim):
            return not await self._is_marked_unseen(place, error)
        if isinstance(error, Conflict) and not isinstance(error, Missing):
            return False
        try:
            await self._link.hands.carry_out(instance.unmarked(self._pair, claim), known)
        except (Missing, Forbidden, Rejected):
            return True
        except KlutchError:
            return False
        return True

    async def _is_marked_unseen(self, place: ObjectKey, error: KlutchError) -> bool:
        """Tell whether a mark may have been set by a write of which that is not known.

        A server that has answered is done with it, so that its word counts.
        """
        if not isinstance(error, ClusterError) or not error.outcome_unknown:
            return False
        if not error.status:
            return True
        try:
            live = await self._link.app.get(Ref(self._link.app.name, self._pair.kind, *place))
        except ClusterError:
            return True
        return live is not None and copies.is_managed(live)

    def _is_new(self, place: ObjectKey) -> bool:
        claim = self._here.get(*place)
        since = None if claim is None else created(claim)
        return since is not None and abs(self._link.now() - since) < _NEW

"""How many claims of a kind may be held and marked while their copy is still to be made.

A konnector that is killed then leaves so many marked claims without a copy, and the next one may be
killed, too. All they leave must stay fewer than what the guard takes for a loss: more than FEW, and
more than half of the marked ones (mapping.md 10), or a person would be asked to allow what nobody
lost. Developers may delete others meanwhile, whose copies then no longer stand against those left:
so few are let in that most copies may go.
"""

from collections.abc import Callable, Iterable
from typing import Final

from konnector.decisions.guard import FEW, Count
from reconciler.core.refs import ObjectKey

SHARE: Final = 8  # of so many copies, all but one may go


class InBetween:
    """Lets an eighth as many in at once as there are copies, but always a few.

    `copies` counts them. Until it is told what was there before, it lets in one at a time.
    `wake(place)` is called for who found no room, once there is some.
    """

    def __init__(self, copies: Callable[[], int], wake: Callable[[ObjectKey], None]) -> None:
        self._copies, self._wake = copies, wake
        self._lost: set[ObjectKey] | None = None
        self._inside: set[ObjectKey] = set()
        self._waiting: dict[ObjectKey, None] = {}

    @property
    def is_told(self) -> bool:
        """Whether it knows what was there before."""
        return self._lost is not None

    def tell(self, *, left: Iterable[ObjectKey], lost: Iterable[ObjectKey]) -> None:
        """Take in, once, which marked claims had no copy before anybody entered.

        Those `left` in between by others are inside. Those that `lost` their copy take up room as
        well, but never all of it, and none if they are a loss by themselves: then one more or less
        is no matter.
        """
        self._inside.update(left)
        self._lost = set(lost) - self._inside
        self._wake_waiting()

    def enter(self, place: ObjectKey) -> bool:
        """Go in if there is room, and tell; who is inside stays there until `leave`."""
        if not self._is_known(place):
            if self._room() < 1:
                self._waiting[place] = None
                return False
            self._inside.add(place)
        self._waiting.pop(place, None)
        return True

    def give_up(self, place: ObjectKey) -> None:
        """Make the room that this place has taken: it is no longer between mark and copy."""
        self._waiting.pop(place, None)
        if place in self._inside:
            self._inside.discard(place)
            self._wake_waiting()

    def leave(self, place: ObjectKey) -> None:
        """As `give_up`, for a place that lacks no copy any more."""
        if self._lost is not None and place in self._lost:
            self._lost.discard(place)
            self._wake_waiting()
        self.give_up(place)

    def _wake_waiting(self) -> None:
        for each in list(self._waiting)[: self._room()]:
            del self._waiting[each]
            self._wake(each)

    def _is_known(self, place: ObjectKey) -> bool:
        return place in self._inside or place in (self._lost or ())

    def _room(self) -> int:
        if self._lost is None:
            return max(0, 1 - len(self._inside))
        lost, copies = len(self._lost), self._copies()
        most = max(FEW, copies // SHARE)
        if not Count("", lost, lost + copies).is_mass:
            most = max(1, most - lost)
        return max(0, most - len(self._inside))

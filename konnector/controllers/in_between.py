"""How many claims of a kind may be held and marked while their copy is still to be made.

A konnector that is killed then leaves so many marked claims without a copy, and the next one may be
killed, too. All they leave must stay fewer than what the guard takes for a loss: more than FEW, and
more than half of the marked ones (mapping.md 10), or a person would be asked to allow what nobody
lost. Developers may delete others meanwhile, whose copies then no longer stand against those left:
so many are let in that half of the copies may go.
"""

from collections.abc import Callable, Iterable

from konnector.decisions.guard import FEW, Count
from reconciler.core.refs import ObjectKey


class InBetween:
    """Lets half as many in at once as there are copies, but always a few. `copies` counts them.

    `left` are the places that others left in between, or None while that is not known. They are in
    already, unless they are a loss by themselves; then one more or less is no matter. `wake(place)`
    is called for who found no room, once there is some.
    """

    def __init__(
        self,
        copies: Callable[[], int],
        left: Callable[[], Iterable[ObjectKey] | None],
        wake: Callable[[ObjectKey], None],
    ) -> None:
        self._copies, self._find_left, self._wake = copies, left, wake
        self._others: set[ObjectKey] | None = None
        self._inside: set[ObjectKey] = set()
        self._waiting: dict[ObjectKey, None] = {}

    def enter(self, place: ObjectKey) -> bool:
        """Go in if there is room, and tell; who is inside stays there until `leave`."""
        if self._others is None and (found := self._find_left()) is not None:
            self._others = set(found) - self._inside - {place}
        if not self._is_inside(place):
            if self._room() < 1:
                self._waiting[place] = None
                return False
            self._inside.add(place)
        self._waiting.pop(place, None)
        return True

    def leave(self, place: ObjectKey) -> None:
        """Make room, where this place has taken some."""
        self._waiting.pop(place, None)
        if self._is_inside(place):
            self._inside.discard(place)
            (self._others or set()).discard(place)
            for each in list(self._waiting)[: self._room()]:
                del self._waiting[each]
                self._wake(each)

    def _is_inside(self, place: ObjectKey) -> bool:
        return place in self._inside or place in (self._others or ())

    def _room(self) -> int:
        others, copies = len(self._others or ()), self._copies()
        most = max(FEW, copies // 2)
        if not Count("", others, others + copies).is_mass:
            most = max(1, most - others)
        return max(0, most - len(self._inside))

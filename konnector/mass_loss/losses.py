"""Which copies a watch saw deleted though their claims stay: one alone is made again (T16)."""

from collections.abc import Collection
from datetime import datetime, timedelta

from konnector.mass_loss import decide
from reconciler.core.refs import ObjectKey


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

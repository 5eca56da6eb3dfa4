"""When a cluster answers again after it did not, so that waits before a next try can end."""

import time
from collections.abc import Callable
from typing import Final

# Shorter gaps are what pauses begin with. It is also how often a cluster that answers some calls
# and not others can make everybody try again.
_OUTAGE: Final = 5.0  # seconds


class Connectivity:
    """Notes whether calls to one cluster are answered, and reports when it is back."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed = False
        self._answered = clock()  # when it did last
        self._followers: list[Callable[[], None]] = []

    def answered(self) -> None:
        """Note that the cluster dealt with a call, whatever it said."""
        now = self._clock()
        was_away = self._failed and now - self._answered >= _OUTAGE
        self._failed, self._answered = False, now
        if was_away:
            self.report()

    def failed(self) -> None:
        """Note that it did not."""
        self._failed = True

    def follow(self, on_back: Callable[[], None]) -> Callable[[], None]:
        """Have `on_back()` called when the cluster is back; return what ends that."""
        self._followers.append(on_back)
        return lambda: self._followers.remove(on_back)

    def report(self) -> None:
        """Report to all followers that the cluster is back."""
        for on_back in list(self._followers):
            on_back()

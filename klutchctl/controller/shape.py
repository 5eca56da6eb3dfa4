"""Which part of the files a controller keeps: its fleet, its shard, nothing while suspended."""

from collections.abc import Callable

from reconciler.core.errors import ConfigError
from reconciler.fleet import parts
from reconciler.fleet.values import Fleet


class Shape:
    """Makes the fleet that is kept of the one in the files; the same one while nothing changes.

    `suspended` returns why it is suspended from outside the files, or "".
    """

    def __init__(
        self, name: str, shard: tuple[str, ...], suspended: Callable[[], str] = lambda: ""
    ) -> None:
        self._name, self._shard, self._suspended = name, shard, suspended
        self._made: tuple[Fleet, str, Fleet] | None = None

    def __call__(self, fleet: Fleet) -> Fleet:
        """Return what is kept of a fleet. Raises ConfigError for another fleet or shard."""
        reason = self._suspended()
        if self._made is None or self._made[0] is not fleet or self._made[1] != reason:
            self._made = fleet, reason, self._shaped(fleet, reason)
        return self._made[2]

    def _shaped(self, fleet: Fleet, reason: str) -> Fleet:
        if self._name and fleet.name != self._name:
            # What clusters hold of that one would be taken for its own (trust.md T13).
            raise ConfigError(
                f"the Fleet is {fleet.name}, and this controller keeps {self._name}",
                where=str(fleet.origin),
                hint="Start a controller for it, or name it as before",
            )
        if self._shard:
            fleet = parts.shard(fleet, self._shard)
        if reason and fleet.suspended is None:
            fleet = parts.suspended(fleet, reason)
        return fleet

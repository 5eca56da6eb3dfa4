"""Whether a watch does its work, for a probe that may restart it. Pure.

A source that cannot be read does count: while it lasts, nothing is kept right.
"""

from dataclasses import dataclass
from typing import Final

ROUNDS: Final = 3  # intervals in which a round must have ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """`round_at`: the end of the last round, or the start, on a monotonic clock."""

    round_at: float
    readable: bool = True


def ailment(signs: Signs, now: float, *, interval: float) -> str:
    """Return why the watch is not healthy, without names or texts from files; "" if it is."""
    idle = now - signs.round_at
    if idle <= ROUNDS * interval:
        return ""
    because = "" if signs.readable else ": the source cannot be read"
    return f"no round has ended for {idle:.0f} s{because}"

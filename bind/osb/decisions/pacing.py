"""How long is waited before a broker is asked again, by what it answered last."""

from datetime import datetime, timedelta
from typing import Final

_FIRST: Final = timedelta(seconds=2)
_LONGEST_END: Final = timedelta(minutes=10)
_LONGEST_WAIT: Final = timedelta(minutes=1)  # of a call that surely did nothing
_LONGEST_POLL: Final = timedelta(minutes=1)
_LONGEST_DELETE: Final = timedelta(minutes=10)
_UNKNOWN: Final = (timedelta(seconds=2), timedelta(seconds=8), timedelta(seconds=30))
_FURTHER: Final = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30))

MOST_TRIES: Final = len(_UNKNOWN)  # of a call with an unknown outcome, after the first
MOST_READS: Final = MOST_TRIES + 1  # of credentials that do not come
MOST_MISSES: Final = 3  # of an operation, in a row
MOST_NUMBERS: Final = len(_FURTHER) + 1  # ids in a row that may fail
BUSY: Final = timedelta(minutes=1)


def unsent(count: int, stated: timedelta | None) -> timedelta:
    """Return the pause after a call that surely did nothing, `count` of them before."""
    return stated or min(_FIRST * 2.0 ** min(count, 10), _LONGEST_WAIT)


def unknown(tries: int) -> timedelta:
    """Return the pause after an unknown outcome, `tries` of them before."""
    return _UNKNOWN[min(tries, MOST_TRIES - 1)]


def poll(first: timedelta, count: int, stated: timedelta | None) -> timedelta:
    """Return the pause after an operation was seen to go on, `count` times before."""
    return stated or min(first * 1.5 ** min(count, 20), _LONGEST_POLL)


def deletion(count: int) -> timedelta:
    """Return the pause after a deletion that was not confirmed, `count` of them before."""
    return min(_FIRST * 4.0 ** min(count, 8), _LONGEST_DELETE)


def patient_until(deadline: datetime, deleted_at: datetime) -> datetime:
    """Return until when an operation is polled whose claim is deleted."""
    return min(deadline, deleted_at + _LONGEST_END)


def further(failed: int) -> timedelta | None:
    """Return the pause before the next id, after so many failed in a row; None after the last."""
    place = (failed - 1) % MOST_NUMBERS
    return _FURTHER[place] if place < len(_FURTHER) else None

"""The life cycle of objects at a broker, as one table of calls, answers and next steps.

Rows are calls, and polls of operations; columns are answers in one word. A store implements the
writes of a move. Does not know objects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final, TypeAlias

from reconciler.blueprints.offering import outcomes

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


class Move(Enum):
    """The next step for an id."""

    DONE = auto()  # the broker has fulfilled the request
    UNREAD = auto()  # it has something of this id, as reading will show
    ACCEPT = auto()  # poll its operation from now on
    POLL = auto()  # ask again how far it is
    MISS = auto()  # the same, and count that the broker knew nothing of it
    FORGET = auto()  # an operation that the broker does not know may have ended: PUT again
    LATER = auto()  # the same call later: surely nothing was done
    REPEAT = auto()  # the same call again: nobody knows whether it was done
    REREAD = auto()  # the same call once more, after the catalogue was read
    BUSY = auto()  # wait for another operation
    ASK = auto()  # read the object behind a 409
    ANEW = auto()  # nothing was created: send the present request
    REFUSE = auto()  # not again before the request changes
    FAIL = auto()  # an update failed
    MITIGATE = auto()  # delete a possibly half-made object, before another try
    STOP = auto()  # it may have data: people decide
    GONE = auto()  # it is confirmed to be gone
    AGAIN = auto()  # delete again, later
    UNPROVED = auto()  # a 404 proves nothing before the catalogue was read
    DELETE = auto()  # delete again at once
    MISSING = auto()  # it existed, and is gone
    READ = auto()  # compare the broker's values with the sent ones
    KEEP = auto()  # nothing was learnt


Row: TypeAlias = Mapping[str, Move]
_ELSE: Final = ""
_LOST: Final = "not known again and again"

_PUT: Final[Row] = {
    "done": Move.DONE, "done before": Move.DONE, "accepted": Move.ACCEPT,
    "conflict": Move.ASK, "conflict again": Move.ASK,
    "unknown": Move.REPEAT, "silent": Move.REPEAT, "malformed": Move.MITIGATE,
    "spent": Move.MITIGATE,
    "busy": Move.BUSY, "maintenance": Move.REREAD, _ELSE: Move.REFUSE,
}  # fmt: skip
_DELETE: Final[Row] = {
    "gone": Move.GONE, "absent": Move.GONE, "unconfirmed": Move.UNPROVED,
    "page": Move.UNPROVED, "accepted": Move.ACCEPT, "busy": Move.BUSY, _ELSE: Move.AGAIN,
}  # fmt: skip
_UNKNOWN_OPERATION: Final[Row] = {"absent": Move.MISS, "unconfirmed": Move.MISS}
# Past the deadline, any answer but its progress means that the broker has lost the operation.
_UNKNOWN_LATE: Final[Row] = {
    **_UNKNOWN_OPERATION, "gone": Move.MISS, "refused": Move.MISS, "nonsense": Move.MISS,
}  # fmt: skip
_MAKING: Final[Row] = {
    "succeeded": Move.DONE, "failed": Move.MITIGATE, **_UNKNOWN_OPERATION,
    _LOST: Move.FORGET, _ELSE: Move.POLL,
}  # fmt: skip
_BINDING: Final[Row] = {**_MAKING, "succeeded": Move.UNREAD, _LOST: Move.MITIGATE}
_CHANGING: Final[Row] = {**_MAKING, "failed": Move.FAIL, _LOST: Move.FAIL}
_LEAVING: Final[Row] = {
    "succeeded": Move.GONE, "gone": Move.GONE, "failed": Move.AGAIN, "absent": Move.DELETE,
    "unconfirmed": Move.DELETE, "page": Move.DELETE, _ELSE: Move.POLL,
}  # fmt: skip

TABLE: Final[Mapping[str, Row]] = {
    "Provision": _PUT,
    "Bind": {
        **_PUT, "done before": Move.MITIGATE, "conflict": Move.UNREAD,
        "conflict again": Move.MITIGATE, "maintenance": Move.REFUSE,
    },
    "Update": {
        **_PUT, "conflict": Move.REFUSE, "conflict again": Move.REFUSE, "malformed": Move.REPEAT,
        "spent": Move.FAIL, "gone": Move.MISSING,
    },
    "Deprovision": _DELETE,
    "Unbind": _DELETE,
    "making": _MAKING,
    # The failure may be that of a later update: some brokers ignore the operation's key.
    "making late": {**_MAKING, **_UNKNOWN_LATE, "failed": Move.STOP},
    "binding": _BINDING,
    "binding late": {**_BINDING, **_UNKNOWN_LATE, "in progress": Move.MITIGATE},
    "changing": _CHANGING,
    "changing late": {**_CHANGING, **_UNKNOWN_LATE, "in progress": Move.FAIL},
    "leaving": _LEAVING,
    "leaving late": {**_LEAVING, "in progress": Move.AGAIN},
    # The claim differs from an intent that may have been sent.
    "edited": {
        "succeeded": Move.DONE, "failed": Move.MITIGATE, "in progress": Move.ACCEPT,
        "nonsense": Move.ACCEPT, "absent": Move.ANEW, "unconfirmed": Move.ANEW, "page": Move.ANEW,
        "gone": Move.ANEW, "refused": Move.ANEW, _ELSE: Move.LATER,
    },
    # A 409 to a first PUT, and to one after an unknown answer: that may be half an instance.
    "asking": {
        "succeeded": Move.DONE, "done": Move.UNREAD, "failed": Move.MITIGATE,
        "in progress": Move.ACCEPT, "silent": Move.LATER, _ELSE: Move.ASK,
    },
    "asking again": {"in progress": Move.ACCEPT, "silent": Move.LATER, _ELSE: Move.MITIGATE},
    "reading": {
        "done": Move.READ, "gone": Move.MISSING, "absent": Move.MISSING,
        "unconfirmed": Move.UNPROVED, _ELSE: Move.KEEP,
    },
    "fetching": {
        "done": Move.DONE, "gone": Move.MISSING, "absent": Move.MISSING,
        "unconfirmed": Move.UNPROVED, "busy": Move.BUSY, _ELSE: Move.KEEP,
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Standing:
    """The facts beside an answer that its judgement needs.

    `tries` of the same intent had an unknown outcome; `misses` answers in a row knew nothing of the
    operation. `confirmed`: the catalogue was read in the last minute, so that a 404 is the broker's
    own. `has_reread`: that was done for this intent already.
    """

    tries: int = 0
    misses: int = 0
    confirmed: bool = False
    has_reread: bool = False


def move(row: str, outcome: outcomes.Outcome, at: Standing) -> Move:
    if isinstance(outcome, outcomes.Denied | outcomes.Unsent):
        return Move.LATER
    moves = TABLE[row]
    found = moves.get(word_of(outcome, at), moves[_ELSE])
    return moves[_LOST] if found is Move.MISS and at.misses + 1 >= MOST_MISSES else found


def word_of(outcome: outcomes.Outcome, at: Standing) -> str:  # noqa: C901, PLR0911 - a word each
    match outcome:
        case outcomes.Done():
            return "done before" if at.tries and not outcome.created else "done"
        case outcomes.Accepted():
            return "accepted"
        case outcomes.Unknown(malformed=True):
            return "malformed"
        case outcomes.Unknown() if at.tries >= MOST_TRIES:
            return "spent"
        case outcomes.Unknown():
            return "unknown" if outcome.status else "silent"
        case outcomes.Gone():
            return "gone"
        case outcomes.Absent(is_json=False):
            return "page"
        case outcomes.Absent():
            return "absent" if at.confirmed else "unconfirmed"
        case outcomes.Refused(word="conflict"):
            return "conflict again" if at.tries else "conflict"
        case outcomes.Refused(word="busy"):
            return "busy"
        case outcomes.Refused(word="maintenance") if not at.has_reread:
            return "maintenance"
        case outcomes.Progress():
            return outcome.state or "nonsense"
    return "refused"

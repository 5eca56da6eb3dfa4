"""Parses and formats times and durations as Kubernetes and Go do. Has no clock.

Spans are `timedelta`s, because they are added to and compared with datetimes, whose resolution
is a microsecond too; what Go writes below that is cut off towards zero.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from reconciler.core.manifest import Manifest, get_text

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign, which Go writes
    "\u03bcs": 1_000,  # Greek mu, which Go reads
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_TERM: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)")
_LIMIT: Final = 1 << 63  # Go counts nanoseconds in an int64
_MAX_LENGTH: Final = 1_000  # of a text: it may come from a stranger's object
_LIMIT_DIGITS: Final = 19  # of _LIMIT; longer numbers are not worth converting
_RANGE: Final = "Go durations reach from -2562047h47m16.8s to 2562047h47m16.8s"

_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)


def parse_duration(text: str) -> timedelta:
    """Parse what Go's time.ParseDuration accepts, such as `5m0s`, `-1.5h` or `0`.

    Raises ValueError with a sentence, also for a text of more than 1,000 characters.
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"{_short(text)} is too long for a duration")
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return timedelta()
    nanoseconds, position = 0, 0
    while position < len(rest) or position == 0:
        term = _TERM.match(rest, position)
        if term is None:
            raise ValueError(f"{_short(text)} is not a duration such as 5m0s or 1.5h")
        nanoseconds += _nanoseconds(term, text)
        position = term.end()
    if nanoseconds > (_LIMIT if sign < 0 else _LIMIT - 1):
        raise ValueError(f"{_short(text)} is out of range: {_RANGE}")
    return sign * timedelta(microseconds=nanoseconds // 1_000)


def _nanoseconds(term: re.Match[str], text: str) -> int:
    whole, fraction, unit = term[1].lstrip("0"), term[2] or "", term[3]
    if unit not in _UNITS:
        raise ValueError(f"{_short(text)} has the unknown unit {_short(unit)}: use h m s ms us ns")
    if not term[1] and not fraction:
        raise ValueError(f"{_short(text)} has a unit without a number")
    if len(whole) > _LIMIT_DIGITS:
        raise ValueError(f"{_short(text)} is out of range: {_RANGE}")
    # 18 digits are finer than a nanosecond for every unit.
    digits = fraction[:18]
    part = int(digits) * _UNITS[unit] // 10 ** len(digits) if digits else 0
    return int(whole or "0") * _UNITS[unit] + part


def format_duration(span: timedelta) -> str:
    """Write a span as Go does: `0s`, `2m30s`, `1h0m0s`, `1.5ms`.

    Raises ValueError where Go could not hold it.
    """
    microseconds = span // timedelta(microseconds=1)
    sign, count = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    if count * 1_000 >= _LIMIT:
        raise ValueError(f"{span} is out of range: {_RANGE}")
    if count == 0:
        return "0s"
    if count < 1_000:
        return f"{sign}{count}\u00b5s"
    if count < 1_000_000:
        return f"{sign}{_decimal(count, 1_000)}ms"
    minutes, rest = divmod(count, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, 1_000_000)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(count: int, unit: int) -> str:
    whole, rest = divmod(count, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{str(rest).rjust(len(str(unit)) - 1, '0').rstrip('0')}"


def parse_time(text: str) -> datetime:
    """Parse an RFC 3339 time into UTC; digits below a microsecond are cut off.

    Raises ValueError with a sentence.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{_short(text)} is not an RFC 3339 time such as 2026-01-31T12:00:00Z")
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    microsecond = int((match[7] or "")[:6].ljust(6, "0"))
    try:
        local = datetime(year, month, day, hour, minute, second, microsecond, tzinfo=_zone(match))
        return local.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{_short(text)} is not a time: {error}") from None


def _zone(match: re.Match[str]) -> timezone:
    if match[8] is None:
        return UTC
    hours, minutes = int(match[9]), int(match[10])
    if minutes > 59:
        raise ValueError("the zone's minutes must be in 0..59")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if match[8] == "-" else offset)


def moment(text: str) -> datetime | None:
    """Return an RFC 3339 time, or None."""
    try:
        return parse_time(text)
    except ValueError:
        return None


def created(manifest: Manifest) -> datetime | None:
    """Return when an API server took the object in, by whole seconds; None where it did not."""
    return moment(get_text(manifest, "metadata", "creationTimestamp"))


def format_time(time: datetime) -> str:
    """Write a time as Kubernetes does: RFC 3339 in UTC, whole seconds, `Z`.

    Raises ValueError for a time without a zone, of which nobody knows when it is.
    """
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone")
    return f"{time.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat()}Z"


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}..."

"""Parses and formats times and durations as Kubernetes and Go do. Has no clock.

Spans are `timedelta`s, because they are added to and compared with datetimes, whose resolution
is a microsecond too; what Go writes below that is cut off towards zero.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from reconciler.core.manifest import Manifest, get_text

HONOURED: Final = timedelta(hours=1)  # a confirmation that is about a time, from that time on
SKEW: Final = timedelta(minutes=1)  # so far that time may lie ahead of our clock
_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign, which Go writes
    "\u03bcs": 1_000,  # Greek mu, which Go reads
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,  # people's, not Go's
}
_TERM: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)")
_LIMIT: Final = 1 << 63  # Go counts nanoseconds in an int64
_MAX_LENGTH: Final = 1_000  # of a text: it may come from a foreign object
_LIMIT_DIGITS: Final = 19  # of _LIMIT; longer numbers are not worth converting
_RANGE: Final = "Go durations reach from -2562047h47m16.8s to 2562047h47m16.8s"

_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)


def parse_duration(text: str) -> timedelta:
    """Parse a duration of Go's time.ParseDuration, such as `5m0s`, `-1.5h`, `0`, or days: `30d`.

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
        raise ValueError(
            f"{_short(text)} has the unknown unit {_short(unit)}: use d h m s ms us ns"
        )
    if not term[1] and not fraction:
        raise ValueError(f"{_short(text)} has a unit without a number")
    if len(whole) > _LIMIT_DIGITS:
        raise ValueError(f"{_short(text)} is out of range: {_RANGE}")
    # 18 digits are finer than a nanosecond for every unit.
    digits = fraction[:18]
    part = int(digits) * _UNITS[unit] // 10 ** len(digits) if digits else 0
    return int(whole or "0") * _UNITS[unit] + part


def span(text: str) -> timedelta | None:
    """Return a duration of nothing or more, or None."""
    try:
        found = parse_duration(text)
    except ValueError:
        return None
    return found if found >= timedelta() else None


def format_duration(span: timedelta) -> str:
    """Write a span of whole seconds as Go does: `0s`, `2m30s`, `1h0m0s`."""
    minutes, seconds = divmod(int(span.total_seconds()), 60)
    return re.sub("^0h(0m)?", "", f"{minutes // 60}h{minutes % 60}m{seconds}s")


def people_read(span: timedelta) -> str:
    """Write a span of whole seconds without zeros: `45s`, `10m`, `1h30m`, `30d`."""
    days, rest = divmod(span, timedelta(days=1))
    text = re.sub(r"(?<=[hm])0[ms]", "", format_duration(rest))
    return f"{days}d{text if rest else ''}" if days else text


def age(span: timedelta) -> str:
    """Write a span of nothing or more in its largest unit: `45s`, `12m`, `3h`, `5d`."""
    return re.sub(r"(?<=[a-z]).+", "", people_read(max(span, timedelta())))


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


def is_confirmed(time: datetime | None, now: datetime) -> bool:
    return time is not None and -SKEW <= now - time < HONOURED


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

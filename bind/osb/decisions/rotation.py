"""Decides when a binding gets new credentials, and when the old ones end."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bind.osb.decisions.record import Record
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.times import parse_duration

OVERLAP: Final = timedelta(hours=1)
_LEAST_EVERY: Final = timedelta(minutes=1)
_LEAST_MARGIN: Final = timedelta(minutes=10)
_MARGINS: Final = 10  # in a life
_BACKWARDS: Final = timedelta(hours=1)  # between rotations, where a life ends before it begins


@dataclass(frozen=True, slots=True)
class Terms:
    """A claim's terms of rotation. Without `every` it is due by request and expiry alone."""

    every: timedelta | None
    overlap: timedelta
    request: str


def terms(claim: Manifest) -> Terms:
    """Return what a claim says of rotation; a text that is no time counts as absent."""
    every = _span(get_text(claim, "spec", "rotation", "every"))
    overlap = _span(get_text(claim, "spec", "rotation", "overlap"))
    return Terms(
        max(every, _LEAST_EVERY) if every else None,
        OVERLAP if overlap is None else overlap,
        get_text(claim, "spec", "rotation", "request"),
    )


def _span(text: str) -> timedelta | None:
    try:
        span = parse_duration(text)
    except ValueError:
        return None
    return span if span >= timedelta() else None


def due_at(
    claim: Manifest, current: Record, older: Iterable[Record], now: datetime
) -> datetime | None:
    """Return when the next number is due; None where nothing asks for one.

    By `every`, not before the credentials of the last rotation are gone: a third pair at a broker
    is for those who ask for it, and for what expires.
    """
    wanted = terms(claim)
    if wanted.request and wanted.request != current.asked:
        return now
    older = tuple(older)
    if current.made_at is None or is_repeated(current, older):
        return None
    times = [_before_end(current, current.made_at)]
    if wanted.every is not None:
        leaving = [one.leave_at for one in older if one.leave_at is not None]
        times.append(max([current.made_at + wanted.every, *leaving]))
    return min((time for time in times if time is not None), default=None)


def is_repeated(current: Record, older: Iterable[Record]) -> bool:
    """Tell whether the last rotation gave the credentials that were there before."""
    held = current.sent.secret if current.sent is not None else ""
    return bool(held) and any(one.sent is not None and one.sent.secret == held for one in older)


def _before_end(current: Record, made_at: datetime) -> datetime | None:
    """Return a tenth of a life before its end, 10 minutes at least; half of a very short one."""
    ends_at = current.renew_before or current.expires_at
    if ends_at is None:
        return None
    life = ends_at - made_at
    if life <= timedelta():
        return made_at + _BACKWARDS
    return ends_at - min(max(life / _MARGINS, _LEAST_MARGIN), life / 2)


def leaves_at(claim: Manifest, old: Record, since: datetime) -> datetime:
    """Return when credentials go that were replaced then."""
    end = since + terms(claim).overlap
    return end if old.expires_at is None else max(min(end, old.expires_at), since)


def next_timer(times: Iterable[datetime], now: datetime) -> timedelta | None:
    """Return how long it is to the first of these times that is to come."""
    coming = [time - now for time in times if time > now]
    return min(coming, default=None)

"""Decides how long an object rests after another manager changed it back often. Pure.

An object that was repaired that often within a window, always with the same differences, rests for
the length of the window, then twice as long each time, up to a day. Otherwise both sides would
write for ever. The counts are in memory only, and a new process begins at zero.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from reconciler.apply import Report, Status
from reconciler.core import keys
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest, canonical, get_maps, get_text
from reconciler.core.refs import Ref
from reconciler.core.times import span
from reconciler.planning.changes import Action, Change, Plan, Tripped
from reconciler.planning.planfile import identified
from reconciler.watch.fleet_state import Storm

GUARD: Final = "storm"
_LONGEST: Final = timedelta(hours=24)
_REPAIRS: Final = frozenset({Action.CREATE, Action.UPDATE, Action.REPLACE})
_OURS: Final = frozenset({keys.MANAGER_CLI, keys.MANAGER_NOTES})
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}")


@dataclass(frozen=True, slots=True)
class Terms:
    """So many repairs by the same differences within `window` make a storm."""

    repairs: int = 3
    window: timedelta = timedelta(hours=1)


def parse_terms(text: str) -> Terms:
    """Read `3/1h`. Raises ConfigError."""
    repairs, _, time = text.partition("/")
    window = span(time)
    if not (window and _NUMBER.fullmatch(repairs)):
        raise ConfigError(f"{text!r} is not REPAIRS/TIME, such as 3/1h", where="--storm")
    if window > _LONGEST:
        raise ConfigError(f"{text!r} is about more than 24h", where="--storm")
    return Terms(int(repairs), window)


@dataclass(frozen=True, slots=True)
class Flips:
    """The repairs of one object, all by the same differences.

    `recent` are times since it last rested, of `total`; `rests` counts how often it rested, last
    until `until`. `manager` is the other one, as far as it is known.
    """

    cluster: str
    differences: bytes
    recent: tuple[datetime, ...] = ()
    total: int = 0
    rests: int = 0
    until: datetime | None = None
    manager: str = ""


@dataclass(frozen=True, slots=True)
class Storms:
    """All that is known of objects that are repaired again and again."""

    flips: Mapping[Ref, Flips] = field(default_factory=dict)

    def resting(self, now: datetime) -> tuple[Storm, ...]:
        return tuple(
            Storm(
                cluster=one.cluster,
                object=str(ref.object),
                manager=one.manager,
                repairs=one.total,
                until=one.until,
            )
            for ref, one in sorted(self.flips.items())
            if one.until is not None and one.until > now
        )

    def named(self, managers: Mapping[Ref, str]) -> "Storms":
        """Return the same, with the other manager of some objects."""
        return Storms(
            {
                ref: replace(one, manager=managers.get(ref, one.manager))
                for ref, one in self.flips.items()
            }
        )


@dataclass(frozen=True, slots=True)
class Calmed:
    """A plan whose lines of storms are held. `begun` are objects that rest from now on."""

    plan: Plan
    storms: Storms
    begun: tuple[Ref, ...]


def calmed(storms: Storms, plan: Plan, *, now: datetime, terms: Terms) -> Calmed:
    """Hold back the lines of a plan that would repair a storm that rests."""
    flips = {
        ref: one
        for ref, one in storms.flips.items()
        if now - max([*one.recent, *([one.until] if one.until else [])]) <= terms.window
    }
    begun: list[Ref] = []
    resting: list[Tripped] = []
    changes: list[Change] = []
    for change in plan.changes:
        known = flips.get(change.ref) if _is_repair(change) else None
        if known is not None and known.differences == _differences(change):
            if _begins(known, now, terms):
                rest = min(_LONGEST, terms.window * 2 ** min(known.rests, 20))
                known = replace(known, recent=(), rests=known.rests + 1, until=now + rest)
                flips[change.ref] = known
                begun.append(change.ref)
            if known.until is not None and known.until > now:
                resting.append(_storm(change, known))
                change = replace(change, held=(*change.held, GUARD))
        changes.append(change)
    if resting:
        plan = identified(replace(plan, changes=tuple(changes), held=(*plan.held, *resting)))
    return Calmed(plan, Storms(flips), tuple(begun))


def repaired(storms: Storms, report: Report, *, now: datetime) -> Storms:
    """Return the storms after a round that ended at `now`."""
    flips = dict(storms.flips)
    for outcome in report.outcomes:
        change = outcome.change
        if outcome.status is not Status.DONE or not _is_repair(change):
            continue
        differences, known = _differences(change), flips.get(change.ref)
        if known is None or known.differences != differences:
            known = Flips(change.cluster, differences)
        flips[change.ref] = replace(known, recent=(*known.recent, now), total=known.total + 1)
    return Storms(flips)


def other_manager(live: Manifest | None) -> str:
    """Return the last other manager of an object, "" where that is unknown."""
    entries = get_maps(live or {}, "metadata", "managedFields")
    others = [one for one in entries if get_text(one, "manager") not in _OURS]
    last = max(others, key=lambda one: get_text(one, "time"), default={})
    return get_text(last, "manager")


def _is_repair(change: Change) -> bool:
    return change.action in _REPAIRS and change.acts and not change.only_notes


def _differences(change: Change) -> bytes:
    fields = [[one.path, one.before, one.after] for one in change.fields]
    return canonical({"action": change.action.value, "fields": fields})


def _begins(one: Flips, now: datetime, terms: Terms) -> bool:
    """Return whether it has to rest from now on: at once where it went on after a rest."""
    if one.until is not None and one.until > now:
        return False
    recent = [time for time in one.recent if now - time <= terms.window]
    return len(recent) >= (1 if one.rests else terms.repairs)


def _storm(change: Change, one: Flips) -> Tripped:
    by = f" by {one.manager}" if one.manager else ""
    assert one.until is not None
    return Tripped(
        GUARD,
        f"{change.ref.object} was changed back{by} after each of {one.total} repairs; it is left "
        f"alone until {one.until:%Y-%m-%d %H:%M:%S} UTC",
        (change.cluster,),
    )

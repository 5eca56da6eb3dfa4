"""Remembers how units were, where a later look could not read them.

Pure. What cannot be read is neither gone nor well: it is as it was when it was last read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from reconciler.core.live import control_plane_ref_name
from reconciler.fleet.values import UnitKey
from reconciler.health.board import Board, BoundUnit, ClusterHealth, ordered
from reconciler.health.verdict import State, UnitHealth


def remembering(before: Board, after: Board) -> Board:
    """Return `after`, where what could not be read shows how it was `before`, and when that was.

    What cannot be read is neither gone nor well: it is as it was when it was last read. Also units
    that are not in the files: only what is read tells that those are there.
    """
    known = {one.health.unit: one.health for one in before.units}
    clusters = {one.name: one for one in after.clusters}
    for unseen in _unseen(before, after):
        there = clusters.get(unseen.name, unseen)
        units = {one.health.unit: one for one in (*there.units, *unseen.units)}
        clusters[unseen.name] = replace(there, units=ordered(units.values()))
    remembered = (
        replace(one, units=tuple(_remembering(unit, known, before.time) for unit in one.units))
        for _, one in sorted(clusters.items())
    )
    return replace(after, clusters=tuple(remembered))


def _unseen(before: Board, after: Board) -> Iterator[ClusterHealth]:
    """Yield clusters with those of their units that nobody could see now: they may be there."""
    there = {one.health.unit for one in after.units}
    reasons = {one.name: one.reason for one in after.unread}
    for cluster in before.clusters:
        places = (cluster.name, control_plane_ref_name(cluster.control_plane))
        why = next((reasons[one] for one in places if one in reasons), None)
        if why is None:
            continue
        units = tuple(
            replace(one, health=UnitHealth(one.health.unit, State.UNKNOWN, "NotRead", why))
            for one in cluster.units
            if one.leaving and one.health.unit not in there
        )
        if units:
            yield replace(cluster, units=units, state=State.UNKNOWN, message=why, since=None)


def _remembering(one: BoundUnit, known: Mapping[UnitKey, UnitHealth], time: datetime) -> BoundUnit:
    last = known.get(one.health.unit)
    if last is None:
        return one
    if not one.health.exact:
        return replace(one, health=_narrowed(one.health, last, time))
    if one.health.state is not State.UNKNOWN or one.health.last_known:
        return one
    if last.state is State.UNKNOWN:
        kept = replace(one.health, last_known=last.last_known, since=last.since)
    else:
        kept = replace(one.health, last_known=last.state, since=time)
    return replace(one, health=kept)


def _narrowed(health: UnitHealth, last: UnitHealth, time: datetime) -> UnitHealth:
    """Say what the look before tells of a beginning that nothing else tells.

    What was otherwise then began after it; what was so already began when was said then.
    """
    if last.state is State.UNKNOWN:
        # Of what was so before, only the state is known, and not whether it had this reason.
        began = None if last.last_known in (None, health.state) else last.since
    else:
        began = last.since if last.reason == health.reason else time
    known = [each for each in (health.since, began) if each is not None]
    return replace(health, since=max(known))

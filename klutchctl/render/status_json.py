"""A board for programs: one versioned document, or an event a line."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from klutchctl.render import status_rows
from reconciler.core.durations import format_time
from reconciler.core.manifest import JSON
from reconciler.health.board import Board, Bound, ClusterHealth

FORMAT: Final = "klutchctl.dev/status"
VERSION: Final = "1.1"


def render(board: Board) -> str:
    """Return one JSON object and a newline. A new minor version adds fields, a major breaks."""
    document: dict[str, JSON] = {
        "format": FORMAT,
        "version": VERSION,
        "time": format_time(board.time),
        "fleet": board.fleet,
        "revision": board.revision,
        "clusters": [_cluster(one) for one in board.clusters],
        "unread": [
            {"name": one.name, "reason": one.reason, "remedy": one.remedy} for one in board.unread
        ],
        "summary": _summary(board),
    }
    return json.dumps(document, indent=2) + "\n"


def events(board: Board, *, changed: Iterable[tuple[ClusterHealth, Bound]] | None = None) -> str:
    """Return a line for every unit, or for those that changed, and one with the counts."""
    pairs = (
        ((cluster, one) for cluster in board.clusters for one in cluster.units)
        if changed is None
        else changed
    )
    time = format_time(board.time)
    lines: list[Mapping[str, JSON]] = [
        {"event": "unit", "time": time, "cluster": cluster.name, **_unit(one)}
        for cluster, one in pairs
    ]
    if changed is None or lines:
        lines.append({"event": "summary", "time": time, **_summary(board)})
    return "".join(json.dumps(line) + "\n" for line in lines)


def _cluster(one: ClusterHealth) -> dict[str, JSON]:
    return {
        "name": one.name,
        "controlPlane": one.control_plane,
        "state": one.state,
        "message": one.message,
        "since": _time(one.since),
        "units": [_unit(each) for each in one.units],
    }


def _unit(one: Bound) -> dict[str, JSON]:
    health = one.health
    return {
        "binding": one.binding,
        "group": health.unit.group,
        "resource": health.unit.resource,
        "state": health.state,
        "reason": health.reason,
        "message": health.message,
        "since": _time(health.since),
        "sinceExact": health.exact,
        "lastKnown": health.last_known,
        "leaving": one.leaving,
    }


def _summary(board: Board) -> dict[str, JSON]:
    found = {state.value: count for state, count in status_rows.counts(board).items()}
    return {**found, "unread": len(board.unread)}


def _time(time: datetime | None) -> str | None:
    return None if time is None else format_time(time)

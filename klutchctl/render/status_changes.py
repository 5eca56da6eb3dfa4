"""What changed between two looks at a fleet: a line each, for a log. Pure."""

from collections.abc import Iterator

from klutchctl.render.visible import visible
from reconciler.core.durations import format_time
from reconciler.health.board import Board, Bound, ClusterHealth


def changed(before: Board, after: Board) -> Iterator[tuple[ClusterHealth, Bound]]:
    """Yield the units whose state or reason is another than before, or that are new."""
    known = {one.health.unit: one.health for one in before.units}
    for cluster in after.clusters:
        for one in cluster.units:
            last = known.get(one.health.unit)
            now = one.health
            if last is None or (last.state, last.reason) != (now.state, now.reason):
                yield cluster, one


def lines(before: Board, after: Board) -> str:
    """Return a line for every change, "" where there is none."""
    known = {one.health.unit: one.health for one in before.units}
    time, text = format_time(after.time), ""
    for _, one in changed(before, after):
        last = known.get(one.health.unit)
        came = f"{last.state} -> {one.health.state}" if last else f"new: {one.health.state}"
        why = f": {one.health.reason}: {one.health.message}" if one.health.reason else ""
        text += f"{time} {visible(str(one.health.unit))}: {came}{visible(why)}\n"
    gone = known.keys() - {one.health.unit for one in after.units}
    for unit in sorted(gone):
        text += f"{time} {visible(str(unit))}: gone\n"
    return text

"""The plan of a fleet against its clusters as they are now, for every command that needs one."""

import time
from typing import TYPE_CHECKING

from klutchctl import reach
from klutchctl.reach import Reach

if TYPE_CHECKING:
    from reconciler.fleet.values import Fleet
    from reconciler.observe import Clusters
    from reconciler.planning.changes import Plan


async def made(
    fleet: "Fleet", clusters: "Clusters", how: Reach, *, only: frozenset[str] | None
) -> "tuple[Plan, float]":
    """Read the clusters, and what planning asks beyond the usual; return how long that took."""
    from reconciler.observe import answer, observe
    from reconciler.planning import planner

    pace = reach.pace(how)
    began = time.monotonic()
    live = await observe(fleet, clusters, only=only, pace=pace)
    read = time.monotonic()
    decided = planner.decide(fleet, live, only=only)
    if not (decided.questions.in_use or decided.questions.bodies):
        return decided.plan, read - began
    live = await answer(fleet, live, clusters, decided.questions, pace=pace)
    return planner.plan(fleet, live, only=only), time.monotonic() - began

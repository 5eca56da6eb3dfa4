"""Runs the steps from files and clusters to a plan: observe, decide, answer, plan.

Every command that plans does so here, and an apply once more under its lock.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass, replace

from reconciler.controller import tracing
from reconciler.core.live import Live
from reconciler.fleet.values import Fleet
from reconciler.observe import Clusters, Pace, answer, observe
from reconciler.planning import planner
from reconciler.planning.changes import Plan


@dataclass(frozen=True, slots=True)
class Look:
    """The live state at one moment, the answers to the questions of planning, and the plan.

    `seconds` is how long reading took.
    """

    live: Live
    plan: Plan
    seconds: float = 0.0


async def look(
    fleet: Fleet,
    clusters: Clusters,
    *,
    only: Collection[str] | None,
    pace: Pace,
    credentials: bool = False,
) -> Look:
    """Read all app clusters of a fleet, or `only` some, and plan them.

    `credentials`: the caller may read the Secrets with kubeconfigs, as an apply does.
    """
    began = time.monotonic()
    with tracing.span("read"):
        live = await observe(
            fleet, clusters, only=only, in_part=True, credentials=credentials, pace=pace
        )
    seconds = time.monotonic() - began
    with tracing.span("plan"):
        found = await plan(fleet, live, clusters, only=only, pace=pace)
    return replace(found, seconds=seconds + found.seconds)


async def plan(
    fleet: Fleet, live: Live, clusters: Clusters, *, only: Collection[str] | None, pace: Pace
) -> Look:
    """Plan a fleet against the known live state, and read the missing parts."""
    decided = planner.decide(fleet, live, only=only)
    if not (decided.questions.in_use or decided.questions.bodies):
        return Look(live, decided.plan)
    began = time.monotonic()
    live = await answer(fleet, live, clusters, decided.questions, pace=pace)
    seconds = time.monotonic() - began
    return Look(live, planner.plan(fleet, live, only=only), seconds)

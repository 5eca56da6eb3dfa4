"""One look at a fleet: its documents, what is live, and the plan that these make."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from klutchctl.cluster_options import ClusterOptions

if TYPE_CHECKING:
    from reconciler.core.live import Live
    from reconciler.core.problems import Problem
    from reconciler.core.tree import Tree
    from reconciler.fleet.load import Loaded
    from reconciler.fleet.values import Fleet
    from reconciler.observe import Clusters
    from reconciler.planning.changes import Plan


@dataclass(frozen=True, slots=True)
class Look:
    """What was live at one moment, with the answers to all that planning asked, and its plan.

    `seconds` is how long reading took.
    """

    live: "Live"
    plan: "Plan"
    seconds: float = 0.0


async def look(
    fleet: "Fleet",
    clusters: "Clusters",
    options: ClusterOptions,
    *,
    only: Collection[str] | None,
    credentials: bool = False,
) -> Look:
    """Read all app clusters of a fleet, or `only` some, and plan them.

    `credentials`: whoever asks may read the Secrets with kubeconfigs, as an apply does.
    """
    from reconciler.observe import observe

    began = time.monotonic()
    live = await observe(
        fleet, clusters, only=only, in_part=True, credentials=credentials, pace=options.pace()
    )
    seconds = time.monotonic() - began
    found = await planned(fleet, live, clusters, options, only=only)
    return replace(found, seconds=seconds + found.seconds)


async def planned(
    fleet: "Fleet",
    live: "Live",
    clusters: "Clusters",
    options: ClusterOptions,
    *,
    only: Collection[str] | None,
) -> Look:
    """Plan a fleet against what is known to be live, and ask for what is missing for that."""
    from reconciler.observe import answer
    from reconciler.planning import planner

    decided = planner.decide(fleet, live, only=only)
    if not (decided.questions.in_use or decided.questions.bodies):
        return Look(live, decided.plan)
    began = time.monotonic()
    live = await answer(fleet, live, clusters, decided.questions, pace=options.pace())
    seconds = time.monotonic() - began
    return Look(live, planner.plan(fleet, live, only=only), seconds)


def documents(tree: "Tree") -> "Loaded":
    """Return a fleet with its documents. Raises InvalidRepository."""
    from reconciler.core.problems import InvalidRepository

    loaded, denied = documents_with_denials(tree)
    if denied:
        raise InvalidRepository(denied)
    return loaded


def documents_with_denials(tree: "Tree") -> "tuple[Loaded, Sequence[Problem]]":
    """Return a fleet with its documents, and what Policies deny. Raises InvalidRepository."""
    from reconciler.core.problems import InvalidRepository, Problem, Severity
    from reconciler.fleet.load import load_what_is_right

    problems: list[Problem] = []
    loaded = load_what_is_right(tree, problems)
    if loaded is None or any(one.severity is Severity.INVALID for one in problems):
        raise InvalidRepository(problems)
    return loaded, [one for one in problems if one.severity is Severity.DENIED]

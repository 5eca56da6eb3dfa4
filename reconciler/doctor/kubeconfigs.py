"""Finds kubeconfigs between control planes and app clusters that an apply would write anew."""

from collections.abc import Collection, Iterator

from reconciler import run
from reconciler.core.refs import SECRET
from reconciler.doctor.diagnosis import Check, Finding, Level
from reconciler.doctor.rights import Task
from reconciler.fleet.values import Fleet
from reconciler.observe import Clusters, Pace
from reconciler.planning.changes import Action, Plan
from reconciler.planning.clusters import is_new_address


async def findings(
    fleet: Fleet, clusters: Clusters, names: Collection[str], *, task: Task, pace: Pace
) -> dict[str, list[Finding]]:
    """Return what a plan says of kubeconfigs that are there, by the app clusters of these names.

    Who only plans knows of Secrets what is noted of them. Nothing is said of what was not read.
    """
    if not names:
        return {}
    credentials = task is Task.APPLY
    look = await run.look(fleet, clusters, only=names, pace=pace, credentials=credentials)
    found: dict[str, list[Finding]] = {}
    for name, finding in _findings(look.plan):
        found.setdefault(name, []).append(finding)
    return found


def _findings(plan: Plan) -> Iterator[tuple[str, Finding]]:
    for change in plan.changes:
        kubeconfig = change.wanted is not None and change.wanted.kubeconfig is not None
        if change.action is Action.UPDATE and change.ref.kind == SECRET and kubeconfig:
            # It works until the old address is taken away.
            level = Level.WARNING if is_new_address(change.fields) else Level.PROBLEM
            message = f"{change.ref.object}: {change.reason}"
            yield change.cluster, Finding(Check.KUBECONFIGS, level, message, "Run klutchctl apply")

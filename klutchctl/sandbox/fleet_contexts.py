"""Which clusters stand in for those of a fleet: one per kubeconfig context that it names."""

from collections.abc import Iterator

from klutchctl.sandbox.state import Role, Wanted
from reconciler.core.problems import InvalidRepository, Problem
from reconciler.fleet.values import AppCluster, ControlPlane, Fleet


def of(fleet: Fleet) -> tuple[Wanted, ...]:
    """Return the clusters of a fleet, control planes first.

    Raises InvalidRepository, with all such places, where a sandbox cannot stand in.
    """
    problems = list(_problems(fleet))
    if problems:
        raise InvalidRepository(problems)
    return tuple(Wanted(one.access.context, role) for one, role in _members(fleet))


def _members(fleet: Fleet) -> Iterator[tuple[ControlPlane | AppCluster, Role]]:
    for plane in fleet.control_planes.values():
        yield plane, Role.CONTROL_PLANE
    for cluster in fleet.clusters.values():
        yield cluster, Role.APP_CLUSTER


def _problems(fleet: Fleet) -> Iterator[Problem]:
    holders: dict[str, str] = {}
    for one, _ in _members(fleet):
        context = one.access.context
        if not context:
            message = f"{one.name} is not reached by a kubeconfig context"
            hint = "A sandbox stands in only for clusters with spec.access.kubeconfigContext"
            yield Problem(one.origin, "no-context", message, hint)
        elif context in holders:
            message = f"the context {context!r} is that of {holders[context]} already"
            yield Problem(one.origin, "duplicate-context", message)
        holders[context] = one.name
    if not fleet.control_planes:
        yield Problem(fleet.origin, "no-control-plane", "the fleet has no ControlPlane document")

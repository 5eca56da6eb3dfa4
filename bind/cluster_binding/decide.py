"""Decides the status of a ClusterBinding, and the rights of its konnector. Pure.

protocol-bind.md A.10, B.5, C.1, corrected by F1, F2, F3, F21 and F41. Rights follow the exports of
the space and their permission claims. The acceptance of a claim is in the app cluster, so a right
in the space's own service namespaces does not wait for it. Does not know where exports come from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from bind import rbac_changes
from bind.bounds import (
    NONE_COUNTED,
    UNBOUNDED,
    Bounds,
    Countable,
    hard,
    is_space,
    pod_security,
    quota,
)
from reconciler.api import Liveness, heartbeat_of, liveness
from reconciler.blueprints import rbac
from reconciler.blueprints.export import Scope
from reconciler.core import conditions
from reconciler.core.conditions import Cause, Condition
from reconciler.core.decision import NOTHING, Decision, Step, Task, deletion
from reconciler.core.manifest import Manifest, is_deleting, name_of
from reconciler.core.refs import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING
from reconciler.core.times import format_time, people_read

# A heartbeat may be this far in the future before the clocks count as different (F2).
DRIFT: Final = timedelta(seconds=10)

# The heartbeat of a space as metrics show it. One from the future is no sign of life.
_HEARD: Final = {
    Liveness.NEVER: "pending",
    Liveness.ALIVE: "connected",
    Liveness.SILENT: "silent",
    Liveness.AHEAD: "silent",
}
_LEAVING: Final = "deleting"
STATES: Final = frozenset({*_HEARD.values(), _LEAVING})

# Why an app namespace has no service namespace, with the sentence about it.
Obstacle: TypeAlias = tuple[Cause, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """All that concerns one ClusterBinding; each object whole, None where it is not there.

    `space` is the Namespace that the binding lies in, `exports` are those in it. The three RBAC
    objects are those of the names that B.5 gives, `quota` is ours in the space, and
    `counted` of bounds.IN_SPACE. `obstacles` are
    what `service_namespace.obstacle` returns for the app namespaces of the space. `cluster` names
    the control plane in a Ref.
    An event of any of these is to wake this decision, the Namespace's too: without it no rights
    can be given, and nothing else brings them later.
    """

    cluster: str
    binding: Manifest = field(repr=False)
    space: Manifest | None = field(default=None, repr=False)
    exports: Sequence[Manifest] = field(default=(), repr=False)
    role_binding: Manifest | None = field(default=None, repr=False)
    cluster_role: Manifest | None = field(default=None, repr=False)
    cluster_role_binding: Manifest | None = field(default=None, repr=False)
    quota: Manifest | None = field(default=None, repr=False)
    counted: Countable = NONE_COUNTED
    obstacles: Sequence[Obstacle] = ()


def decide(seen: Seen, *, scope: Scope, now: datetime, bounds: Bounds = UNBOUNDED) -> Decision:
    """Return the rights and bounds that are to be written, and the conditions.

    `again` is when Healthy changes unless a beat comes. In any scope but `Cluster` the
    ClusterRoleBinding is taken away before anything else, and never made (F1). Only objects that
    the space's Namespace owns, by its uid, are touched.
    """
    if is_deleting(seen.binding):
        return NOTHING
    healthy, again = _health(seen.binding, now)
    reported = [
        healthy,
        *_permissions(seen),
        *conditions.mended(seen.binding, conditions.SPACE_BOUNDED),
        *_service_namespaces(seen),
    ]
    tasks = (*_tasks(seen, scope), *_bounds(seen, bounds))
    waits = [one for one in (again, seen.counted.again) if one is not None]
    return Decision(tasks=tasks, conditions=tuple(reported), again=min(waits, default=None))


def state_of(binding: Manifest, now: datetime) -> str:
    if is_deleting(binding):
        return _LEAVING
    beat = heartbeat_of(binding)
    timeout = timedelta() if beat is None else beat.timeout
    return _HEARD[liveness(beat, now, timeout=timeout, ahead=DRIFT)]


def _health(binding: Manifest, now: datetime) -> tuple[Condition, timedelta | None]:
    beat = heartbeat_of(binding)
    if beat is None:
        pending = conditions.false(
            conditions.FIRST_HEARTBEAT_PENDING, "Waiting for first heartbeat"
        )
        return pending, None
    if beat.interval is None:
        message = "The konnector reports no heartbeat interval"
        return conditions.false(conditions.HEARTBEAT_INTERVAL_MISSING, message), None
    time, age = format_time(beat.time), now - beat.time
    longest = beat.timeout - timedelta.resolution  # to the second, it is too old already (F3)
    match liveness(beat, now, timeout=longest, ahead=DRIFT):
        case Liveness.AHEAD:
            message = (
                f"The last heartbeat is of {time}, which is more than "
                f"{people_read(DRIFT)} ahead of the control plane's clock"
            )
            return conditions.false(conditions.HEARTBEAT_TIME_DRIFT, message), -DRIFT - age
        case Liveness.SILENT:
            due = people_read(beat.interval)
            message = f"No heartbeat since {time}; one is due every {due}"
            return conditions.false(conditions.HEARTBEAT_TIMEOUT, message), None
    return conditions.true(conditions.HEALTHY), beat.timeout - age


def _tasks(seen: Seen, scope: Scope) -> tuple[Task, ...]:
    space = seen.space
    if space is None:
        return ()
    plans = [] if scope == "Cluster" else [_revoked(seen, space)]
    if not is_deleting(space):  # nothing can be created in it, and its objects go with it
        wanted = rbac.binding_in_space(name_of(space))
        plans.append(
            rbac_changes.role_binding(seen.cluster, ROLE_BINDING, seen.role_binding, wanted)
        )
        plans.append(_granted(seen, space, scope))
    return tuple(Task(steps, conditions.PERMISSIONS_UPDATE_FAILED) for steps in plans if steps)


def _bounds(seen: Seen, bounds: Bounds) -> tuple[Task, ...]:
    space = seen.space
    if space is None or is_deleting(space) or not is_space(space, seen.binding):
        return ()
    plans = [
        pod_security(seen.cluster, space) if bounds.restricted else (),
        quota(seen.cluster, seen.quota, name_of(space), hard(bounds.in_space, seen.counted)),
    ]
    return tuple(Task(steps, conditions.BOUNDS_UPDATE_FAILED) for steps in plans if steps)


def _revoked(seen: Seen, space: Manifest) -> tuple[Step, ...]:
    live = seen.cluster_role_binding
    if live is None or is_deleting(live) or not rbac_changes.belongs_to(live, space):
        return ()
    return (deletion(seen.cluster, CLUSTER_ROLE_BINDING, live),)


def _granted(seen: Seen, space: Manifest, scope: Scope) -> tuple[Step, ...]:
    role = seen.cluster_role
    if role is not None and not rbac_changes.belongs_to(role, space):
        return ()
    wanted = rbac.space_role(space, seen.exports)
    steps = rbac_changes.role(seen.cluster, CLUSTER_ROLE, role, wanted)
    live = seen.cluster_role_binding
    if scope != "Cluster" or (live is not None and not rbac_changes.belongs_to(live, space)):
        return steps
    binding = rbac.binding_everywhere(space)
    return (*steps, *rbac_changes.role_binding(seen.cluster, CLUSTER_ROLE_BINDING, live, binding))


def _permissions(seen: Seen) -> Sequence[Condition]:
    if seen.space is None:
        return ()
    rivals = ((CLUSTER_ROLE, seen.cluster_role), (CLUSTER_ROLE_BINDING, seen.cluster_role_binding))
    for kind, live in rivals:
        if live is not None and not rbac_changes.belongs_to(live, seen.space):
            message = (
                f"{kind} {name_of(live)} does not belong to this Namespace, so it is left alone; "
                "the rights of the konnector need its name"
            )
            return [conditions.false(conditions.PERMISSIONS_FOREIGN, message)]
    return conditions.mended(seen.binding, conditions.PERMISSIONS_GRANTED)


def _service_namespaces(seen: Seen) -> Sequence[Condition]:
    if not seen.obstacles:
        return conditions.mended(seen.binding, conditions.SERVICE_NAMESPACES_READY)
    cause, message = min(seen.obstacles, key=lambda one: (one[0].reason, one[1]))
    more = len(seen.obstacles) - 1
    return [conditions.false(cause, message + (f" (and {more} more)" if more else ""))]

"""The one ClusterRole of all konnectors in their binding spaces (protocol-bind.md B.5)."""

from datetime import timedelta

from bind import ever_exported, granting
from bind.controllers.acting import Acting, Queue
from bind.world import GRANTED, NAME, World
from reconciler.blueprints import rbac
from reconciler.core import names
from reconciler.core.decision import Decision, Task
from reconciler.core.refs import CLUSTER_ROLE


class BinderRole:
    """Keeps ClusterRole klutch-binder as it has to be, and its note of what was ever exported.

    It has one key, the role's name.
    """

    def __init__(self, world: World, acting: Acting) -> None:
        self._world, self._acting = world, acting
        self._granted = set[str]()  # resources, since this process runs

    def subscribe(self, queue: Queue) -> None:
        """Have the role looked at now, whenever it changes, and when more is exported."""

        def changed(name: str) -> None:
            if name == names.BINDER:
                queue.enqueue(name)

        def granted(resource: str) -> None:
            if resource not in self._granted:
                self._granted.add(resource)
                queue.enqueue(names.BINDER)

        self._queue = queue
        self._world.cluster_roles.subscribe(NAME, changed)
        self._world.exports.subscribe(GRANTED, granted)
        queue.enqueue(names.BINDER)

    async def reconcile(self, name: str) -> timedelta | None:
        """Look at the role, and do what follows. Raises ClusterErrors."""
        wanted = rbac.binder_role()
        roles = self._world.recent(self._world.cluster_roles)
        live = roles.get("", name)
        cluster = self._world.cluster.name
        # One of them at a time: each is a patch of exactly what was seen.
        steps = granting.role(cluster, CLUSTER_ROLE, live, wanted) or ever_exported.note(
            cluster, live, self._granted
        )
        decision = Decision(tasks=(Task(steps),) if steps else ())
        return await self._acting.carry_out(live or wanted, roles, decision)

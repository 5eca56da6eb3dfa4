"""The one ClusterRole of all konnectors in their binding spaces (protocol-bind.md B.5)."""

from datetime import timedelta

from bind import granting
from bind.controllers.acting import Acting, Queue
from bind.world import NAME, World
from reconciler.blueprints import access
from reconciler.core import names
from reconciler.core.decision import Decision, Task
from reconciler.core.refs import CLUSTER_ROLE


class BinderRole:
    """Keeps ClusterRole klutch-binder as it has to be. It has one key, the role's name."""

    def __init__(self, world: World, acting: Acting) -> None:
        self._world, self._acting = world, acting

    def subscribe(self, queue: Queue) -> None:
        """Have the role looked at now, and whenever it changes."""

        def changed(name: str) -> None:
            if name == names.BINDER:
                queue.add(name)

        self._queue = queue
        self._world.cluster_roles.subscribe(NAME, changed)
        queue.add(names.BINDER)

    async def reconcile(self, name: str) -> timedelta | None:
        """Look at the role, and do what follows. Raises ClusterErrors."""
        wanted = access.binder_role()
        live = self._world.cluster_roles.get("", name)
        steps = granting.role(self._world.cluster.name, CLUSTER_ROLE, live, wanted)
        decision = Decision(tasks=(Task(steps),) if steps else ())
        return await self._acting.carry_out(
            name, live or wanted, CLUSTER_ROLE, decision, queue=self._queue
        )

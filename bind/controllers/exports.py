"""Exports that follow their CRD and template. A key is `namespace/name` of one."""

from datetime import timedelta

from bind import export
from bind.controllers.acting import Acting, Queue
from bind.controllers.waking import Waker
from bind.world import NAME, RESOURCE, SELF, World
from reconciler.blueprints.export import Isolation


class Exports:
    """The controller `serviceexport` of protocol-bind.md C.3."""

    def __init__(
        self, world: World, acting: Acting, *, isolation: Isolation, grace: timedelta
    ) -> None:
        self._world, self._acting = world, acting
        self._isolation, self._grace = isolation, grace

    def subscribe(self, queue: Queue) -> None:
        """Have the keys added that a change concerns."""
        world, self._queue = self._world, queue
        world.exports.subscribe(SELF, queue.enqueue)
        world.crds.subscribe(NAME, Waker(world.exports, NAME, queue))
        world.templates.subscribe(RESOURCE, Waker(world.exports, NAME, queue))

    async def reconcile(self, key: str) -> timedelta | None:
        """Look at one export, and do what follows. Raises ClusterErrors."""
        namespace, _, name = key.partition("/")
        world = self._world
        exports = world.recent(world.exports)
        live = exports.get(namespace, name)
        if live is None:
            return None
        seen = export.Seen(
            world.cluster.name,
            live,
            crd=await world.crd(name),
            template=world.template(name),
            unsure=world.trouble(world.crds, world.templates),
        )
        decision = export.decide(
            seen, isolation=self._isolation, grace=self._grace, now=self._acting.now()
        )
        return await self._acting.carry_out(live, exports, decision)

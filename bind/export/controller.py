"""Exports that follow their CRD and template, by their places."""

from datetime import datetime, timedelta

from bind.export import decide
from bind.export.decide import Seen
from bind.informers import NAME, RESOURCE, World
from reconciler.blueprints.export import Isolation
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.controller.reconciler import ObjectReconciler, Queue, enqueue_mapped
from reconciler.core.decision import Decision
from reconciler.core.refs import ObjectKey


class Exports(ObjectReconciler[ObjectKey, Seen]):
    """The controller `serviceexport` of protocol-bind.md C.3."""

    def __init__(
        self, world: World, executor: Executor, *, isolation: Isolation, grace: timedelta
    ) -> None:
        self._exports = world.recent(world.exports)
        super().__init__(executor, self._exports)
        self._world, self._isolation, self._grace = world, isolation, grace

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        world = self._world
        by_name = enqueue_mapped(queue, world.exports, NAME)
        world.exports.subscribe_keys(queue.enqueue)
        world.crds.subscribe(NAME, by_name)
        world.templates.subscribe(RESOURCE, by_name)

    async def look(self, key: ObjectKey) -> tuple[Observed, Seen] | None:
        """Return one export and all that concerns it. Raises ClusterErrors."""
        world, live = self._world, self._exports.get(*key)
        if live is None:
            return None
        seen = Seen(
            world.cluster.name,
            live,
            crd=await world.crd(key.name),
            template=world.template(key.name),
            unsure=world.trouble(world.crds, world.templates),
        )
        return observed(self._exports, live), seen

    def decide(self, view: Seen, now: datetime) -> Decision:
        """Return what follows."""
        return decide.decide(view, isolation=self._isolation, grace=self._grace, now=now)

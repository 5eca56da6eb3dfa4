"""Exports that follow their CRD and template, by their places."""

from datetime import datetime, timedelta

from bind.export import decide
from bind.export.decide import Seen
from bind.informers import NAME, RESOURCE, Informers
from reconciler.blueprints.export import Isolation
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.controller.reconciler import ObjectReconciler, Queue, enqueue_mapped
from reconciler.core.decision import Decision
from reconciler.core.refs import ObjectKey


class Exports(ObjectReconciler[ObjectKey, Seen]):
    """The controller `serviceexport` of protocol-bind.md C.3."""

    def __init__(
        self, informers: Informers, executor: Executor, *, isolation: Isolation, grace: timedelta
    ) -> None:
        self._exports = informers.recent(informers.exports)
        super().__init__(executor, self._exports)
        self._informers, self._isolation, self._grace = informers, isolation, grace

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        informers = self._informers
        by_name = enqueue_mapped(queue, informers.exports, NAME)
        informers.exports.subscribe_keys(queue.enqueue)
        informers.crds.subscribe(NAME, by_name)
        informers.templates.subscribe(RESOURCE, by_name)

    async def look(self, key: ObjectKey) -> tuple[Observed, Seen] | None:
        """Return one export and all that concerns it. Raises ClusterErrors."""
        informers, live = self._informers, self._exports.get(*key)
        if live is None:
            return None
        seen = Seen(
            informers.cluster.name,
            live,
            crd=await informers.crd(key.name),
            template=informers.template(key.name),
            unsure=informers.trouble(informers.crds, informers.templates),
        )
        return observed(self._exports, live), seen

    def decide(self, view: Seen, now: datetime) -> Decision:
        """Return what follows."""
        return decide.decide(view, isolation=self._isolation, grace=self._grace, now=now)

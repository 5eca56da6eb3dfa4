"""Backups and Restores, by their names."""

from typing import Any

from bind.osb.dataservices.backup.decide import Answer, answered, next_step
from bind.osb.dataservices.backup.facts import Seen, number_of
from bind.osb.dataservices.backup.wire import Ask
from bind.osb.dataservices.brokers import Server
from bind.osb.dataservices.informers import CLAIM, SOURCE, source_name
from bind.osb.dataservices.reconciling import Common, ManagedReconciler, Reached, space_of
from reconciler.controller.controller import Queue, enqueue_mapped
from reconciler.core import manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import ObjectKey
from reconciler.kube.store import Store


class Jobs(ManagedReconciler[Seen]):
    """Has a backup manager make backups, or bring them back."""

    def __init__(self, common: Common, view: Store, sources: Store) -> None:
        super().__init__(common, view)
        self._sources = sources

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        super().subscribe(queue)
        self._sources.subscribe(CLAIM, enqueue_mapped(queue, self._view, SOURCE))

    def instance_of(self, key: ObjectKey) -> str:
        """Return the id of the instance."""
        live = self._live.get(*key) or {}
        stated = manifest.get_text(live, "status", "atProvider", "instanceId")
        if stated:
            return stated
        found, _ = self._common.informers.of_claim(self._sources, live, source_name(live))
        at = manifest.get_map(found, "status", "atProvider")
        return manifest.get_text(at, "instanceId") or manifest.uid_of(live)

    async def seen(self, live: Manifest, reached: Reached) -> Seen:
        """Return what a decision about a job is made on."""
        found, lookup = self._common.informers.of_claim(self._sources, live, source_name(live))
        facts = {"live": live, "source": found, "lookup": lookup, **reached.facts}
        return Seen(named=self._named(live), **facts)

    def _named(self, live: Manifest) -> frozenset[int]:
        """Return the numbers of others, also of those that were written just now."""
        of = manifest.get_text(live, "status", "atProvider", "instanceId")
        is_restore = self._view is self._common.informers.restores
        places = self._view.keys()
        others = (self._live.get(*place) for place in places)
        numbers = (
            number_of(one, is_restore=is_restore)
            for one in others
            if one is not None
            and manifest.uid_of(one) != manifest.uid_of(live)
            and manifest.get_text(one, "status", "atProvider", "instanceId") == of
        )
        return frozenset(number for number in numbers if number is not None)

    def next_step(self, view: Seen) -> Any:
        """Return the Decision, or the request that is next."""
        return next_step(view)

    async def ask(self, server: Server, view: Seen, step: Ask) -> Answer:
        """Return the answer to a request. Raises Stopped."""
        return await server.ask(step.request, space=space_of(view))

    def answered(self, view: Seen, step: Ask, answer: Answer) -> Any:
        """Return what follows: it may be another request."""
        return answered(view, step, answer)

"""ServiceBindings, by their names."""

from dataclasses import replace
from typing import Any

from bind.osb.dataservices import connection
from bind.osb.dataservices.binding.decide import next_step
from bind.osb.dataservices.binding.facts import Seen
from bind.osb.dataservices.binding.results import answered
from bind.osb.dataservices.brokers import Server
from bind.osb.dataservices.informers import CLAIM, SOURCE, source_name
from bind.osb.dataservices.instance.controller import called
from bind.osb.dataservices.reconciling import Common, ManagedReconciler, Reached, catalogue_of
from reconciler.blueprints.offering.messages import Call
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.controller.controller import Queue, enqueue_mapped
from reconciler.core import manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, ObjectKey, Ref


class ServiceBindings(ManagedReconciler[Seen]):
    """Has a broker give credentials, and hands them out in Secrets."""

    def __init__(self, common: Common) -> None:
        super().__init__(common, common.informers.bindings)

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        super().subscribe(queue)
        by_source = enqueue_mapped(queue, self._view, SOURCE)
        self._common.informers.instances.subscribe(CLAIM, by_source)

    def instance_of(self, key: ObjectKey) -> str:
        """Return the id of the instance that is bound."""
        live = self._live.get(*key) or {}
        stated = manifest.get_text(live, "status", "atProvider", "instanceId")
        return stated or self._instance(live)[1]

    async def seen(self, live: Manifest, reached: Reached) -> Seen:
        """Return what a decision about a binding is made on. Raises ClusterErrors."""
        informers, server = self._common.informers, reached.server
        instance, lookup = informers.of_claim(informers.instances, live, source_name(live))
        where = connection.place(live)
        reads = where is not None and server is not None and not reached.facts.get("rest")
        secret = None
        if reads and where is not None:
            secret = await informers.cluster.get(Ref(informers.cluster.name, SECRET, *where))
        return Seen(
            live=live,
            catalogue=await catalogue_of(reached),
            confirmed=server is not None and server.confirmed,
            unread="" if server is None else server.problem,
            instance=instance,
            lookup=lookup,
            secret=secret,
            has_read=reads,
            **reached.facts,
        )

    def next_step(self, view: Seen) -> Any:
        """Return the Decision, or the call that is next."""
        return next_step(view)

    async def ask(self, server: Server, view: Seen, step: Call) -> Outcome:
        """Return what the call came to. Raises Stopped."""
        return await called(server, view, step)

    def answered(self, view: Seen, step: Call, answer: Outcome) -> Any:
        """Return what follows: it may be another call."""
        return answered(view, step, answer)

    def _later(self, view: Seen, server: Server) -> Seen:
        return replace(super()._later(view, server), confirmed=server.confirmed)

    def _instance(self, live: Manifest) -> tuple[Manifest | None, str]:
        informers = self._common.informers
        found, _ = informers.of_claim(informers.instances, live, source_name(live))
        at = manifest.get_map(found, "status", "atProvider")
        return found, manifest.get_text(at, "instanceId") or manifest.uid_of(found or live)

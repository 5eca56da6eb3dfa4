"""ServiceInstances, by their names."""

from dataclasses import replace
from typing import Any

from bind.osb.dataservices import managed, rules
from bind.osb.dataservices.brokers import Server
from bind.osb.dataservices.informers import INSTANCE, instance_id
from bind.osb.dataservices.instance.decide import next_step
from bind.osb.dataservices.instance.facts import Seen
from bind.osb.dataservices.instance.results import answered
from bind.osb.dataservices.reconciling import (
    Common,
    ManagedReconciler,
    Reached,
    catalogue_of,
    space_of,
)
from reconciler.blueprints.offering.messages import Call
from reconciler.blueprints.offering.outcomes import Absent, Outcome
from reconciler.controller.controller import Queue, enqueue_mapped
from reconciler.core import keys, manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import ObjectKey


class ServiceInstances(ManagedReconciler[Seen]):
    """Has a broker make, change and delete instances."""

    def __init__(self, common: Common) -> None:
        super().__init__(common, common.informers.instances)

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        super().subscribe(queue)
        by_id = enqueue_mapped(queue, self._view, INSTANCE)
        self._common.informers.bindings.subscribe(INSTANCE, by_id)

    def instance_of(self, key: ObjectKey) -> str:
        """Return the id of the instance."""
        return instance_id(self._live.get(*key) or {})

    async def seen(self, live: Manifest, reached: Reached) -> Seen:
        """Return what a decision about an instance is made on."""
        bindings = self._common.informers.bindings.by(INSTANCE, instance_id(live))
        bound = [
            manifest.name_of(one)
            for one in bindings
            if keys.MANAGED_RESOURCE in manifest.finalizers_of(one)
        ]
        server = reached.server
        return Seen(
            live=live,
            catalogue=await catalogue_of(reached),
            confirmed=server is not None and server.confirmed,
            unread="" if server is None else server.problem,
            bound=bound,
            **reached.facts,
        )

    def next_step(self, view: Seen) -> Any:
        """Return the Decision, or the call that is next."""
        return next_step(view)

    async def ask(self, server: Server, view: Seen, step: Call) -> Outcome:
        """Return what the call came to. Raises Stopped."""
        return await called(server, view, step)

    def answered(self, view: Seen, step: Call, answer: Outcome) -> Any:
        """Return what follows."""
        return answered(view, step, answer)

    def _later(self, view: Seen, server: Server) -> Seen:
        return replace(super()._later(view, server), confirmed=server.confirmed)


async def called(server: Server, view: managed.Seen, call: Call) -> Outcome:
    """Return what a call came to; a 404 is looked into. Raises Stopped."""
    place = None if view.place is None else view.place.identity
    identity = rules.originating_identity(view.live) or place
    outcome = await server.call(call, space=space_of(view), identity=identity)
    if isinstance(outcome, Absent) and not server.confirmed:
        await server.catalogue(within=0.0)
    return outcome

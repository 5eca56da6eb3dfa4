"""Reconcilers of instances, bindings, backups, restores and ProviderConfigs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from bind.osb.dataservices import (
    bindings,
    connection,
    instances,
    jobs,
    provider_config,
    rules,
)
from bind.osb.dataservices import reconciling as views
from bind.osb.dataservices.brokers import Brokers, Server
from bind.osb.dataservices.jobs import Reply
from bind.osb.dataservices.reconciling import MOST_CALLS, Common, Informers, ManagedReconciler
from bind.osb.dataservices.store import Kept, Store
from bind.osb.informers import Places
from bind.osb.metrics import BrokerMetrics
from bind.osb.settings import Settings
from reconciler.blueprints.offering.messages import Call
from reconciler.blueprints.offering.outcomes import Absent, Outcome
from reconciler.controller.controller import Controller, ObjectReconciler, Queue, enqueue_mapped
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.controller.program import Runtime
from reconciler.controller.tasks import Worker
from reconciler.core import keys, manifest
from reconciler.core.decision import NOTHING, Decision
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, ObjectKey, Ref

S = TypeVar("S", bound=rules.OfBroker)
_MOST_CALLS: Final = 2  # to learn how a server is


class _AtBroker(ManagedReconciler[S]):
    """The reconciler of what a broker has."""

    store: Store[S]

    def kept(self, live: Manifest) -> Kept:
        kept = self.remembered.get(ObjectKey(*manifest.identity_of(live)))
        return kept if isinstance(kept, Kept) else Kept()

    async def decided(self, view: tuple[S, Server | None]) -> Decision:
        seen, server = view
        turn = self.store.turn(seen, self.kept(seen.live))
        for _ in range(MOST_CALLS):
            if turn.call is None or server is None or seen.rest:
                break
            outcome = await self.ask(server, seen, turn.call)
            seen = replace(seen, now=self.executor.now(), confirmed=server.confirmed)
            turn = self.store.answered(seen, turn, outcome)
        self.remembered[ObjectKey(*manifest.identity_of(seen.live))] = turn.kept
        return turn.decision

    async def ask(self, server: Server, view: S, step: Call) -> Outcome:
        """Return what the call came to; a 404 is looked into. Raises Stopped."""
        place = None if view.place is None else view.place.identity
        identity = rules.originating_identity(view.live) or place
        outcome = await server.call(step, space=view.space, identity=identity)
        if isinstance(outcome, Absent) and not server.confirmed:
            await server.catalogue(within=0.0)
        return outcome

    async def facts(self, known: dict[str, Any], server: Server | None) -> dict[str, Any]:
        """Return what a decision takes of the broker; a catalogue is not read at rest."""
        if server is None:
            return known
        catalogue = server.latest if known.get("rest") else await server.catalogue()
        unread = {"unread": server.problem} if server.problem else {}
        return {"catalogue": catalogue, "confirmed": server.confirmed, **unread, **known}


class ServiceInstances(_AtBroker[instances.Seen]):
    """Has a broker make, change and delete instances."""

    store = instances.INSTANCES

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        super().subscribe(queue)
        by_id = enqueue_mapped(queue, self._view, views.INSTANCE)
        self._common.informers.bindings.subscribe(views.INSTANCE, by_id)

    def instance_of(self, key: ObjectKey) -> str:
        return views.instance_id(self._live.get(*key) or {})

    async def seen(
        self, live: Manifest, facts: dict[str, Any], server: Server | None
    ) -> instances.Seen:
        bound = [
            manifest.name_of(one)
            for one in self._common.informers.bindings.by(views.INSTANCE, views.instance_id(live))
            if keys.MANAGED_RESOURCE in manifest.finalizers_of(one)
        ]
        return instances.Seen(live=live, bound=bound, **await self.facts(facts, server))


class ServiceBindings(_AtBroker[connection.Seen]):
    """Has a broker give credentials, and hands them out in Secrets."""

    store = bindings.BINDINGS

    async def seen(
        self, live: Manifest, facts: dict[str, Any], server: Server | None
    ) -> connection.Seen:
        """Return what a decision about a binding is made on. Raises ClusterErrors."""
        cluster, where = self._common.informers.cluster, connection.place(live)
        instance, lookup = self.source(live)
        known = await self.facts(facts, server)
        seen = connection.Seen(live=live, instance=instance, lookup=lookup, **known)
        if where is None:
            return replace(seen, has_read=True)
        if server is None or not bindings.needs_secret(seen, self.kept(live)):
            return seen
        secret = await cluster.get(Ref(cluster.name, SECRET, *where))
        return replace(seen, secret=secret, has_read=True)


class Jobs(ManagedReconciler[jobs.Seen]):
    """Has a backup manager make backups, or bring them back."""

    async def seen(self, live: Manifest, facts: dict[str, Any], server: Server | None) -> jobs.Seen:
        found, lookup = self.source(live)
        named = self._named(live)
        return jobs.Seen(live=live, source=found, lookup=lookup, named=named, **facts)

    async def decided(self, view: tuple[jobs.Seen, Server | None]) -> Decision:
        seen, server = view
        step, asked = jobs.next_step(seen), False
        for _ in range(MOST_CALLS):
            if isinstance(step, Decision) or server is None:
                break
            answer = await server.ask(jobs.request(seen, step), space=seen.space)
            seen, asked = replace(seen, now=self.executor.now()), True
            step = jobs.answered(seen, step, answer)
        decision = step if isinstance(step, Decision) else Decision(sums_up=False)
        if asked:
            self.rests(seen.live, decision.again)
        return decision

    def _named(self, live: Manifest) -> frozenset[int]:
        """Return the numbers of others, also of those that were written just now."""
        places = self._view.keys()
        others = (self._live.get(*place) for place in places)
        numbers = (
            jobs.number_of(self._view.kind, one)
            for one in others
            if one is not None
            and manifest.uid_of(one) != manifest.uid_of(live)
            and views.instance_at(one) == views.instance_at(live)
        )
        return frozenset(number for number in numbers if number is not None)


class ProviderConfigs(ObjectReconciler[ObjectKey, provider_config.Seen]):
    """Says whether brokers and backup managers are well, and how many objects need them."""

    def __init__(self, informers: views.Informers, executor: Executor, brokers: Brokers) -> None:
        self._configs = informers.recent(informers.configs)
        super().__init__(executor, self._configs)
        self._informers, self._brokers = informers, brokers

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        self._informers.configs.subscribe_keys(queue.enqueue)
        self._informers.usages.subscribe(
            views.CONFIG, lambda name: queue.enqueue(ObjectKey("", name))
        )

    async def look(self, key: ObjectKey) -> tuple[Observed, provider_config.Seen] | None:
        live = self._configs.get(*key)
        if live is None:
            return None
        users = len(self._informers.usages.keys_by(views.CONFIG, key.name))
        seen = provider_config.Seen(self._informers.cluster.name, live, self.executor.now(), users)
        return observed(self._configs, live), seen

    async def decided(self, view: provider_config.Seen) -> Decision:
        step = provider_config.next_step(view)
        if isinstance(step, Decision):
            return step
        server = await self._brokers.reach(view.live)
        if isinstance(server, str):
            return provider_config.result(view, server)
        for _ in range(_MOST_CALLS):
            if isinstance(step, Decision):
                break
            answer = await server.ask(step, space="", probes=True)
            status = answer.status if isinstance(answer, Reply) else 0
            problem = "" if isinstance(answer, Reply) else answer.problem
            view = replace(view, now=self.executor.now())
            step = provider_config.answered(view, step, status, problem)
        return step if isinstance(step, Decision) else NOTHING


# A worker waits for the answer to its call: those that hang leave enough for the others.
_WORKERS: Final = 64


def workers(
    informers: Informers,
    places: Places,
    runtime: Runtime,
    settings: Settings,
    metrics: BrokerMetrics,
    terms: Callable[[], Sequence[str]],
) -> list[Worker]:
    """Return all that works on these views; `terms` as of `Claims`."""
    brokers = Brokers(
        informers.cluster,
        settings,
        clock=runtime.clock,
        fence=runtime.fence,
        observer=metrics.observer,
    )
    executor = runtime.executor(informers.cluster)
    common = Common(informers, executor, brokers, places, terms)
    made, backups = informers.instances, informers.backups
    reconcilers: dict[str, ObjectReconciler[Any, Any]] = {
        "providerconfig": ProviderConfigs(informers, executor, brokers),
        "serviceinstance": ServiceInstances(common, made),
        "servicebinding": ServiceBindings(common, informers.bindings, made),
        "backup": Jobs(common, backups, made),
        "restore": Jobs(common, informers.restores, backups),
    }
    working = list[Worker]()
    for name, reconciler in reconcilers.items():
        controller: Controller[Any] = runtime.controller(
            f"dataservices-{name}", reconciler.reconcile, workers=_WORKERS
        )
        reconciler.subscribe(controller)
        working.append(controller)
    return [brokers, *working]

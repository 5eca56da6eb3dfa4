"""Reconciles managed resources: look, decide, execute, call.

A call goes on while no worker waits for it. No other object of its instance has a turn until the
consequence of the answer was executed. Answers are in memory only, so a new process asks again.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from bind.osb.connections import Calls, Connection
from bind.osb.dataservices import bindings, connection, instances, jobs, rules
from bind.osb.dataservices.configs import (
    CLAIM,
    CONFIG,
    INSTANCE,
    SOURCE,
    UID,
    Informers,
    ProviderConfigs,
    instance_at,
    instance_id,
    source_name,
)
from bind.osb.dataservices.managed import Seen, composed_for, config_name, has_finalizer, is_paused
from bind.osb.dataservices.store import Kept, Store, Turn
from bind.osb.informers import Places
from bind.osb.metrics import BrokerMetrics
from bind.osb.settings import Settings
from reconciler.blueprints.offering.outcomes import Unknown, Unsent
from reconciler.controller.controller import Controller, ObjectReconciler, Queue, enqueue_mapped
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.controller.metrics import Metrics
from reconciler.controller.program import Runtime
from reconciler.controller.tasks import Worker
from reconciler.core import keys, manifest
from reconciler.core.decision import Decision
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, SECRET, ObjectKey, Ref
from reconciler.kube.store import Store as View
from reconciler.kube.turns import act_for

V = TypeVar("V", bound=Seen)
S = TypeVar("S", bound=rules.OfBroker)
_TAKEN: Final = timedelta(seconds=1)  # after which a turn is tried again
_WISHES: Final = (keys.OSB_RETRY, keys.OSB_ROTATE, keys.PAUSED)


@dataclass(frozen=True, slots=True)
class Common:
    """The tools of all reconcilers of managed resources."""

    informers: Informers
    executor: Executor
    configs: ProviderConfigs
    places: Places
    metrics: Metrics
    terms: Callable[[], Sequence[str]]
    turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def turn(self, instance: str) -> asyncio.Lock:
        """Return the lock of an instance, for one writer; its bindings change it too."""
        return self.turns.setdefault(instance, asyncio.Lock())


class ManagedReconciler(ObjectReconciler[ObjectKey, V], Generic[V]):
    """The reconciler of one kind. `view` has its objects, `sources` those that they are of."""

    nothing: Any = None  # the memory of an object that is new

    def __init__(self, common: Common, view: View, sources: View | None = None) -> None:
        informers = common.informers
        self._live = informers.recent(view)
        self._usages = informers.recent(informers.usages)
        super().__init__(common.executor, self._live, self._usages)
        self._common, self._view, self._sources = common, view, sources
        self.calls = Calls[ObjectKey](common.executor.fence, common.metrics)
        self.remembered: dict[ObjectKey, tuple[str, Any]] = {}  # with the uid that it is of
        self._turns: dict[ObjectKey, asyncio.Lock] = {}  # of calls, until they are dealt with

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        by_uid = enqueue_mapped(queue, self._view, UID)
        self.calls.subscribe(queue)
        self._view.subscribe_keys(queue.enqueue)
        self._common.configs.follow(enqueue_mapped(queue, self._view, CONFIG))
        self._common.informers.usages.subscribe_keys(lambda key: by_uid(key.name))
        if self._sources is not None:
            self._sources.subscribe(CLAIM, enqueue_mapped(queue, self._view, SOURCE))

    async def reconcile(self, key: ObjectKey) -> timedelta | None:
        """Have a turn of the instance, which its bindings and backups change too.

        No worker waits for another one's turn: it comes again.
        """
        if self.calls.asking(key):
            return None
        turn, answer = self._turns.pop(key, None), self.calls.answer(key)
        if turn and answer and answer.ask[0] != manifest.uid_of(self._live.get(*key) or {}):
            turn.release()  # of another object with this name, which is gone
            turn = None
        if turn is None:
            turn = self._common.turn(self.instance_of(key))
            if turn.locked():
                return _TAKEN
            await turn.acquire()
        try:
            again = await super().reconcile(key)
            if answer is not None and answer is self.calls.answer(key):
                self.calls.forget(key)
            return again
        finally:
            if self.calls.asking(key) or self.calls.answer(key) is not None:
                self._turns[key] = turn
            else:
                turn.release()

    def instance_of(self, key: ObjectKey) -> str:
        """Return the subject of a turn: the id of an instance, as far as it is known."""
        live = self._live.get(*key) or {}
        found, _ = self.source(live)
        return instance_at(live) or instance_at(found or {}) or manifest.uid_of(found or live)

    def source(self, live: Manifest) -> tuple[Manifest | None, str]:
        if self._sources is None:
            return None, ""
        return self._common.informers.of_claim(self._sources, live, source_name(live))

    async def look(self, key: ObjectKey) -> tuple[Observed, V] | None:
        """Return one object and all that concerns it; None until its server is known.

        Raises ClusterErrors.
        """
        live = self._live.get(*key)
        if live is None:
            self.remembered.pop(key, None)
            return None
        informers = self._common.informers
        config = informers.configs.get("", config_name(live))
        facts: dict[str, Any] = {
            "cluster": informers.cluster.name,
            "kind": self._view.kind,
            "now": self.executor.now(),
            "config": config,
            "usage": self._usages.get(key.namespace, manifest.uid_of(live)),
            "terms": self._common.terms(),
            "kind_goes": manifest.is_deleting(live) and await self._kind_goes(),
        }
        if config is not None and not is_paused(live):
            space = composed_for(live).namespace
            act_for(self._common.places.party(space))
            facts["place"] = await self._common.places.of(space)
            server = self._common.configs.known(config)
            served = None if server is None else self.served(server)
            if served is None and self.calls.answer(key) is None:
                return None  # it is looked at once that is known
            facts |= served or {}
        return observed(self._live, live), await self.seen(live, facts)

    async def _kind_goes(self) -> bool:
        """Ask whether the CRD of the kind is being deleted. Raises ClusterErrors."""
        named = f"metadata.name={self._view.kind.resource}"
        found = await self._common.informers.cluster.list(CRD, fields=named, metadata_only=True)
        return any(map(manifest.is_deleting, found.items))

    def kept(self, live: Manifest) -> Any:
        uid, kept = self.remembered.get(_key(live), ("", None))
        return kept if uid == manifest.uid_of(live) else self.nothing

    def served(self, server: Connection) -> dict[str, Any] | None:
        """Return the facts about a server for a decision, None until enough is known."""
        return {"trouble": server.fault}

    @abstractmethod
    async def seen(self, live: Manifest, facts: dict[str, Any]) -> V:
        """Return the input of a decision about an object: these `facts`, and more."""

    @abstractmethod
    def turn(self, view: V) -> Turn:
        """Decide from the present state."""

    @abstractmethod
    def answered(self, view: V, ask: Any, outcome: Any) -> Turn:
        """Decide from the answer to a call."""

    @abstractmethod
    async def call(self, server: Connection, view: V, ask: Any) -> object:
        """Make a call, and return its outcome."""

    async def decided(self, view: V) -> Decision:
        """Decide, and send the call that is due."""
        key, configs = _key(view.live), self._common.configs
        server = None if view.config is None else configs.known(view.config)
        answer = self.calls.answer(key)
        if answer is None or answer.ask[0] != view.uid:
            turn = self.turn(view)
        else:
            closed = ("" if server is None else server.closed) or "its broker was not asked"
            turn = self.answered(view, answer.ask[1], answer.outcome or Unsent(closed))
        self.remembered[key] = view.uid, turn.kept
        if turn.reads_catalogue:
            configs.read_soon(config_name(view.live))
        if turn.ask is not None and server is not None:
            self.calls.forget(key)  # nothing is written of what it led to
            call = partial(self.call, server, view, turn.ask)
            self.calls.send(key, (view.uid, turn.ask), server, call)
        return turn.decision


class _AtBroker(ManagedReconciler[S]):
    """The reconciler of instances and bindings at a broker."""

    store: Store[S]
    nothing = Kept()

    def served(self, server: Connection) -> dict[str, Any] | None:
        known = server.catalogue
        if not server.reads:
            self._common.configs.read_soon(server.spec.name)
        if known.latest is None and not (known.problem or server.fault):
            return None
        why = {"unread": f"The broker's catalogue cannot be read: {known.problem}"}
        return {
            "trouble": server.fault,
            "catalogue": known.latest,
            "confirmed": known.is_fresh,
            **(why if known.problem else {}),
        }

    def turn(self, view: S) -> Turn:
        return self.store.turn(view, self.kept(view.live))

    def answered(self, view: S, ask: Any, outcome: Any) -> Turn:
        return self.store.answered(view, self.kept(view.live), ask, outcome)

    async def call(self, server: Connection, view: S, ask: Any) -> object:
        place = None if view.place is None else view.place.identity
        identity = rules.originating_identity(view.live) or place
        return await server.call(ask.call, view.space, identity)


class ServiceInstances(_AtBroker[instances.Seen]):
    """Has a broker make, change and delete instances."""

    store = instances.INSTANCES

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        super().subscribe(queue)
        by_id = enqueue_mapped(queue, self._view, INSTANCE)
        self._common.informers.bindings.subscribe(INSTANCE, by_id)

    def instance_of(self, key: ObjectKey) -> str:
        return instance_id(self._live.get(*key) or {})

    async def seen(self, live: Manifest, facts: dict[str, Any]) -> instances.Seen:
        bound = [
            manifest.name_of(one)
            for one in self._common.informers.bindings.by(INSTANCE, instance_id(live))
            if has_finalizer(one)
        ]
        return instances.Seen(live=live, bound=bound, **facts)


class ServiceBindings(_AtBroker[connection.Seen]):
    """Has a broker give credentials, and hands them out in Secrets."""

    store = bindings.BINDINGS

    async def seen(self, live: Manifest, facts: dict[str, Any]) -> connection.Seen:
        """Return the input of a decision about a binding. Raises ClusterErrors."""
        cluster, where = self._common.informers.cluster, connection.place(live)
        instance, lookup = self.source(live)
        seen = connection.Seen(live=live, instance=instance, lookup=lookup, **facts)
        if where is None:
            return replace(seen, has_read=True)
        if not bindings.needs_secret(seen, self.kept(live)):
            return seen
        secret = await cluster.get(Ref(cluster.name, SECRET, *where))
        return replace(seen, secret=secret, has_read=True)


class Jobs(ManagedReconciler[jobs.Seen]):
    """Has a backup manager make backups, or bring them back."""

    async def seen(self, live: Manifest, facts: dict[str, Any]) -> jobs.Seen:
        match self.kept(live):
            case (wishes, datetime() as until) if wishes == _wishes(live):
                facts["rest"] = max(until - self.executor.now(), timedelta())
        found, lookup = self.source(live)
        return jobs.Seen(live=live, source=found, lookup=lookup, named=self._named(live), **facts)

    def turn(self, view: jobs.Seen) -> Turn:
        return self._turn(view, jobs.next_step(view))

    def answered(self, view: jobs.Seen, ask: Any, outcome: Any) -> Turn:
        """Decide; no more is asked for the time of the answer, unless a user's wish changes."""
        step = jobs.answered(view, ask, outcome)
        until = view.now + step.again if isinstance(step, Decision) and step.again else None
        self.remembered[_key(view.live)] = view.uid, (_wishes(view.live), until)
        return self._turn(view, step)

    def _turn(self, view: jobs.Seen, step: jobs.Step) -> Turn:
        kept = self.kept(view.live)
        rests = Decision(sums_up=False)
        return Turn(kept, step) if isinstance(step, Decision) else Turn(kept, rests, step)

    async def call(self, server: Connection, view: jobs.Seen, ask: Any) -> object:
        secrets = () if server.client is None else server.client.secrets
        answer = await server.ask(jobs.request(view, ask), view.space)
        if isinstance(answer, Unsent | Unknown):
            return answer
        return jobs.reply(answer.status, answer.body, secrets)

    def _named(self, live: Manifest) -> frozenset[int]:
        """Return the numbers of others, also of those that were written just now."""
        places = self._view.keys()
        others = (self._live.get(*place) for place in places)
        numbers = (
            jobs.number_of(self._view.kind, one)
            for one in others
            if one is not None
            and manifest.uid_of(one) != manifest.uid_of(live)
            and instance_at(one) == instance_at(live)
        )
        return frozenset(number for number in numbers if number is not None)


def _key(live: Manifest) -> ObjectKey:
    return ObjectKey(*manifest.identity_of(live))


def _wishes(live: Manifest) -> Hashable:
    """Return the fields of an object whose change asks at once, even in a pause."""
    annotations = manifest.annotations_of(live)
    return (
        manifest.get_int(live, "metadata", "generation"),
        manifest.is_deleting(live),
        *(annotations.get(key) for key in _WISHES),
    )


# A look at one waits for the answer of its server: those that hang leave enough for the others.
_MANY: Final = 64


def workers(
    informers: Informers,
    places: Places,
    runtime: Runtime,
    settings: Settings,
    metrics: BrokerMetrics,
    terms: Callable[[], Sequence[str]],
) -> list[Worker]:
    """Return all that works on these views; `terms` as of `Claims`."""
    executor, clock = runtime.executor(informers.cluster), runtime.clock
    configs = ProviderConfigs(informers, executor, settings, clock=clock, observer=metrics.observer)
    common = Common(informers, executor, configs, places, runtime.metrics, terms)
    made, backups = informers.instances, informers.backups
    reconcilers: dict[str, ManagedReconciler[Any]] = {
        "serviceinstance": ServiceInstances(common, made),
        "servicebinding": ServiceBindings(common, informers.bindings, made),
        "backup": Jobs(common, backups, made),
        "restore": Jobs(common, informers.restores, backups),
    }
    of_configs = runtime.controller("dataservices-providerconfig", configs.reconcile, workers=_MANY)
    configs.subscribe(of_configs)
    working: list[Worker] = [configs, of_configs]
    for name, reconciler in reconcilers.items():
        controller: Controller[ObjectKey] = runtime.controller(
            f"dataservices-{name}", reconciler.reconcile, workers=settings.workers
        )
        reconciler.subscribe(controller)
        working += [reconciler.calls, controller]
    return working

"""Reconcilers of managed resources: look, decide on a call, make it, decide about its answer.

What an answer is rested on is remembered here alone: a process that starts asks once more.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from bind.osb.controllers.places import Places
from bind.osb.dataservices.brokers import Brokers, Server
from bind.osb.dataservices.informers import (
    CLAIM,
    CONFIG,
    SOURCE,
    UID,
    Informers,
    instance_at,
    source_name,
)
from bind.osb.dataservices.managed import Seen, composed_for, config_name, is_paused
from reconciler.controller.controller import ObjectReconciler, Queue, enqueue_mapped
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.core import keys, manifest
from reconciler.core.decision import NOTHING, Decision
from reconciler.core.manifest import Manifest
from reconciler.core.refs import ObjectKey
from reconciler.kube.store import Store
from reconciler.kube.turns import act_for

V = TypeVar("V", bound=Seen)
MOST_CALLS: Final = 4  # in one turn
_TAKEN: Final = timedelta(seconds=1)  # after which a turn is tried again
_WISHES: Final = (keys.OSB_RETRY, keys.OSB_ROTATE, keys.PAUSED)


@dataclass(frozen=True, slots=True)
class Common:
    """The tools of all reconcilers of managed resources."""

    informers: Informers
    executor: Executor
    brokers: Brokers
    places: Places
    terms: Callable[[], Sequence[str]] = tuple


class ManagedReconciler(ObjectReconciler[ObjectKey, tuple[V, Server | None]], Generic[V]):
    """The reconciler of one kind. `view` has its objects, `sources` those that they are of."""

    def __init__(self, common: Common, view: Store, sources: Store | None = None) -> None:
        informers = common.informers
        self._live = informers.recent(view)
        self._usages = informers.recent(informers.usages)
        super().__init__(common.executor, self._live, self._usages)
        self._common, self._view, self._sources = common, view, sources
        self.remembered: dict[ObjectKey, Any] = {}

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        by_config = enqueue_mapped(queue, self._view, CONFIG)
        by_uid = enqueue_mapped(queue, self._view, UID)
        self._view.subscribe_keys(queue.enqueue)
        self._common.informers.configs.subscribe_keys(lambda key: by_config(key.name))
        self._common.informers.usages.subscribe_keys(lambda key: by_uid(key.name))
        if self._sources is not None:
            self._sources.subscribe(CLAIM, enqueue_mapped(queue, self._view, SOURCE))

    async def reconcile(self, key: ObjectKey) -> timedelta | None:
        """Have a turn of the instance, which its bindings and backups change too.

        No worker waits for another one's call: it comes again.
        """
        turn = self._common.brokers.turn(self.instance_of(key))
        if turn.locked():
            return _TAKEN
        async with turn:
            return await super().reconcile(key)

    def instance_of(self, key: ObjectKey) -> str:
        """Return what the turn is of: the id of an instance, as far as it is known."""
        live = self._live.get(*key) or {}
        found, _ = self.source(live)
        return instance_at(live) or instance_at(found or {}) or manifest.uid_of(found or live)

    def source(self, live: Manifest) -> tuple[Manifest | None, str]:
        if self._sources is None:
            return None, ""
        return self._common.informers.of_claim(self._sources, live, source_name(live))

    async def look(self, key: ObjectKey) -> tuple[Observed, tuple[V, Server | None]] | None:
        """Return one object, all that concerns it, and its server. Raises ClusterErrors."""
        live = self._live.get(*key)
        if live is None:
            self.remembered.pop(key, None)
            return None
        facts, server = await self._reach(key, live)
        view = await self.seen(live, facts, server)
        return observed(self._live, live), (view, server)

    @abstractmethod
    async def seen(self, live: Manifest, facts: dict[str, Any], server: Server | None) -> V:
        """Return what a decision about an object is made on: these `facts`, and more."""

    @abstractmethod
    async def followed(self, view: V, server: Server | None) -> Decision:
        """Return what follows, from the answers of the server too. Raises Stopped."""

    def decide(self, view: tuple[V, Server | None], now: datetime) -> Decision:
        """Return nothing: what follows hangs on answers."""
        return NOTHING

    async def decided(self, view: tuple[V, Server | None]) -> Decision:
        """Return what follows, from the answers too. Raises Stopped."""
        return await self.followed(*view)

    def rests(self, live: Manifest, again: timedelta | None) -> None:
        """Ask nothing more about an object for so long, unless its user has another wish."""
        until = None if again is None else self.executor.now() + again
        self.remembered[ObjectKey(*manifest.identity_of(live))] = (_wishes(live), until)

    async def _reach(self, key: ObjectKey, live: Manifest) -> tuple[dict[str, Any], Server | None]:
        """Return what is known beside an object, and the server that is asked, None without."""
        informers, now = self._common.informers, self.executor.now()
        config = informers.configs.get("", config_name(live))
        facts: dict[str, Any] = {
            "cluster": informers.cluster.name,
            "kind": self._view.kind,
            "now": now,
            "config": config,
            "usage": self._usages.get(key.namespace, manifest.uid_of(live)),
            "terms": self._common.terms(),
        }
        match self.remembered.get(key):
            case (wishes, datetime() as until) if wishes == _wishes(live):
                facts["rest"] = max(until - now, timedelta())
        if config is None or is_paused(live):
            return facts, None
        space = composed_for(live).namespace
        act_for(self._common.places.party(space))
        facts["place"] = await self._common.places.of(space)
        server = await self._common.brokers.reach(config)
        if isinstance(server, str):
            return facts | {"trouble": server}, None
        if server.is_full:
            facts["rest"] = max(facts.get("rest", _TAKEN), _TAKEN)
        return facts, server


def _wishes(live: Manifest) -> Hashable:
    """Return what has somebody asked at once, though an answer is rested on."""
    annotations = manifest.annotations_of(live)
    return (
        manifest.uid_of(live),
        manifest.get_int(live, "metadata", "generation"),
        manifest.is_deleting(live),
        *(annotations.get(key) for key in _WISHES),
    )

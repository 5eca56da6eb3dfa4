"""Reconciles managed resources: look, decide a call, make it, decide by its answer.

Answers are remembered in memory only, so a new process asks once more. The first part of the file
has the informers of these kinds.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from bind.osb.dataservices import managed
from bind.osb.dataservices.brokers import Brokers, Server
from bind.osb.dataservices.managed import Seen, composed_for, config_name, is_paused
from bind.osb.informers import Places
from reconciler.controller.controller import ObjectReconciler, Queue, enqueue_mapped
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.controller.manager import ClusterInformers
from reconciler.core import keys, manifest
from reconciler.core.decision import Decision
from reconciler.core.manifest import Manifest
from reconciler.core.refs import ObjectKey
from reconciler.kube.cluster import Cluster
from reconciler.kube.store import Index, Store
from reconciler.kube.turns import act_for

UID: Final = "uid"
CONFIG: Final = "name of the ProviderConfig"
CLAIM: Final = "the place of the claim"
SOURCE: Final = "the place of the claim that it is of"
INSTANCE: Final = "id of the instance"
V = TypeVar("V", bound=Seen)
MOST_CALLS: Final = 4  # in one turn
_TAKEN: Final = timedelta(seconds=1)  # after which a turn is tried again
_WISHES: Final = (keys.OSB_RETRY, keys.OSB_ROTATE, keys.PAUSED)


class Informers(ClusterInformers):
    """The views, by kind."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        common: dict[str, Index] = {
            UID: lambda live: [manifest.uid_of(live)],
            CONFIG: lambda live: [config_name(live)],
            CLAIM: lambda live: [managed.composed_for(live)],
        }
        itself: dict[str, Index] = {INSTANCE: lambda live: [instance_id(live)]}
        self.instances = self._view(managed.SERVICE_INSTANCE, common | itself)
        of: dict[str, Index] = {
            SOURCE: lambda live: [managed.composed_for(live)._replace(name=source_name(live))],
            INSTANCE: lambda live: [instance_at(live)],
        }
        related = common | of
        self.bindings = self._view(managed.SERVICE_BINDING, related)
        self.backups = self._view(managed.BACKUP, related)
        self.restores = self._view(managed.RESTORE, related)
        self.configs = self._view(managed.PROVIDER_CONFIG, {})
        used: dict[str, Index] = {
            CONFIG: lambda usage: [manifest.get_text(usage, "providerConfigRef", "name")]
        }
        self.usages = self._view(managed.PROVIDER_CONFIG_USAGE, used)

    def of_claim(self, view: Store, live: Manifest, name: str) -> tuple[Manifest | None, str]:
        """Return the object of a claim beside that of another object, or why there is not one."""
        space = managed.composed_for(live).namespace
        found = [key for key in view.keys_by(CLAIM, ObjectKey(space, name)) if self._get(view, key)]
        if len(found) == 1:
            return self._get(view, found[0]), ""
        what = f"{view.kind} of the claim {space}/{name}"
        if found:
            return None, f"There are {len(found)} objects of kind {what}"
        return None, f"There is no {what}"

    def _get(self, view: Store, key: ObjectKey) -> Manifest | None:
        return self._recents[view].get(*key)


def source_name(live: Manifest) -> str:
    wanted = manifest.get_map(live, "spec", "forProvider")
    return manifest.get_text(wanted, "instanceName") or manifest.get_text(wanted, "backupName")


def instance_at(live: Manifest) -> str:
    """Return the id of an instance that a status states, "" where it states none."""
    return manifest.get_text(live, "status", "atProvider", "instanceId")


def instance_id(live: Manifest) -> str:
    return instance_at(live) or manifest.uid_of(live)


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
    async def decided(self, view: tuple[V, Server | None]) -> Decision:
        """Return what follows, from the answers of the server too. Raises Stopped."""

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

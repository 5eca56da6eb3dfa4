"""What the operator knows of its cluster: a view of each kind, and who is woken by what."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from postgresql_operator.instance import instance_key, key_of
from postgresql_operator.wire import (
    BACKUP,
    BINDING,
    CREDENTIALS,
    POSTGRESQL,
    RESTORE,
    place_of,
)
from reconciler.core.manifest import Manifest, get_maps, get_text, namespace_of
from reconciler.core.refs import SECRET, Kind
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cache.store import Index, Store
from reconciler.kube.cluster import Cluster

# Names of indexes; a value is `namespace/name`.
SELF: Final = "its own place"
INSTANCE: Final = "the place of a Postgresql"
SOURCE: Final = "the place of a Backup"
OWNER: Final = "the place of a ServiceBinding"


class Queue(Protocol):
    """Where keys wait for their controller."""

    def enqueue(self, key: str) -> None:
        """Let the key be looked at soon."""


class World:
    """The views, by kind. Of Secrets it holds the metadata of our own only."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.informers: list[Informer] = []
        about: Mapping[str, Index] = {SELF: _self, INSTANCE: _instance}
        self.instances = self._view(POSTGRESQL, {SELF: _self})
        self.bindings = self._view(BINDING, about)
        self.backups = self._view(BACKUP, about)
        self.restores = self._view(RESTORE, {**about, SOURCE: _source})
        secrets = Informer(
            cluster, SECRET, labels=CREDENTIALS, metadata_only=True, indexes={OWNER: _owner}
        )
        self.informers.append(secrets)
        self.secrets = secrets.store

    def subscribe(self, queues: Mapping[Kind, Queue]) -> None:
        """Have the keys added, to the queue of their kind, that a change concerns."""
        for view in (self.instances, self.bindings, self.backups, self.restores):
            view.subscribe(SELF, queues[view.kind].enqueue)
        for view in (self.bindings, self.backups, self.restores):
            self.instances.subscribe(SELF, _waker(view, INSTANCE, queues[view.kind]))
        self.backups.subscribe(SELF, _waker(self.restores, SOURCE, queues[RESTORE]))
        for view in (self.bindings, self.backups):
            view.subscribe(INSTANCE, queues[POSTGRESQL].enqueue)
        self.secrets.subscribe(OWNER, queues[BINDING].enqueue)

    def _view(self, kind: Kind, indexes: Mapping[str, Index]) -> Store:
        informer = Informer(self.cluster, kind, indexes=indexes)
        self.informers.append(informer)
        return informer.store


def _waker(view: Store, index: str, queue: Queue) -> Callable[[str], None]:
    """Return what adds the keys of those objects of a view that have the woken value."""

    def wake(value: str) -> None:
        for one in view.by(index, value):
            queue.enqueue(place_of(one))

    return wake


def _self(live: Manifest) -> Iterable[str]:
    return [place_of(live)]


def _instance(live: Manifest) -> Iterable[str]:
    return [instance_key(live)]


def _source(restore: Manifest) -> Iterable[str]:
    return [key_of(namespace_of(restore), get_text(restore, "spec", "backupRef"))]


def _owner(secret: Manifest) -> Iterable[str]:
    owners = get_maps(secret, "metadata", "ownerReferences")
    names = [get_text(one, "name") for one in owners if get_text(one, "kind") == BINDING.kind]
    return [key_of(namespace_of(secret), name) for name in names]

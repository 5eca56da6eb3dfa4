"""What the operator knows of its cluster: a view of each kind, and what a change concerns."""

from collections.abc import Iterable, Mapping
from typing import Final

from postgresql_operator.wire import (
    BACKUP,
    BINDING,
    CREDENTIALS,
    POSTGRESQL,
    RESTORE,
    instance_key_of,
)
from reconciler.controller.controller import Queue, enqueue_mapped
from reconciler.core.manifest import Manifest, get_maps, get_text, namespace_of
from reconciler.core.refs import SECRET, Kind, ObjectKey
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import Informer
from reconciler.kube.store import NO_INDEXES, Index, Store

# Names of indexes; a value is the key of an object.
INSTANCE: Final = "a Postgresql"
SOURCE: Final = "a Backup"
OWNER: Final = "a ServiceBinding"


class World:
    """The views, by kind. Of Secrets it holds the metadata of our own only."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.informers: list[Informer] = []
        about: Mapping[str, Index] = {INSTANCE: _instance}
        self.instances = self._view(POSTGRESQL, NO_INDEXES)
        self.bindings = self._view(BINDING, about)
        self.backups = self._view(BACKUP, about)
        self.restores = self._view(RESTORE, {**about, SOURCE: _source})
        secrets = Informer(
            cluster, SECRET, labels=CREDENTIALS, metadata_only=True, indexes={OWNER: _owner}
        )
        self.informers.append(secrets)
        self.secrets = secrets.store

    def subscribe(self, queues: Mapping[Kind, Queue[ObjectKey]]) -> None:
        """Have the keys enqueued, in the queue of their kind, that a change concerns."""
        for view in (self.instances, self.bindings, self.backups, self.restores):
            view.subscribe_keys(queues[view.kind].enqueue)
        for view in (self.bindings, self.backups, self.restores):
            self.instances.subscribe_keys(enqueue_mapped(queues[view.kind], view, INSTANCE))
        self.backups.subscribe_keys(enqueue_mapped(queues[RESTORE], self.restores, SOURCE))
        for view in (self.bindings, self.backups):
            view.subscribe(INSTANCE, queues[POSTGRESQL].enqueue)
        self.secrets.subscribe(OWNER, queues[BINDING].enqueue)

    def _view(self, kind: Kind, indexes: Mapping[str, Index]) -> Store:
        informer = Informer(self.cluster, kind, indexes=indexes)
        self.informers.append(informer)
        return informer.store


def _instance(live: Manifest) -> Iterable[ObjectKey]:
    return [instance_key_of(live)]


def _source(restore: Manifest) -> Iterable[ObjectKey]:
    return [ObjectKey(namespace_of(restore), get_text(restore, "spec", "backupRef"))]


def _owner(secret: Manifest) -> Iterable[ObjectKey]:
    owners = get_maps(secret, "metadata", "ownerReferences")
    names = [get_text(one, "name") for one in owners if get_text(one, "kind") == BINDING.kind]
    return [ObjectKey(namespace_of(secret), name) for name in names]

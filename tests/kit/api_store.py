"""The objects of the model of an API server, their versions, and the history that watches read."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from reconciler.core.refs import CRD, ObjectKey
from tests.kit import typed

Resource: TypeAlias = tuple[str, str]  # group and plural
Object: TypeAlias = dict[str, Any]
Snapshot: TypeAlias = dict[Resource, dict[ObjectKey, Object]]
_MUCH: Final = 100_000  # writes
CRDS: Final = (CRD.group, CRD.plural)


class Change(NamedTuple):
    """What happened to one object. `old` is what it was, None of one that was created."""

    version: int
    resource: Resource
    key: ObjectKey
    old: Object | None
    new: Object | None

    @property
    def last(self) -> Object:
        """The object after the change; of one that is gone, its last state."""
        live = self.new or self.old
        assert live is not None
        return live


@dataclass
class Store:
    """What etcd holds. Objects in it are never changed, but replaced."""

    version: int = 100
    oldest: int = 0  # watches from before it are refused
    history: list[Change] = field(default_factory=list)
    _objects: dict[Resource, dict[ObjectKey, Object]] = field(default_factory=dict)
    _followers: list[Callable[[Change], None]] = field(default_factory=list)

    def get(self, resource: Resource, key: ObjectKey) -> Object | None:
        return self._objects.get(resource, {}).get(key)

    def all(self, resource: Resource, namespace: str = "") -> list[tuple[ObjectKey, Object]]:
        some = self._objects.get(resource, {}).items()
        return sorted(
            ((key, live) for key, live in some if namespace in ("", key.namespace)),
            key=lambda one: one[0],
        )

    def everything(self) -> Iterator[tuple[Resource, ObjectKey, Object]]:
        for resource, some in tuple(self._objects.items()):
            for key, live in tuple(some.items()):
                yield resource, key, live

    def put(self, resource: Resource, key: ObjectKey, new: Mapping[str, Any] | None) -> Object:
        """Store an object, or remove it with None; return what watches tell of it."""
        self.version += 1
        some = self._objects.setdefault(resource, {})
        old = some.pop(key, None)
        if new is not None:
            made = typed.copied(dict(new))
            made["metadata"]["resourceVersion"] = str(self.version)
            some[key] = made
            change = Change(self.version, resource, key, old, made)
        else:
            assert old is not None
            metadata = {**old["metadata"], "resourceVersion": str(self.version)}
            change = Change(self.version, resource, key, {**old, "metadata": metadata}, None)
        self.history.append(change)
        for follow in tuple(self._followers):
            follow(change)
        return change.last

    def follow(self, follower: Callable[[Change], None]) -> Callable[[], None]:
        """Call `follower` with all changes from now on; return what ends that."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    def since(self, version: int) -> list[Change]:
        first = len(self.history) - (self.version - version)
        return self.history[max(first, 0) :] if version < self.version else []

    def snapshot(self) -> Snapshot:
        """Return all objects, as a backup of etcd has them, after which much happens."""
        self.version += _MUCH
        return {resource: dict(some) for resource, some in self._objects.items()}

    def restore(self, backup: Snapshot, *, live: bool) -> None:
        """Put all objects back; old watches are refused. `live`: versions go back, too."""
        self._objects = {resource: dict(some) for resource, some in backup.items()}
        self.version += 1
        if live:
            lives = (live["metadata"] for some in backup.values() for live in some.values())
            self.version = max(int(one["resourceVersion"]) for one in lives)
        self.compact()

    def compact(self) -> None:
        """Forget all history, as etcd does every five minutes."""
        self.history.clear()
        self.oldest = self.version

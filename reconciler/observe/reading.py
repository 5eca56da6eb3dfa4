"""Collects the reads of one cluster: all of them succeed, or the cluster is unseen.

Knows what the absence of a kind means; refuses to know which reads a plan needs.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, TypeVar

from reconciler.core import keys
from reconciler.core.errors import ClusterError, NotServed
from reconciler.core.live import Address, ClusterState
from reconciler.core.manifest import Manifest, identity_of, namespace_of, uid_of
from reconciler.core.names import KUBE_SYSTEM
from reconciler.core.refs import NAMESPACE, Kind, Ref
from reconciler.kube.cluster import Listing, Reader
from reconciler.observe.objects import observing

_OURS: Final = frozenset({keys.KLUTCH_GROUP, keys.TEMPLATE_GROUP})

T = TypeVar("T")


class Incomplete(Exception):
    """Some reads of one cluster failed, in the order in which they were asked for."""

    def __init__(self, errors: Sequence[ClusterError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(map(str, errors)))


class NoIdentity(Exception):
    """There is no namespace kube-system, so nothing tells this cluster from another."""


class Reading:
    """The objects of a cluster, as read so far. `waiting` names the reads that have no answer yet.

    At most `width` reads are under way at once: each takes a connection of its own.
    """

    def __init__(self, cluster: Reader, *, width: int, waiting: list[str]) -> None:
        self.cluster = cluster
        self._slots = asyncio.Semaphore(width)
        self._objects: dict[Kind, dict[tuple[str, str], Manifest]] = defaultdict(dict)
        self._unserved: set[Kind] = set()
        self.waiting = waiting

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        name: str = "",
        labels: str = "",
        metadata_only: bool = False,
        within: Collection[str] | None = None,
    ) -> None:
        """Read all objects of a kind, or those of one name in whichever namespace.

        With `within`, those in other namespaces are not looked at.
        A Klutch kind that the cluster does not serve is known to be empty.
        """
        self._objects[kind] = self._objects[kind]
        fields = f"metadata.name={name}" if name else ""

        def read() -> Awaitable[Listing]:
            return self.cluster.list(
                kind, namespace=namespace, labels=labels, fields=fields, metadata_only=metadata_only
            )

        try:
            found = await self.one(Ref(self.cluster.name, kind, namespace, name), read)
        except NotServed:
            if kind.group not in _OURS:
                raise
            self._unserved.add(kind)
            return
        self._keep(
            kind, (item for item in found.items if within is None or namespace_of(item) in within)
        )

    async def get(
        self, kind: Kind, name: str, *, namespace: str = "", metadata_only: bool = False
    ) -> None:
        """Read one object, which may be absent."""
        self._objects[kind] = self._objects[kind]
        ref = Ref(self.cluster.name, kind, namespace, name)
        found = await self.one(ref, lambda: self.cluster.get(ref, metadata_only=metadata_only))
        if found is not None:
            self._keep(kind, (found,))

    async def one(self, ref: Ref, read: Callable[[], Awaitable[T]]) -> T:
        """Make any other read. It stays in `waiting` where it is cancelled."""
        async with self._slots:
            self.waiting.append(ref.object)
            try:
                answer = await read()
            except ClusterError:
                self.waiting.remove(ref.object)
                raise
            self.waiting.remove(ref.object)
            return answer

    def take(self, earlier: ClusterState) -> None:
        """Keep what was read of this cluster a moment ago."""
        self._unserved |= earlier.unserved
        for kind, items in earlier.objects.items():
            self._objects[kind] |= ((identity_of(item), item) for item in items)

    def of(self, kind: Kind) -> Sequence[Manifest]:
        """Return the objects of a kind that were read so far, by namespace and name."""
        found = self._objects.get(kind, {})
        return tuple(found[key] for key in sorted(found))

    def serves(self, kind: Kind) -> bool:
        """Tell whether a kind was read, and the cluster serves it."""
        return kind in self._objects and kind not in self._unserved

    def seen(
        self,
        address: Address,
        *,
        bindings_cluster_scoped: bool = False,
        silent: frozenset[str] = frozenset(),
    ) -> ClusterState:
        """Return all that was read. Raises NoIdentity."""
        system = self._objects[NAMESPACE].get(("", KUBE_SYSTEM))
        if system is None or not uid_of(system):
            raise NoIdentity
        return ClusterState(
            uid=uid_of(system),
            address=address,
            objects={kind: self.of(kind) for kind in sorted(self._objects)},
            unserved=frozenset(self._unserved),
            bindings_cluster_scoped=bindings_cluster_scoped,
            silent=silent,
        )

    def _keep(self, kind: Kind, items: Iterable[Manifest]) -> None:
        kept = observing(kind)
        self._objects[kind] |= {identity_of(item): kept(item) for item in items}


async def together(*reads: Awaitable[T]) -> list[T]:
    """Make the reads at once and wait for all, so that every one that fails can be named.

    Raises Incomplete. A failure that is not a cluster's is raised as it is.
    """
    answers: list[T] = []
    errors: list[ClusterError] = []
    for outcome in await asyncio.gather(*reads, return_exceptions=True):
        if isinstance(outcome, ClusterError):
            errors.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            answers.append(outcome)
    if errors:
        raise Incomplete(errors)
    return answers

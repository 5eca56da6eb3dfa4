"""Generated kinds: their claims are followed for as long as their CRD is there."""

from datetime import timedelta
from typing import Protocol

from bind.osb.informers import BROKER, INSTANCE, Informers, InstanceKey, place_of
from reconciler.api import osb
from reconciler.api.osb import GeneratedKind
from reconciler.controller.controller import Queue
from reconciler.core.refs import ObjectKey


class Enqueue(Protocol):
    """Has an instance looked at."""

    def __call__(self, key: InstanceKey, /) -> None:
        """Enqueue an instance by its place."""
        ...


class Kinds:
    """The reconciler of generated CRDs, by name. `enqueue` is called with instances to look at."""

    def __init__(self, informers: Informers, enqueue: Enqueue) -> None:
        self._informers, self._enqueue = informers, enqueue
        self._followed: dict[str, GeneratedKind] = {}

    def subscribe(self, queue: Queue[str]) -> None:
        """Have the CRDs enqueued that change."""
        self._informers.crds.subscribe_keys(lambda key: queue.enqueue(key.name))

    async def reconcile(self, name: str) -> timedelta | None:
        """Follow the claims of a kind, or no more."""
        crd = self._informers.crds.get("", name)
        kind = None if crd is None else osb.generated_kind(crd)
        before = self._followed.get(name)
        if before is not None and (kind is None or kind.kind != before.kind):
            self._informers.claims.drop(before.kind)
            del self._followed[name]
        if kind is not None and name not in self._followed:
            self._followed[name] = kind
            self._follow(kind)
        gone = before if kind is None else None
        self._look_at(kind)
        if gone is not None:
            self.look_at_broker(gone.broker)  # its records have no claims any more
        return None

    def _follow(self, kind: GeneratedKind) -> None:
        def synced() -> None:
            self._look_at(kind)
            for each in self._informers.kinds(kind.broker):
                self._look_at(each)

        store = self._informers.follow(kind, synced).view.store
        group = kind.kind.group
        if not kind.is_binding:

            def of_instance(key: ObjectKey) -> None:
                self._enqueue(InstanceKey(group, kind.kind.kind, key.namespace, key.name))

            store.subscribe_keys(of_instance)
            return

        def of_binding(place: ObjectKey) -> None:
            for each in self._informers.kinds(kind.broker):
                if each.kind.plural == kind.instances and each.kind.group == group:
                    self._enqueue(InstanceKey(group, each.kind.kind, place.namespace, place.name))

        store.subscribe(INSTANCE, of_binding)

    def _look_at(self, kind: GeneratedKind | None) -> None:
        """Have all instances of a kind looked at, those without claim as well."""
        if kind is None or kind.is_binding:
            return
        recent = self._informers.claims.get(kind.kind)
        places = [] if recent is None else recent.view.store.keys()
        for place in places:
            key = InstanceKey(kind.kind.group, kind.kind.kind, place.namespace, place.name)
            self._enqueue(key)

    def look_at_broker(self, broker: str) -> None:
        """Have all instances of a broker looked at."""
        for kind in self._informers.kinds(broker):
            self._look_at(kind)
        for live in self._informers.records.by(BROKER, broker):
            for key in place_of(live):
                self._enqueue(key)

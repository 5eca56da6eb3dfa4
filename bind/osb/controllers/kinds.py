"""Generated kinds: their claims are followed for as long as their CRD is there."""

from datetime import timedelta

from bind.osb.informers import BROKER, INSTANCE, Informers, InstanceKey, place_of
from reconciler.api import osb
from reconciler.api.osb import GeneratedKind
from reconciler.controller.controller import Queue
from reconciler.core.refs import ObjectKey


class Kinds:
    """The reconciler of generated CRDs, by name."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._followed: dict[str, GeneratedKind] = {}
        self._claims: Queue[InstanceKey] | None = None
        self._brokers: Queue[str] | None = None

    def subscribe(self, queue: Queue[str], claims: Queue[InstanceKey], brokers: Queue[str]) -> None:
        """Have the CRDs enqueued that change, and of kinds that are followed claims and broker."""
        self._claims, self._brokers = claims, brokers
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

    def _enqueue(self, key: InstanceKey) -> None:
        if self._claims is not None:
            self._claims.enqueue(key)

    def _follow(self, kind: GeneratedKind) -> None:
        def synced() -> None:
            self._look_at(kind)
            for each in self._informers.kinds(kind.broker):
                self._look_at(each)
            if self._brokers is not None:
                self._brokers.enqueue(kind.broker)  # it says whether its kinds are served

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
        for kind in self._informers.kinds(broker):
            self._look_at(kind)
        for live in self._informers.records.by(BROKER, broker):
            for key in place_of(live):
                self._enqueue(key)

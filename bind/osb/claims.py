"""Reconciles instances and their bindings: look, decide, execute, call."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from bind.osb import informers as views
from bind.osb.brokers import Brokers
from bind.osb.connections import Calls
from bind.osb.decisions import binding as bindings
from bind.osb.decisions import credentials, record, turn
from bind.osb.decisions.record import Record
from bind.osb.decisions.turn import Part
from bind.osb.decisions.view import (
    BindingView,
    InstanceView,
    Pause,
    ReadSecret,
    asked,
    stamped,
)
from bind.osb.metrics import BrokerMetrics
from reconciler.api.osb import BROKER_RECORD, GeneratedKind
from reconciler.controller.controller import Queue
from reconciler.controller.executor import Executor, Observed
from reconciler.core import manifest
from reconciler.core.decision import Create
from reconciler.core.manifest import Manifest, ref_of, uid_of
from reconciler.core.refs import SECRET, Kind, ObjectKey, Ref
from reconciler.kube.informer import ReadYourWrites


class Claims:
    """The reconciler of instances and bindings.

    `terms` returns by which words records of this life of the cluster are known, ours first.
    """

    def __init__(  # noqa: PLR0913 - each is one thing
        self,
        informers: views.Informers,
        executor: Executor,
        *,
        brokers: Brokers,
        calls: Calls[views.InstanceKey],
        places: views.Places,
        metrics: BrokerMetrics,
        terms: Callable[[], Sequence[str]],
    ) -> None:
        self._informers, self._executor, self._terms = informers, executor, terms
        self._brokers, self._calls, self._places = brokers, calls, places
        self._records, self._metrics = informers.recent(informers.records), metrics
        self._pauses: dict[views.InstanceKey, dict[str, Pause]] = {}
        # Records that were made and that no view shows yet: without them, a failed try would be
        # followed by its own id again.
        self._made: dict[views.InstanceKey, set[str]] = {}

    def subscribe(self, queue: Queue[views.InstanceKey]) -> None:
        """Have the instances enqueued whose records change."""
        self._informers.records.subscribe(views.PLACE, queue.enqueue)

        def of_instance(instance_id: object) -> None:
            live = self._informers.records.get(self._informers.namespace, str(instance_id))
            if live is not None:
                for key in views.place_of(live):
                    queue.enqueue(key)

        self._informers.records.subscribe(views.OF_INSTANCE, of_instance)

    async def reconcile(self, key: views.InstanceKey) -> timedelta | None:
        """Reconcile the present state of an instance, and of its bindings.

        Raises ClusterErrors and Stopped.
        """
        view = await self._look(key)
        if view is None:
            return None
        if (answer := self._calls.answer(key)) is not None:
            if answer.outcome is not None:
                part = turn.answered(view, answer.ask, answer.outcome)
                await self._execute(key, view, part)
            self._calls.forget(key)
            return timedelta()
        if view.live is None and not (view.records or view.others or view.bindings):
            self._forget(key)
            self._metrics.blocked(view.kind.broker, key, is_blocked=False)
            return None
        parts = turn.look(view, calling=self._calls.is_calling(key))
        self._metrics.blocked(view.kind.broker, key, is_blocked=turn.is_blocked(parts))
        agains = [await self._execute(key, view, part) for part in parts]
        for part in parts:
            self._ask(key, view, part)
        return min((again for again in agains if again is not None), default=None)

    def _forget(self, key: views.InstanceKey) -> None:
        self._pauses.pop(key, None)
        self._made.pop(key, None)

    async def _execute(
        self, key: views.InstanceKey, view: InstanceView, part: Part
    ) -> timedelta | None:
        """Execute a decision, then remember its results."""
        live, kind = self._about(view, part)
        decision = part.next.decision
        again = decision.again
        self._made.setdefault(key, set()).update(
            manifest.name_of(step.manifest)
            for step in decision.steps
            if isinstance(step, Create) and step.kind == BROKER_RECORD
        )
        if live is not None:
            about = Observed(ref_of(view.cluster, kind, live), live)
            again = await self._executor.execute(decision, about, recents=self._recents(view))
        elif decision.tasks:
            again = await self._executor.execute(decision, recents=self._recents(view))
        if part.next.pauses:
            self._pauses.setdefault(key, {}).update(part.next.pauses)
        if part.next.reads_catalogue and view.broker is not None:
            self._brokers.read_soon(view.broker.spec.name)
        return again

    def _about(self, view: InstanceView, part: Part) -> tuple[Manifest | None, Kind]:
        """Return the claim of a decision; without one, its first record."""
        of = view if part.binding is None else part.binding
        if of.live is not None:
            return of.live, of.kind.kind
        records = of.records or view.others
        return (records[0].live if records else None), self._informers.records.kind

    def _recents(self, view: InstanceView) -> list[ReadYourWrites]:
        kinds = {view.kind.kind, *(each.kind.kind for each in view.bindings)}
        found = (self._informers.claims.get(kind) for kind in kinds)
        return [self._records, *(recent for recent in found if recent is not None)]

    def _ask(self, key: views.InstanceKey, view: InstanceView, part: Part) -> None:
        name = "" if view.broker is None else view.broker.spec.name
        connection = self._brokers.connection(name)
        if part.next.ask is None or connection is None or self._calls.is_calling(key):
            return
        ask, place = part.next.ask, view.place
        identity = place.identity if place is not None and view.live is not None else None
        space = self._places.space(key.namespace)
        call = partial(connection.call, ask.call, space, identity)
        self._calls.send(key, ask, connection, call)

    # Looks

    async def _look(self, key: views.InstanceKey) -> InstanceView | None:
        """Return all that concerns an instance; None where that is not known, or is nothing."""
        kind = self._informers.kind(key.group, key.kind)
        served = () if kind is None else (kind, *self._informers.binding_kinds(kind))
        if any(self._informers.claims.synced(each.kind) is None for each in served):
            return None  # its claims are being read: nobody knows which are absent
        at_place = self._records_at(key)
        records = [each for each in at_place if each.kind == record.INSTANCE]
        if kind is None and records:
            kind = _generated(records[0])  # its CRD is gone, with all claims
        if kind is None:
            self._forget(key)
            return None
        recent = self._informers.claims.synced(kind.kind)
        live = None if recent is None else recent.get(key.namespace, key.name)
        uid = "" if live is None else uid_of(live)
        mine = tuple(each for each in records if uid and each.claim.uid == uid)
        # A record belongs to the broker that made it, even if the CRD names another one now.
        name = next((each.broker for each in (*mine, *records)), kind.broker)
        connection = self._brokers.connection(name)
        broker = None if connection is None else connection.view
        mine = tuple(stamped(each, broker, self._terms()) for each in mine)
        view = InstanceView(
            self._informers.cluster.name,
            kind,
            key.namespace,
            key.name,
            live,
            place=await self._places.of(key.namespace),
            broker=asked(broker, mine or records),
            records=mine,
            others=tuple(each for each in records if each.claim.uid != uid),
            pauses=self._pauses.get(key, {}),
            crd_is_deleting=self._crd_is_deleting(kind),
            unsure=self._informers.unsure,
            term=self._terms()[0],
            now=self._executor.now(),
        )
        made = [each for each in at_place if each.kind == record.BINDING]
        bound = [await self._with_secret(view, each) for each in self._bindings_of(view, made)]
        return replace(view, bindings=tuple(bound))

    def _records_at(self, key: views.InstanceKey) -> list[Record]:
        """Return the records of instances at a place, and of bindings that were just made there."""
        view = self._informers.records
        shown = set(view.keys_by(views.PLACE, key))
        made = {ObjectKey(self._informers.namespace, name) for name in self._made.get(key, ())}
        found = {each: self._record(each) for each in (*shown, *(made - shown))}
        gone = {each.name for each in made if found[each] is None or view.get(*each) is not None}
        self._made.get(key, set()).difference_update(gone)
        return [each for each in found.values() if each is not None]

    def _record(self, key: ObjectKey) -> Record | None:
        live = self._records.get(*key)
        if live is None or manifest.is_deleting(live):
            return None
        return record.read(live, self._informers.cluster.name)

    def _crd_is_deleting(self, kind: GeneratedKind) -> bool:
        crd = self._informers.crds.get("", kind.kind.resource)
        return crd is None or manifest.is_deleting(crd)

    def _bindings_of(self, view: InstanceView, made: list[Record]) -> Iterator[BindingView]:
        left = self._binding_records(view, made)
        for kind in self._informers.binding_kinds(view.kind):
            recent = self._informers.claims.synced(kind.kind)
            if recent is None:
                continue
            place = ObjectKey(view.namespace, view.name)
            for name in recent.view.store.keys_by(views.INSTANCE, place):
                live = recent.get(*name)
                if live is not None:
                    records = tuple(left.pop(uid_of(live), ()))
                    is_deleting = self._crd_is_deleting(kind)
                    yield BindingView(view.cluster, kind, live, records, None, is_deleting)
        for records_left in left.values():
            kind_left = self._kind_of(records_left[0])
            if kind_left is not None:
                yield BindingView(view.cluster, kind_left, None, tuple(records_left))

    def _binding_records(self, view: InstanceView, made: list[Record]) -> dict[str, list[Record]]:
        found = {each.id: each for each in made}
        for instance in (*view.records, *view.others):
            for key in self._informers.records.keys_by(views.OF_INSTANCE, instance.id):
                one = self._record(key)
                if one is not None:
                    found[one.id] = one
        ordered = sorted(found.values(), key=lambda each: each.number)
        return manifest.grouped(ordered, lambda one: one.claim.uid)

    def _kind_of(self, left: Record) -> GeneratedKind | None:
        kind = self._informers.kind(left.claim.group, left.claim.kind)
        if kind is not None:
            return kind if self._informers.claims.synced(kind.kind) is not None else None
        return _generated(left, instances="?")

    async def _with_secret(self, view: InstanceView, binding: BindingView) -> BindingView:
        if binding.live is None or not bindings.needs_secret(view, binding):
            return binding
        name = credentials.name_of(binding.live)
        ref = Ref(binding.cluster, SECRET, manifest.namespace_of(binding.live), name)
        live = await self._informers.cluster.get(ref)
        return replace(binding, secret=ReadSecret(live))


def _generated(left: Record, instances: str = "") -> GeneratedKind:
    kind = Kind(left.claim.group, "v1", left.claim.kind, f"{left.claim.kind.lower()}s")
    return GeneratedKind(kind, left.broker, left.service, {}, instances)

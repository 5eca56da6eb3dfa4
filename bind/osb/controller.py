"""Reconciles ServiceBrokers, and the instances and bindings of what they offer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from bind.osb import informers as views
from bind.osb.connections import BrokerConnections, Calls, Connection
from bind.osb.decisions import binding as bindings
from bind.osb.decisions import causes, credentials, record, turn
from bind.osb.decisions.causes import BrokerState
from bind.osb.decisions.record import Record
from bind.osb.decisions.turn import Part
from bind.osb.decisions.view import BindingView, InstanceView, Pause, ReadSecret, asked, stamped
from bind.osb.metrics import BrokerMetrics
from bind.osb.settings import Settings
from reconciler.api import osb
from reconciler.api.osb import BROKER_RECORD, BrokerSpec, GeneratedKind
from reconciler.broker.client import BrokerAddress, address_of
from reconciler.controller.controller import Controller, Queue
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.controller.tasks import Clock
from reconciler.core import manifest
from reconciler.core.decision import Create
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest, is_deleting, ref_of, uid_of
from reconciler.core.refs import SECRET, Kind, ObjectKey, Ref
from reconciler.kube.informer import ReadYourWrites

_RECORDS: Final = 5.0  # seconds until changed records are counted


class Brokers(BrokerConnections):
    """The reconciler of ServiceBrokers, by name."""

    def __init__(
        self,
        informers: views.Informers,
        executor: Executor,
        settings: Settings,
        *,
        clock: Clock,
        metrics: BrokerMetrics,
        opened: Callable[[str], None],
    ) -> None:
        super().__init__(settings, clock=clock, observer=metrics.observer, opened=opened)
        self._informers, self._executor, self._metrics = informers, executor, metrics
        self._recent = informers.recent(informers.brokers)

    def subscribe(self, queue: Controller[str]) -> None:
        """Have the brokers enqueued that a change concerns."""
        self._look = queue.enqueue
        self._informers.brokers.subscribe_keys(lambda key: queue.enqueue(key.name))
        # Of a thousand claims, records change all the time.
        self._informers.records.subscribe(
            views.BROKER, lambda name: queue.enqueue_after(str(name), _RECORDS)
        )
        self._informers.crds.subscribe(views.BROKER, lambda name: self._kinds_changed(str(name)))

    def _kinds_changed(self, name: str) -> None:
        """Have a catalogue read that is older than a CRD: it lacks the CRD's offering."""
        connection = self.connection(name)
        known = None if connection is None else connection.catalogue.latest
        if known is not None and any(
            (offering := known.offering(kind.offering)) is None
            or any(offering.plan(one) is None for one in kind.plans.values())
            for kind in self._informers.kinds(name)
        ):
            self.read_soon(name)

    async def reconcile(self, name: str) -> timedelta | None:
        """Connect, read the catalogue when that is due, and write the status.

        Raises ClusterErrors and Stopped.
        """
        live = self._recent.get(self._informers.namespace, name)
        if live is None or is_deleting(live) or self._stop.is_set():
            await self._close(name)
            return None
        connection = await self._connected(live, osb.broker_spec(live))
        state = self._state(connection)
        self._metrics.broker(name, up=not connection.closed, records=state.records)
        decision = causes.decide(state)
        about = observed(self._recent, live)
        await self._executor.execute(decision, about, recents=[self._recent])
        return self._again(connection)

    async def _close(self, name: str) -> None:
        if self.connection(name) is not None:
            self._metrics.gone(name)
        await super()._close(name)

    async def _address(self, live: Manifest, spec: BrokerSpec) -> BrokerAddress:
        ref = Ref(self._informers.cluster.name, SECRET, spec.namespace, spec.secret)
        secret = await self._informers.cluster.get(ref) if spec.secret else None
        try:
            return address_of(spec, secret)
        except ConfigError as error:
            raise ConfigError(str(error), where=f"Secret {spec.secret}") from None

    def _state(self, connection: Connection) -> BrokerState:
        name = connection.spec.name
        records = self._informers.records.by(views.BROKER, name)
        return BrokerState(
            connection.spec,
            fault=connection.closed,
            problem=connection.catalogue.problem,
            catalogue=connection.catalogue.latest,
            kinds=tuple(self._informers.kinds(name)),
            troubles=tuple(self._informers.troubles(name)),
            records=tuple(records),
        )


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
        parts = turn.look(view, asked=self._calls.asking(key))
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
        connection = self._brokers.connection("" if view.broker is None else view.broker.spec.name)
        if part.next.ask is None or connection is None or self._calls.asking(key):
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
        return replace(binding, secret=ReadSecret(await self._informers.cluster.get(ref)))


def _generated(left: Record, instances: str = "") -> GeneratedKind:
    kind = Kind(left.claim.group, "v1", left.claim.kind, f"{left.claim.kind.lower()}s")
    return GeneratedKind(kind, left.broker, left.service, {}, instances)

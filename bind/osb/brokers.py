"""Reconciles ServiceBrokers: Secrets, connections, catalogues, status; and calls to brokers.

One call is in flight for each instance, and no worker waits for it. Its answer stays until its
consequence was written: after a conflict, the decision is repeated with the same answer, because
the call must not be repeated.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from bind.osb.decisions import causes
from bind.osb.decisions.causes import BrokerState
from bind.osb.decisions.view import Ask, Broker
from bind.osb.informers import BROKER, Informers, InstanceKey
from bind.osb.metrics import BrokerMetrics
from bind.osb.settings import Settings
from reconciler.api import osb
from reconciler.api.osb import BrokerSpec
from reconciler.blueprints.offering.messages import Call, OriginatingIdentity
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.broker.client import BrokerAddress, BrokerClient, address_of
from reconciler.broker.gate import Gate, KeptCatalogue
from reconciler.controller.controller import Controller, Queue
from reconciler.controller.executor import Executor, observed
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import Clock
from reconciler.core import keys
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest, annotations_of, is_deleting
from reconciler.core.refs import SECRET, Ref
from reconciler.kube.turns import current_party

_AGAIN: Final = timedelta(seconds=30)
_RECORDS: Final = 5.0  # seconds until changed records are counted
_SECRET: Final = 30.0  # seconds for which a Secret is not read again


@dataclass(slots=True)
class Connection:
    """The way to one broker, and what is known of it. Made anew where its address changes."""

    spec: BrokerSpec
    gate: Gate
    catalogue: KeptCatalogue
    address: BrokerAddress | None = None
    client: BrokerClient | None = None
    fault: str = "it was not read yet"  # why there is no client
    asked_at: float | None = None  # when the catalogue was
    secret_at: float | None = None
    is_wanted: bool = False  # the catalogue is to be read before its time
    confirms_mass_delete: bool = False
    moved_to: str = ""  # the origin that its records are to take
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def closed(self) -> str:
        """Why its calls wait, "" where they do not."""
        return self.fault or self.gate.closed

    @property
    def view(self) -> Broker:
        known = self.catalogue
        origin = "" if self.address is None else self.address.url
        return Broker(
            self.spec,
            known.latest,
            self.closed,
            known.is_fresh,
            self.confirms_mass_delete,
            origin,
            takes_over=bool(origin) and self.moved_to == origin,
        )

    async def call(
        self, call: Call, space: str, identity: OriginatingIdentity | None
    ) -> Outcome | None:
        """Return what a call came to; None where there is no way to the broker any more."""
        client = self.client
        if client is None:
            return None
        outcome = await client.call(call, identity=identity)
        self.gate.record(outcome, space=space)
        return outcome


class Brokers:
    """The reconciler of ServiceBrokers, by name.

    `opened` is called with the name of a broker whose instances are to be looked at: its catalogue
    or its address is another, or it takes calls again.
    """

    def __init__(
        self,
        informers: Informers,
        executor: Executor,
        settings: Settings,
        *,
        clock: Clock,
        metrics: BrokerMetrics,
        opened: Callable[[str], None],
    ) -> None:
        self._informers, self._executor, self._settings = informers, executor, settings
        self._clock, self._metrics, self._opened = clock, metrics, opened
        self._recent = informers.recent(informers.brokers)
        self._connections: dict[str, Connection] = {}
        self._queue: Controller[str] | None = None
        self._stop = asyncio.Event()

    def subscribe(self, queue: Controller[str]) -> None:
        """Have the brokers enqueued that a change concerns."""
        self._queue = queue
        self._informers.brokers.subscribe_keys(lambda key: queue.enqueue(key.name))
        # Of a thousand claims, records change all the time.
        self._informers.records.subscribe(
            BROKER, lambda name: queue.enqueue_after(str(name), _RECORDS)
        )
        self._informers.crds.subscribe(BROKER, lambda name: self._kinds_changed(str(name)))

    def connection(self, name: str) -> Connection | None:
        """Return the connection of a broker; None where it was not looked at yet, or is gone."""
        return self._connections.get(name)

    def read_soon(self, name: str) -> None:
        """Have a broker's catalogue read before its time."""
        connection = self._connections.get(name)
        if connection is not None and self._queue is not None:
            connection.is_wanted = True
            self._queue.enqueue(name)

    def _kinds_changed(self, name: str) -> None:
        """Have a catalogue read that is older than a CRD: it lacks what that was made for."""
        connection = self._connections.get(name)
        known = None if connection is None else connection.catalogue.latest
        if known is not None and any(
            (offering := known.offering(kind.offering)) is None
            or any(offering.plan(one) is None for one in kind.plans.values())
            for kind in self._informers.kinds(name)
        ):
            self.read_soon(name)

    async def reconcile(self, name: str) -> timedelta | None:
        """Connect, read the catalogue when that is due, and say how it is.

        Raises ClusterErrors and Stopped.
        """
        live = self._recent.get(self._informers.namespace, name)
        if live is None or is_deleting(live) or self._stop.is_set():
            await self._close(name)
            return None
        connection = await self._connected(live)
        if self._is_due(connection):
            await self._read(connection)
        state = self._state(connection)
        self._metrics.broker(name, up=not connection.closed, records=state.records)
        decision = causes.decide(state)
        about = observed(self._recent, live)
        await self._executor.execute(decision, about, recents=[self._recent])
        return self._again(connection)

    async def run(self) -> None:
        """Keep connections until `stop`, then close them."""
        try:
            await self._stop.wait()
        finally:
            self._stop.set()
            for name in list(self._connections):
                await self._close(name)

    def stop(self) -> None:
        """Connect to no broker any more."""
        self._stop.set()

    async def _close(self, name: str) -> None:
        connection = self._connections.pop(name, None)
        if connection is not None:
            await connection.stack.aclose()
            self._metrics.gone(name)
            self._opened(name)

    async def _connected(self, live: Manifest) -> Connection:
        """Return the connection of a ServiceBroker, by its present Secret."""
        spec = osb.broker_spec(live)
        connection = self._connections.get(spec.name)
        if connection is None:
            gate = Gate(now=self._now)
            connection = Connection(spec, gate, KeptCatalogue(gate, now=self._now))
            self._connections[spec.name] = connection
        annotations = annotations_of(live)
        confirms = keys.CONFIRM_MASS_DELETE in annotations
        moved_to = annotations.get(keys.OSB_MOVED, "")
        if (confirms, moved_to) != (connection.confirms_mass_delete, connection.moved_to):
            connection.confirms_mass_delete, connection.moved_to = confirms, moved_to
            self._opened(spec.name)  # decide claims again, with this confirmation
        read_at = connection.secret_at
        # A Secret is not followed, for want of that right.
        is_read = read_at is not None and self._now() - read_at < _SECRET
        if spec == connection.spec and not connection.closed and is_read:
            return connection
        connection.spec, connection.secret_at = spec, self._now()
        ref = Ref(self._informers.cluster.name, SECRET, spec.namespace, spec.secret)
        secret = await self._informers.cluster.get(ref) if spec.secret else None
        try:
            address = address_of(spec, secret)
        except ConfigError as error:
            await self._disconnect(connection, f"Secret {spec.secret}: {error}")
            return connection
        if address != connection.address:
            await self._connect(connection, address)
        return connection

    async def _connect(self, connection: Connection, address: BrokerAddress) -> None:
        await self._disconnect(connection, "")
        observe, timing = self._metrics.observer(connection.spec.name), connection.spec.timing
        client = self._settings.client(address, timeout=timing.request, observe=observe)
        try:
            await connection.stack.enter_async_context(client)
        except ConfigError as error:
            connection.fault = str(error)
            return
        connection.address, connection.client = address, client
        connection.gate.use(address.digest)
        connection.is_wanted = True

    async def _disconnect(self, connection: Connection, fault: str) -> None:
        """Close a connection. A call that is on its way there has an unknown outcome."""
        connection.address = connection.client = None
        connection.fault = fault
        stack, connection.stack = connection.stack, AsyncExitStack()
        await stack.aclose()

    def _is_due(self, connection: Connection) -> bool:
        if connection.client is None or connection.gate.pause > 0:
            return False
        if connection.is_wanted or connection.gate.doubted or connection.gate.closed:
            return True
        every = connection.spec.timing.catalog.total_seconds()
        return connection.asked_at is None or self._now() - connection.asked_at >= every

    async def _read(self, connection: Connection) -> None:
        """Read the catalogue, and look at all instances where that may change what follows."""
        assert connection.client is not None
        before = connection.catalogue.latest, connection.closed
        wanted, connection.is_wanted = connection.is_wanted, False
        connection.asked_at = self._now()
        await connection.catalogue.read(connection.client)
        if wanted or before != (connection.catalogue.latest, connection.closed):
            self._opened(connection.spec.name)

    def _state(self, connection: Connection) -> BrokerState:
        name = connection.spec.name
        records = self._informers.records.by(BROKER, name)
        return BrokerState(
            connection.spec,
            fault=connection.closed,
            problem=connection.catalogue.problem,
            catalogue=connection.catalogue.latest,
            kinds=tuple(self._informers.kinds(name)),
            troubles=tuple(self._informers.troubles(name)),
            records=tuple(records),
        )

    def _again(self, connection: Connection) -> timedelta:
        if connection.client is None:
            return _AGAIN  # its Secret is not followed
        if connection.closed or connection.gate.doubted:
            return timedelta(seconds=max(connection.gate.pause, 1.0))
        every = connection.spec.timing.catalog
        asked = connection.asked_at if connection.asked_at is not None else self._now()
        return max(every - timedelta(seconds=self._now() - asked), timedelta(seconds=1))

    def _now(self) -> float:
        return self._clock.monotonic()


@dataclass(frozen=True, slots=True)
class Answered:
    """A call and what it came to; None: it was not sent, because its broker takes no calls now."""

    ask: Ask
    outcome: Outcome | None


class Calls:
    """Sends calls, and holds their answers by instance."""

    def __init__(self, fence: WriteFence, metrics: Metrics) -> None:
        self._fence, self._metrics = fence, metrics
        self._queue: Queue[InstanceKey] | None = None
        self._stop = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._answers: dict[InstanceKey, Answered] = {}
        self._sent: dict[InstanceKey, asyncio.Task[None]] = {}

    def subscribe(self, queue: Queue[InstanceKey]) -> None:
        self._queue = queue

    def is_calling(self, key: InstanceKey) -> bool:
        return key in self._sent

    def answer(self, key: InstanceKey) -> Answered | None:
        """Return the answer that was not dealt with yet."""
        return self._answers.get(key)

    def forget(self, key: InstanceKey) -> None:
        """Drop an answer: what follows from it was executed."""
        self._answers.pop(key, None)

    def send(
        self,
        key: InstanceKey,
        ask: Ask,
        connection: "Connection",
        *,
        space: str,
        identity: OriginatingIdentity | None,
    ) -> None:
        """Send a call when its broker has a turn for this task's party; nothing once this stops."""

        async def run() -> None:
            outcome = None
            try:
                with self._metrics.activity.work(f"a call for {key}"):
                    async with connection.gate.turn(current_party()):
                        if not connection.closed:
                            self._fence.check()
                            outcome = await connection.call(ask.call, space, identity)
            except Stopped:
                return  # another process leads by now, and may be about to undo this very call
            finally:
                del self._sent[key]
            self._answers[key] = Answered(ask, outcome)
            if self._queue is not None:
                self._queue.enqueue(key)

        if self._group is not None and not self._stop.is_set():
            self._sent[key] = self._group.create_task(run())

    async def run(self) -> None:
        """Send until `stop`."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            await self._stop.wait()
            for task in self._sent.values():
                task.cancel()

    def stop(self) -> None:
        """Give up what is on its way: its record says that the outcome is not known."""
        self._stop.set()

"""Connects to brokers: Secrets, clients, catalogues; and sends calls.

One call is in flight for each key, and no worker waits for it. Its answer stays until its
consequence was written: after a conflict, the decision is repeated with the same answer, because
the call must not be repeated.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

from bind.osb.decisions.view import Broker
from bind.osb.settings import Settings
from reconciler.api.osb import BrokerSpec
from reconciler.blueprints.offering.messages import Call, HttpRequest, OriginatingIdentity
from reconciler.blueprints.offering.outcomes import Done, Outcome, Unknown, Unsent
from reconciler.broker.client import BrokerAddress, BrokerClient, Observe
from reconciler.broker.gate import Gate, KeptCatalogue
from reconciler.controller.controller import Queue
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import Clock
from reconciler.core import keys
from reconciler.core.errors import ClusterError, ConfigError
from reconciler.core.manifest import Manifest, annotations_of
from reconciler.kube.turns import current_party
from reconciler.web.outbound import Answer

K = TypeVar("K", bound=Hashable)
_AGAIN: Final = timedelta(seconds=30)
_SECRET: Final = 30.0  # seconds for which a Secret is not read again: no right lets it be followed
UNREAD: Final = "it was not read yet"  # nobody has tried to connect


@dataclass(slots=True)
class Connection:
    """A connection to one broker, with its catalogue. Made again where its address changes.

    `look` has its reconciler look at it; `reads`: somebody needs its catalogue.
    """

    spec: BrokerSpec
    gate: Gate
    catalogue: KeptCatalogue
    address: BrokerAddress | None = None
    client: BrokerClient | None = None
    fault: str = UNREAD  # why there is no client
    asked_at: float | None = None  # when the catalogue was
    secret_at: float | None = None
    reads: bool = True
    is_wanted: bool = False  # the catalogue is to be read before its time
    annotations: Mapping[str, str] = field(default_factory=dict)  # of the object that says where
    origin: str = ""  # the last one that was connected to, of which its catalogue is
    look: Callable[[], None] = lambda: None
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
            self.annotations.get(keys.CONFIRM_MASS_DELETE, ""),
            origin,
            takes_over=bool(origin) and self.annotations.get(keys.OSB_MOVED) == origin,
        )

    async def call(
        self, call: Call, space: str, identity: OriginatingIdentity | None
    ) -> Outcome | None:
        """Return the outcome of a call; None where the broker is not connected any more."""
        client = self.client
        if client is None:
            return None
        outcome = await client.call(call, identity=identity)
        self._record(outcome, space)
        return outcome

    async def ask(self, request: HttpRequest, space: str = "") -> Answer | Unsent | Unknown:
        """Return the answer to another request: its server takes calls, with whatever answer."""
        if self.client is None:
            return Unsent(self.fault)
        answer = await self.client.send(request)
        self._record(answer if isinstance(answer, Unsent | Unknown) else Done(), space)
        return answer

    def _record(self, outcome: Outcome, space: str) -> None:
        self.gate.record(outcome, space=space)
        if self.closed or self.gate.doubted:
            self.look()


class BrokerConnections(ABC):
    """The connections of objects with the address of a broker, by name.

    `opened` has the instances of a broker reconciled, by its name: its catalogue or its address is
    another, or it takes calls again.
    """

    reads: ClassVar[bool] = True  # also a catalogue that nobody has wanted yet
    _look: Callable[[str], None]  # has a name reconciled

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        observer: Callable[[str], Observe],
        opened: Callable[[str], None],
    ) -> None:
        self._settings, self._clock = settings, clock
        self._observer, self._opened = observer, opened
        self._connections: dict[str, Connection] = {}
        self._stop = asyncio.Event()

    @abstractmethod
    async def _address(self, live: Manifest, spec: BrokerSpec) -> BrokerAddress:
        """Return where a broker is. Raises ConfigError and ClusterErrors."""

    def connection(self, name: str) -> Connection | None:
        """Return the connection of a broker; None where it was not looked at yet, or is gone."""
        return self._connections.get(name)

    def read_soon(self, name: str) -> None:
        """Have a broker's catalogue read before its time."""
        connection = self._connections.get(name)
        if connection is not None:
            connection.reads = connection.is_wanted = True
            connection.look()

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
            self._opened(name)

    async def _connected(self, live: Manifest, spec: BrokerSpec) -> Connection:
        """Return the connection of an object, by its present Secret and with its catalogue.

        Raises ClusterErrors.
        """
        connection, annotations = self._connections.get(spec.name), annotations_of(live)
        if connection is None:
            gate, look = Gate(now=self._now), partial(self._look, spec.name)
            known = KeptCatalogue(gate, now=self._now)
            connection = Connection(spec, gate, known, reads=self.reads, look=look)
            self._connections[spec.name] = connection
        elif annotations != connection.annotations:
            self._opened(spec.name)  # decide again, with what they confirm
        connection.annotations = annotations
        read_at = connection.secret_at
        is_read = read_at is not None and self._now() - read_at < _SECRET
        if spec != connection.spec or connection.closed or not is_read:
            before = connection.spec, connection.fault
            try:
                await self._renew(connection, live, spec)
            finally:
                if before != (connection.spec, connection.fault):
                    self._opened(spec.name)
        if self._is_due(connection):
            await self._read(connection)
        return connection

    async def _renew(self, connection: Connection, live: Manifest, spec: BrokerSpec) -> None:
        try:
            address = await self._address(live, spec)
        except ConfigError as error:
            connection.spec, connection.secret_at = spec, self._now()
            await self._disconnect(connection, str(error))
            return
        except ClusterError as error:
            if connection.client is None:
                connection.fault = str(error)
            raise
        connection.spec, connection.secret_at = spec, self._now()
        if address.url != connection.origin:
            connection.origin = address.url
            connection.catalogue = KeptCatalogue(connection.gate, now=self._now)
        if address != connection.address:
            await self._connect(connection, address)

    async def _connect(self, connection: Connection, address: BrokerAddress) -> None:
        await self._disconnect(connection, "")
        observe, timing = self._observer(connection.spec.name), connection.spec.timing
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
        if connection.client is None or not connection.reads or connection.gate.pause > 0:
            return False
        if connection.is_wanted or connection.gate.doubted or connection.gate.closed:
            return True
        asked_at = connection.asked_at
        return asked_at is None or self._now() - asked_at >= _every(connection).total_seconds()

    async def _read(self, connection: Connection) -> None:
        """Read the catalogue, and have all instances reconciled after a change."""
        assert connection.client is not None
        before = connection.catalogue.latest, connection.closed
        wanted, connection.is_wanted = connection.is_wanted, False
        connection.asked_at = self._now()
        await connection.catalogue.read(connection.client)
        if wanted or before != (connection.catalogue.latest, connection.closed):
            self._opened(connection.spec.name)

    def _again(self, connection: Connection) -> timedelta:
        if connection.client is None:
            return _AGAIN  # its Secret is not followed
        if connection.closed or connection.gate.doubted:
            return timedelta(seconds=max(connection.gate.pause, 1.0))
        asked = connection.asked_at if connection.asked_at is not None else self._now()
        left = _every(connection) - timedelta(seconds=self._now() - asked)
        return max(left, timedelta(seconds=1))

    def _now(self) -> float:
        return self._clock.monotonic()


def _every(connection: Connection) -> timedelta:
    """Return how often a catalogue is read: one that never could be is tried the sooner."""
    is_unread = connection.catalogue.problem and connection.catalogue.latest is None
    return _AGAIN if is_unread else connection.spec.timing.catalog


@dataclass(frozen=True, slots=True)
class Answered:
    """A call and its outcome; None: it was not sent, because its broker takes no calls now."""

    ask: Any
    outcome: Any


class Calls(Generic[K]):
    """Sends calls, and holds their answers by key."""

    def __init__(self, fence: WriteFence, metrics: Metrics) -> None:
        self._fence, self._metrics = fence, metrics
        self._queue: Queue[K] | None = None
        self._stop = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._answers: dict[K, Answered] = {}
        self._sent: dict[K, tuple[Any, asyncio.Task[None]]] = {}

    def subscribe(self, queue: Queue[K]) -> None:
        self._queue = queue

    def asking(self, key: K) -> Any:
        """Return the question of the call that is on its way, None where none is."""
        return self._sent.get(key, (None,))[0]

    def answer(self, key: K) -> Answered | None:
        """Return the answer that was not dealt with yet."""
        return self._answers.get(key)

    def forget(self, key: K) -> None:
        """Drop an answer: its consequence was executed."""
        self._answers.pop(key, None)

    def send(
        self, key: K, ask: Any, connection: Connection, call: Callable[[], Awaitable[object]]
    ) -> None:
        """Make a call when its broker has a turn for this task's party; nothing once this stops."""

        async def run(client: BrokerClient | None = connection.client) -> None:
            outcome = None
            try:
                with self._metrics.activity.work(f"a call for {key}"):
                    async with connection.gate.turn(current_party()):
                        # Meanwhile, its address may have become that of another broker.
                        if not connection.closed and connection.client is client:
                            outcome = await self._fence.guarded(call)
            except Stopped:
                return  # another process leads by now, and may be about to undo this very call
            finally:
                del self._sent[key]
            self._answers[key] = Answered(ask, outcome)
            if self._queue is not None:
                self._queue.enqueue(key)

        if self._group is not None and not self._stop.is_set():
            self._sent[key] = ask, self._group.create_task(run())

    async def run(self) -> None:
        """Send until `stop`."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            await self._stop.wait()
            for _, task in self._sent.values():
                task.cancel()

    def stop(self) -> None:
        """Give up the calls on their way: their records state an unknown outcome."""
        self._stop.set()

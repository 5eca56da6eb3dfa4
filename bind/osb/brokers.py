"""Reconciles ServiceBrokers: connection, catalogue, status."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from bind.osb.connections import BrokerConnections, Connection
from bind.osb.decisions import causes
from bind.osb.decisions.causes import BrokerState
from bind.osb.informers import BROKER, Informers
from bind.osb.metrics import BrokerMetrics
from bind.osb.settings import Settings
from reconciler.api import osb
from reconciler.api.osb import BrokerSpec
from reconciler.broker.client import BrokerAddress, address_of
from reconciler.controller.controller import Controller
from reconciler.controller.executor import Executor, observed
from reconciler.controller.tasks import Clock
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest, is_deleting
from reconciler.core.refs import SECRET, Ref

_RECORDS: Final = 5.0  # seconds until changed records are counted


class Brokers(BrokerConnections):
    """The reconciler of ServiceBrokers, by name."""

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
        super().__init__(settings, clock=clock, observer=metrics.observer, opened=opened)
        self._informers, self._executor, self._metrics = informers, executor, metrics
        self._recent = informers.recent(informers.brokers)

    def subscribe(self, queue: Controller[str]) -> None:
        """Have the brokers enqueued that a change concerns."""
        self._look = queue.enqueue
        self._informers.brokers.subscribe_keys(lambda key: queue.enqueue(key.name))
        # Of a thousand claims, records change all the time.
        self._informers.records.subscribe(
            BROKER, lambda name: queue.enqueue_after(str(name), _RECORDS)
        )
        self._informers.crds.subscribe(BROKER, lambda name: self._kinds_changed(str(name)))

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

"""A bound unit, made by hand on real API servers as backend and konnector would leave it."""

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from reconciler import api
from reconciler.controller.tasks import SystemClock
from reconciler.core.refs import CRD, Kind, Ref
from reconciler.core.times import format_time
from reconciler.fleet.values import UnitKey
from tests.support.definitions import version_of
from tests.support.observing import BIND, Hand, established
from tests.support.wire_objects import MANAGER

USUAL: Final = ("SecretValid", "Connected", "Heartbeating")
OLD: Final = timedelta(days=1)


def condition(kind: str, status: str = "True", **more: Any) -> dict[str, Any]:
    time = format_time(SystemClock().now() - OLD)
    return {"type": kind, "status": status, "lastTransitionTime": time, **more}


def new_unit(cluster: str = "shop", plural: str = "databases") -> UnitKey:
    """Return a unit of a group that no other test uses."""
    return UnitKey(cluster, f"g{uuid.uuid4().hex[:8]}.example", plural)


@dataclass
class ByHand:
    """Plays backend and konnector, at the test's word, for one space and one app cluster.

    `bindings` is where the APIServiceBindings are: in klutch-bind of the app cluster, or the space.
    """

    space: str
    plane: Hand
    app: Hand
    secret: tuple[str, str] = (BIND, "kubeconfig-byhand")

    @property
    def bindings(self) -> tuple[Hand, str]:
        return (self.app, BIND) if self.secret[0] == BIND else (self.plane, self.space)

    async def cluster_binding(self) -> None:
        spec = {
            "kubeconfigSecretRef": {"name": "kubeconfig", "key": "kubeconfig"},
            "providerPrettyName": "Shop Inc",
        }
        await self.plane.create(api.CLUSTER_BINDING, "cluster", namespace=self.space, spec=spec)

    async def beat(self, ago: timedelta = timedelta()) -> None:
        status = {
            "lastHeartbeatTime": format_time(SystemClock().now() - ago),
            "heartbeatInterval": "5m0s",
        }
        await self._status(self.plane, api.CLUSTER_BINDING, self.space, "cluster", status)

    async def export(self, unit: UnitKey) -> None:
        spec = {**self._definition(unit), "informerScope": "Namespaced"}
        await self.plane.create(api.API_SERVICE_EXPORT, unit.name, namespace=self.space, spec=spec)

    async def bind(self, unit: UnitKey, **metadata: Any) -> None:
        namespace, name = self.secret
        spec = {"kubeconfigSecretRef": {"namespace": namespace, "name": name, "key": "kubeconfig"}}
        hand, place = self.bindings
        await hand.create(
            api.API_SERVICE_BINDING, unit.name, namespace=place, spec=spec, metadata=metadata
        )

    async def report(self, unit: UnitKey, *conditions: Any) -> None:
        """Set the conditions of a binding; the usual ones, all True, where none is given."""
        reported = list(conditions) or [condition(kind) for kind in USUAL]
        hand, place = self.bindings
        await self._status(
            hand, api.API_SERVICE_BINDING, place, unit.name, {"conditions": reported}
        )

    async def install(self, unit: UnitKey) -> None:
        await self.app.create(CRD, unit.name, spec=self._definition(unit))
        kind = Kind(unit.group, "v1", unit.resource.title(), unit.resource)
        await established(self.app.live.cluster, kind)

    async def make_ready(self, unit: UnitKey) -> None:
        """Do all that a unit needs in a space that has its ClusterBinding and a heartbeat."""
        await self.export(unit)
        await self.bind(unit)
        await self.install(unit)
        await self.report(unit)

    def _definition(self, unit: UnitKey) -> dict[str, Any]:
        names = {"plural": unit.resource, "kind": unit.resource.title()}
        spec = {"group": unit.group, "names": names, "scope": "Namespaced"}
        return {**spec, "versions": [version_of()]}

    async def _status(self, hand: Hand, kind: Kind, namespace: str, name: str, status: Any) -> None:
        cluster = hand.live.cluster
        ref = Ref(cluster.name, kind, namespace, name)
        await cluster.merge_patch(ref, {"status": status}, manager=MANAGER, subresource="status")

"""Renews the kubeconfig of the app cluster in control-plane mode (A.2, H22).

It is tried first. One that fails, or leads to another cluster, changes nothing: for another app
cluster, the process has to start and read everything again.
"""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from konnector import APP_CLUSTER
from konnector.context import AgentContext, SecretInformers
from konnector.kubeconfig import connections, judge
from konnector.kubeconfig.connections import Connect, RotatingCluster
from konnector.settings import ControlPlaneMode
from reconciler.api import kubeconfig_content
from reconciler.controller.controller import Controller
from reconciler.controller.tasks import Clock, TaskSupervisor
from reconciler.core import names
from reconciler.core.errors import ClusterError, ConfigError
from reconciler.core.refs import SECRET, ObjectKey, Ref
from reconciler.kube.cluster import Cluster, Reader

log = logging.getLogger(__name__)

_KEY: Final = "app cluster"
_AGAIN: Final = timedelta(minutes=1)  # until a kubeconfig that did not work is tried again
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0


@dataclass(frozen=True, slots=True)
class InUse:
    """The kubeconfig that the app cluster is reached with, and which cluster that is."""

    fingerprint: str
    uid: str


async def content(plane: Reader, mode: ControlPlaneMode) -> bytes:
    """Return the app cluster's kubeconfig. Raises ConfigError where there is none to be had."""
    failed = "failed to fetch the app-cluster kubeconfig secret"
    place = f"{mode.secret_namespace}/{mode.secret_name}"
    try:
        live = await plane.get(Ref(plane.name, SECRET, mode.secret_namespace, mode.secret_name))
    except ClusterError as error:
        raise ConfigError(str(error), where=f"{failed} {place}") from None
    if live is None:
        raise ConfigError("it does not exist on the control plane", where=f"{failed} {place}")
    found = kubeconfig_content(live, mode.secret_key)
    if isinstance(found, str):
        raise ConfigError(f"{place} {found}", where=failed)
    return found


async def working(
    plane: Reader, mode: ControlPlaneMode, connect: Connect, clock: Clock
) -> tuple[Cluster, InUse]:
    """Return the app cluster, once a kubeconfig leads there that works.

    It is read again for each attempt. Raises as `content`, and ConfigError for an invalid one.
    """
    pause = _FIRST_PAUSE
    while True:
        tried = await content(plane, mode)
        cluster = connect(tried, APP_CLUSTER)
        async with AsyncExitStack() as opened:
            opened.push_async_callback(cluster.close)
            found = await connections.namespace_of(cluster, names.KUBE_SYSTEM)
            if not found.fault:
                opened.pop_all()
                return cluster, InUse(judge.fingerprint(tried), found.uid)
        log.warning("the app cluster cannot be reached", extra={"error": found.fault})
        await clock.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


class AppKubeconfig(TaskSupervisor):
    """Watches the Secret, and switches the app cluster's connection.

    `on_fault` is called with why the Secret that is there now is not used, a sentence, and with ""
    when it is used again.
    """

    def __init__(
        self,
        context: AgentContext,
        plane: Cluster,
        mode: ControlPlaneMode,
        in_use: InUse,
        *,
        on_fault: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._context, self._mode, self._in_use = context, mode, in_use
        self._on_fault, self._fault = on_fault, ""
        self._place = ObjectKey(mode.secret_namespace, mode.secret_name)
        controller = Controller(
            "appclusterkubeconfig",
            self.reconcile,
            clock=context.clock,
            metrics=context.metrics,
            depends_on=(plane.connectivity,),
        )
        self._views = SecretInformers(
            plane, context.metrics, on_change=lambda _: controller.enqueue(_KEY)
        )
        self._views.need(_KEY, [self._place])
        self.start_worker("secret", self._views)
        self.start_worker(controller.name, controller)

    async def reconcile(self, key: str) -> timedelta | None:
        """Reconcile the Secret: use its kubeconfig if that is new and works."""
        fault = await self._look()
        if fault != self._fault:
            self._fault = fault
            if fault:
                fields = {"secret": str(self._place), "error": fault}
                log.error("the app cluster's kubeconfig cannot be used", extra=fields)
            self._on_fault(fault)
        return _AGAIN if fault else None

    async def _look(self) -> str:
        app, live = self._context.app, self._views.object(self._place)
        found = (
            "does not exist" if live is None else kubeconfig_content(live, self._mode.secret_key)
        )
        if isinstance(found, str):
            return f"Kubeconfig secret {self._place} {found}"
        fingerprint = judge.fingerprint(found)
        if fingerprint == self._in_use.fingerprint or not isinstance(app, RotatingCluster):
            return ""
        connect = self._context.connect
        probed = await connections.probe(connect, found, APP_CLUSTER, names.KUBE_SYSTEM)
        if probed.fault:
            return probed.fault
        if probed.uid != self._in_use.uid:
            return "it belongs to another cluster; restart the konnector to serve that one"
        app.rotate(connect(found, APP_CLUSTER))
        self._in_use = InUse(fingerprint, probed.uid)
        log.info("the app cluster's new kubeconfig is in use", extra={"secret": str(self._place)})
        return ""

"""Follows the kubeconfig of the app cluster in control-plane mode, so that it can be renewed (H22).

It is tried first. One that does not work, or leads to another cluster, changes nothing: for
another app cluster the process has to start anew, which reads everything anew.
"""

import asyncio
import logging

from konnector import probing
from konnector.decisions import secret
from konnector.decisions.sides import APP_CLUSTER
from konnector.named_views import NamedViews
from konnector.settings import ControlPlaneMode
from konnector.switching import Switching
from konnector.tools import Tools
from reconciler.core import names
from reconciler.core.refs import SECRET, ObjectKey
from reconciler.kube.cluster import Cluster
from reconciler.loop.children import Children

log = logging.getLogger(__name__)


class AppKubeconfig:
    """Watches the Secret, and switches the app cluster's connection."""

    def __init__(self, tools: Tools, plane: Cluster, mode: ControlPlaneMode) -> None:
        self._tools, self._mode = tools, mode
        self._place = ObjectKey(mode.secret_namespace, mode.secret_name)
        self._stir = asyncio.Event()
        self._views = NamedViews(plane, SECRET, told=lambda _: self._stir.set())
        self._views.need("app-cluster", [self._place])
        self._in_use = ""
        self._children = Children()
        self._children.employ("secret", self._views)
        self._children.start("switching", self._follow)

    def stop(self) -> None:
        """Follow no more."""
        self._children.stop()

    async def run(self) -> None:
        """Follow until `stop`."""
        await self._children.run()

    async def _follow(self) -> None:
        while True:
            await self._stir.wait()
            self._stir.clear()
            await self._look()

    async def _look(self) -> None:
        live = self._views.get(self._place)
        content = None if live is None else secret.content_of(live, self._mode.secret_key)
        if not isinstance(content, bytes):
            log.warning("the app cluster's kubeconfig is not there", extra=self._fields)
            return
        fingerprint = secret.fingerprint(content)
        app = self._tools.app
        if not self._in_use or fingerprint == self._in_use or not isinstance(app, Switching):
            self._in_use = self._in_use or fingerprint
            return
        known = await probing.namespace_of(app, names.KUBE_SYSTEM)
        found = await probing.probe(self._tools.connect, content, APP_CLUSTER, names.KUBE_SYSTEM)
        if found.fault or (known.uid and found.uid != known.uid):
            fault = found.fault or "it leads to another cluster: restart the konnector for that"
            log.error("a new kubeconfig is not used", extra={**self._fields, "error": fault})
            return
        self._in_use = fingerprint
        await app.switch(self._tools.connect(content, APP_CLUSTER))
        log.info("the app cluster is reached with a new kubeconfig", extra=self._fields)

    @property
    def _fields(self) -> dict[str, str]:
        return {"secret": "/".join(self._place)}

"""Frees, at the start, the instances of kinds that no binding names any more (U3).

Somebody deleted their binding while no konnector looked; they could never be deleted. Their copies
on the control plane stay, and so does the mark of the instances: bound again, they are joined.
"""

import asyncio
import logging
import random
from typing import Final

from konnector.decisions import crd, drain
from konnector.decisions.sides import APP_CLUSTER
from konnector.hands import Hands
from konnector.tools import Tools
from reconciler.core.decision import Decision, Task
from reconciler.core.errors import ClusterError, Forbidden, KlutchError, NotServed
from reconciler.core.manifest import is_deleting, name_of, uid_of
from reconciler.core.refs import NAMESPACE, Kind, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import pause
from reconciler.loop.waiting import unless

log = logging.getLogger(__name__)

_LONGEST: Final = 60.0  # seconds between two attempts


class Leftovers:
    """Looks once, and again until that went well. `kind` is what bindings are in `home`.

    `space` is that of control-plane mode, else "": there a CRD says of which space it is; elsewhere
    its owner does, who may be in any namespace.
    """

    def __init__(self, tools: Tools, home: Cluster, kind: Kind, *, space: str) -> None:
        self._tools, self._home, self._kind, self._space = tools, home, kind, space
        self._hands = Hands({APP_CLUSTER: tools.app}, tools.gate)
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Begin nothing new."""
        self._stop.set()

    async def run(self) -> None:
        """Free what is left, and then wait for `stop`."""
        await unless(self._stop, self._free_all())
        await self._stop.wait()

    async def _free_all(self) -> None:
        failures = 0
        while True:
            try:
                await self._free()
            except Forbidden as error:
                log.warning("what is left is not looked for", extra={"error": str(error)})
                return
            except KlutchError as error:
                failures += 1
                log.warning("what is left was not freed yet", extra={"error": str(error)})
                asked = error.retry_after if isinstance(error, ClusterError) else None
                seconds = min(pause(failures, asked=asked, jitter=random.random()), _LONGEST)
                await self._tools.clock.sleep(seconds)
            else:
                return

    async def _free(self) -> None:
        uid = await self._space_uid()
        if self._space and not uid:
            return
        candidates = [one for one in self._tools.crds.all() if crd.was_made(one, space_uid=uid)]
        if not candidates:
            return
        served = self._tools.crds.get("", self._kind.resource)
        if not self._space and (served is None or is_deleting(served)):
            return  # who deletes the kind says nothing about each binding
        # Of all of them, or nothing follows: a view may hold those of one namespace.
        listed = await self._home.list(self._kind, namespace=self._space, metadata_only=True)
        named = {name_of(one) for one in listed.items}
        for one in candidates:
            if name_of(one) not in named and not is_deleting(one):
                await self._free_instances(name_of(one))

    async def _space_uid(self) -> str:
        if not self._space:
            return ""
        ref = Ref(self._home.name, NAMESPACE, "", self._space)
        live = await self._home.get(ref, metadata_only=True)
        return "" if live is None else uid_of(live)

    async def _free_instances(self, name: str) -> None:
        body = await self._tools.bodies.get("", name)
        if body is None:
            return
        kind = crd.instance_kind(body)
        try:
            found = await self._tools.app.list(kind, metadata_only=True)
        except NotServed:
            return
        steps = [drain.freed(kind, one) for one in found.items]
        tasks = tuple(Task((step,)) for step in steps if step is not None)
        if tasks:
            log.warning(
                "instances of a kind that is bound no more are let go", extra={"kind": name}
            )
            await self._hands.carry_out(Decision(tasks=tasks), ())

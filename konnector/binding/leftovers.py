"""Frees, at the start, the instances of kinds that no binding names any more (U3).

Somebody deleted their binding while no konnector looked; they could never be deleted. Their copies
on the control plane stay, and so does the mark of the instances: bound again, they are joined.
Nothing is written while this may be another app cluster than the one that was bound (T8), which
only the spaces of the bindings that are left can tell.
"""

import asyncio
import logging
import random
from typing import Final, Protocol

from konnector.binding import crd, drain
from konnector.binding.controller import key_of
from konnector.context import Tools
from konnector.provider.provider import Provider
from reconciler.controller.tasks import unless
from reconciler.core.decision import Decision, Task
from reconciler.core.errors import ClusterError, Forbidden, KlutchError, NotServed
from reconciler.core.manifest import is_deleting, name_of, uid_of
from reconciler.core.refs import NAMESPACE, ObjectKey, Ref
from reconciler.kube.cache.informer import pause
from reconciler.kube.cache.store import Store
from reconciler.kube.cluster import Cluster

log = logging.getLogger(__name__)

_LONGEST: Final = 60.0  # seconds between two attempts


class Places(Protocol):
    """Which binding belongs to which provider."""

    def of(self, key: ObjectKey) -> Provider | None:
        """Return the provider that a binding belongs to."""
        ...

    def all(self) -> list[Provider]:
        """Return all providers."""
        ...


class Leftovers:
    """Looks once, and again until that went well. `bindings` is the view of those in `home`.

    `space` is that of control-plane mode, else "": there a CRD says of which space it is; elsewhere
    its owner does, who may be in any namespace.
    """

    def __init__(
        self, tools: Tools, home: Cluster, bindings: Store, providers: Places, *, space: str
    ) -> None:
        self._tools, self._home, self._space = tools, home, space
        self._bindings, self._kind, self._providers = bindings, bindings.kind, providers
        self._executor = tools.executor()
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
            asked = None
            try:
                held = await self._free()
            except Forbidden as error:
                log.warning("what is left is not looked for", extra={"error": str(error)})
                return
            except KlutchError as error:
                held = str(error)
                asked = error.retry_after if isinstance(error, ClusterError) else None
            if not held:
                return
            failures += 1
            log.warning("what is left was not freed yet", extra={"error": held})
            seconds = min(pause(failures, asked=asked, jitter=random.random()), _LONGEST)
            await self._tools.clock.sleep(seconds)

    async def _free(self) -> str:
        """Free it; return why something is not freed yet, or ""."""
        uid = await self._space_uid()
        if self._space and not uid:
            return ""
        candidates = [one for one in self._tools.crds.all() if crd.was_made(one, space_uid=uid)]
        if not candidates:
            return ""
        served = self._tools.crds.get("", self._kind.resource)
        if not self._space and (served is None or is_deleting(served)):
            return ""  # who deletes the kind says nothing about each binding
        # Of all of them, or nothing follows: a view may hold those of one namespace.
        listed = await self._home.list(self._kind, namespace=self._space, metadata_only=True)
        named = {name_of(one) for one in listed.items}
        for one in candidates:
            if name_of(one) not in named and not is_deleting(one):
                held = await self._free_instances(name_of(one))
                if held:
                    return held
        return ""

    async def _space_uid(self) -> str:
        if not self._space:
            return ""
        ref = Ref(self._home.name, NAMESPACE, "", self._space)
        live = await self._home.get(ref, metadata_only=True)
        return "" if live is None else uid_of(live)

    async def _free_instances(self, name: str) -> str:
        body = await self._tools.bodies.get("", name)
        if body is None:
            return ""
        kind = crd.instance_kind(body)
        try:
            found = await self._tools.app.list(kind, metadata_only=True)
        except NotServed:
            return ""
        steps = [drain.freed(kind, one) for one in found.items]
        tasks = tuple(Task((step,)) for step in steps if step is not None)
        if not tasks:
            return ""
        stranger = await self._stranger()
        if not stranger:
            log.warning(
                "instances of a kind that is bound no more are let go", extra={"kind": name}
            )
            await self._executor.execute(Decision(tasks=tasks))
        return stranger

    async def _stranger(self) -> str:
        """Return why this may be another app cluster than was bound, or "". Raises ClusterErrors.

        What no space was asked about yet may be.
        """
        for live in self._bindings.all():
            if self._providers.of(key_of(live)) is None:
                return f"it is not known yet where APIServiceBinding {key_of(live)} leads"
        for provider in self._providers.all():
            if provider.link is None:
                return f"space {provider.space} was not read yet"
            await provider.guardian.look_at_app_cluster()
            stranger = provider.guardian.stranger()
            if stranger:
                return stranger
        return ""

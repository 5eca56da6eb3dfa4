"""Finds the provider of each binding by its kubeconfig Secret.

Bindings with the same kubeconfig in their Secrets share a provider (A.7). A changed Secret leads to
the same space by another address or token, or to another space. Only the control plane knows which,
so the new kubeconfig is tried first. If it does not work, nothing changes.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakValueDictionary

from konnector import CONTROL_PLANE
from konnector.context import AgentContext, ProviderCallbacks
from konnector.kubeconfig import connections
from konnector.kubeconfig.connections import Probed, RotatingCluster
from konnector.kubeconfig.judge import Judged
from konnector.provider.provider import Provider
from reconciler.api import secret_of
from reconciler.controller.tasks import TaskSupervisor
from reconciler.core import conditions
from reconciler.core.errors import KlutchError
from reconciler.core.refs import ObjectKey
from reconciler.kube.cluster import Cluster

if TYPE_CHECKING:
    from konnector.binding.controller import Bindings

_REMEMBERED: Final = 15.0  # seconds


@dataclass(slots=True)
class _Served:
    """A provider, its bindings, and the last seen content of their Secrets."""

    provider: Provider
    cluster: RotatingCluster
    # Where the Secret of each binding is.
    bindings: dict[ObjectKey, ObjectKey] = field(default_factory=dict)
    contents: dict[ObjectKey, str] = field(default_factory=dict)

    def serve(self, key: ObjectKey, place: ObjectKey, identity: str) -> None:
        """Serve a binding whose Secret holds this."""
        self.bindings[key] = place
        self.contents[place] = identity
        self._forget_secrets()

    def leads_to(self, space: str, uid: str) -> bool:
        """Return whether it is this space that is served; "" is the identity of none."""
        return self.provider.space == space and bool(uid) and uid == self.provider.guards.space_uid

    def leave(self, key: ObjectKey) -> None:
        del self.bindings[key]
        self._forget_secrets()

    def _forget_secrets(self) -> None:
        """Forget those that no binding refers to: nobody wants them made again."""
        for place in self.contents.keys() - self.bindings.values():
            del self.contents[place]


class Providers(TaskSupervisor):
    """The providers of one app cluster. Bindings are known by their keys."""

    def __init__(self, context: AgentContext, bindings: "Bindings") -> None:
        super().__init__()
        self._context, self._bindings = context, bindings
        self._served: dict[str, _Served] = {}  # by a name for the child
        self._made = 0
        # The faults of kubeconfigs that did not work, by their identity, and their ends.
        self._faults: dict[str, tuple[Probed, float]] = {}
        self._turn = asyncio.Lock()
        self._trying: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: ObjectKey) -> Provider | None:
        found = self._of(key)
        return None if found is None else found.provider

    def all(self) -> list[Provider]:
        return [one.provider for one in self._served.values()]

    async def assign(self, key: ObjectKey, place: ObjectKey, judged: Judged) -> Judged:
        """Let a binding belong where its Secret leads; return the last word on that Secret.

        While it leads nowhere, the binding stays where it is.
        """
        if not judged.usable:
            return judged
        # Many bindings may name one Secret: it is tried once, and others do not wait for it.
        async with self._trying.setdefault(judged.identity, asyncio.Lock()):
            probed = Probed()
            if self._is_news(key, place, judged) or self._is_another_way(key, judged):
                probed = await self._tried(judged)
                if probed.fault:
                    return _refused(place, probed.fault)
                await self._identify(judged.namespace)
            async with self._turn:
                if await self._assigned(key, place, judged, probed):
                    return judged
        return await self.assign(key, place, judged)

    async def _assigned(
        self, key: ObjectKey, place: ObjectKey, judged: Judged, probed: Probed
    ) -> bool:
        """Let a binding belong where its Secret leads; False where that has to be tried first."""
        now = self._of(key)
        if now is not None and (other := self._double_of(now)) is not None:
            await self._leave(key)
            other.serve(key, place, now.contents.get(place, judged.identity))
            now = other
        if now is None:
            if self._is_another_way(key, judged) and not probed.uid:
                return False
            self._attach(key, place, judged, probed)
        elif not self._is_news(key, place, judged):
            now.serve(key, place, judged.identity)
        elif probed.uid:
            await self._rotate(now, key, place, judged, probed)
        else:
            return False
        return True

    async def leave(self, key: ObjectKey) -> None:
        """Let a binding belong nowhere. A provider without bindings ends (H21)."""
        async with self._turn:
            await self._leave(key)

    def _is_news(self, key: ObjectKey, place: ObjectKey, judged: Judged) -> bool:
        """Return whether a Secret has another content than its binding was served by."""
        now = self._of(key)
        return now is not None and now.contents.get(place) != judged.identity

    async def _tried(self, judged: Judged) -> Probed:
        """Try a kubeconfig. A failed one is not tried again for some seconds."""
        now = self._context.clock.monotonic()
        self._faults = {one: fault for one, fault in self._faults.items() if fault[1] > now}
        if judged.identity in self._faults:
            return self._faults[judged.identity][0]
        probed = await self._probe(judged.content, judged.namespace)
        if probed.fault:
            self._faults[judged.identity] = (probed, self._context.clock.monotonic() + _REMEMBERED)
        return probed

    async def _rotate(
        self, now: _Served, key: ObjectKey, place: ObjectKey, judged: Judged, probed: Probed
    ) -> None:
        if now.leads_to(judged.namespace, probed.uid):
            self._serve(now, key, place, judged)
            return
        # It may stay, for other bindings.
        await now.provider.want(key, None)
        await self._leave(key)
        self._attach(key, place, judged, probed)

    def _attach(self, key: ObjectKey, place: ObjectKey, judged: Judged, probed: Probed) -> None:
        """Give a binding to the provider that serves its space already, else to a new one."""
        for one in self._served.values():
            if one.leads_to(judged.namespace, probed.uid):
                self._serve(one, key, place, judged)
                return
            if judged.identity in one.contents.values():
                one.serve(key, place, judged.identity)
                return
        self._start(judged).serve(key, place, judged.identity)

    def _serve(self, served: _Served, key: ObjectKey, place: ObjectKey, judged: Judged) -> None:
        """Serve a binding by its Secret's kubeconfig, which was just seen to work."""
        served.serve(key, place, judged.identity)
        if served.provider.in_use != judged.identity:
            served.cluster.rotate(self._context.connect(judged.content, CONTROL_PLANE))
            served.provider.in_use = judged.identity

    def _is_another_way(self, key: ObjectKey, judged: Judged) -> bool:
        """Return whether a new binding's Secret may lead to a space that is served already.

        Two providers of one space would tell the opposite of each other.
        """
        if self._of(key) is not None:
            return False
        served = [one for one in self._served.values() if one.provider.space == judged.namespace]
        return bool(served) and not any(judged.identity in one.contents.values() for one in served)

    async def _identify(self, space: str) -> None:
        """Identify the served spaces of a name, if they answer.

        A provider that cannot read its space serves nothing, so it cannot conflict.
        """
        for one in list(self._served.values()):
            guards = one.provider.guards
            if one.provider.space == space and not guards.space_uid:
                with contextlib.suppress(KlutchError):
                    await guards.look_at_space()

    def _double_of(self, served: _Served) -> _Served | None:
        """Return the provider that already serves the space of this one, which serves none."""
        space, uid = served.provider.space, served.provider.guards.space_uid
        if served.provider.serving is not None:
            return None
        serving = (one for one in self._served.values() if one.provider.serving is not None)
        return next((one for one in serving if one.leads_to(space, uid)), None)

    def _start(self, judged: Judged) -> _Served:
        self._made += 1
        name = f"provider/{self._made}"
        cluster = RotatingCluster(self._context.connect(judged.content, CONTROL_PLANE))
        bindings: dict[ObjectKey, ObjectKey] = {}
        contents: dict[ObjectKey, str] = {}
        secrets = self._bindings.secrets
        callbacks = ProviderCallbacks(
            targets=lambda: {one: secrets.object(one) for one in contents if secrets.knows(one)},
            is_wanted=lambda place: self._is_wanted(place, bindings),
            binding=lambda name: self._bindings.find(bindings, name),
            bound=lambda: {key.name for key in bindings},
            unfollowed=self._bindings.unfollowed,
            is_kubeconfig=self._bindings.names_secret,
            probe=lambda content: self._probe(content, judged.namespace),
            changed=lambda name: self._bindings.changed(set(bindings), name),
            notify=lambda note: self._bindings.notify(bindings, note),
            notify_one=lambda note: self._bindings.notify_one(bindings, note),
            is_double=lambda: self._double_of(served) is not None,
        )
        provider = Provider(
            self._context, cluster, judged.namespace, callbacks, in_use=judged.identity
        )
        served = self._served[name] = _Served(provider, cluster, bindings, contents)
        self.start_worker(name, provider)
        return served

    async def _leave(self, key: ObjectKey) -> None:
        for name, served in list(self._served.items()):
            if key in served.bindings:
                served.leave(key)
                if not served.bindings:
                    del self._served[name]
                    await self.end(name)

    def _of(self, key: ObjectKey) -> _Served | None:
        return next((one for one in self._served.values() if key in one.bindings), None)

    async def _is_wanted(self, place: ObjectKey, bindings: Mapping[ObjectKey, ObjectKey]) -> bool:
        """Ask the app cluster whether one of these bindings still refers to a Secret."""
        for key in [key for key, one in bindings.items() if one == place]:
            live = await self._bindings.read(key)
            if live is not None and secret_of(live) == place:
                return True
        return False

    async def _probe(self, content: bytes, space: str) -> Probed:
        return await connections.probe(self._context.connect, content, CONTROL_PLANE, space)


class OneProvider(TaskSupervisor):
    """The one provider of control-plane mode, in which every binding is of its space."""

    def __init__(
        self, context: AgentContext, plane: Cluster, space: str, bindings: "Bindings"
    ) -> None:
        super().__init__()
        self._fault, self._bindings = "", bindings
        self._keys = keys = set[ObjectKey]()
        callbacks = ProviderCallbacks(
            targets=dict,
            is_wanted=_unasked,
            binding=lambda name: bindings.find(keys | bindings.all_keys(), name),
            bound=lambda: {key.name for key in keys | bindings.all_keys()},
            unfollowed=lambda _: (),  # all are of the space
            is_kubeconfig=lambda _: False,  # the Secrets of its bindings are beside them
            probe=_never,
            changed=lambda name: bindings.changed(set(keys), name),
            notify=lambda note: bindings.notify(keys, note),
            notify_one=lambda note: bindings.notify_one(keys | bindings.all_keys(), note),
            is_double=lambda: False,
        )
        self._provider = Provider(context, plane, space, callbacks, in_use="")
        self.start_worker("provider", self._provider)

    def note_fault(self, fault: str) -> None:
        """Have all bindings report why the app cluster's kubeconfig is not used; "": it is."""
        self._fault = fault
        self._bindings.changed(set(self._keys), "")

    def of(self, key: ObjectKey) -> Provider | None:
        return self._provider if key in self._keys else None

    def all(self) -> list[Provider]:
        return [self._provider]

    async def assign(self, key: ObjectKey, place: ObjectKey, judged: Judged) -> Judged:
        """Let a binding be served. Its Secret leads to the app cluster, which is known already."""
        self._keys.add(key)
        return _refused(place, self._fault) if judged.usable and self._fault else judged

    async def leave(self, key: ObjectKey) -> None:
        """Let a binding be served no more."""
        self._keys.discard(key)


AnyProviders: TypeAlias = Providers | OneProvider


async def _never(_content: bytes) -> Probed:
    return Probed(fault="no kubeconfig is mirrored in control-plane mode")


async def _unasked(_place: ObjectKey) -> bool:
    return False


def _refused(place: ObjectKey, fault: str) -> Judged:
    message = (
        f"Kubeconfig secret {place} has a kubeconfig that does not work: "
        f"{fault.rstrip('.')}. The konnector continues with the last one that did."
    )
    return Judged(conditions.false(conditions.KUBECONFIG_SECRET_INVALID, message))

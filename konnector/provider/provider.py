"""A provider: a space on a control plane, served for one app cluster."""

import asyncio
from collections.abc import Callable
from typing import Final

from konnector.binding import decide as binding_decide
from konnector.context import AgentContext, Mappings, ProviderCallbacks, SpaceInformers, SyncContext
from konnector.kubeconfig.connections import Reach
from konnector.mass_loss.guard import SpaceGuards
from konnector.namespace.controller import Namespaces
from konnector.provider.sync_manager import Syncs, Wanted
from konnector.space import decide as space_decide
from konnector.space.controller import ClusterBindings, Exports
from reconciler.api import heartbeat_of
from reconciler.controller.controller import Controller, Reconciler
from reconciler.controller.tasks import TaskSupervisor
from reconciler.core.errors import ClusterError
from reconciler.core.refs import ObjectKey
from reconciler.kube.cluster import IN_DOUBT, Cluster
from reconciler.kube.limits import pause

LATE: Final = 150.0  # seconds after which unread kinds are reported (A.7)
_HEART: Final = "cluster"
_GIVING_WAY: Final = 5.0  # seconds between two tries to have bindings go to another provider


class Provider(TaskSupervisor):
    """Runs the informers of a space, then its controllers. `in_use`: see ClusterBindings."""

    def __init__(
        self,
        context: AgentContext,
        plane: Cluster,
        space: str,
        callbacks: ProviderCallbacks,
        *,
        in_use: str,
    ) -> None:
        super().__init__()
        self._context, self.plane, self.space, self._callbacks = context, plane, space, callbacks
        self.in_use = in_use
        self._began = context.clock.monotonic()
        self._trouble = ""
        self._heartbeat: str | None = None
        self._doubted = asyncio.Event()  # whether both clusters are still the same
        self._sides = (context.app.connectivity, plane.connectivity)
        self.views = SpaceInformers(plane, space, context.metrics, on_change=lambda _: self.beat())
        self.guards = SpaceGuards(
            context,
            plane,
            self.views,
            secrets=lambda: filter(None, callbacks.targets().values()),
            changed=self.beat,
            released=self._look_at_everything,
            emptied=self.look_at_namespace,
        )
        self._reach = Reach(
            plane, space, now=context.clock.now, changed=lambda: callbacks.changed("")
        )
        self.serving: Serving | None = None  # until the space was read
        self.start_worker("views", self.views)
        self.start("beginning", self._begin)
        if not context.control_plane_mode:  # in that mode, no binding could report it
            self.start("reach", self._reach.run)

    def shown(self, name: str) -> binding_decide.Provider:
        missing = [*self.views.missing, *([self._trouble] if self._trouble else ())]
        began = self._began
        if self.serving is not None:
            missing += self.serving.syncs.missing(name)
            began = self.serving.syncs.began(name) or began
        late = self._context.clock.monotonic() - began > LATE
        return binding_decide.Provider(
            synced=self.serving is not None,
            late="; ".join(missing[:5]) if late else "",
            heartbeat=self._heartbeat,
            silent_since=self._reach.since,
            refused_since=self._reach.refused_since,
            cluster_binding=self.views.cluster_binding,
            export=self.views.export(name),
        )

    def cut_off(self) -> str:
        found = binding_decide.cut_off(self._reach.since, self._reach.refused_since)
        return "" if found is None else found[1]

    async def want(self, by: ObjectKey, wanted: Wanted | None) -> None:
        """Let a binding, by its key, have its sync, or end it."""
        if self.serving is not None:
            await self.serving.syncs.want(by, wanted)
            self.serving.exports.enqueue(by.name)

    def may_bring(self, space_uid: str, name: str) -> bool:
        """Return whether a binding of this name may be of a space, and is not followed yet."""
        is_followed = self.serving is not None and self.serving.syncs.wants(name)
        return not is_followed and self.guards.space_uid in ("", space_uid)

    def has_reported_the_end(self, name: str) -> bool:
        """Return whether the control plane knows that nothing is synced for a binding of this name.

        klutchctl waits for that (mapping.md 9), and without a provider nobody would tell it.
        """
        return self.serving is None or not space_decide.is_connected(self.views.export(name))

    def look_at_export(self, name: str) -> None:
        """Have the status of an export written again, if need be."""
        if self.serving is not None:
            self.serving.exports.enqueue(name)

    def look_at_namespace(self, name: str) -> None:
        if self.serving is not None:
            self.serving.reconciles_namespaces.observe(name)
            self.serving.namespaces.enqueue(name)

    def beat(self) -> None:
        if self.serving is not None:
            self.serving.heart.enqueue(_HEART)

    def orphans(self, name: str) -> str:
        """Return a sentence about orphaned copies under a binding of this name, or ""."""
        return self.guards.kind_guard(name).sentence

    def _look_at_everything(self) -> None:
        """Enqueue all that may have been held."""
        if self.serving is None:
            return
        self.serving.syncs.enqueue_everything()
        for one in self.views.mappings.names(self.space):
            self.look_at_namespace(one)
        self.beat()
        self._callbacks.changed("")

    async def run(self) -> None:
        """Serve until `stop`, end the work under way, and close the connections."""
        unfollow = [one.follow(self._doubt) for one in self._sides]
        try:
            await super().run()
        finally:
            for end in unfollow:
                end()
            self.plane.connectivity.viewed(self, 0)
            self._context.syncs.beat(self, None)
            if not self._context.control_plane_mode:
                await self.plane.close()

    async def _begin(self) -> None:
        """Serve one life of the space after the other."""
        while True:
            with self._context.metrics.activity.work(f"space {self.space} is read"):
                serving = await self._read()
            while self.guards.space_uid in ("", serving.link.space_uid):
                self.plane.connectivity.viewed(self, 0)
                await self._doubted.wait()
                self._doubted.clear()
                await self._look()
            await self.end("serving")

    def _doubt(self) -> None:
        """Have nothing written after an outage: a server may be another cluster's since then."""
        self.plane.connectivity.viewed(self, IN_DOUBT)
        self._doubted.set()

    async def _read(self) -> "Serving":
        await self.views.wait_synced()
        await self._look()
        while not self.guards.space_uid:
            self._trouble = f"Namespace {self.space} does not exist on the control plane"
            await self._context.clock.sleep(_GIVING_WAY)
            await self._look()
        while self._callbacks.is_double():
            self._callbacks.changed("")
            await self._context.clock.sleep(_GIVING_WAY)
        self.serving = Serving(self, self._context, self._callbacks, outcome=self._has_beaten)
        self.start_worker("serving", self.serving)
        self._callbacks.changed("")
        return self.serving

    async def _look(self) -> None:
        """Read the identities of both clusters, once they answer."""
        failures = 0
        while True:
            try:
                await self.guards.look()
            except ClusterError as error:
                self._trouble, failures = str(error), failures + 1
                wait = pause(failures, asked=error.retry_after, jitter=0.5)
                await self._context.clock.sleep(wait)
            else:
                self._trouble = ""
                return

    def _has_beaten(self, outcome: str) -> None:
        if self.serving and self.guards.space_uid not in ("", self.serving.link.space_uid):
            self._doubted.set()
        if (beat := heartbeat_of(self.views.cluster_binding)) is not None:
            self._context.syncs.beat(self, beat.time.timestamp())
        self.guards.beat = outcome
        if outcome != self._heartbeat:
            self._heartbeat = outcome
            self._callbacks.changed("")


class Serving(TaskSupervisor):
    """The parts that work once the space was read, for one life of it."""

    def __init__(
        self,
        provider: Provider,
        context: AgentContext,
        callbacks: ProviderCallbacks,
        *,
        outcome: Callable[[str], None],
    ) -> None:
        super().__init__()
        self.link = link = SyncContext(
            agent=context,
            plane=provider.plane,
            views=provider.views,
            callbacks=callbacks,
            space_uid=provider.guards.space_uid,
            mappings=Mappings(provider.views.mappings, provider.space, context.namespaces),
            want=provider.look_at_namespace,
            cut_off=provider.cut_off,
            guards=provider.guards,
            executor=context.executor(provider.plane),
        )
        link.troubles.follow(callbacks.changed)
        self.syncs = Syncs(link)
        self.start_worker("syncs", self.syncs)
        heart = ClusterBindings(link, in_use=lambda: provider.in_use, outcome=outcome)
        exports = Exports(link, syncs=self.syncs.wants)
        self.reconciles_namespaces = Namespaces(link, self.syncs)
        self.heart = self._controller("clusterbinding", heart)
        self.exports = self._controller("serviceexport", exports)
        self.namespaces = self._controller("servicenamespace", self.reconciles_namespaces)
        exports.subscribe(self.exports)
        self._subscribe(provider.views, callbacks)

    def _subscribe(self, views: SpaceInformers, callbacks: ProviderCallbacks) -> None:
        views.cluster_bindings.subscribe_keys(lambda _: self.heart.enqueue(_HEART))
        views.cluster_bindings.subscribe_keys(lambda _: callbacks.changed(""))
        views.exports.subscribe_keys(lambda key: callbacks.changed(key.name))
        views.mappings.subscribe_keys(lambda key: self.namespaces.enqueue(key.name))

    def _controller(self, name: str, reconciler: Reconciler[str]) -> Controller[str]:
        context = self.link.agent
        controller = Controller(
            name,
            reconciler.reconcile,
            clock=context.clock,
            metrics=context.metrics,
            depends_on=(context.app.connectivity, self.link.plane.connectivity),
        )
        self.start_worker(name, controller)
        return controller

"""Tells on the control plane how an APIServiceExport fares in the app cluster."""

from collections.abc import Callable
from datetime import datetime

from konnector.context import AgentContext
from konnector.export import decide
from konnector.export.decide import Seen
from konnector.informers import SpaceInformers
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.controller.reconciler import ObjectReconciler, Queue
from reconciler.core.decision import Decision
from reconciler.core.manifest import Manifest, is_deleting


class Exports(ObjectReconciler[str, Seen]):
    """The controller of a space's exports, by name.

    `binding` is that of the same name, if any; `syncs` tells whether something is synced for it.
    """

    def __init__(
        self,
        context: AgentContext,
        views: SpaceInformers,
        executor: Executor,
        *,
        binding: Callable[[str], Manifest | None],
        syncs: Callable[[str], bool],
    ) -> None:
        super().__init__(executor, views.recent_exports)
        self._context, self._views = context, views
        self._binding, self._syncs = binding, syncs

    def subscribe(self, queue: Queue[str]) -> None:
        """Have the names enqueued of exports that change."""
        self._views.exports.subscribe_keys(lambda key: queue.enqueue(key.name))

    async def look(self, key: str) -> tuple[Observed, Seen] | None:
        """Return one export, and what stands for it in the app cluster. Raises ClusterErrors."""
        live = self._views.export(key)
        if live is None:
            return None
        crd = await self._context.bodies.get("", key)
        binding = self._binding(key)
        # One that is on its way out is synced for as long as somebody has to carry deletions.
        ending = binding is not None and is_deleting(binding)
        syncing = not ending or self._syncs(key)
        seen = Seen(export=live, binding=binding, crd=crd, syncing=syncing)
        return observed(self._views.recent_exports, live), seen

    def decide(self, view: Seen, now: datetime) -> Decision:
        """Return what follows."""
        return decide.decide(view, now=now)

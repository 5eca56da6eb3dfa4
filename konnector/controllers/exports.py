"""Tells on the control plane how an APIServiceExport fares in the app cluster."""

from collections.abc import Callable
from datetime import timedelta

from konnector.decisions import export
from konnector.decisions.export import Seen
from konnector.provider_views import ProviderViews
from konnector.tools import Tools
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.controller.executor import Executor, Observed
from reconciler.core.manifest import Manifest, is_deleting, ref_of
from reconciler.kube.cluster import Cluster


class Exports:
    """The controller of a space's exports, by name.

    `binding` is that of the same name, if any; `syncs` tells whether something is synced for it.
    """

    def __init__(
        self,
        tools: Tools,
        plane: Cluster,
        views: ProviderViews,
        executor: Executor,
        *,
        binding: Callable[[str], Manifest | None],
        syncs: Callable[[str], bool],
    ) -> None:
        self._tools, self._plane, self._views = tools, plane, views
        self._executor = executor
        self._binding, self._syncs = binding, syncs

    async def reconcile(self, key: str) -> timedelta | None:
        """Look at one export, and write its status."""
        live = self._views.export(key)
        if live is None:
            return None
        crd = await self._tools.bodies.get("", key)
        binding = self._binding(key)
        # One that is on its way out is synced for as long as somebody has to carry deletions.
        ending = binding is not None and is_deleting(binding)
        syncing = not ending or self._syncs(key)
        seen = Seen(export=live, binding=binding, crd=crd, syncing=syncing)
        await self._executor.execute(
            export.decide(seen, now=self._tools.clock.now()),
            Observed(ref_of(self._plane.name, API_SERVICE_EXPORT, live), live),
            recents=(self._views.recent_exports,),
        )
        return None

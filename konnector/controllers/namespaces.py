"""Brings app namespaces and the APIServiceNamespaces of a space together."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from konnector.decisions import guard, namespace
from konnector.decisions.guard import Count
from konnector.decisions.namespace import Removal, Seen
from konnector.guardian import Guardian
from konnector.hands import Hands
from konnector.provider_views import ProviderViews
from konnector.syncs import Syncs
from konnector.tools import Tools
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE
from reconciler.core import keys
from reconciler.core.errors import AlreadyExists, ClusterError
from reconciler.core.manifest import Manifest, annotations_of, get_text, name_of, ref_of
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.kube.cluster import Cluster

_RETRY: Final = timedelta(seconds=30)


class Namespaces:
    """The controller of a space's mappings, by app namespace."""

    def __init__(
        self,
        tools: Tools,
        plane: Cluster,
        views: ProviderViews,
        guardian: Guardian,
        hands: Hands,
        syncs: Syncs,
    ) -> None:
        self._tools, self._plane, self._views = tools, plane, views
        self._guardian, self._hands, self._syncs = guardian, hands, syncs

    async def reconcile(self, key: str) -> timedelta | None:
        """Look at one app namespace and its mapping, and write what follows."""
        seen = self._look(key)
        if namespace.leaving(seen) and seen.mapping is not None:
            seen = replace(seen, removal=await self._removal(seen.mapping))
        decision = namespace.decide(seen)
        if seen.mapping is not None:
            ref = ref_of(self._plane.name, API_SERVICE_NAMESPACE, seen.mapping)
            for note in decision.notes:
                self._tools.recorder.tell(ref, seen.mapping, note)
        try:
            await self._hands.carry_out(decision, ())
        except AlreadyExists:
            return None  # its event is on the way
        return decision.again

    def _look(self, name: str) -> Seen:
        app_namespace = self._tools.namespaces.get("", name)
        mapping = self._views.mappings.get(self._views.space, name)
        held = ""
        if mapping is not None and app_namespace is None:
            held = self._guardian.deletes_of(self._count())
        return Seen(
            name=name,
            space=self._views.space,
            app_cluster_uid=self._guardian.app_cluster_uid,
            app_namespace=app_namespace,
            mapping=mapping,
            wanted=self._syncs.needs(name),
            deletes_held=held,
            confirmed=self._guardian.confirmed,
        )

    def _count(self) -> Count:
        mapped = self._views.mappings.names(self._views.space)
        there = set(self._tools.namespaces.names(""))
        return Count(guard.APP_NAMESPACES, sum(one not in there for one in mapped), len(mapped))

    async def _removal(self, mapping: Manifest) -> Removal:
        ref = Ref(self._tools.app.name, NAMESPACE, "", name_of(mapping))
        gone = await self._tools.app.get(ref, metadata_only=True) is None
        return Removal(gone=gone, released=gone and await self._holds_released(mapping))

    async def _holds_released(self, mapping: Manifest) -> bool:
        """Tell whether released copies would go along, or nobody can tell."""
        service = get_text(mapping, "status", "namespace")
        if not service:
            return False
        for kind in self._syncs.kinds:
            if not kind.namespaced:
                continue
            try:
                found = await self._plane.list(kind, namespace=service, metadata_only=True)
            except ClusterError:
                return True
            if any(keys.RELEASED in annotations_of(one) for one in found.items):
                return True
        return False

"""Brings app namespaces and the APIServiceNamespaces of a space together."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final

from konnector.decisions import namespace, orphans
from konnector.decisions.namespace import Removal, Seen
from konnector.guardian import Guardian
from konnector.hands import Hands
from konnector.provider_views import ProviderViews
from konnector.syncs import Syncs
from konnector.tools import Tools
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE, released_kinds
from reconciler.core import keys
from reconciler.core.decision import Note
from reconciler.core.errors import AlreadyExists, ClusterError
from reconciler.core.manifest import Manifest, annotations_of, get_text, is_deleting, name_of
from reconciler.core.refs import NAMESPACE, ObjectKey, Ref
from reconciler.kube.cluster import Cluster

_SOON: Final = timedelta(seconds=1)
_HELD: Final = timedelta(minutes=1)


class Namespaces:
    """The controller of a space's mappings, by app namespace; run it once.

    `binding` is the APIServiceBinding of a name, `tell` tells developers.
    """

    def __init__(  # noqa: PLR0913 - each is known to another part of the program
        self,
        tools: Tools,
        plane: Cluster,
        views: ProviderViews,
        guardian: Guardian,
        hands: Hands,
        syncs: Syncs,
        *,
        binding: Callable[[str], Manifest | None],
        tell: Callable[[Note], None],
    ) -> None:
        self._tools, self._plane, self._views = tools, plane, views
        self._guardian, self._hands, self._syncs = guardian, hands, syncs
        self._binding, self._tell = binding, tell
        self._resource = API_SERVICE_NAMESPACE.resource
        self._ward = guardian.ward(self._resource)
        self._ended: set[str] = set()  # app namespaces that were seen on their way out

    async def reconcile(self, key: str) -> timedelta | None:
        """Look at one app namespace and its mapping, and write what follows."""
        if self._guardian.stranger():
            return _HELD
        seen = self._look(key)
        if namespace.leaving(seen) and seen.mapping is not None:
            if self.pending:
                return _SOON
            removal = await self._removal(seen.mapping)
            # Which app cluster says so is to be known, too, and what was confirmed by now.
            await self._guardian.look_at_app_cluster()
            await self._guardian.look_at_confirmations()
            if removal.gone:  # all this takes long enough for it to be made again, with claims
                removal = replace(removal, gone=await self._is_gone(key))
            seen = replace(self._look(key), removal=removal)
        self._ward.note(_place(key), orphan=self._is_orphan(seen))
        decision = namespace.decide(seen)
        for note in decision.notes:
            self._tell(note)
        if self._guardian.stranger():
            return _HELD
        try:
            await self._hands.carry_out(decision, ())
        except AlreadyExists:
            return None  # its event is on the way
        return decision.again

    def observe(self, name: str) -> None:
        """Note whether an app namespace is on its way out, as the view of them shows it now."""
        live = self._tools.namespaces.get("", name)
        if live is None:
            return
        if is_deleting(live):
            self._ended.add(name)
        else:
            self._ended.discard(name)

    def _look(self, name: str) -> Seen:
        app_namespace = self._tools.namespaces.get("", name)
        mapping = self._views.mappings.get(self._views.space, name)
        ended = name in self._ended or namespace.has_ended(mapping)
        return Seen(
            name=name,
            space=self._views.space,
            terms=self._guardian.terms(self._resource),
            now=self._tools.clock.now(),
            app_cluster_uid=self._guardian.app_cluster_uid,
            app_namespace=app_namespace,
            mapping=mapping,
            wanted=self._syncs.needs(name),
            ended=ended,
            occupied=self._syncs.has_copies(name)
            or (not ended and self._guardian.has_orphans(name)),
            confirmed=self._guardian.confirmed,
        )

    @staticmethod
    def _is_orphan(seen: Seen) -> bool:
        mapping, absent = seen.mapping, seen.app_namespace is None
        return absent and mapping is not None and orphans.is_orphan(mapping)

    @property
    def pending(self) -> bool:
        """Whether copies may be behind a mapping of which nothing is known yet."""
        exports = [one for one in self._views.exports.all() if _is_namespaced(one)]
        return not self._syncs.settled or any(self._is_unread(name_of(one)) for one in exports)

    def _is_unread(self, name: str) -> bool:
        """Tell whether an export is bound, and its instances were not all seen."""
        bound = self._binding(name)
        if bound is None or is_deleting(bound):
            return False
        return not self._syncs.wants(name) or bool(self._syncs.missing(name))

    async def _removal(self, mapping: Manifest) -> Removal:
        gone = await self._is_gone(name_of(mapping))
        return Removal(gone=gone, released=gone and await self._holds_released(mapping))

    async def _is_gone(self, name: str) -> bool:
        ref = Ref(self._tools.app.name, NAMESPACE, "", name)
        return await self._tools.app.get(ref, metadata_only=True) is None

    async def _holds_released(self, mapping: Manifest) -> bool:
        """Tell whether released copies would go along, or nobody can tell."""
        service = get_text(mapping, "status", "namespace")
        if not service:
            return False
        synced = {kind.resource for kind in self._syncs.kinds}
        if not released_kinds(mapping) <= synced:
            return True
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


def _place(name: str) -> ObjectKey:
    return ObjectKey("", name)


def _is_namespaced(export: Manifest) -> bool:
    return get_text(export, "spec", "scope") == "Namespaced"

"""Brings app namespaces and the APIServiceNamespaces of a space together."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from konnector.decisions import guard, namespace
from konnector.decisions.namespace import Removal, Seen
from konnector.guardian import PENDING, Guardian
from konnector.hands import Hands
from konnector.provider_views import ProviderViews
from konnector.syncs import Syncs
from konnector.tools import Tools
from reconciler.api.service_namespace import released_kinds
from reconciler.core import keys
from reconciler.core.decision import Note
from reconciler.core.errors import AlreadyExists, ClusterError
from reconciler.core.manifest import Manifest, annotations_of, get_text, is_deleting, name_of
from reconciler.core.refs import NAMESPACE, ObjectKey, Ref
from reconciler.kube.cluster import Cluster

_SOON: Final = timedelta(seconds=1)


class Namespaces:
    """The controller of a space's mappings, by app namespace; run it once.

    `binding` is the APIServiceBinding of a name, `wake` has an app namespace looked at, `tell`
    tells developers.
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
        wake: Callable[[str], None],
        tell: Callable[[Note], None],
    ) -> None:
        self._tools, self._plane, self._views = tools, plane, views
        self._guardian, self._hands, self._syncs = guardian, hands, syncs
        self._binding, self._wake, self._tell = binding, wake, tell
        self._ward = guardian.over(guard.APP_NAMESPACES, self)
        self._ward.enter()

    async def reconcile(self, key: str) -> timedelta | None:
        """Look at one app namespace and its mapping, and write what follows."""
        seen = self._look(key)
        if namespace.leaving(seen):
            seen = replace(seen, deletes_held=self._held(key))
        if namespace.leaving(seen) and seen.mapping is not None:
            removal = await self._removal(seen.mapping)
            # Which app cluster says so is to be known, too.
            held = await self._ward.deletes_still_held(_place(key))
            if removal.gone:  # all this takes long enough for it to be made again, with claims
                removal = replace(removal, gone=await self._is_gone(key))
            seen = replace(self._look(key), removal=removal, deletes_held=held)
        decision = namespace.decide(seen)
        for note in decision.notes:
            self._tell(note)
        if seen.deletes_held == PENDING:
            return _SOON
        try:
            await self._hands.carry_out(decision, ())
        except AlreadyExists:
            return None  # its event is on the way
        return decision.again

    def _look(self, name: str) -> Seen:
        app_namespace = self._tools.namespaces.get("", name)
        mapping = self._views.mappings.get(self._views.space, name)
        return Seen(
            name=name,
            space=self._views.space,
            app_cluster_uid=self._guardian.app_cluster_uid,
            app_namespace=app_namespace,
            mapping=mapping,
            wanted=self._syncs.needs(name),
            confirmed=self._guardian.confirmed,
        )

    def _held(self, name: str) -> str:
        """Return why the mapping stays: for its own sake, or for that of what lies behind it."""
        return self._guardian.held_with(name) or self._ward.deletes_held(_place(name))

    @property
    def pending(self) -> bool:
        """Whether copies may be behind a mapping of which nothing is known yet."""
        exports = [one for one in self._views.exports.all() if _is_namespaced(one)]
        return not self._syncs.settled or any(self._is_unread(name_of(one)) for one in exports)

    @property
    def read(self) -> bool:
        """Whether the app cluster's namespaces were read; they are before anything else."""
        return True

    def orphans(self, besides: Collection[ObjectKey]) -> tuple[int, int]:
        """Count the mappings whose app namespace is gone, and all mappings."""
        mapped = set(self._views.mappings.names(self._views.space))
        there = set(self._tools.namespaces.names(""))
        gone = {place.name for place in besides} - mapped
        return len(mapped - there) + len(gone), len(mapped) + len(gone)

    def bereft(self, besides: Collection[ObjectKey]) -> tuple[int, int]:
        """Nothing: an app namespace that lost its mapping may have never had one."""
        del besides
        return 0, 0

    def copies_in(self, app_namespace: str) -> Sequence[ObjectKey]:
        """Nothing: mappings are behind no mapping."""
        del app_namespace
        return ()

    def wake_everything(self) -> None:
        """Have all mappings looked at."""
        for name in self._views.mappings.names(self._views.space):
            self._wake(name)

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

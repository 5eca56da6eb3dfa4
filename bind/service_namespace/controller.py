"""Service namespaces of app namespaces, by the places of their APIServiceNamespaces.

A Namespace that says it belongs to one brings its key up, too: so those that were left behind
while nobody looked are found at the start (protocol-bind.md F46).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from bind.app_cluster_binding.copied_kinds import Copied
from bind.bounds import Bounds, Countable, countable
from bind.export.history import granted
from bind.informers import HOME, NAME, SPACE, TARGET, Informers
from bind.service_namespace import decide
from bind.service_namespace.decide import Contents, Home, Removal, Seen
from reconciler.api.exports import API_SERVICE_NAMESPACE
from reconciler.blueprints.export import Scope
from reconciler.controller.executor import Executor, Observed
from reconciler.controller.reconciler import ObjectReconciler, Queue, enqueue_mapped
from reconciler.core import keys, names
from reconciler.core.decision import Decision
from reconciler.core.errors import Forbidden, NotServed
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    get_text,
    name_of,
    ref_of,
    uid_of,
)
from reconciler.core.refs import CRD, NAMESPACE, ObjectKey, Ref


class ServiceNamespaces(ObjectReconciler[ObjectKey, Seen]):
    """The controller `servicenamespace` of protocol-bind.md C.4."""

    def __init__(
        self,
        informers: Informers,
        executor: Executor,
        *,
        scope: Scope,
        bounds: Bounds,
        hashing: bool,
    ) -> None:
        super().__init__(executor, informers.recent(informers.service_namespaces))
        self._informers = informers
        self._scope, self._bounds, self._hashing = scope, bounds, hashing
        self._copied = Copied(informers)
        # The uids of Namespaces that were seen beside their mapping.
        self._beside: dict[ObjectKey, str] = {}
        self._granted: dict[str, Sequence[str]] = {}  # exports are large, and change seldom

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        informers, mappings = self._informers, self._informers.service_namespaces
        by_target = enqueue_mapped(queue, mappings, TARGET)
        by_space = enqueue_mapped(queue, mappings, SPACE)
        mappings.subscribe_keys(queue.enqueue)
        informers.namespaces.subscribe(HOME, queue.enqueue)
        informers.namespaces.subscribe(NAME, by_target)
        informers.namespaces.subscribe(NAME, by_space)
        informers.role_bindings.subscribe(SPACE, by_target)
        informers.quotas.subscribe(SPACE, by_target)
        informers.exports.subscribe(SPACE, self._forget)
        informers.exports.subscribe(SPACE, by_space)

    async def look(self, key: ObjectKey) -> tuple[Observed, Seen] | None:
        """Return one app namespace, its mapping and where it leads. Raises ClusterErrors."""
        granted_here = counted(self._informers, self._grants(key.namespace), self.executor.now())
        seen = known(self._informers, Home(*key), hashing=self._hashing)
        seen = replace(seen, counted=granted_here)
        leaving = decide.leaving(seen)
        seen = replace(seen, witnessed=self._witnessed(key, seen, leaving))
        if leaving is not None and not seen.unsure:
            seen = replace(seen, removal=await self._removal(seen.home))
            if seen.removal is not None and decide.needs_search(seen):
                contents = await self._contents(name_of(leaving))
                # The search takes long enough for a konnector to bring its mapping back.
                mapping = await self._mapping(seen.home)
                removal = replace(seen.removal, contents=contents, mapping=mapping)
                seen = replace(seen, removal=removal)
        cluster = self._informers.cluster.name
        if seen.mapping is not None:
            ref = ref_of(cluster, API_SERVICE_NAMESPACE, seen.mapping)
            return Observed(ref, seen.mapping), seen
        if leaving is not None:
            return Observed(ref_of(cluster, NAMESPACE, leaving), leaving), seen
        return None

    def decide(self, view: Seen, now: datetime) -> Decision:
        """Return what follows."""
        return decide.decide(view, scope=self._scope, bounds=self._bounds, now=now)

    def _witnessed(self, key: ObjectKey, seen: Seen, leaving: Manifest | None) -> bool:
        """Note a Namespace beside its mapping; tell whether one that is left was noted."""
        if leaving is not None:
            return self._beside.get(key) == uid_of(leaving)
        if seen.mapping is None:
            self._beside.pop(key, None)
        elif (beside := decide.target(seen)) is not None:
            self._beside[key] = uid_of(beside)
        return False

    def _grants(self, space: str) -> Sequence[str]:
        if space not in self._granted:
            exports = self._informers.exports.inside(space)
            self._granted[space] = [one for export in exports for one in granted(export)]
        return self._granted[space]

    def _forget(self, space: str) -> None:
        self._granted.pop(space, None)

    async def _removal(self, home: Home) -> Removal | None:
        """Return what has to be known beyond doubt before data go, or None where it is not."""
        cluster = self._informers.cluster
        crd = Ref(cluster.name, CRD, "", API_SERVICE_NAMESPACE.resource)
        try:
            return Removal(
                mapping=await self._mapping(home),
                crd=await cluster.get(crd, metadata_only=True),
            )
        except (Forbidden, NotServed):
            return None

    async def _mapping(self, home: Home) -> Manifest | None:
        cluster = self._informers.cluster
        return await cluster.get(Ref(cluster.name, API_SERVICE_NAMESPACE, home.space, home.name))

    async def _contents(self, namespace: str) -> Contents:
        """Search a namespace until something released is found. Raises ClusterErrors."""
        hidden, kinds = "", await self._copied.kinds()
        for kind in sorted(kinds.all):
            try:
                listing = await self._informers.cluster.list(
                    kind, namespace=namespace, metadata_only=True
                )
            except NotServed:  # nothing of it can be there
                continue
            except Forbidden:
                # A kind that was never exported is no konnector's: it had its rights from us.
                if kind.resource in kinds.exported:
                    hidden = kind.resource
                continue
            if any(keys.RELEASED in annotations_of(one) for one in listing.items):
                return Contents(released=True)
        return Contents(released=False, hidden=hidden)


def counted(informers: Informers, resources: Iterable[str], now: datetime) -> Countable:
    """Return which of these resources a quota may count."""
    found = {one: informers.crds.get("", one) for one in resources}
    crds = {name: crd for name, crd in found.items() if crd is not None}
    return countable(found, crds, now)


def known(informers: Informers, home: Home, *, hashing: bool) -> Seen:
    """Return what the views tell about one app namespace, but for `counted`."""
    mapping = informers.recent(informers.service_namespaces).get(home.space, home.name)
    named = get_text(mapping, "status", "namespace")
    elsewhere = named if named and named != home.target else ""
    space = informers.namespaces.get("", home.space)
    ours = informers.namespaces.by(HOME, ObjectKey(home.space, home.name))
    hashed = next((one for one in ours if decide.is_hashed(one, home)), None)
    if hashed is None and (name := decide.hashed_name(home, space)):
        hashed = informers.namespaces.get("", name)
    seen = Seen(
        informers.cluster.name,
        home,
        mapping=mapping,
        space=space,
        namespace=informers.namespaces.get("", home.target),
        elsewhere=informers.namespaces.get("", elsewhere) if elsewhere else None,
        hashed=hashed,
        hashing=hashing,
        unsure=informers.trouble(informers.service_namespaces),
    )
    place = decide.chosen(seen)
    return replace(
        seen,
        role_binding=informers.role_bindings.get(place, names.BINDER),
        quota=informers.quotas.get(place, names.QUOTA),
    )

"""Service namespaces of app namespaces. A key is `space/name` of an APIServiceNamespace.

A Namespace that says it belongs to one brings its key up, too: so those that were left behind
while nobody looked are found at the start (protocol-bind.md F46).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from bind import service_namespace
from bind.bounds import Bounds, Countable, countable
from bind.controllers.acting import Acting, Queue
from bind.controllers.copied import Copied
from bind.controllers.waking import Waker
from bind.ever_exported import granted
from bind.service_namespace import Contents, Home, Removal, Seen
from bind.world import HOME, NAME, SELF, SPACE, TARGET, World
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE
from reconciler.blueprints.export import Scope
from reconciler.core import keys, names
from reconciler.core.errors import Forbidden, NotServed
from reconciler.core.manifest import Manifest, annotations_of, get_text, name_of, uid_of
from reconciler.core.refs import CRD, Ref


class ServiceNamespaces:
    """The controller `servicenamespace` of protocol-bind.md C.4."""

    def __init__(
        self, world: World, acting: Acting, *, scope: Scope, bounds: Bounds, hashing: bool
    ) -> None:
        self._world, self._acting = world, acting
        self._scope, self._bounds, self._hashing = scope, bounds, hashing
        self._copied = Copied(world)
        self._beside: dict[str, str] = {}  # of Namespaces that were seen beside their mapping: uids
        self._granted: dict[str, Sequence[str]] = {}  # exports are large, and change seldom

    def subscribe(self, queue: Queue) -> None:
        """Have the keys added that a change concerns."""
        world, self._queue = self._world, queue
        by_target = Waker(world.service_namespaces, TARGET, queue)
        world.service_namespaces.subscribe(SELF, queue.enqueue)
        world.namespaces.subscribe(HOME, queue.enqueue)
        world.namespaces.subscribe(NAME, by_target)
        world.namespaces.subscribe(NAME, Waker(world.service_namespaces, SPACE, queue))
        world.role_bindings.subscribe(SPACE, by_target)
        world.quotas.subscribe(SPACE, by_target)
        world.exports.subscribe(SPACE, self._forget)
        world.exports.subscribe(SPACE, Waker(world.service_namespaces, SPACE, queue))

    async def reconcile(self, key: str) -> timedelta | None:
        """Look at one app namespace, and do what follows. Raises ClusterErrors."""
        space, _, name = key.partition("/")
        now = self._acting.now()
        granted_here = counted(self._world, self._grants(space), now)
        seen = known(self._world, Home(space, name), hashing=self._hashing)
        seen = replace(seen, counted=granted_here)
        leaving = service_namespace.leaving(seen)
        seen = replace(seen, witnessed=self._witnessed(key, seen, leaving))
        if leaving is not None and not seen.unsure:
            seen = replace(seen, removal=await self._removal(seen.home))
            if seen.removal is not None and service_namespace.needs_search(seen):
                contents = await self._contents(name_of(leaving))
                # The search takes long enough for a konnector to bring its mapping back.
                mapping = await self._mapping(seen.home)
                removal = replace(seen.removal, contents=contents, mapping=mapping)
                seen = replace(seen, removal=removal)
        about, view = seen.mapping, self._world.service_namespaces
        if about is None:
            about, view = leaving, self._world.namespaces
        if about is None:
            return None
        decision = service_namespace.decide(seen, scope=self._scope, bounds=self._bounds, now=now)
        recent = self._world.recent(view)
        return await self._acting.carry_out(about, recent, decision)

    def _witnessed(self, key: str, seen: Seen, leaving: Manifest | None) -> bool:
        """Note a Namespace beside its mapping; tell whether one that is left was noted."""
        if leaving is not None:
            return self._beside.get(key) == uid_of(leaving)
        if seen.mapping is None:
            self._beside.pop(key, None)
        elif (beside := service_namespace.target(seen)) is not None:
            self._beside[key] = uid_of(beside)
        return False

    def _grants(self, space: str) -> Sequence[str]:
        if space not in self._granted:
            exports = self._world.exports.inside(space)
            self._granted[space] = [one for export in exports for one in granted(export)]
        return self._granted[space]

    def _forget(self, space: str) -> None:
        self._granted.pop(space, None)

    async def _removal(self, home: Home) -> Removal | None:
        """Return what has to be known beyond doubt before data go, or None where it is not."""
        cluster = self._world.cluster
        crd = Ref(cluster.name, CRD, "", API_SERVICE_NAMESPACE.resource)
        try:
            return Removal(
                mapping=await self._mapping(home),
                crd=await cluster.get(crd, metadata_only=True),
            )
        except (Forbidden, NotServed):
            return None

    async def _mapping(self, home: Home) -> Manifest | None:
        cluster = self._world.cluster
        return await cluster.get(Ref(cluster.name, API_SERVICE_NAMESPACE, home.space, home.name))

    async def _contents(self, namespace: str) -> Contents:
        """Search a namespace until something released is found. Raises ClusterErrors."""
        hidden, kinds = "", await self._copied.kinds()
        for kind in sorted(kinds.all):
            try:
                listing = await self._world.cluster.list(
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


def counted(world: World, resources: Iterable[str], now: datetime) -> Countable:
    """Return which of these resources a quota may count."""
    found = {one: world.crds.get("", one) for one in resources}
    crds = {name: crd for name, crd in found.items() if crd is not None}
    return countable(found, crds, now)


def known(world: World, home: Home, *, hashing: bool) -> Seen:
    """Return what the views tell about one app namespace, but for `counted`."""
    mapping = world.recent(world.service_namespaces).get(home.space, home.name)
    named = get_text(mapping, "status", "namespace")
    elsewhere = named if named and named != home.target else ""
    space = world.namespaces.get("", home.space)
    ours = world.namespaces.by(HOME, home.mark)
    hashed = next((one for one in ours if service_namespace.is_hashed(one, home)), None)
    if hashed is None and (name := service_namespace.hashed_name(home, space)):
        hashed = world.namespaces.get("", name)
    seen = Seen(
        world.cluster.name,
        home,
        mapping=mapping,
        space=space,
        namespace=world.namespaces.get("", home.target),
        elsewhere=world.namespaces.get("", elsewhere) if elsewhere else None,
        hashed=hashed,
        hashing=hashing,
        unsure=world.trouble(world.service_namespaces),
    )
    place = service_namespace.chosen(seen)
    return replace(
        seen,
        role_binding=world.role_bindings.get(place, names.BINDER),
        quota=world.quotas.get(place, names.QUOTA),
    )

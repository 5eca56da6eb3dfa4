"""Service namespaces of app namespaces. A key is `space/name` of an APIServiceNamespace.

A Namespace that says it belongs to one brings its key up, too: so those that were left behind
while nobody looked are found at the start (protocol-bind.md F46).
"""

from dataclasses import replace
from datetime import timedelta

from bind import service_namespace
from bind.controllers.acting import Acting, Queue
from bind.controllers.copied import Copied
from bind.controllers.waking import Waker
from bind.service_namespace import Home, Removal, Seen
from bind.world import HOME, NAME, SELF, SPACE, TARGET, World
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE
from reconciler.blueprints.export import Scope
from reconciler.core import keys, names
from reconciler.core.errors import Forbidden, NotServed
from reconciler.core.manifest import annotations_of, get_text, name_of
from reconciler.core.refs import CRD, NAMESPACE, Kind, Ref


class ServiceNamespaces:
    """The controller `servicenamespace` of protocol-bind.md C.4."""

    def __init__(self, world: World, acting: Acting, *, scope: Scope) -> None:
        self._world, self._acting, self._scope = world, acting, scope
        self._copied = Copied(world)

    def subscribe(self, queue: Queue) -> None:
        """Have the keys added that a change concerns."""
        world, self._queue = self._world, queue
        by_target = Waker(world.service_namespaces, TARGET, queue)
        world.service_namespaces.subscribe(SELF, queue.add)
        world.namespaces.subscribe(HOME, queue.add)
        world.namespaces.subscribe(NAME, by_target)
        world.namespaces.subscribe(NAME, Waker(world.service_namespaces, SPACE, queue))
        world.role_bindings.subscribe(SPACE, by_target)

    async def reconcile(self, key: str) -> timedelta | None:
        """Look at one app namespace, and do what follows. Raises ClusterErrors."""
        space, _, name = key.partition("/")
        seen = known(self._world, Home(space, name))
        leaving = service_namespace.leaving(seen)
        if leaving is not None and not seen.unsure:
            seen = replace(seen, removal=await self._removal(seen, name_of(leaving)))
        about, kind = seen.mapping, API_SERVICE_NAMESPACE
        if about is None:
            about, kind = leaving, NAMESPACE
        if about is None:
            return None
        decision = service_namespace.decide(seen, scope=self._scope)
        return await self._acting.carry_out(key, about, kind, decision, queue=self._queue)

    async def _removal(self, seen: Seen, namespace: str) -> Removal | None:
        """Return what has to be known beyond doubt before data go, or None where it is not."""
        cluster = self._world.cluster
        home = seen.home
        crd = Ref(cluster.name, CRD, "", API_SERVICE_NAMESPACE.resource)
        mapping = Ref(cluster.name, API_SERVICE_NAMESPACE, home.space, home.name)
        try:
            return Removal(
                mapping=await cluster.get(mapping),
                crd=await cluster.get(crd, metadata_only=True),
                released=await self._holds_released(namespace),
            )
        except (Forbidden, NotServed):
            return None

    async def _holds_released(self, namespace: str) -> bool:
        """Tell whether any object there is released. Raises Forbidden where nobody can tell."""
        kinds = await self._copied.kinds()
        for kind in sorted(kinds.all):
            if await self._holds(kind, namespace, known=kind.resource in kinds.offered):
                return True
        return False

    async def _holds(self, kind: Kind, namespace: str, *, known: bool) -> bool:
        try:
            listing = await self._world.cluster.list(kind, namespace=namespace, metadata_only=True)
        except NotServed:  # nothing of it can be there
            return False
        except Forbidden:
            # A kind that was never offered is no konnector's: it had its rights from us.
            if known:
                raise
            return False
        return any(keys.RELEASED in annotations_of(one) for one in listing.items)


def known(world: World, home: Home) -> Seen:
    """Return what the views tell about one app namespace."""
    mapping = world.service_namespaces.get(home.space, home.name)
    named = get_text(mapping, "status", "namespace")
    elsewhere = named if named and named != home.target else ""
    seen = Seen(
        world.cluster.name,
        home,
        mapping=mapping,
        space=world.namespaces.get("", home.space),
        namespace=world.namespaces.get("", home.target),
        elsewhere=world.namespaces.get("", elsewhere) if elsewhere else None,
        unsure=world.trouble(world.service_namespaces),
    )
    role_binding = world.role_bindings.get(service_namespace.chosen(seen), names.BINDER)
    return replace(seen, role_binding=role_binding)

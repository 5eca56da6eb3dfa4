"""Requests for exports. A key is `namespace/name` of one."""

from datetime import timedelta

from bind import export_request
from bind.controllers.acting import Acting, Queue
from bind.controllers.waking import Waker
from bind.world import NAME, RESOURCE, SELF, SPACE, WANTED, World
from reconciler.blueprints.export import Terms, offered_by
from reconciler.core.manifest import Manifest
from reconciler.kube.cache.store import Store


class ExportRequests:
    """The controller `serviceexportrequest` of protocol-bind.md C.2."""

    def __init__(self, world: World, acting: Acting, *, terms: Terms) -> None:
        self._world, self._acting, self._terms = world, acting, terms

    def subscribe(self, queue: Queue) -> None:
        """Have the keys added that a change concerns."""
        world, self._queue = self._world, queue
        world.requests.subscribe(SELF, queue.enqueue)
        world.exports.subscribe(SELF, self._waker(WANTED))
        world.crds.subscribe(NAME, self._waker(RESOURCE))
        world.templates.subscribe(RESOURCE, self._waker(RESOURCE))
        world.app_cluster_bindings.subscribe(SPACE, self._waker(SPACE))

    async def reconcile(self, key: str) -> timedelta | None:
        """Look at one request, and do what follows. Raises ClusterErrors."""
        namespace, _, name = key.partition("/")
        requests = self._world.recent(self._world.requests)
        request = requests.get(namespace, name)
        if request is None:
            return None
        seen = await self._look(namespace, request)
        decision = export_request.decide(seen, terms=self._terms, now=self._acting.now())
        return await self._acting.carry_out(request, requests, decision)

    async def _look(self, space: str, request: Manifest) -> export_request.Seen:
        world = self._world
        wanted = export_request.resources(request)
        crds = {name: await world.crd(name) for name in wanted}
        exports = {name: world.exports.get(space, name) for name in wanted}
        templates = {name: world.template(name) for name in wanted}
        return export_request.Seen(
            world.cluster.name,
            request,
            crds=_present(crds),
            exports=_present(exports),
            templates=_present(templates),
            offered=_offered(world.templates),
            listed=world.listed(space),
        )

    def _waker(self, index: str) -> Waker:
        return Waker(self._world.requests, index, self._queue)


def _present(found: dict[str, Manifest | None]) -> dict[str, Manifest]:
    return {name: one for name, one in found.items() if one is not None}


def _offered(templates: Store) -> list[str]:
    return sorted({offered_by(one) for one in templates.all()})

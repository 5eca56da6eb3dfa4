"""Requests for exports, by their places."""

from datetime import datetime

from bind.export_request import decide
from bind.export_request.decide import Seen
from bind.informers import NAME, RESOURCE, SPACE, WANTED, Informers, index_key
from reconciler.api.exports import by_resource
from reconciler.blueprints.export import Terms
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.controller.reconciler import ObjectReconciler, Queue, enqueue_mapped
from reconciler.core.decision import Decision
from reconciler.core.manifest import Manifest
from reconciler.core.refs import ObjectKey
from reconciler.kube.cache.store import Store


class ExportRequests(ObjectReconciler[ObjectKey, Seen]):
    """The controller `serviceexportrequest` of protocol-bind.md C.2."""

    def __init__(self, informers: Informers, executor: Executor, *, terms: Terms) -> None:
        self._requests = informers.recent(informers.requests)
        super().__init__(executor, self._requests)
        self._informers, self._terms = informers, terms

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        informers, requests = self._informers, self._informers.requests
        by_resource = enqueue_mapped(queue, requests, RESOURCE)
        requests.subscribe_keys(queue.enqueue)
        informers.exports.subscribe_keys(enqueue_mapped(queue, requests, WANTED))
        informers.crds.subscribe(NAME, by_resource)
        informers.templates.subscribe(RESOURCE, by_resource)
        informers.app_cluster_bindings.subscribe(SPACE, enqueue_mapped(queue, requests, SPACE))

    async def look(self, key: ObjectKey) -> tuple[Observed, Seen] | None:
        """Return one request and all that concerns it. Raises ClusterErrors."""
        request = self._requests.get(*key)
        if request is None:
            return None
        return observed(self._requests, request), await self._look(key.namespace, request)

    def decide(self, view: Seen, now: datetime) -> Decision:
        """Return what follows."""
        return decide.decide(view, terms=self._terms, now=now)

    async def _look(self, space: str, request: Manifest) -> Seen:
        informers = self._informers
        wanted = decide.resources(request)
        crds = {name: await informers.crd(name) for name in wanted}
        exports = {name: informers.exports.get(space, name) for name in wanted}
        templates = {name: informers.template(name) for name in wanted}
        return Seen(
            informers.cluster.name,
            request,
            crds=_present(crds),
            exports=_present(exports),
            templates=_present(templates),
            offered=_offered(informers.templates),
            listed=informers.listed(space),
        )


def _present(found: dict[str, Manifest | None]) -> dict[str, Manifest]:
    return {name: one for name, one in found.items() if one is not None}


def _offered(templates: Store) -> list[str]:
    return sorted(map(index_key, by_resource(templates.all())))

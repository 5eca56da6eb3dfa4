"""Reconciles requests for exports, and exports with their CRD and template."""

from datetime import datetime, timedelta

from bind.export import decide
from bind.export.decide import RequestView
from bind.informers import DEFINITION, NAME, RESOURCE, SPACE, WANTED, Informers, index_key
from reconciler.api import by_resource
from reconciler.blueprints.export import Isolation, Terms
from reconciler.controller.controller import ObjectReconciler, Queue, enqueue_mapped
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.core.decision import Decision
from reconciler.core.manifest import Manifest
from reconciler.core.refs import ObjectKey


class Exports(ObjectReconciler[ObjectKey, decide.Seen]):
    """The controller `serviceexport` of protocol-bind.md C.3."""

    def __init__(
        self, informers: Informers, executor: Executor, *, isolation: Isolation, grace: timedelta
    ) -> None:
        self._exports = informers.recent(informers.exports)
        super().__init__(executor, self._exports)
        self._informers, self._isolation, self._grace = informers, isolation, grace

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        informers = self._informers
        by_name = enqueue_mapped(queue, informers.exports, NAME)
        informers.exports.subscribe_keys(queue.enqueue)
        informers.crds.subscribe(NAME, by_name)
        informers.templates.subscribe(RESOURCE, by_name)

        def defined(definition: str) -> None:
            for crd in informers.crds.keys_by(DEFINITION, definition):
                by_name(crd.name)

        informers.definitions.subscribe(NAME, defined)

    async def look(self, key: ObjectKey) -> tuple[Observed, decide.Seen] | None:
        """Return one export and all that concerns it. Raises ClusterErrors."""
        informers, live = self._informers, self._exports.get(*key)
        if live is None:
            return None
        crd = await informers.crd(key.name)
        seen = decide.Seen(
            informers.cluster.name,
            live,
            crd=crd,
            definition=informers.definition(crd),
            template=informers.template(key.name),
            unsure=informers.trouble(informers.crds, informers.templates),
        )
        return observed(self._exports, live), seen

    def decide(self, view: decide.Seen, now: datetime) -> Decision:
        return decide.decide(view, isolation=self._isolation, grace=self._grace, now=now)


class ExportRequests(ObjectReconciler[ObjectKey, RequestView]):
    """The controller `serviceexportrequest` of protocol-bind.md C.2."""

    def __init__(
        self, informers: Informers, executor: Executor, *, terms: Terms, open_door: bool
    ) -> None:
        """`open_door`: everybody may bind all that is offered, so no space is held to its note."""
        self._requests = informers.recent(informers.requests)
        super().__init__(executor, self._requests)
        self._informers, self._terms, self._open_door = informers, terms, open_door

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        informers, asked = self._informers, self._informers.requests
        by_resource = enqueue_mapped(queue, asked, RESOURCE)
        asked.subscribe_keys(queue.enqueue)
        informers.exports.subscribe_keys(enqueue_mapped(queue, asked, WANTED))
        informers.crds.subscribe(NAME, by_resource)
        informers.templates.subscribe(RESOURCE, by_resource)
        by_space = enqueue_mapped(queue, asked, SPACE)
        informers.app_cluster_bindings.subscribe(SPACE, by_space)
        # A request may be seen before the note of the bind that it follows.
        informers.namespaces.subscribe(NAME, by_space)

    async def look(self, key: ObjectKey) -> tuple[Observed, RequestView] | None:
        """Return one request and all that concerns it. Raises ClusterErrors."""
        request = self._requests.get(*key)
        if request is None:
            return None
        return observed(self._requests, request), await self._look(key.namespace, request)

    def decide(self, view: RequestView, now: datetime) -> Decision:
        return decide.answer(view, terms=self._terms, now=now)

    async def _look(self, space: str, request: Manifest) -> RequestView:
        informers = self._informers
        wanted = decide.resources(request)
        crds = {name: await informers.crd(name) for name in wanted}
        exports = {name: informers.exports.get(space, name) for name in wanted}
        templates = {name: informers.template(name) for name in wanted}
        return RequestView(
            informers.cluster.name,
            request,
            crds=_present(crds),
            exports=_present(exports),
            templates=_present(templates),
            offered=sorted(map(index_key, by_resource(informers.templates.all()))),
            listed=informers.listed(space),
            bound=None if self._open_door else informers.bound_at_door(space),
        )


def _present(found: dict[str, Manifest | None]) -> dict[str, Manifest]:
    return {name: one for name, one in found.items() if one is not None}

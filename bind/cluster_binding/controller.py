"""Health and rights of binding spaces. A key is the name of a space."""

from datetime import datetime

from bind import bounds
from bind.bounds import Bounds
from bind.cluster_binding import decide
from bind.informers import NAME, SPACE, Informers
from bind.service_namespace import decide as service_namespace_decide
from bind.service_namespace.controller import counted, known
from reconciler.blueprints.export import Scope
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.controller.reconciler import ObjectReconciler, Queue
from reconciler.core import names
from reconciler.core.conditions import Cause
from reconciler.core.decision import Decision
from reconciler.core.manifest import name_of


class ClusterBindings(ObjectReconciler[str, decide.Seen]):
    """The controller `clusterbinding` of protocol-bind.md C.1."""

    def __init__(
        self,
        informers: Informers,
        executor: Executor,
        *,
        scope: Scope,
        limits: Bounds,
        hashing: bool,
    ) -> None:
        self._cluster_bindings = informers.recent(informers.cluster_bindings)
        super().__init__(executor, self._cluster_bindings)
        self._informers = informers
        self._scope, self._limits, self._hashing = scope, limits, hashing

    def subscribe(self, queue: Queue[str]) -> None:
        """Have the keys enqueued that a change concerns."""
        informers = self._informers
        for view in (
            informers.cluster_bindings,
            informers.exports,
            informers.role_bindings,
            informers.cluster_roles,
            informers.cluster_role_bindings,
            informers.service_namespaces,
            informers.namespaces,
            informers.quotas,
        ):
            view.subscribe(SPACE, queue.enqueue)
        informers.namespaces.subscribe(NAME, queue.enqueue)

    async def look(self, key: str) -> tuple[Observed, decide.Seen] | None:
        """Return the ClusterBinding of a space, and the space."""
        space, informers = key, self._informers
        binding = self._cluster_bindings.get(space, names.CLUSTER_BINDING)
        if binding is None:
            return None
        role = names.space_cluster_role(space)
        seen = decide.Seen(
            informers.cluster.name,
            binding,
            space=informers.namespaces.get("", space),
            exports=informers.exports.inside(space),
            role_binding=informers.role_bindings.get(space, names.BINDER),
            cluster_role=informers.cluster_roles.get("", role),
            cluster_role_binding=informers.cluster_role_bindings.get("", role),
            quota=informers.quotas.get(space, names.QUOTA),
            counted=counted(informers, bounds.IN_SPACE, self.executor.now()),
            obstacles=self._obstacles(space),
        )
        return observed(self._cluster_bindings, binding), seen

    def decide(self, view: decide.Seen, now: datetime) -> Decision:
        """Return what follows."""
        return decide.decide(view, scope=self._scope, bounds=self._limits, now=now)

    def _obstacles(self, space: str) -> list[tuple[Cause, str]]:
        mappings = self._informers.service_namespaces.inside(space)
        homes = (service_namespace_decide.Home(space, name_of(one)) for one in mappings)
        seen = (known(self._informers, home, hashing=self._hashing) for home in homes)
        found = (service_namespace_decide.obstacle(one) for one in seen)
        return [one for one in found if one is not None]

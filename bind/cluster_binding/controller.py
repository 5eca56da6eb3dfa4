"""Health and rights of binding spaces. A key is the name of a space."""

from datetime import datetime

from bind import bounds
from bind.bounds import Bounds
from bind.cluster_binding import decide
from bind.informers import NAME, SPACE, World
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
        self, world: World, executor: Executor, *, scope: Scope, limits: Bounds, hashing: bool
    ) -> None:
        self._cluster_bindings = world.recent(world.cluster_bindings)
        super().__init__(executor, self._cluster_bindings)
        self._world = world
        self._scope, self._limits, self._hashing = scope, limits, hashing

    def subscribe(self, queue: Queue[str]) -> None:
        """Have the keys enqueued that a change concerns."""
        world = self._world
        for view in (
            world.cluster_bindings,
            world.exports,
            world.role_bindings,
            world.cluster_roles,
            world.cluster_role_bindings,
            world.service_namespaces,
            world.namespaces,
            world.quotas,
        ):
            view.subscribe(SPACE, queue.enqueue)
        world.namespaces.subscribe(NAME, queue.enqueue)

    async def look(self, key: str) -> tuple[Observed, decide.Seen] | None:
        """Return the ClusterBinding of a space, and the space."""
        space, world = key, self._world
        binding = self._cluster_bindings.get(space, names.CLUSTER_BINDING)
        if binding is None:
            return None
        role = names.space_cluster_role(space)
        seen = decide.Seen(
            world.cluster.name,
            binding,
            space=world.namespaces.get("", space),
            exports=world.exports.inside(space),
            role_binding=world.role_bindings.get(space, names.BINDER),
            cluster_role=world.cluster_roles.get("", role),
            cluster_role_binding=world.cluster_role_bindings.get("", role),
            quota=world.quotas.get(space, names.QUOTA),
            counted=counted(world, bounds.IN_SPACE, self.executor.now()),
            obstacles=self._obstacles(space),
        )
        return observed(self._cluster_bindings, binding), seen

    def decide(self, view: decide.Seen, now: datetime) -> Decision:
        """Return what follows."""
        return decide.decide(view, scope=self._scope, bounds=self._limits, now=now)

    def _obstacles(self, space: str) -> list[tuple[Cause, str]]:
        mappings = self._world.service_namespaces.inside(space)
        homes = (service_namespace_decide.Home(space, name_of(one)) for one in mappings)
        seen = (known(self._world, home, hashing=self._hashing) for home in homes)
        found = (service_namespace_decide.obstacle(one) for one in seen)
        return [one for one in found if one is not None]

"""Health and rights of binding spaces. A key is the name of a space."""

from datetime import timedelta

from bind import bounds, cluster_binding, service_namespace
from bind.bounds import Bounds
from bind.controllers.acting import Acting, Queue
from bind.controllers.service_namespaces import counted, known
from bind.world import NAME, SPACE, World
from reconciler.blueprints.export import Scope
from reconciler.core import names
from reconciler.core.conditions import Cause
from reconciler.core.manifest import name_of


class ClusterBindings:
    """The controller `clusterbinding` of protocol-bind.md C.1."""

    def __init__(
        self, world: World, acting: Acting, *, scope: Scope, limits: Bounds, hashing: bool
    ) -> None:
        self._world, self._acting = world, acting
        self._scope, self._limits, self._hashing = scope, limits, hashing

    def subscribe(self, queue: Queue) -> None:
        """Have the keys added that a change concerns."""
        world, self._queue = self._world, queue
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

    async def reconcile(self, space: str) -> timedelta | None:
        """Look at one space, and do what follows."""
        world = self._world
        cluster_bindings = world.recent(world.cluster_bindings)
        binding = cluster_bindings.get(space, names.CLUSTER_BINDING)
        if binding is None:
            return None
        role = names.space_cluster_role(space)
        seen = cluster_binding.Seen(
            world.cluster.name,
            binding,
            space=world.namespaces.get("", space),
            exports=world.exports.inside(space),
            role_binding=world.role_bindings.get(space, names.BINDER),
            cluster_role=world.cluster_roles.get("", role),
            cluster_role_binding=world.cluster_role_bindings.get("", role),
            quota=world.quotas.get(space, names.QUOTA),
            counted=counted(world, bounds.IN_SPACE, self._acting.now()),
            obstacles=self._obstacles(space),
        )
        decision = cluster_binding.decide(
            seen, scope=self._scope, bounds=self._limits, now=self._acting.now()
        )
        return await self._acting.carry_out(binding, cluster_bindings, decision)

    def _obstacles(self, space: str) -> list[tuple[Cause, str]]:
        mappings = self._world.service_namespaces.inside(space)
        homes = (service_namespace.Home(space, name_of(one)) for one in mappings)
        seen = (known(self._world, home, hashing=self._hashing) for home in homes)
        found = (service_namespace.obstacle(one) for one in seen)
        return [one for one in found if one is not None]

"""Reconciles health and rights of binding spaces, and the common role of konnectors."""

from datetime import datetime

from bind import bounds, rbac_changes
from bind.bounds import Bounds
from bind.cluster_binding import decide
from bind.informers import GRANTED, NAME, SPACE, Informers
from bind.service_namespace import decide as service_namespace_decide
from bind.service_namespace.controller import counted, known
from bind.service_namespace.facts import Mapped
from reconciler.blueprints import rbac
from reconciler.blueprints.export import Scope
from reconciler.controller.controller import ObjectReconciler, Queue
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.controller.metrics import StateCounts
from reconciler.core import names
from reconciler.core.conditions import Cause
from reconciler.core.decision import Decision, writes
from reconciler.core.manifest import Manifest, name_of
from reconciler.core.refs import CLUSTER_ROLE


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
        spaces: StateCounts,
    ) -> None:
        self._spaces = spaces
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
        space, informers = key, self._informers
        binding = self._cluster_bindings.get(space, names.CLUSTER_BINDING)
        now = self.executor.now()
        self._spaces.note(space, None if binding is None else decide.state_of(binding, now))
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
            counted=counted(informers, bounds.IN_SPACE, now),
            obstacles=self._obstacles(space),
        )
        return observed(self._cluster_bindings, binding), seen

    def decide(self, view: decide.Seen, now: datetime) -> Decision:
        return decide.decide(view, scope=self._scope, bounds=self._limits, now=now)

    def _obstacles(self, space: str) -> list[tuple[Cause, str]]:
        mappings = self._informers.service_namespaces.inside(space)
        places = (Mapped(space, name_of(one)) for one in mappings)
        seen = (known(self._informers, key, hashing=self._hashing) for key in places)
        found = (service_namespace_decide.obstacle(one) for one in seen)
        return [one for one in found if one is not None]


class BinderRole(ObjectReconciler[str, Manifest | None]):
    """Keeps ClusterRole klutch-binder in form, with its note of all kinds that were ever exported.

    It is the one role of all konnectors in their binding spaces (protocol-bind.md B.5). It has one
    key, the role's name.
    """

    def __init__(self, informers: Informers, executor: Executor) -> None:
        self._roles = informers.recent(informers.cluster_roles)
        super().__init__(executor, self._roles)
        self._informers = informers
        self._granted = set[str]()  # resources, since this process runs

    def subscribe(self, queue: Queue[str]) -> None:
        """Have the role looked at now, whenever it changes, and when more is exported."""

        def changed(name: str) -> None:
            if name == names.BINDER:
                queue.enqueue(name)

        def granted(resource: str) -> None:
            if resource not in self._granted:
                self._granted.add(resource)
                queue.enqueue(names.BINDER)

        self._informers.cluster_roles.subscribe(NAME, changed)
        self._informers.exports.subscribe(GRANTED, granted)
        queue.enqueue(names.BINDER)

    async def look(self, key: str) -> tuple[Observed, Manifest | None]:
        live = self._roles.get("", key)
        return observed(self._roles, live or rbac.binder_role()), live

    def decide(self, view: Manifest | None, _now: datetime) -> Decision:
        """Return one step at a time: each is a patch of exactly the seen object."""
        cluster = self._informers.cluster.name
        steps = rbac_changes.role(cluster, CLUSTER_ROLE, view, rbac.binder_role())
        steps = steps or rbac_changes.note(cluster, view, self._granted)
        return writes(*steps)

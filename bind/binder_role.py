"""The one ClusterRole of all konnectors in their binding spaces (protocol-bind.md B.5)."""

from datetime import datetime

from bind.export import history
from bind.export_request import rbac_changes
from bind.informers import GRANTED, NAME, Informers
from reconciler.blueprints import rbac
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.controller.reconciler import ObjectReconciler, Queue
from reconciler.core import names
from reconciler.core.decision import Decision, Task
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CLUSTER_ROLE


class BinderRole(ObjectReconciler[str, Manifest | None]):
    """Keeps ClusterRole klutch-binder as it has to be, and its note of what was ever exported.

    It has one key, the role's name.
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
        """Return the role."""
        live = self._roles.get("", key)
        return observed(self._roles, live or rbac.binder_role()), live

    def decide(self, view: Manifest | None, now: datetime) -> Decision:
        """Return one step at a time: each is a patch of exactly what was seen."""
        del now
        cluster = self._informers.cluster.name
        steps = rbac_changes.role(cluster, CLUSTER_ROLE, view, rbac.binder_role())
        steps = steps or history.note(cluster, view, self._granted)
        return Decision(tasks=(Task(steps),) if steps else ())

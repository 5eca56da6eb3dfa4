"""Informers of the konnector: of single objects, and of kinds in its space.

Of single objects nothing else is ever read: so it is with Secrets, of which a konnector needs those
with kubeconfigs (H28). From the APIServiceNamespaces of the space follows which service namespace
belongs to which app namespace, as it is now.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import partial

from konnector.mass_loss import decide as mass_loss_decide
from konnector.namespace import decide as namespace_decide
from reconciler.api import API_SERVICE_EXPORT, API_SERVICE_NAMESPACE, CLUSTER_BINDING
from reconciler.controller.manager import InformerSet
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import TaskSupervisor
from reconciler.core import names
from reconciler.core.manifest import Manifest, get_text, is_deleting, namespace_of
from reconciler.core.refs import SECRET, Kind, ObjectKey
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import Informer
from reconciler.kube.store import Store, Trim, without_managed_fields


class SecretInformers(InformerSet[ObjectKey]):
    """Follows the Secrets that are needed. `on_change(key)`: one is read, or changes."""

    def __init__(
        self,
        cluster: Cluster,
        metrics: Metrics,
        *,
        on_change: Callable[[ObjectKey], None],
        trim: Trim = without_managed_fields,
    ) -> None:
        super().__init__(metrics)
        self._cluster, self._on_change = cluster, on_change
        self._trim = trim
        self._needs: dict[Hashable, frozenset[ObjectKey]] = {}

    def need(self, by: Hashable, keys: Iterable[ObjectKey]) -> None:
        """Follow the objects that `by` needs: these keys, and no others any more."""
        self._needs[by] = frozenset(key for key in keys if all(key))
        wanted = frozenset().union(*self._needs.values())
        for key in self.keys() - wanted:
            self.drop(key)
        for key in wanted - self.keys():
            informer = Informer(
                self._cluster,
                SECRET,
                namespace=key.namespace,
                fields=f"metadata.name={key.name}",
                trim=self._trim,
            )
            informer.store.subscribe_keys(self._on_change)
            self.add(key, informer, on_synced=partial(self._on_change, key))

    def knows(self, key: ObjectKey) -> bool:
        """Return whether a Secret was read, or that there is none."""
        return self.synced(key) is not None

    def object(self, key: ObjectKey) -> Manifest | None:
        """Return a Secret that is needed; None where none was seen."""
        recent = self.get(key)
        return None if recent is None else recent.view.store.get(*key)


class SpaceInformers(TaskSupervisor):
    """The informers of one space. `on_change` is called when a Secret in it is read or changes."""

    def __init__(
        self,
        cluster: Cluster,
        space: str,
        metrics: Metrics,
        *,
        on_change: Callable[[ObjectKey], None],
    ) -> None:
        super().__init__()
        self.space = space
        self._kinds = kinds = InformerSet[Kind](metrics)
        bindings = Informer(
            cluster, CLUSTER_BINDING, namespace=space, trim=mass_loss_decide.trimmed
        )
        exports = Informer(cluster, API_SERVICE_EXPORT, namespace=space)
        mappings = Informer(cluster, API_SERVICE_NAMESPACE, namespace=space)
        self.recent_cluster_bindings = kinds.add(CLUSTER_BINDING, bindings)
        self.recent_exports = kinds.add(API_SERVICE_EXPORT, exports)
        kinds.add(API_SERVICE_NAMESPACE, mappings)
        self.cluster_bindings, self.exports = bindings.store, exports.store
        self.mappings = mappings.store
        self.secrets = SecretInformers(cluster, metrics, on_change=on_change)
        self.start_worker("kinds", kinds)
        self.start_worker("secrets", self.secrets)

    @property
    def cluster_binding(self) -> Manifest | None:
        return self.recent_cluster_bindings.get(self.space, names.CLUSTER_BINDING)

    def export(self, name: str) -> Manifest | None:
        return self.recent_exports.get(self.space, name)

    @property
    def missing(self) -> list[str]:
        return self._kinds.missing

    async def wait_synced(self) -> None:
        await self._kinds.wait_synced()


class Mappings:
    """Follows the APIServiceNamespaces of one space. Only their status is believed (D.1).

    A service namespace has one app namespace: the first that says so, as long as it does. Else
    one's copies would be without their claims in the other.
    """

    def __init__(self, mappings: Store, space: str, namespaces: Store) -> None:
        self._mappings, self._space, self._namespaces = mappings, space, namespaces
        self._service: dict[str, str] = {}
        self._taken: set[str] = set()  # service namespaces
        self._refused: dict[str, str] = {}  # by app namespace: a name in use by another
        self._followers: list[Callable[[str], None]] = []
        self._standings: dict[str, tuple[object, tuple[bool, str | None]]] = {}
        mappings.subscribe_keys(lambda key: self._look(key.name))

    def service(self, app_namespace: str) -> str:
        """Return the service namespace of an app namespace, "" while there is none."""
        return self._service.get(app_namespace, "")

    def get(self, app_namespace: str) -> Manifest | None:
        return self._mappings.get(self._space, app_namespace)

    def standing(self, app_namespace: str) -> tuple[bool, str | None]:
        """Return whether an app namespace is not known to be the mapped one, and when that ended.

        None: it lives. "": the view lacks it. What is made after the end is in a later one.
        """
        views = (self._mappings, self._space), (self._namespaces, "")
        state = [store.state(namespace, app_namespace) for store, namespace in views]
        known = self._standings.get(app_namespace)
        if known is None or known[0] != state:  # each reconcile asks
            mapping, live = (store.get(namespace, app_namespace) for store, namespace in views)
            ended = get_text(live, "metadata", "deletionTimestamp")
            lives = mapping is None or (live is not None and not ended)
            unproven = namespace_decide.is_unproven(mapping, live)
            known = self._standings[app_namespace] = state, (unproven, None if lives else ended)
        return known[1]

    def objects(self) -> list[Manifest]:
        return [one for one in self._mappings.all() if namespace_of(one) == self._space]

    def all(self) -> list[str]:
        """Return the app namespaces that have a service namespace."""
        return list(self._service)

    def follow(self, on_change: Callable[[str], None]) -> Callable[[], None]:
        """Call `on_change(app namespace)` after each change, until a call of the result."""
        self._followers.append(on_change)
        return lambda: self._followers.remove(on_change)

    def _look(self, app_namespace: str) -> None:
        mapping = self.get(app_namespace)
        now = get_text(mapping, "status", "namespace")
        if mapping is not None and is_deleting(mapping):
            now = ""
        before = self._service.pop(app_namespace, "")
        self._taken.discard(before)
        self._refused.pop(app_namespace, None)
        if now in self._taken:
            self._refused[app_namespace] = now
        elif now:
            self._service[app_namespace] = now
            self._taken.add(now)
        for on_change in list(self._followers):
            on_change(app_namespace)
        if before != now:
            self._offer(before)

    def _offer(self, service_namespace: str) -> None:
        """Give a free service namespace to the next mapping that asks for it."""
        waiting = (app for app, wanted in self._refused.items() if wanted == service_namespace)
        if (app := next(waiting, "")) != "":
            self._look(app)

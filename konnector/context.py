"""The shared objects of a konnector: its informers, and those of the syncs with one space.

Of single objects nothing else is ever read: so it is with Secrets, of which a konnector needs those
with kubeconfigs (H28). From the APIServiceNamespaces of the space follows which service namespace
belongs to which app namespace, as it is now.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

from konnector.kubeconfig.connections import Connect, Probed
from konnector.mass_loss import decide as mass_loss_decide
from konnector.mass_loss.guard import SpaceGuards
from konnector.metrics import SyncMetrics
from konnector.namespace import decide as namespace_decide
from konnector.space import decide as space_decide
from reconciler.api import API_SERVICE_EXPORT, API_SERVICE_NAMESPACE, CLUSTER_BINDING
from reconciler.controller.executor import Executor
from reconciler.controller.manager import Bodies, InformerSet
from reconciler.controller.metrics import Metrics
from reconciler.controller.program import Runtime
from reconciler.controller.tasks import Clock, TaskSupervisor
from reconciler.core import names
from reconciler.core.decision import Note
from reconciler.core.errors import NotServed
from reconciler.core.manifest import Manifest, get_text, is_deleting, namespace_of
from reconciler.core.refs import NAMESPACE, SECRET, Kind, ObjectKey, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import Informer
from reconciler.kube.store import Store, Trim, without_managed_fields
from reconciler.kube.turns import SharedReads


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
            if not any(state):
                del self._standings[app_namespace]
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


SOON: Final = timedelta(seconds=1)  # until a view has caught up


class Early(Exception):
    """A write that has to wait: a deletion, or one that a view is not sure of."""

    def __init__(self, wait: timedelta, why: str = "") -> None:
        self.wait, self.why = wait, why  # for people, where it may last
        super().__init__()


@dataclass(frozen=True, slots=True)
class AgentContext:
    """The app cluster with the views of it that all share, its writers, Events and metrics.

    Of Namespaces and CRDs only metadata are held (H28); `bodies` are those of the CRDs.
    `own_namespace` is where the konnector runs in the app cluster, "" where it does elsewhere.
    `orphan_grace` is how long after an orphan is deleted unconfirmed, None: never. `mark` names
    the holder of the Lease and this process, as no other has been named.
    """

    app: Cluster
    looks: SharedReads
    namespaces: Store
    crds: Store
    bodies: Bodies
    connect: Connect
    runtime: Runtime
    syncs: SyncMetrics
    workers: int
    control_plane_mode: bool
    own_namespace: str
    mark: str
    orphan_grace: timedelta | None = None
    stamping: "Turns" = field(default_factory=lambda: Turns())

    @property
    def clock(self) -> Clock:
        return self.runtime.clock

    @property
    def metrics(self) -> Metrics:
        return self.runtime.metrics

    def executor(self, *clusters: Cluster) -> Executor:
        """Return the executor of decisions in the app cluster and in these clusters."""
        return self.runtime.executor(self.app, *clusters)


@dataclass(frozen=True, slots=True)
class ProviderCallbacks:
    """The questions of a provider to its process.

    `targets` are the Secrets in the app cluster that lead to it; `is_wanted` asks the app cluster
    whether a binding still refers to one. `binding` is its APIServiceBinding of a name, `bound`
    are the names of all of them, `unfollowed` those of all bindings that are not followed yet and
    may be of the space with this uid. `is_kubeconfig` is whether a binding refers to a Secret of
    the app cluster. `changed(name)` is called when there is news for a binding, with "" for all;
    `notify` tells developers what concerns all bindings, `notify_one` what is about none of them.
    `is_double`: whether another serves the space already; then all bindings go to that one.
    """

    targets: Callable[[], Mapping[ObjectKey, Manifest | None]]
    is_wanted: Callable[[ObjectKey], Awaitable[bool]]
    binding: Callable[[str], Manifest | None]
    bound: Callable[[], Iterable[str]]
    unfollowed: Callable[[str], Iterable[str]]
    is_kubeconfig: Callable[[ObjectKey], bool]
    probe: Callable[[bytes], Awaitable[Probed]]
    changed: Callable[[str], None]
    notify: Callable[[Note], None]
    notify_one: Callable[[Note], None]
    is_double: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class SyncContext:
    """The app cluster with all its workers, the space, and the writers to both.

    `want` asks for a mapping; `cut_off` returns why nothing is synced at the moment, or "".
    """

    agent: AgentContext
    plane: Cluster
    views: SpaceInformers
    callbacks: ProviderCallbacks
    space_uid: str
    mappings: Mappings
    want: Callable[[str], None]
    cut_off: Callable[[], str]
    guards: SpaceGuards
    executor: Executor
    troubles: "Troubles" = field(default_factory=lambda: Troubles())

    @property
    def space(self) -> str:
        return self.views.space

    def is_reserved(self, app_namespace: str) -> bool:
        """Return whether an app namespace is one of the cluster's own programs."""
        return names.is_reserved(app_namespace, self.agent.own_namespace)

    def are_stamped(self, app_namespace: str) -> bool:
        """Return whether a copy behind a mapping that lacks its claim's uid is of another life."""
        marked = namespace_decide.is_marked(self.mappings.get(app_namespace) or {})
        return marked and not space_decide.is_anothers(self.views.cluster_binding)

    async def require_mapped(self, app_namespace: str) -> None:
        """Ask the API server whether an app namespace is the one that was mapped.

        Raises Early where it is another one, unknown to the view, and ClusterErrors.
        """
        mapping = self.mappings.get(app_namespace)
        ref = Ref(self.agent.app.name, NAMESPACE, "", app_namespace)
        if mapping and namespace_decide.is_unproven(mapping, await self.agent.looks.metadata(ref)):
            raise Early(SOON)


class Turns:
    """Lets work for which nothing else asks be done at most ten times a second, one by one."""

    def __init__(self) -> None:
        self._next = 0.0
        self._turns: dict[Hashable, float] = {}

    def wait(self, key: Hashable, now: float) -> timedelta:
        """Return how long `key` has to wait for its turn, which ends when it is reached."""
        turn = self._turns.pop(key, max(now, self._next))
        self._next = max(self._next, turn + 0.1)
        if turn > now:
            self._turns[key] = turn
        return timedelta(seconds=max(turn - now, 0))


class Troubles:
    """The troubles for developers, by export or claimed resource and by object."""

    def __init__(self) -> None:
        self._problems: dict[str, dict[str, str]] = {}
        self._on_change: Callable[[str], None] = lambda _: None

    def follow(self, on_change: Callable[[str], None]) -> None:
        """Have `on_change(resource)` called when the first trouble comes and the last is over.

        What comes between shows at the next look, so that thousands of objects in the same trouble
        are not reported one by one.
        """
        self._on_change = on_change

    def of(self, resource: str) -> dict[str, str]:
        """Return the problems of a resource: a sentence for each object."""
        return self._problems.get(resource, {})

    def report(self, resource: str, about: str, problem: str) -> None:
        """Note the problem of one object; "" for none any more."""
        problems = self._problems.setdefault(resource, {})
        troubled = bool(problems)
        if problem:
            problems[about] = problem
        else:
            problems.pop(about, None)
        if bool(problems) != troubled:
            self._on_change(resource)

    def forget(self, resource: str) -> None:
        self._problems.pop(resource, None)


async def all_in(
    cluster: Cluster, kind: Kind, namespaces: Iterable[str], *, whole: bool = False
) -> list[tuple[Kind, Manifest]]:
    """Return the objects of a kind in these namespaces, their metadata or all. Raises NotServed."""
    return [
        (kind, one)
        for namespace in namespaces
        for one in (await cluster.list(kind, namespace=namespace, metadata_only=not whole)).items
    ]


async def copies_in(
    plane: Cluster, kind: Kind, namespaces: Iterable[str]
) -> list[tuple[Kind, Manifest]]:
    """Return the copies in these namespaces, in whichever version the control plane has them.

    An export, and the CRD of the app cluster, may be behind: that a version is served no more does
    not tell that there is nothing. It may be "" where none is known. Another scope has no copies.
    """
    places = sorted(namespaces)
    if kind.version:
        with suppress(NotServed):
            return await all_in(plane, kind, places)
    for version in await plane.versions(kind.group):
        with suppress(NotServed):
            served = await plane.kind(kind.group, version, kind.plural)
            alike = served.namespaced == kind.namespaced
            return await all_in(plane, served, places) if alike else []
    return []

"""The shared objects of a konnector, and of the syncs with one space."""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from konnector.informers import Mappings, SpaceInformers
from konnector.kubeconfig.connections import Connect, Probed
from konnector.mass_loss.guard import SpaceGuards
from konnector.metrics import SyncMetrics
from konnector.namespace import decide as namespace_decide
from konnector.space import decide as space_decide
from reconciler.controller.executor import Executor
from reconciler.controller.manager import Bodies
from reconciler.controller.metrics import Metrics
from reconciler.controller.program import Runtime
from reconciler.controller.tasks import Clock
from reconciler.core import names
from reconciler.core.decision import Note
from reconciler.core.manifest import Manifest
from reconciler.core.refs import NAMESPACE, ObjectKey, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.store import Store
from reconciler.kube.turns import SharedReads

SOON: Final = timedelta(seconds=1)  # until a view has caught up


class Early(Exception):
    """A write that has to wait: a deletion, or one that a view is not sure of."""

    def __init__(self, wait: timedelta) -> None:
        self.wait = wait
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

    def now(self) -> datetime:
        """Return the time, aware and in UTC."""
        return self.agent.clock.now()


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

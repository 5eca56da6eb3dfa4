"""Syncs the objects of one kind in an app cluster and in a space.

On the control plane, rights and interest end at the service namespaces of the space (A.8): there is
one informer for each, because one of all namespaces would hold the objects of every other tenant.
Namespaces come and go with the mappings. A cluster-scoped kind has one informer, of namespace "".
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final

from konnector import APP_CLUSTER
from konnector.claim.orphans import Terms
from konnector.context import SOON, Early, Mappings, SyncContext
from konnector.metrics import DOWN, UP, directions
from konnector.namespace.decide import is_later
from reconciler.controller.controller import Controller
from reconciler.controller.manager import InformerSet
from reconciler.controller.metrics import Metrics
from reconciler.controller.queue import AHEAD, BEHIND
from reconciler.controller.tasks import TaskSupervisor
from reconciler.controller.tracing import Write
from reconciler.core.decision import Create, Decision, Note
from reconciler.core.errors import ClusterError, Forbidden, NotServed, Oversized, Rejected
from reconciler.core.manifest import Manifest, is_deleting, name_of, namespace_of, ref_of
from reconciler.core.refs import NAMESPACE, Kind, ObjectKey
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import Informer, ReadYourWrites
from reconciler.kube.limits import OF_CLAIMS
from reconciler.kube.store import Index, Trim
from reconciler.kube.turns import Party

RECHECK: Final = timedelta(minutes=1)  # until a guard is asked again
NOTED_AFTER: Final = 10.0  # seconds until people read why something waits
NAME: Final = "name"


@dataclass(frozen=True, slots=True)
class InformerSpec:
    """The spec of an informer: its kind, and the kept part of each object.

    `on_deleted(app namespace, object)` is called for each object that a watch saw deleted.
    """

    kind: Kind
    trim: Trim
    indexes: Mapping[str, Index]
    on_deleted: Callable[[str, Manifest], None] = lambda _, __: None


class ServiceInformers(InformerSet[str]):
    """Informers by app namespace. `on_change(app namespace, name)`: an object changed since.

    `on_synced(app namespace)` is called when all objects of its service namespace were seen.
    """

    def __init__(
        self,
        cluster: Cluster,
        spec: InformerSpec,
        mappings: Mappings,
        metrics: Metrics,
        *,
        on_change: Callable[[str, str], None],
        on_synced: Callable[[str], None],
    ) -> None:
        super().__init__(metrics)
        self._cluster, self._spec, self._mappings = cluster, spec, mappings
        self._on_change, self._on_synced = on_change, on_synced
        self._followed: dict[str, str] = {}  # service namespaces by app namespace
        if not spec.kind.namespaced:
            self._follow_namespace("", "")

    def of(self, app_namespace: str) -> ReadYourWrites | None:
        """Return the objects that belong to an app namespace; None until all were seen."""
        service = self._mappings.service(app_namespace) if self._spec.kind.namespaced else ""
        return None if self._followed.get(app_namespace) != service else self.synced(app_namespace)

    @property
    def read(self) -> list[str]:
        """The app namespaces of which all objects were seen."""
        return [app for app in self._followed if self.of(app) is not None]

    async def run(self) -> None:
        if not self._spec.kind.namespaced:
            await super().run()
            return
        unfollow = self._mappings.follow(self._moved)
        try:
            for app in self._mappings.all():
                self._moved(app)
            await super().run()
        finally:
            unfollow()

    def _moved(self, app: str) -> None:
        """Take up, or give up, the informer for an app namespace."""
        service = self._mappings.service(app)
        if app in self._followed and self._followed[app] != service:
            self.drop(app)
            del self._followed[app]
        if service and app not in self._followed:
            self._follow_namespace(app, service)
        self._on_synced(app)

    def _follow_namespace(self, app: str, service: str) -> None:
        informer = Informer(
            self._cluster,
            self._spec.kind,
            namespace=service,
            indexes=self._spec.indexes,
            trim=self._spec.trim,
            deleted=partial(self._spec.on_deleted, app),
            budget=OF_CLAIMS,
            optional=(NotServed,),  # nor is it there after a restart
        )
        informer.store.subscribe(NAME, lambda name: self._changed(app, informer, name))
        self._followed[app] = service
        self.add(app, informer, on_synced=partial(self._on_synced, app))

    def _changed(self, app: str, informer: Informer, name: str) -> None:
        if informer.synced:  # else `on_synced` follows
            self._on_change(app, name)


class PairedSync(TaskSupervisor):
    """Informers of one kind on both sides, and the controller that reconciles what they see; run
    it once. Serial for each object, concurrent across objects.

    A key is that of the app cluster, on either side. `here` is about the objects in the app
    cluster, `there` about those on the control plane, which the index NAME has to find by the names
    that they have in the app cluster. Of app namespaces without a service namespace, keys are
    enqueued only with `unmapped`.
    """

    def __init__(
        self,
        name: str,
        link: SyncContext,
        here: InformerSpec,
        there: InformerSpec,
        *,
        unmapped: bool,
    ) -> None:
        super().__init__()
        self.kind, self.link, self._unmapped = here.kind, link, unmapped
        self.began = link.agent.clock.monotonic()
        self.guard = link.guards.kind_guard(here.kind.resource)
        self._seconds = {
            way: link.agent.syncs.direction(here.kind.resource, way) for way in (UP, DOWN)
        }
        self._events: dict[ObjectKey, float] = {}  # the first that no write has answered
        self._controller = Controller(
            f"{name}/{here.kind.resource}",
            self.reconcile,
            clock=link.agent.clock,
            metrics=link.agent.metrics,
            workers=link.agent.workers,
            depends_on=(link.agent.app.connectivity, link.plane.connectivity),
            party=lambda place: Party(place.namespace, wide=self.view.store.is_wide(place)),
        )
        self.view = Informer(
            link.agent.app,
            here.kind,
            indexes=here.indexes,
            trim=here.trim,
            deleted=lambda live: here.on_deleted(namespace_of(live), live),
            budget=OF_CLAIMS,
        )
        self._here = InformerSet[str](link.agent.metrics)
        self.here = self._here.add("here", self.view, on_synced=self.enqueue_everything)
        self._there = ServiceInformers(
            link.plane,
            there,
            link.mappings,
            link.agent.metrics,
            on_change=self._there_changed,
            on_synced=self.enqueue_all,
        )
        self.view.store.subscribe_keys(self._changed)
        self.start_worker("here", self._here)
        self.start_worker("there", self._there)
        self.start_worker("controller", self._controller)

    async def reconcile(self, place: ObjectKey) -> timedelta | None:
        """Sync one name in one app namespace, unless nothing may go down, up or away there."""
        try:
            unproven, ended = self.link.mappings.standing(place.namespace)
            if unproven or self.link.guards.mismatch():
                self.drop_event(place)
                return RECHECK
            if ended is not None and (live := self.here.get(*place)) and is_later(live, ended):
                return SOON
            return await self.sync(place)
        except Early as early:
            if early.why and self.waited(place) >= NOTED_AFTER:
                self._note_wait(self.here.get(*place), early.why)
            return early.wait
        except Oversized as error:
            return self._left_as_it_is(place, error)

    def _note_wait(self, about: Manifest | None, why: str) -> None:
        self.record(about, Note("SyncWaiting", f"Not synced yet: {why}", "Warning"))

    def _left_as_it_is(self, place: ObjectKey, error: Oversized) -> timedelta:
        """Report that one of a pair is too large to be read, so that neither may be written."""
        self.drop_event(place)
        claims = self.view.store
        about = claims.stub(*place) or claims.get(*place)
        side = error.cluster.replace("-", " ")
        why = f"Not synced: in the {side}, {error.ref.object} is too large"
        self.record(about, Note("TooLarge", why, "Warning"))
        self.report(place, str(error))
        return RECHECK

    @abstractmethod
    async def sync(self, place: ObjectKey) -> timedelta | None:
        """Reconcile one name in one app namespace."""

    async def run(self) -> None:
        """Sync until `stop`, and end the sync under way."""
        try:
            await super().run()
        finally:
            self.guard.forget()

    def there(self, app_namespace: str) -> ReadYourWrites | None:
        """Return the objects that belong to an app namespace; None until both sides were seen."""
        return self._there.of(app_namespace) if self.view.synced else None

    @abstractmethod
    def vouches(self, app_namespace: str) -> bool:
        """Return whether an object in an app namespace has its counterpart behind the mapping.

        Raises Oversized.
        """

    @property
    def missing(self) -> Sequence[str]:
        return [*self._here.missing, *self._there.missing]

    @property
    def troubles(self) -> Sequence[str]:
        """Why objects may be old, or cannot be had."""
        return [*self._here.troubles, *self._there.troubles]

    def enqueue_all(self, app_namespace: str) -> None:
        recent = self._there.of(app_namespace)
        there = set(() if recent is None else recent.view.store.values(NAME))
        here = set(self.view.store.names(app_namespace))
        for name in here ^ there:  # has come or gone
            self._controller.enqueue(ObjectKey(app_namespace, name))
        for name in here & there:
            self._controller.enqueue(ObjectKey(app_namespace, name), BEHIND)

    def enqueue_everything(self) -> None:
        for app_namespace in self._there.read:
            self.enqueue_all(app_namespace)

    def record(self, about: Manifest | None, note: Note, kind: Kind | None = None) -> None:
        """Record an Event about an object of the app cluster, if it is there.

        In a Namespace that is being deleted, it is about that.
        """
        if about is None:
            return
        agent, kind = self.link.agent, kind or self.kind
        namespace = agent.namespaces.get("", namespace_of(about))
        if namespace is not None and is_deleting(namespace):
            # An API server takes no new object there, and so no Event.
            note = replace(note, message=f"{kind.resource}: {note.message}")
            kind, about = NAMESPACE, namespace
        agent.runtime.recorder.record(ref_of(agent.app.name, kind, about), about, note)

    @abstractmethod
    def report(self, place: ObjectKey, problem: str) -> None:
        """Report at the binding the problem of an object; "" for none any more."""

    async def write(
        self, place: ObjectKey, about: Manifest | None, decision: Decision, there: ReadYourWrites
    ) -> Write | None:
        """Execute a decision; refusals of a cluster are reported. Raises ClusterErrors.

        Returns how long it took since the event, where the sync began with one. Deletions wait
        for their time, as `reconcile` returns it, and creates for a view that is behind.
        """
        if decision.deletes and (wait := self.link.guards.deletes_in()) is not None:
            raise Early(wait)
        makes = any(
            isinstance(one, Create) and one.cluster == APP_CLUSTER for one in decision.steps
        )
        if makes and self.link.mappings.standing(place.namespace)[1] is not None:
            raise Early(SOON)
        try:
            await self.link.executor.execute(decision, recents=(self.here, there))
        except ClusterError as error:
            if is_refusal(error):  # for developers to know (H17)
                side = error.cluster.replace("-", " ")
                denied = f"The {side} refused to {error.call}: {error.message}"
                self.record(about, Note("SyncDenied", denied, "Warning"))
                self.report(place, str(error))
            elif max(self.waited(place), 2 * (error.retry_after or 0)) >= NOTED_AFTER:
                self._note_wait(about, str(error))
            raise
        self.report(place, "")
        began, ways = self._events.pop(place, None), [*directions(decision)]
        if began is None or not ways:
            return None
        took = self.link.agent.clock.monotonic() - began
        for way in ways:
            self._seconds[way].observe(took)
        now = self.link.guards.now().timestamp()
        return Write(now - took, now)

    def waited(self, place: ObjectKey) -> float:
        """Return the seconds since the first event that no write has answered."""
        now = self.link.agent.clock.monotonic()
        return now - self._events.setdefault(place, now)

    def drop_event(self, place: ObjectKey) -> None:
        """Leave out of the figures an event that waits for people, or needs no write."""
        self._events.pop(place, None)

    def turn(self, place: ObjectKey) -> timedelta:
        """Return how long a write waits for which uids are the only reason."""
        return self.link.agent.stamping.wait((self, place), self.link.agent.clock.monotonic())

    async def fresh_terms(self) -> Terms:
        """Ask once more for the app cluster's identity, and for the confirmations."""
        await self.link.guards.look_at_app_cluster()
        await self.link.guards.look_at_confirmations()
        return self.link.guards.terms(self.kind.resource)

    def _changed(self, key: ObjectKey) -> None:
        synced = self.view.synced  # else all are looked at soon
        is_mapped = bool(self.link.mappings.service(key.namespace))
        if not (synced if is_mapped else self._unmapped):
            return
        if synced:
            self._note_event(key)
        self._controller.enqueue(key)

    def _there_changed(self, app_namespace: str, name: str) -> None:
        """Let changes that come down go first: a status is one request, a create takes two."""
        key = ObjectKey(app_namespace, name)
        self._note_event(key)
        self._controller.enqueue(key, AHEAD)

    def _note_event(self, key: ObjectKey) -> None:
        self._events.setdefault(key, self.link.agent.clock.monotonic())


def name(live: Manifest) -> Sequence[str]:
    """Return the name of an object, as an index does."""
    return (name_of(live),)


def is_refusal(error: ClusterError) -> bool:
    """Return whether a cluster looked at a write and did not take it.

    500: by a webhook, or a full store. What only passes, such as 429 and 503, is no refusal.
    """
    return isinstance(error, Rejected | Forbidden) or error.status == 500

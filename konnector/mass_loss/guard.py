"""Identifies app cluster and space, and allows or stops writes, deletions, re-creations."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from konnector.claim import orphans
from konnector.claim.orphans import Confirmation, Terms
from konnector.mass_loss import decide, rules
from konnector.mass_loss.decide import Confirmations, Guarded, Identity
from konnector.mass_loss.waves import EndingNamespaces, Record
from konnector.space import active
from konnector.space.active import Standing
from reconciler.api import CLUSTER_BINDING
from reconciler.core import identity, keys, manifest, names, times
from reconciler.core.decision import Decision, writes_each
from reconciler.core.manifest import Manifest
from reconciler.core.refs import NAMESPACE, ObjectKey, Ref
from reconciler.kube.cluster import Reader
from reconciler.kube.turns import SharedReads

if TYPE_CHECKING:
    from konnector.context import AgentContext, SpaceInformers

_BETWEEN: Final = 1.5  # seconds between two records of deletions
_WRITTEN: Final = 0.2  # seconds after which one is there


class SpaceGuards:
    """The guards of one space (mapping.md 10). `secrets` are those that hold its kubeconfig.

    `changed` is called when there is something new to say in the ClusterBinding, `released` when
    what was held has to be looked at again, and `emptied(app namespace)` when one orphan less is
    behind a mapping.
    """

    def __init__(  # noqa: PLR0913 - each is known to another part of the program
        self,
        agent: "AgentContext",
        plane: Reader,
        views: "SpaceInformers",
        *,
        secrets: Callable[[], Iterable[Manifest]],
        changed: Callable[[], None],
        released: Callable[[], None],
        emptied: Callable[[str], None],
    ) -> None:
        self._agent, self._plane, self._views, self.space = agent, plane, views, views.space
        self._looks = SharedReads(plane)
        self.metrics = agent.metrics
        self._secrets, self.changed = secrets, changed
        self._released, self.emptied = released, emptied
        self.app_cluster_uid = ""
        self.space_uid, self.lives = "", frozenset[str]()
        self._space_records = frozenset[str]()
        self._recorded: frozenset[str] | None = None  # None: a mapping has changed since
        self._confirmed = Confirmations()
        self._confirmation: Confirmation | None = None
        self._standing = Standing(agent.mark)
        self._record, self._asked = Record(), -_BETWEEN
        self.ending_namespaces = EndingNamespaces(
            agent.namespaces, agent.clock.monotonic, self._record
        )
        self._kind_guards: dict[str, KindGuard] = {}
        self.beat = ""  # why the ClusterBinding could not be written, or ""
        self._unwritten: dict[str, str] = {}  # why, by the name of the APIServiceBinding
        self._others: dict[str, str] = {}  # uids of app namespaces that are not those mapped
        views.mappings.subscribe_keys(self._mapping_changed)
        views.cluster_bindings.subscribe_keys(self._cluster_binding_changed)

    def now(self) -> datetime:
        """Return the control plane's time, in UTC: no step of our clock ends or begins a term."""
        return self._plane.connectivity.now(self._agent.clock.now(), self._agent.clock.monotonic())

    async def look(self) -> None:
        """Read both clusters' identities. Raises ClusterErrors, and keeps the known ones then."""
        await self.look_at_app_cluster()
        await self.look_at_space()

    async def look_at_space(self) -> None:
        """Read the identity of the space. Raises ClusterErrors, and keeps the known one then."""
        space = await self._read_space()
        self.space_uid, self.lives = manifest.uid_of(space), identity.lives(space)
        self._space_records = decide.recorded([space], keys.APP_CLUSTER_UID)

    async def is_being_deleted(self, resource: str) -> bool:
        """Ask whether klutchctl deletes all instances of a resource. Raises ClusterErrors."""
        return rules.is_being_deleted(await self._read_space(), resource)

    async def _read_space(self) -> Manifest:
        return await self._looks.metadata(Ref(self._plane.name, NAMESPACE, "", self.space)) or {}

    async def look_at_app_cluster(self) -> None:
        """Read the app cluster's identity. Raises ClusterErrors, and keeps the known one then."""
        ref = Ref(self._agent.app.name, NAMESPACE, "", names.KUBE_SYSTEM)
        system = await self._agent.app.get(ref, metadata_only=True)
        before, self.app_cluster_uid = self.app_cluster_uid, manifest.uid_of(system or {})
        if before != self.app_cluster_uid:
            self._released()

    async def look_at_confirmations(self) -> None:
        """Read the confirmations of an operator, also those that the view does not show yet.

        Raises ClusterErrors.
        """
        ref = Ref(self._plane.name, CLUSTER_BINDING, self.space, names.CLUSTER_BINDING)
        live = await self._plane.get(ref)
        if live is not None:
            self._views.recent_cluster_bindings.wrote(live)
            self._cluster_binding_changed(ObjectKey(self.space, names.CLUSTER_BINDING))

    @property
    def identity(self) -> Identity:
        """Return the known identities, and the recorded ones."""
        return Identity(
            self.space,
            self.app_cluster_uid,
            self._recorded_app_clusters(),
            self.space_uid,
            decide.recorded(self._secrets(), keys.SPACE_UID),
        )

    def mismatch(self) -> str:
        """Return why nothing may be written on either side, or ""."""
        known = Identity(self.space, self.app_cluster_uid, self._recorded_app_clusters())
        found = decide.mismatch(known, self._confirmed.app_cluster)
        return active.why_stopped(self._standing) if found is None else found[1]

    def meet(self, cluster_binding: Manifest) -> Standing:
        """Take in which konnector wrote to the ClusterBinding last."""
        before, now = self._standing, self._agent.clock.monotonic()
        self._standing = active.follow(before, active.mark_in(cluster_binding), now)
        if before.stopped != self._standing.stopped:
            self._released()
        return self._standing

    def deletes_in(self) -> timedelta | None:
        """Return how long deletions wait for the answer of another konnector; None: not at all."""
        if self._views.cluster_binding is None:
            return None
        return active.deletes_in(self._standing, self._agent.clock.monotonic())

    def forgets(self, claim: Manifest) -> bool:
        """Return whether a later process would not count the deletion of a claim, once it ends."""
        until, is_bound = rules.deleted_at(claim), self._views.cluster_binding is not None
        return is_bound and until is not None and self._record.lacks(until)

    def count(self) -> timedelta:
        """Have deletions counted in the ClusterBinding; return when to look for that."""
        now = self._agent.clock.monotonic()
        if now - self._asked >= _BETWEEN:
            self._asked = now
            self._record.update()
            self.changed()
        return timedelta(seconds=_WRITTEN if now - self._asked <= _WRITTEN else _BETWEEN / 2)

    @property
    def confirmed(self) -> bool:
        """Whether an operator confirmed this app cluster, whatever was recorded."""
        return bool(self.app_cluster_uid) and self._confirmed.app_cluster == self.app_cluster_uid

    def confirmed_namespace(self, name: str) -> str:
        """Return the uid of the app namespace that a person gives a mapping to, or ""."""
        return self._confirmed.namespaces.get(name, "")

    def note_namespace(self, name: str, uid: str) -> None:
        """Note the uid of an app namespace that is not the one mapped; "": it is, or is none."""
        if self._others.get(name, "") != uid:
            self._others[name] = uid
            self.changed()

    def note_unwritten(self, name: str, why: str) -> None:
        """Note why an APIServiceBinding cannot report itself; "": it can, or is gone."""
        if self._unwritten.get(name, "") != why:
            self._unwritten.pop(name, None)
            self._unwritten |= {name: why} if why else {}
            self.changed()

    @property
    def mass_delete_confirmed(self) -> bool:
        return times.is_confirmed(self._confirmed.mass_delete, self.now())

    def recreates(self, resource: str) -> bool:
        """Return whether a person allowed that lost copies of a resource are made again."""
        return self._confirmed.recreate.allows(resource, self.now())

    def terms(self, resource: str) -> Terms:
        return Terms(resource, self._confirmation or Confirmation(), self._agent.orphan_grace)

    def kind_guard(self, resource: str) -> "KindGuard":
        """Return the guard of one resource, which all syncs of it share."""
        return self._kind_guards.setdefault(resource, KindGuard(self, resource))

    def has_orphans(self, app_namespace: str) -> bool:
        """Return whether an orphan is behind a mapping, with which it would go unconfirmed."""
        places = (place for guard in self._kind_guards.values() for place in guard.orphans)
        return any(place.namespace == app_namespace for place in places)

    def report(self, cluster_binding: Manifest) -> Decision:
        guarded = [guard.guarded for guard in self._kind_guards.values()]
        others = {name: uid for name, uid in self._others.items() if uid}
        seen = decide.Seen(cluster_binding, self.identity, guarded, others, self._unwritten)
        return decide.report(seen, now=self.now(), counted=self._record.text)

    def records(self) -> Decision:
        """Return the writes that record this space in the place of another, where that is allowed.

        For the first time it is recorded with what else is written to a Secret.
        """
        confirmed, identity = self.recreates(decide.ALL), self.identity
        marked = [one for one in self._secrets() if keys.SPACE_UID in manifest.annotations_of(one)]
        return writes_each(
            decide.space_record(one, identity, confirmed=confirmed) for one in marked
        )

    def _recorded_app_clusters(self) -> frozenset[str]:
        if self._recorded is None:
            self._recorded = decide.recorded(self._views.mappings.all(), keys.APP_CLUSTER_UID)
        return self._recorded | self._space_records

    def _mapping_changed(self, _key: ObjectKey) -> None:
        self._recorded = None

    def _cluster_binding_changed(self, key: ObjectKey) -> None:
        live = self._views.recent_cluster_bindings.get(*key)
        notes = {} if live is None else manifest.annotations_of(live)
        before = self._confirmed, self._confirmation
        self._confirmed = decide.confirmations_of(live)
        self._record.read(live)
        value = notes.get(keys.CONFIRM_ORPHANS, "")
        written = decide.written_at(live or {}, keys.CONFIRM_ORPHANS)
        self._confirmation = orphans.follow(self._confirmation, value, written, self.now())
        if before != (self._confirmed, self._confirmation):
            self._released()


class KindGuard:
    """The held objects of a resource, noted place by place, in the app cluster."""

    def __init__(self, guards: SpaceGuards, resource: str) -> None:
        self._guards, self.resource = guards, resource
        self.orphans: set[ObjectKey] = set()
        self.lost: dict[ObjectKey, datetime] = {}  # since when it is known
        self._withdrawn = ""
        self._parts: set[ObjectKey] = set()
        self._deletions: dict[ObjectKey, str] = {}

    @property
    def guarded(self) -> Guarded:
        return Guarded(
            self.resource,
            self.orphans,
            self.lost,
            frozenset(self._deletions.values()),
            self._parts,
            self._withdrawn,
        )

    def withdraw(self, why: str) -> None:
        if self._withdrawn != why:
            self._withdrawn = why
            self._guards.changed()

    def lost_for(self, place: ObjectKey) -> timedelta:
        """Return for how long it is known that a copy is lost."""
        now = self._guards.now()
        return now - self.lost.get(place, now)

    @property
    def sentence(self) -> str:
        """The sentence about its orphans, or ""."""
        return orphans.sentence(self.resource, self.orphans, self._guards.space)

    def note(
        self,
        place: ObjectKey,
        *,
        orphan: bool = False,
        lost: bool = False,
        deletion: str = "",
        part: bool = False,
    ) -> bool:
        """Note the state of one place; return whether the orphans have changed.

        `deletion` is why its copy is kept though its claim is being deleted, `part` whether it was
        adopted and is a part of a service.
        """
        metrics = self._guards.metrics
        if (place in self.orphans) != orphan:
            metrics.orphans(self.resource, 1 if orphan else -1)
        if deletion or lost:
            metrics.blocked_write("delete" if deletion else "create")
        before = self._deletions.pop(place, "")
        if deletion:
            self._deletions[place] = deletion
        changed = _set(self.orphans, place, is_in=orphan)
        if changed and not orphan and place.namespace:
            self._guards.emptied(place.namespace)
        others = [self._lose(place, lost), _set(self._parts, place, is_in=part and not orphan)]
        if any(others) or changed or bool(before) != bool(deletion):
            self._guards.changed()
        return changed

    def forget(self) -> None:
        """Forget all of it: nothing is synced any more."""
        for place in self.orphans | self.lost.keys() | self._parts | self._deletions.keys():
            self.note(place)

    def _lose(self, place: ObjectKey, is_lost: bool) -> bool:
        changes = (place in self.lost) != is_lost
        if is_lost:
            self.lost.setdefault(place, self._guards.now())
        else:
            self.lost.pop(place, None)
        return changes


def _set(places: set[ObjectKey], place: ObjectKey, *, is_in: bool) -> bool:
    changes = (place in places) != is_in
    (places.add if is_in else places.discard)(place)
    return changes

"""Syncs the objects of one claimed kind: reads, decides, and writes.

One for each kind, whoever claims it: exports share the views and the work (H29).
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from konnector import APP_CLUSTER
from konnector.claim import orphans
from konnector.claim.copies import owner_of
from konnector.context import SOON, Early, SyncContext
from konnector.metrics import DOWN, directions
from konnector.paired_sync import NAME, RECHECK, InformerSpec, PairedSync, name
from konnector.permission_claim import decide, ways
from konnector.permission_claim.rules import Rule
from konnector.permission_claim.ways import Seen, Way
from reconciler.controller import tracing
from reconciler.controller.tasks import TaskSupervisor
from reconciler.controller.tracing import secret_down
from reconciler.core import keys, manifest
from reconciler.core.decision import NOTHING, Step, deletion
from reconciler.core.errors import ClusterError, Conflict, Forbidden, Missing, Oversized, Rejected
from reconciler.core.manifest import Manifest, name_of, resource_version_of, uid_of
from reconciler.core.refs import SECRET, Kind, ObjectKey, Ref
from reconciler.kube.informer import ReadYourWrites
from reconciler.kube.limits import pause
from reconciler.kube.store import without_managed_fields

if TYPE_CHECKING:
    from konnector.provider.sync_manager import Syncs

# The kept fields of objects in the app cluster that no konnector created: not their content.
_METADATA: Final = ("apiVersion", "kind", "metadata", "type")
_CLAIM: Final = "claim"
_TERMINATING: Final = "is being terminated"  # the API server's words about a namespace in deletion


class PermissionClaims(PairedSync):
    """The sync of one kind of claimed objects that both clusters serve.

    Bindings are looked at again when there is something else to say in `troubles`.
    """

    def __init__(self, kind: Kind, link: SyncContext, services: "Syncs") -> None:
        super().__init__(
            "claims",
            link,
            InformerSpec(
                kind, _trimmed, {_CLAIM: _claim}, partial(self._note_end, keys.OWNER_CONSUMER)
            ),
            InformerSpec(
                kind,
                without_managed_fields,
                {NAME: name},
                partial(self._note_end, keys.OWNER_PROVIDER),
            ),
            unmapped=False,
        )
        self._services = services
        self._rules: tuple[Rule, ...] = ()
        self._present: set[ObjectKey] = set()  # copies, where one may stay deleted
        self._deleted: dict[ObjectKey, str] = {}
        self._ended: dict[tuple[str, ObjectKey], str] = {}  # uids that a watch saw deleted last
        self._refused: dict[ObjectKey, str] = {}  # objects that a cluster refuses, and its reason

    def follow(self, rules: Sequence[Rule]) -> None:
        """Let these rules hold from now on."""
        if tuple(rules) != self._rules:
            self._rules = tuple(rules)
            # An end here may be a loss, which is known as long as its binding is there.
            self._ended = {
                one: uid for one, uid in self._ended.items() if one[0] == keys.OWNER_CONSUMER
            }
            self.enqueue_everything()

    @property
    def troubles(self) -> Sequence[str]:
        """The objects that cannot be read or written, and why."""
        refused = [
            f"{self.kind} {place.namespace}/{place.name}: {why}"
            for place, why in sorted(self._refused.items())
        ]
        return [*super().troubles, *refused, *filter(None, [self.guard.sentence])]

    def vouches(self, app_namespace: str) -> bool:
        """Return whether an object in an app namespace has its counterpart behind the mapping."""
        brought = self._brought(app_namespace) or ()
        here = (self.here.get(app_namespace, name_of(one)) for one in brought)
        return any(owner_of(one) for one in here)

    def has_brought(self, app_namespace: str) -> bool:
        """Return whether objects behind a mapping were brought, or may have been."""
        return self._brought(app_namespace) != []

    def _brought(self, app_namespace: str) -> list[Manifest] | None:
        there = self.there(app_namespace)
        if there is None:
            return None
        try:
            return [one for one in there.view.store.all() if owner_of(one)]
        except Oversized:
            return None

    async def sync(self, place: ObjectKey) -> timedelta | None:
        """Reconcile one name in one app namespace."""
        if (there := self.there(place.namespace)) is None:
            self.drop_event(place)
            self.report(place, "")
            self.guard.note(place)
            return None
        seen = await self._looked(place, there)
        kept = False
        if _ends(seen):
            seen = await self._afresh(seen)
            kept = _ends(seen) and (self._is_losing(seen) or await self._is_kept(seen))
        decision = NOTHING if kept else decide.decide(seen)
        orphan = _orphan(seen)
        if self.guard.note(place, orphan=orphan is not None):
            self.link.callbacks.changed("")
        for note in decision.notes:
            self.record(seen.consumer, note)
            if seen.claim is not None:  # its developer knows of the claim alone
                about = replace(note, message=f"{self.kind.kind} {place.name}: {note.message}")
                self.record(seen.claim[1], about, seen.claim[0])
        if not decision.tasks:
            self.drop_event(place)
            self.report(place, "".join(note.message for note in decision.notes))
            grace = orphan and orphans.changes_in(orphan, seen.terms, seen.now)
            return RECHECK if kept else grace or None
        urgent = decide.decide(replace(seen, stamps=False)).tasks
        if not urgent and (wait := self.turn(place)):  # for marks that an earlier time lacks
            return wait
        if decision.deletes:
            self._present.discard(place)  # that it goes is not the developer's word
        write = await self.write(place, seen.consumer, decision, there)
        comes = self.kind == SECRET and DOWN in directions(decision)
        if comes and write is not None and seen.provider is not None and tracing.is_on():
            secret_down(tracing.trace_of(seen.claim[1] if seen.claim else seen.provider), write)
        return None

    def beside(self, kind: Kind, claim: Manifest) -> Sequence[Step] | None:
        """Return the deletions of copies that came for a leaving claim, without their origins.

        None: an origin may be there, for a garbage collector to delete.
        """
        namespace, owner = manifest.namespace_of(claim), (kind.kind, name_of(claim))
        if (there := self.there(namespace)) is None:
            return () if super().troubles else None
        steps: list[Step] = []
        for place in self.view.store.keys_by(_CLAIM, ObjectKey(namespace, uid_of(claim))):
            seen = self._seen(place, there)
            owners = manifest.get_maps(seen.provider, "metadata", "ownerReferences")
            if {(one.get("kind"), one.get("name")) for one in owners} == {owner}:
                return None
            origin = manifest.annotations_of(seen.consumer or {}).get(keys.ORIGIN_UID, "")
            if ways.way_of(replace(seen, ended=origin)) == (Way.COLLECT, keys.OWNER_PROVIDER):
                steps.append(deletion(APP_CLUSTER, self.kind, seen.consumer or {}))
        return steps

    async def _looked(self, place: ObjectKey, there: ReadYourWrites) -> Seen:
        seen = self._seen(place, there)
        if not decide.needs_content(seen):
            return seen
        whole = await self.link.agent.app.get(Ref(self.link.agent.app.name, self.kind, *place))
        return replace(seen, consumer=whole, consumer_partial=False)

    def _seen(self, place: ObjectKey, there: ReadYourWrites) -> Seen:
        kind = self.kind
        copy_place = ObjectKey(self.link.mappings.service(place.namespace), place.name)
        consumer, provider = self.here.get(*place), there.get(*copy_place)
        absent = keys.OWNER_PROVIDER if provider is None else keys.OWNER_CONSUMER
        lacks_one = (consumer is None) is not (provider is None)
        for side in (keys.OWNER_PROVIDER, keys.OWNER_CONSUMER):
            if side != absent or not lacks_one:
                self._ended.pop((side, place), None)
        return Seen(
            kind,
            self._rules,
            place,
            copy_place,
            self.link.guards.terms(kind.resource),
            self.link.guards.now(),
            consumer,
            provider,
            consumer_partial=consumer is not None and not owner_of(consumer),
            space_uid=self.link.space_uid,
            claim=self._services.claim_of(place.namespace, provider or {}),
            ended=self._ended.get((absent, place), ""),
            deleted_at=self._deleted_at(place, consumer, provider),
            living=self._services.living(place.namespace),
            wide=self._services.living(""),
            reserved=self.link.is_reserved(place.namespace),
            is_kubeconfig=kind == SECRET and self.link.callbacks.is_kubeconfig(place),
        )

    def _deleted_at(
        self, place: ObjectKey, consumer: Manifest | None, provider: Manifest | None
    ) -> str:
        """Return the state of the origin in which a copy was deleted, where that matters."""
        if all(rule.recreate_when_consumer_side_deleted for rule in self._rules):
            return ""
        if consumer is not None:
            self._present.add(place)
            self._deleted.pop(place, None)
        elif provider is None:
            self._present.discard(place)
            self._deleted.pop(place, None)
        elif place in self._present:
            self._present.discard(place)
            self._deleted[place] = resource_version_of(provider)
        return self._deleted.get(place, "")

    def _note_end(self, side: str, app_namespace: str, live: Manifest) -> None:
        """Note that a watch saw the deletion of an object, perhaps of an origin."""
        if self.link.mappings.service(app_namespace):
            self._ended[side, ObjectKey(app_namespace, manifest.name_of(live))] = uid_of(live)

    async def _afresh(self, seen: Seen) -> Seen:
        """Ask once more about the origin of a copy that may end, and about confirmations.

        A view may be behind, also of what was made there meanwhile.
        """
        app, plane = self.link.agent.app, self.link.plane
        if owner_of(seen.consumer) == keys.OWNER_PROVIDER:
            live = await plane.get(Ref(plane.name, self.kind, *seen.copy_place))
            seen = replace(seen, provider=live)
        else:
            live = await app.get(Ref(app.name, self.kind, *seen.claim_place))
            seen = replace(seen, consumer=live, consumer_partial=False)
        return replace(seen, terms=await self.fresh_terms())

    async def _is_kept(self, seen: Seen) -> bool:
        """Return whether a copy in the app cluster stays, because its origin may have been lost.

        Of a service namespace that is being deleted, all goes. Raises Early where the rules are
        others by now, and ClusterErrors.
        """
        if owner_of(seen.consumer) != keys.OWNER_PROVIDER:
            return False
        kind, manager = self.kind, keys.MANAGER_KONNECTOR
        named: Manifest = {"namespace": seen.copy_place.namespace, "name": seen.copy_place.name}
        probe: Manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": named}
        try:
            await self.link.plane.create(probe, kind, manager=manager, dry_run=True)
        except Missing:
            return True
        except (Conflict, Forbidden, Rejected) as error:
            if _TERMINATING in str(error):
                return True
        if seen.rules is not self._rules:
            raise Early(SOON)
        return self._is_losing(seen)

    def _is_losing(self, seen: Seen) -> bool:
        return owner_of(seen.consumer) == keys.OWNER_PROVIDER and (
            self._services.is_losing(self.kind, seen.claim_place)
        )

    def report(self, place: ObjectKey, problem: str) -> None:
        """Report at the bindings the problem of an object; "" for none any more."""
        if problem == self._refused.get(place, ""):
            return
        if problem:
            self._refused[place] = problem
        else:
            del self._refused[place]
        self.link.callbacks.changed("")


def _claim(copy: Manifest) -> Sequence[ObjectKey]:
    uid = manifest.annotations_of(copy).get(keys.CLAIM_UID)
    return [ObjectKey(manifest.namespace_of(copy), uid)] if uid else []


def _ends(seen: Seen) -> bool:
    return ways.way_of(seen)[0] in (Way.COLLECT, Way.ORPHAN)


def _orphan(seen: Seen) -> Manifest | None:
    """Return the copy, where it is an orphan of this space."""
    owner = keys.OWNER_PROVIDER if seen.provider is None else keys.OWNER_CONSUMER
    origin, copy = seen.pair(owner)
    if origin is not None or copy is None or ways.is_of_another_space(seen, copy):
        return None
    return copy if owner_of(copy) == owner and orphans.is_orphan(copy) else None


def _trimmed(live: Manifest) -> Manifest:
    """Keep all of a konnector's objects, past and future, and of others their existence (H28)."""
    kept = without_managed_fields(live)
    return kept if owner_of(kept) else {key: kept[key] for key in _METADATA if key in kept}


class ClaimedResource(TaskSupervisor):
    """A claimed resource, from when it is claimed: it may not be served, now or ever (H18).

    `sync` is None until both clusters serve it.
    """

    def __init__(self, resource: Kind, link: SyncContext, services: "Syncs") -> None:
        super().__init__()
        self._resource, self._link, self._services = resource, link, services
        self._rules: tuple[Rule, ...] = ()
        self.sync: PermissionClaims | None = None
        self._problem = ""
        self.start("kind", self._find)

    @property
    def settled(self) -> bool:
        """Whether it is known if the resource is served."""
        return self.sync is not None or bool(self._problem)

    @property
    def problems(self) -> Sequence[str]:
        """Why not all of it is synced, as sentences."""
        troubles = () if self.sync is None else self.sync.troubles
        return [self._problem] if self._problem else troubles

    def follow(self, rules: Sequence[Rule]) -> None:
        """Let these rules hold from now on."""
        self._rules = tuple(rules)
        if self.sync is not None:
            self.sync.follow(rules)

    async def _find(self) -> None:
        """Ask both clusters until they serve the kind, and then sync it."""
        failures = 0
        while (kind := await self._look()) is None:
            failures += 1
            await self._link.agent.clock.sleep(pause(failures, asked=None, jitter=random.random()))
        self.sync = PermissionClaims(kind, self._link, self._services)
        self.sync.follow(self._rules)
        self.start_worker("sync", self.sync)

    async def _look(self) -> Kind | None:
        asked = (self._resource.group, self._resource.version, self._resource.plural)
        kind, problem = None, ""
        try:
            with self._link.agent.metrics.activity.work(f"{self._resource.plural} is looked for"):
                kind = await self._link.agent.app.kind(*asked)
                await self._link.plane.kind(*asked)
        except ClusterError as error:
            problem = str(error)
        if not problem and kind is not None and not kind.namespaced:
            problem = f"{kind.resource} is cluster-scoped, which no claim may be yet"
        if problem != self._problem:
            self._problem = problem
            self._link.callbacks.changed("")
        return None if problem else kind

"""Syncs the claims of one exported kind with their copies: views -> Seen -> decide -> writes."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from konnector.claim import copies, decide, orphans, status
from konnector.claim.copies import InstanceTerms, Pair
from konnector.claim.decide import Read, Seen
from konnector.claim.deletions import Deletions
from konnector.context import SOON, SyncContext
from konnector.mass_loss import decide as mass_loss_decide
from konnector.mass_loss.waves import CLAIM_INDEXES
from konnector.metrics import UP, directions
from konnector.paired_sync import NAME, NOTED_AFTER, RECHECK, InformerSpec, PairedSync, name
from reconciler.api import claim_status
from reconciler.controller import tracing
from reconciler.controller.tracing import Trips, Write
from reconciler.core import conditions, identity, keys, manifest
from reconciler.core.decision import Apply, Decision, Note
from reconciler.core.errors import NotServed
from reconciler.core.identity import Life
from reconciler.core.manifest import Manifest, is_deleting
from reconciler.core.refs import ObjectKey, Ref
from reconciler.kube.informer import ReadYourWrites
from reconciler.kube.store import Index

if TYPE_CHECKING:
    from konnector.provider.sync_manager import Syncs

_NO_ANSWER: Final = "No service namespace yet: the control plane or klutch-bind has not answered"
_BOUND: Final = "bound"
_LIVING: Final = "living"
_UID: Final = "uid"
_UNSTAMPED: Final = "unstamped"


class Claims(PairedSync):
    """The sync of the claims of one kind with their copies."""

    def __init__(self, pair: Pair, link: SyncContext, services: "Syncs") -> None:
        self.pair, self._services, self._terms = pair, services, InstanceTerms()
        names = name if pair.kind.namespaced else self._claim_name
        copies_of = {NAME: names, _BOUND: self._bound(names), _UNSTAMPED: copies.unstamped}
        claims_by = {**CLAIM_INDEXES, _LIVING: copies.living, _UID: copies.uid}
        super().__init__(
            "instances",
            link,
            InformerSpec(pair.kind, copies.trimmed_claim, claims_by),
            InformerSpec(pair.kind, copies.trimmed_copy, copies_of),
            unmapped=True,
        )
        self._lived_in: set[str] = set()
        self._deletions = Deletions(pair, link, self.view.store)
        self._tried: dict[ObjectKey, tuple[str, str]] = {}
        self._unknown: dict[ObjectKey, float] = {}  # since when it is, what came for a claim
        self._returns = status.Returns(pair.content)
        self._states = link.agent.syncs.claims(pair.kind.resource)
        self._trips = Trips(resource=pair.kind.resource)
        self.view.store.subscribe(_LIVING, self._living_changed)

    def follow(self, terms: InstanceTerms) -> None:
        """Follow other terms of the binding from now on."""
        self.guard.withdraw(terms.withdrawn)
        if terms != self._terms:
            self._terms = terms
            self.enqueue_everything()

    def has_claims(self, app_namespace: str) -> bool:
        return bool(self.view.store.names(app_namespace))

    def lacks_copies(self, app_namespace: str) -> bool:
        """Return whether a claim in an app namespace lost its copy, or will. Raises Oversized."""
        claims = self.view.store.names(app_namespace)
        return any(self._lacks_copy(ObjectKey(app_namespace, name)) for name in claims)

    def _lacks_copy(self, place: ObjectKey) -> bool:
        claim, there = self.here.get(*place), self.there(place.namespace)
        if claim is None or is_deleting(claim) or not self._had_copy(claim):
            return False
        copy = there.get(*self._copy_place(place)) if there else None
        return copy is None or is_deleting(copy)

    def _had_copy(self, claim: Manifest) -> bool:
        """Return whether a claim had a copy, by marks that are not those of a claim that lives."""
        return copies.is_managed(claim) and not self._is_copied(claim)

    def _is_copied(self, claim: Manifest) -> bool:
        named = manifest.annotations_of(claim).get(keys.CLAIM_UID, "")
        another = identity.compare(manifest.uid_of(claim), named) is Life.ANOTHER
        return another and self.view.store.has(_UID, named)

    def live_in(self, app_namespace: str) -> bool:
        """Return whether a developer has an instance in an app namespace that is to stay."""
        return self.view.store.has(_LIVING, app_namespace)

    def _living_changed(self, app_namespace: str) -> None:
        lives = self.live_in(app_namespace)
        if lives != (app_namespace in self._lived_in):
            (self._lived_in.add if lives else self._lived_in.discard)(app_namespace)
            self._services.look_again(app_namespace)

    def has_copies(self, app_namespace: str) -> bool:
        """Return whether bound copies belong to an app namespace, or may do."""
        if not self.kind.namespaced or not self.link.mappings.service(app_namespace):
            return False
        recent = self._there.of(app_namespace)
        return recent is None or bool(recent.view.store.count(_BOUND))

    def are_stamped(self, app_namespace: str) -> bool:
        """Return whether each copy behind a mapping is known to have its claim's uid."""
        there = self.there(app_namespace)
        is_known = there is not None and not there.view.store.count(_UNSTAMPED)
        return is_known or not self.kind.namespaced

    def vouches(self, app_namespace: str) -> bool:
        """Return whether a claim in an app namespace and a copy behind its mapping are a pair."""
        there = self.there(app_namespace)
        if there is None:
            return False
        places = (ObjectKey(app_namespace, one) for one in self.view.store.names(app_namespace))
        return any(
            copies.is_joined(self.here.get(*place), there.get(*self._copy_place(place)))
            for place in places
        )

    async def run(self) -> None:
        """Sync until `stop`, and end the sync under way."""
        try:
            await super().run()
        finally:
            self.link.guards.ending_namespaces.follow(self.kind.resource, None)
            self.link.troubles.forget(self.kind.resource)
            self._states.clear()

    async def sync(self, place: ObjectKey) -> timedelta | None:
        """Reconcile one claim and its copy."""
        there = self.there(place.namespace)
        if there is None:
            self.guard.note(place)
            return await self._sync_unmapped(place)
        seen = self._look(place, there)
        now = self.link.agent.clock.monotonic()
        if seen.beside is not None:
            self._unknown.pop(place, None)
        elif now - self._unknown.setdefault(place, now) < RECHECK.total_seconds():
            return SOON
        decision, seen = await self._decided(seen)
        if seen.create_guard and await self._is_there(seen):
            return SOON  # a view is behind
        was_lost = place in self.guard.lost
        self._note(seen)
        await self._act(seen, decision, there)
        if was_lost and there.get(*seen.copy_place) is not None:
            self._services.look_again(place.namespace)  # credentials were kept for its sake
        return self._again(seen)

    def _look(self, place: ObjectKey, there: ReadYourWrites) -> Seen:
        claim = self.here.get(*place)
        copy_place = self._copy_place(place)
        copy = there.get(*copy_place)
        is_ours = copy is None or self.pair.is_copy_of(copy, place)
        copy, taken = (copy, "") if is_ours else (None, self.pair.way_out(copy or {}))
        return Seen(
            place,
            copy_place,
            claim,
            copy,
            self.link.guards.terms(self.kind.resource),
            self.link.guards.now(),
            create_guard="" if taken else self._create_guard(place, claim, copy),
            withdrawn=bool(self._terms.withdrawn),
            settled=self._settled(place, claim, copy),
            taken=taken,
            unmapped=claim is None and self._is_unmapped(place),
            stamped=self.kind.namespaced
            and not copies.are_stamped(copy)
            and self.link.are_stamped(place.namespace),
            stamps_in=self._stamps_in(place, claim, copy),
            copied=claim is not None and self._is_copied(claim),
            left=self._returns.left(place, claim),
            few=self._terms.few,
            beside=() if copy else self._services.beside(self.kind, claim),
            rests=self._controller.rests,
        )

    def _create_guard(self, place: ObjectKey, claim: Manifest | None, copy: Manifest | None) -> str:
        """Return why a copy that a claim lost is not made again, or ""."""
        if claim is None or copy is not None or is_deleting(claim):
            return ""
        guards, resource, terms = self.link.guards, self.kind.resource, self._terms
        if terms.withdrawn:
            return mass_loss_decide.withdrawn(resource, terms.withdrawn)
        if not self._had_copy(claim):
            return ""
        if not (terms.recreates or guards.recreates(resource)):
            return mass_loss_decide.lost(resource, self.pair.space)
        waits = self.guard.lost_for(place) < mass_loss_decide.SURE_AFTER
        return mass_loss_decide.NOT_YET if waits else ""

    def _stamps_in(
        self, place: ObjectKey, claim: Manifest | None, copy: Manifest | None
    ) -> timedelta | None:
        """Return when a pair of a time without uids may get them, which nothing else asks for."""
        if not copies.is_joined(claim, copy) or copies.are_stamped(claim, copy):
            return None
        return self.turn(place)

    async def _decided(self, seen: Seen) -> tuple[Decision, Seen]:
        while True:
            found = decide.decide(self.pair, seen)
            if isinstance(found, Decision):
                claim = seen.claim if found.deletes and seen.copy else None
                terms = self._terms
                if claim is None or not (guard := await self._deletions.guard(seen, claim, terms)):
                    return found, seen
                seen = replace(seen, delete_guard=guard)
            elif found is Read.NAMESPACE:
                await self.link.require_mapped(seen.place.namespace)
                seen = replace(seen, same_namespace=True)
            elif found is Read.CLAIM:
                ref = Ref(self.link.agent.app.name, self.kind, *seen.place)
                live = await self.link.agent.app.get(ref)
                seen = replace(seen, claim=live, claim_gone=live is None)
                if live is None:
                    seen = replace(seen, terms=await self.fresh_terms())
            else:
                seen = await self._with_whole_copy(seen)

    async def _with_whole_copy(self, seen: Seen) -> Seen:
        """Read the copy that the view shows; by now it may be gone, or not be ours.

        Then the view will show it: while it does not, no new one is made.
        """
        copy = await self.link.plane.get(Ref(self.link.plane.name, self.kind, *seen.copy_place))
        if copy is None:
            guard = self._create_guard(seen.place, seen.claim, None) or mass_loss_decide.NOT_YET
            return replace(seen, copy=None, create_guard=guard)
        if not self.pair.is_copy_of(copy, seen.place):
            return replace(seen, copy=None, taken=self.pair.way_out(copy))
        return replace(seen, copy=copy, copy_whole=True)

    async def _is_there(self, seen: Seen) -> bool:
        """Return whether the API server has a copy that the informer lacks, or just got."""
        ref = Ref(self.link.plane.name, self.kind, *seen.copy_place)
        with suppress(NotServed):  # nothing of the kind is there
            if await self.link.plane.get(ref, metadata_only=True) is not None:
                return True
        there = self.there(seen.place.namespace)
        return there is None or there.get(*seen.copy_place) is not None

    def _note(self, seen: Seen) -> None:
        troubles = self.link.troubles.of(self.kind.resource)
        refused = bool(troubles) and str(seen.place) in troubles
        self._states.note(seen.place, decide.state_of(seen, refused=refused))
        orphaned = seen.claim is None and orphans.is_orphan(seen.copy)
        lost, part, guard = bool(seen.create_guard), self.pair.is_part(seen.copy), seen.delete_guard
        if self.guard.note(seen.place, orphan=orphaned, lost=lost, deletion=guard, part=part):
            self.link.callbacks.changed(self.kind.resource)

    def _again(self, seen: Seen) -> timedelta | None:
        """Return the time of the next look at obstacles without an event at their end."""
        unmapped = seen.unmapped and seen.copy is not None and not copies.is_managed(seen.copy)
        if seen.create_guard == mass_loss_decide.NOT_YET:
            return mass_loss_decide.SURE_AFTER
        if seen.delete_guard or seen.create_guard or seen.taken or unmapped:
            return RECHECK
        if seen.claim is None and seen.copy is not None:
            return orphans.changes_in(seen.copy, seen.terms, seen.now)
        if seen.claim is None or seen.copy is None:
            return None
        if is_deleting(seen.claim):
            return claim_status.noted_in(decide.waited(seen, seen.claim))
        due = (decide.marks_in(seen, seen.claim, seen.copy), status.unready_in(seen.copy, seen.now))
        return min(filter(None, due), default=None)

    async def _act(self, seen: Seen, decision: Decision, there: ReadYourWrites) -> None:
        for note in decision.notes:
            self.record(seen.claim, note)
        taken = "".join(note.message for note in decision.notes if seen.taken)
        if not decision.tasks:
            self.drop_event(seen.place)
            self.report(seen.place, taken)
            return
        write = await self.write(seen.place, seen.claim, decision, there)
        if taken:
            self.report(seen.place, taken)
        self._note_applied(seen, decision, there)
        if tracing.is_on():
            self._trace(seen, decision, write)

    def _trace(self, seen: Seen, decision: Decision, write: Write | None) -> None:
        if seen.claim is None or is_deleting(seen.claim):
            self._trips.forget(seen.place)
        elif write is not None and UP in directions(decision):
            self._trips.up(seen.place, seen.claim, write)
        elif write is not None and seen.copy is not None:
            ready = conditions.current(seen.copy, conditions.READY, conditions.TRUE)
            is_ready = ready is not None or conditions.get(seen.copy, conditions.READY) is None
            self._trips.down(seen.place, seen.claim, write, is_ready=is_ready)

    async def _sync_unmapped(self, place: ObjectKey) -> timedelta | None:
        """Ask for a service namespace; a claim that never had one may go."""
        if not self.view.synced:
            return None
        claim = self.here.get(*place)
        self._states.note(place, None if claim is None else "pending")
        if claim is None or not self.kind.namespaced:
            self.drop_event(place)
            self.report(place, "")
            return None
        terms = self.link.guards.terms(self.kind.resource)
        seen = Seen(place, place, claim, None, terms, self.link.guards.now())
        if not is_deleting(claim):
            obstacle = self._obstacle(place.namespace)
            self.link.want(place.namespace)
            self.report(place, obstacle)
            if not obstacle and (left := NOTED_AFTER - self.waited(place)) > 0:
                return timedelta(seconds=left)
            there = self._there.get(place.namespace)
            unread = "" if there is None else there.view.trouble
            why = obstacle or self.link.cut_off() or unread or _NO_ANSWER
            note = Note("NotServed", why, "Warning")
            self.record(claim, note)
            decision = decide.waiting(self.pair, seen, claim, note)
            await self.link.executor.execute(decision, recents=(self.here,))
            return RECHECK
        if self.link.mappings.get(place.namespace) is None:
            decision, _ = await self._decided(seen)
            await self.link.executor.execute(decision, recents=(self.here,))
        return None

    def _obstacle(self, app_namespace: str) -> str:
        """Return why a mapping that is there has no service namespace, as the backend reports."""
        cluster_binding, unready = self.link.views.cluster_binding, conditions.FALSE
        reported = conditions.get(cluster_binding, conditions.SERVICE_NAMESPACES_READY, unready)
        if reported is None or self.link.mappings.get(app_namespace) is None:
            return ""
        return f"There is no service namespace for {app_namespace}: {reported.message}"

    def _copy_place(self, place: ObjectKey) -> ObjectKey:
        if not self.kind.namespaced:
            return self.pair.prefixed(place.name)
        return ObjectKey(self.link.mappings.service(place.namespace), place.name)

    def _is_unmapped(self, place: ObjectKey) -> bool:
        if not self.kind.namespaced:
            return False
        if self.link.is_reserved(place.namespace):
            return True
        namespace = self.link.agent.namespaces.get("", place.namespace)
        return namespace is None or is_deleting(namespace)

    def _settled(self, place: ObjectKey, claim: Manifest | None, copy: Manifest | None) -> bool:
        if claim is None or copy is None:
            self._tried.pop(place, None)
            return False
        return place in self._tried and self._tried[place] == self._state(claim, copy)

    def _note_applied(self, seen: Seen, decision: Decision, there: ReadYourWrites) -> None:
        """Remember an apply after which the copy still differs from the claim.

        So it is with what an API server or a webhook of the provider changes back.
        """
        copy = there.get(*seen.copy_place) if _applies(decision) else None
        if seen.claim is None or copy is None:
            return
        self._returns.note(seen.place, seen.claim, seen.copy or {}, seen.now)
        if _applies(decide.decide(self.pair, replace(seen, copy=copy))):
            self._tried[seen.place] = self._state(seen.claim, copy)

    def _state(self, claim: Manifest, copy: Manifest) -> tuple[str, str]:
        """Return digests of the content of a claim, and of the same part of its copy."""
        asked, given = decide.stated(self.pair, claim), decide.stated(self.pair, copy)
        return manifest.digest(asked), manifest.digest(given)

    def report(self, place: ObjectKey, problem: str) -> None:
        """Report at the binding the problem of a claim; "" for none any more."""
        self.link.troubles.report(self.kind.resource, str(place), problem)

    def _claim_name(self, copy: Manifest) -> Sequence[str]:
        place = self.pair.claim_of(copy)
        return () if place is None else (place.name,)

    @staticmethod
    def _bound(names: Index) -> Index:
        return lambda copy: ("",) if copies.is_managed(copy) and names(copy) else ()


def _applies(found: Decision | Read) -> bool:
    return isinstance(found, Decision) and any(isinstance(step, Apply) for step in found.steps)

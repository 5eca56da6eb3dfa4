"""Syncs the claims of one exported kind with their copies: views -> Seen -> decide -> writes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from konnector.both_sides import BothSides, name
from konnector.decisions import copies, instance
from konnector.decisions.instance import Read, Seen
from konnector.decisions.pair import Pair
from konnector.decisions.sides import APP_CLUSTER, CONTROL_PLANE
from konnector.hands import Known
from konnector.link import Link
from konnector.service_views import NAME, Sort
from reconciler.core.decision import Apply, Decision, Note
from reconciler.core.errors import ClusterError, Forbidden, Rejected
from reconciler.core.manifest import (
    Manifest,
    digest,
    identity_of,
    is_deleting,
    ref_of,
)
from reconciler.core.refs import ObjectKey, Ref
from reconciler.kube.recent import Recent
from reconciler.kube.store import Index, without_managed_fields
from reconciler.loop.children import Children
from reconciler.loop.controller import Controller

# How many claims of a kind may be marked and have no copy yet. A konnector that is killed then
# finds that many marked claims without a copy, fewer than the guard takes for a loss (mapping.md
# 10: more than 5).
_IN_BETWEEN: Final = 5
_BOUND: Final = "bound"
_HELD: Final = timedelta(minutes=1)  # until a guard is asked again
_SOON: Final = timedelta(seconds=1)
_COUNTED: Final = 5.0  # seconds for which a count of all claims is good
# What was lost is a matter of proportion, and so of all that there is.
_PENDING: Final = "not everything was read yet"


class Instances:
    """The sync of one kind; run it once. Serial for each object, concurrent across objects."""

    def __init__(self, pair: Pair, link: Link) -> None:
        self.pair, self._link = pair, link
        resource = pair.kind.resource
        self._controller = Controller(
            f"instances/{resource}",
            self.reconcile,
            clock=link.clock,
            meters=link.meters,
            workers=link.workers,
        )
        names = name if pair.kind.namespaced else self._claim_name
        self._sides = BothSides(
            link,
            Sort(pair.kind, without_managed_fields, {}),
            Sort(pair.kind, instance.trimmed_copy, {NAME: names, _BOUND: self._bound(names)}),
            wake=self._controller.add,
            unmapped=True,
        )
        self._in_between = asyncio.Semaphore(_IN_BETWEEN)
        self._marked: set[ObjectKey] = set()  # by this process, and without a copy so far
        self._tried: dict[ObjectKey, tuple[str, str]] = {}
        self._counted: tuple[float, tuple[int, int]] | None = None
        self._children = Children()
        self._children.employ("sides", self._sides)
        self._children.employ("controller", self._controller)

    @property
    def missing(self) -> Sequence[str]:
        """What could not be read yet, and why."""
        return self._sides.missing

    def has_claims(self, app_namespace: str) -> bool:
        """Tell whether there are claims in an app namespace."""
        return bool(self._sides.view.store.names(app_namespace))

    def stop(self) -> None:
        """Begin nothing new."""
        self._children.stop()

    async def run(self) -> None:
        """Sync until `stop`, and end what is under way."""
        try:
            await self._children.run()
        finally:
            self._link.troubles.forget(self.pair.kind.resource)

    async def reconcile(self, key: str) -> timedelta | None:
        """Look at one claim and its copy, and write what follows."""
        place = ObjectKey(*key.split("/", 1))
        there = self._sides.there(place.namespace)
        if there is None:
            await self._without_home(place)
            return None
        decision, seen = await self._decided(self._look(place, there))
        if seen.copy is not None:
            self._marked.discard(place)
        if _PENDING in (seen.deletes_held, seen.creates_held):
            return _SOON
        await self._act(seen, decision, there)
        return _HELD if seen.deletes_held or seen.creates_held else None

    def _look(self, place: ObjectKey, there: Recent) -> Seen:
        claim = self._sides.here.get(*place)
        copy_place = self._copy_place(place)
        copy = there.get(*copy_place)
        if copy is not None and not self.pair.kind.namespaced:
            copy = copy if self.pair.claim_of(copy) == place else None
        deletes_held, creates_held = self._held(place, claim, copy)
        return Seen(
            place,
            copy_place,
            claim,
            copy,
            deletes_held=deletes_held,
            creates_held=creates_held,
            settled=self._settled(place, claim, copy),
        )

    def _held(
        self, place: ObjectKey, claim: Manifest | None, copy: Manifest | None
    ) -> tuple[str, str]:
        """Return why nothing may be deleted, and why nothing may be made again."""
        guards, kind = self._link.guards, self.pair.kind
        if claim is None:
            if copy is None or not copies.is_managed(copy):
                return "", ""
            return (
                _PENDING if self._sides.pending else guards.deletes_held(kind, self._orphans)
            ), ""
        if is_deleting(claim):
            return guards.deletes_held(kind, None), ""
        if copy is not None or place in self._marked or not copies.is_managed(claim):
            return "", ""
        return "", (_PENDING if self._sides.pending else guards.creates_held(kind, self._bereft))

    async def _decided(self, seen: Seen) -> tuple[Decision, Seen]:
        """Decide, and read what has to be read for that."""
        while True:
            found = instance.decide(self.pair, seen)
            if isinstance(found, Decision):
                return found, seen
            if found is Read.CLAIM:
                ref = Ref(self._link.app.name, self.pair.kind, *seen.place)
                live = await self._link.app.get(ref)
                seen = replace(seen, claim=live, claim_gone=live is None)
            else:
                ref = Ref(self._link.plane.name, self.pair.kind, *seen.copy_place)
                seen = replace(seen, copy=await self._link.plane.get(ref), copy_whole=True)

    async def _act(self, seen: Seen, decision: Decision, there: Recent) -> None:
        link = self._link
        for note in decision.notes:
            self._tell(seen, note)
        if not decision.tasks:
            self._say(seen, "")
            return
        known = (Known(APP_CLUSTER, self._sides.here), Known(CONTROL_PLANE, there))
        try:
            if seen.copy is None and seen.claim is not None and not is_deleting(seen.claim):
                self._marked.add(seen.place)
                async with self._in_between:
                    await link.hands.carry_out(decision, known)
            else:
                await link.hands.carry_out(decision, known)
        except (Rejected, Forbidden) as error:
            self._tell(seen, _denied(error))
            self._say(seen, str(error))
            raise
        self._say(seen, "")
        self._note_applied(seen, decision, there)

    async def _without_home(self, place: ObjectKey) -> None:
        """Ask for a service namespace; a claim that never had one may go."""
        if not self._sides.view.synced:
            return
        claim = self._sides.here.get(*place)
        if claim is None or not self.pair.kind.namespaced:
            return
        if not is_deleting(claim):
            self._link.want(place.namespace)
        elif self._link.homes.mapping(place.namespace) is None:
            seen = Seen(place, place, claim, None)
            decision, seen = await self._decided(seen)
            await self._link.hands.carry_out(decision, (Known(APP_CLUSTER, self._sides.here),))

    def _copy_place(self, place: ObjectKey) -> ObjectKey:
        if not self.pair.kind.namespaced:
            return self.pair.prefixed(place.name)
        return ObjectKey(self._link.homes.service(place.namespace), place.name)

    def _settled(self, place: ObjectKey, claim: Manifest | None, copy: Manifest | None) -> bool:
        tried = self._tried.get(place)
        if tried is None:
            return False
        if claim is None or copy is None:
            del self._tried[place]
            return False
        return tried == self._state(claim, copy)

    def _note_applied(self, seen: Seen, decision: Decision, there: Recent) -> None:
        """Remember an apply after which the copy still is not what the claim says.

        So it is with what an API server or a webhook of the provider changes back.
        """
        steps = [step for task in decision.tasks for step in task.steps]
        copy = there.get(*seen.copy_place)
        if seen.claim is None or copy is None or not any(isinstance(s, Apply) for s in steps):
            return
        again = instance.decide(self.pair, replace(seen, copy=copy))
        if isinstance(again, Decision) and any(
            isinstance(step, Apply) for task in again.tasks for step in task.steps
        ):
            self._tried[seen.place] = self._state(seen.claim, copy)

    def _state(self, claim: Manifest, copy: Manifest) -> tuple[str, str]:
        """Return what a claim asks for, and what its copy holds of that kind of thing."""
        return digest(instance.stated(self.pair, claim)), digest(instance.stated(self.pair, copy))

    def _tell(self, seen: Seen, note: Note) -> None:
        if seen.claim is not None:
            ref = ref_of(self._link.app.name, self.pair.kind, seen.claim)
            self._link.recorder.tell(ref, seen.claim, note)

    def _say(self, seen: Seen, what: str) -> None:
        self._link.troubles.say(self.pair.kind.resource, _key(seen.place), what)

    def _orphans(self) -> tuple[int, int]:
        """Count the copies without a claim, and all copies."""
        lost = total = 0
        for app, recent in self._sides.all().items():
            store, claims = recent.view.store, set(self._sides.view.store.names(app))
            bound = store.values(_BOUND)
            lost += sum(one not in claims for one in bound)
            total += len(bound)
        return lost, total

    def _bereft(self) -> tuple[int, int]:
        """Count the marked claims without a copy, and all marked claims."""
        now = self._link.clock.monotonic()
        if self._counted is None or now - self._counted[0] > _COUNTED:
            self._counted = now, self._count_bereft()
        return self._counted[1]

    def _count_bereft(self) -> tuple[int, int]:
        lost = total = 0
        views = self._sides.all()
        for claim in self._sides.view.store.all():
            place = ObjectKey(*identity_of(claim))
            if place in self._marked or not copies.is_managed(claim) or is_deleting(claim):
                continue
            recent = views.get(place.namespace)
            if recent is not None:
                total += 1
                lost += recent.get(*self._copy_place(place)) is None
        return lost, total

    def _claim_name(self, copy: Manifest) -> Sequence[str]:
        place = self.pair.claim_of(copy)
        return () if place is None else (place.name,)

    @staticmethod
    def _bound(names: Index) -> Index:
        return lambda copy: names(copy) if copies.is_managed(copy) else ()


def _denied(error: ClusterError) -> Note:
    return Note("SyncDenied", f"The control plane refused this claim: {error}", "Warning")


def _key(place: ObjectKey) -> str:
    return f"{place.namespace}/{place.name}"

"""Syncs the claims of one exported kind with their copies: views -> Seen -> decide -> writes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from konnector import losses
from konnector.both_sides import BothSides, name
from konnector.controllers.making import Making
from konnector.decisions import copies, instance
from konnector.decisions.instance import Read, Seen
from konnector.decisions.pair import Pair
from konnector.decisions.sides import APP_CLUSTER, CONTROL_PLANE
from konnector.guardian import PENDING
from konnector.hands import Known
from konnector.link import Link
from konnector.service_views import NAME, Sort
from konnector.telling import is_refusal
from reconciler.core.decision import Apply, Decision, Note
from reconciler.core.errors import ClusterError
from reconciler.core.manifest import (
    Manifest,
    digest,
    identity_of,
    is_deleting,
    namespace_of,
    ref_of,
)
from reconciler.core.refs import ObjectKey, Ref
from reconciler.kube.recent import Recent
from reconciler.kube.store import Index
from reconciler.loop.children import Children
from reconciler.loop.controller import Controller

_BOUND: Final = "bound"
_MARKED: Final = "marked"
_LEAVING: Final = "leaving"
_LIVING: Final = "living"
_HELD: Final = timedelta(minutes=1)  # until a guard is asked again
_SOON: Final = timedelta(seconds=1)


class Instances:
    """The sync of one kind; run it once. Serial for each object, concurrent across objects.

    `moved` is called with an app namespace when `live_in` says something else of it.
    """

    def __init__(self, pair: Pair, link: Link, *, moved: Callable[[str], None]) -> None:
        self.pair, self._link, self._moved = pair, link, moved
        self._lived_in: set[str] = set()
        resource = pair.kind.resource
        self._controller = Controller(
            f"instances/{resource}",
            self.reconcile,
            clock=link.clock,
            meters=link.meters,
            workers=link.workers,
            depends_on=(link.app.recovery, link.plane.recovery),
        )
        names = name if pair.kind.namespaced else self._claim_name
        self._sides = BothSides(
            link,
            Sort(
                pair.kind,
                copies.trimmed_claim,
                {_MARKED: _marked, _LEAVING: _leaving, _LIVING: _living},
            ),
            Sort(pair.kind, instance.trimmed_copy, {NAME: names, _BOUND: self._bound(names)}),
            wake=self._controller.add,
            look=self._controller.add_behind,
            unmapped=True,
        )
        self._making = Making(
            pair,
            link,
            self._sides.here,
            self._bound_copies,
            lambda place: self._controller.add(_key(place)),
        )
        self._tried: dict[ObjectKey, tuple[str, str]] = {}
        self._ward = link.guards.over(resource, self)
        self._sides.view.store.subscribe(_LIVING, self._look_who_lives)
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

    def live_in(self, app_namespace: str) -> bool:
        """Tell whether a developer has an instance in an app namespace that is to stay."""
        return self._sides.view.store.has(_LIVING, app_namespace)

    def _look_who_lives(self, app_namespace: str) -> None:
        lives = self.live_in(app_namespace)
        if lives != (app_namespace in self._lived_in):
            (self._lived_in.add if lives else self._lived_in.discard)(app_namespace)
            self._moved(app_namespace)

    def stop(self) -> None:
        """Begin nothing new."""
        self._children.stop()

    async def run(self) -> None:
        """Sync until `stop`, and end what is under way."""
        leave = self._ward.enter()
        try:
            await self._children.run()
        finally:
            leave()
            self._link.troubles.forget(self.pair.kind.resource)

    async def reconcile(self, key: str) -> timedelta | None:
        """Look at one claim and its copy, and write what follows."""
        place = ObjectKey(*key.split("/", 1))
        if not self._making.is_told and not self.pending:
            self._take_up()
        there = self._sides.there(place.namespace)
        if there is None:
            self._making.ended(place)
            await self._without_home(place)
            return None
        decision, seen = await self._decided(self._look(place, there))
        if seen.copy is not None or seen.claim is None or is_deleting(seen.claim):
            self._making.ended(place)
        if PENDING in (seen.deletes_held, seen.creates_held):
            return _SOON
        if _makes_a_copy(seen, decision) and not self._making.enter(place):
            return _HELD if self._making.is_told else _SOON
        await self._act(seen, decision, there)
        return _HELD if _waits(seen) else None

    def _look(self, place: ObjectKey, there: Recent) -> Seen:
        claim = self._sides.here.get(*place)
        copy_place = self._copy_place(place)
        copy = there.get(*copy_place)
        taken = copy is not None and not self.pair.is_copy_of(copy, place)
        copy = None if taken else copy
        deletes_held, creates_held = self._held(place, claim, copy)
        return Seen(
            place,
            copy_place,
            claim,
            copy,
            deletes_held=deletes_held,
            creates_held=creates_held,
            settled=self._settled(place, claim, copy),
            taken=taken,
            homeless=claim is None and self._is_homeless(place),
        )

    def _held(
        self, place: ObjectKey, claim: Manifest | None, copy: Manifest | None
    ) -> tuple[str, str]:
        """Return why nothing may be deleted, and why nothing may be made again."""
        if claim is None:
            if copy is None or not copies.is_managed(copy):
                return "", ""
            return PENDING if self.pending else self._ward.deletes_held(place), ""
        if is_deleting(claim):
            return self._ward.deletion_held(), ""
        if copy is not None or place in self._making.ours or not copies.is_managed(claim):
            return "", ""
        return "", PENDING if self.pending else self._ward.creates_held(place)

    async def _decided(self, seen: Seen) -> tuple[Decision, Seen]:
        """Decide, and read what has to be read for that."""
        while True:
            found = instance.decide(self.pair, seen)
            if isinstance(found, Decision):
                return found, seen
            if found is Read.CLAIM:
                ref = Ref(self._link.app.name, self.pair.kind, *seen.place)
                live, held = await self._link.app.get(ref), seen.deletes_held
                if live is None and not held:
                    held = await self._ward.deletes_still_held(seen.place)
                seen = replace(seen, claim=live, claim_gone=live is None, deletes_held=held)
            else:
                seen = await self._with_whole_copy(seen)

    async def _with_whole_copy(self, seen: Seen) -> Seen:
        """Read the copy that the view shows; by now it may be gone, or not be ours.

        A guard judges by the views: while they show a copy that is gone, no new one is made.
        """
        ref = Ref(self._link.plane.name, self.pair.kind, *seen.copy_place)
        copy = await self._link.plane.get(ref)
        if copy is None:
            return replace(seen, copy=None, creates_held=PENDING)
        if not self.pair.is_copy_of(copy, seen.place):
            return replace(seen, copy=None, taken=True)
        return replace(seen, copy=copy, copy_whole=True)

    async def _act(self, seen: Seen, decision: Decision, there: Recent) -> None:
        link = self._link
        for note in decision.notes:
            self._tell(seen, note)
        if not decision.tasks:
            self._say(seen, "".join(note.message for note in decision.notes if seen.taken))
            return
        known = (Known(APP_CLUSTER, self._sides.here), Known(CONTROL_PLANE, there))
        try:
            if _makes_a_copy(seen, decision):
                await self._making.make(seen, decision, known)
            else:
                await link.hands.carry_out(decision, known)
        except ClusterError as error:
            if is_refusal(error):
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

    def _is_homeless(self, place: ObjectKey) -> bool:
        if not self.pair.kind.namespaced:
            return False
        if self._link.is_reserved(place.namespace):
            return True
        namespace = self._link.namespaces.get("", place.namespace)
        return namespace is None or is_deleting(namespace)

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

    def _bound_copies(self) -> int:
        return sum(one.view.store.count(_BOUND) for one in self._sides.all().values())

    def _take_up(self) -> None:
        """See, once, which marked claims have no copy, before any more are marked."""
        lacking = losses.bereft_places(self._sides, _MARKED, without=self._making.ours)
        self._making.take_up(lacking, held=self._ward.recreation_held())

    @property
    def pending(self) -> bool:
        """Whether more may come to light soon."""
        return self._sides.pending

    @property
    def read(self) -> bool:
        """Whether the app cluster was read: while it was not, every copy counts as an orphan."""
        return self._sides.view.synced

    def orphans(self, besides: Collection[ObjectKey]) -> tuple[int, int]:
        """Count the copies without a claim, and all copies."""
        return losses.orphans(self._sides, _BOUND, besides)

    def bereft(self, besides: Collection[ObjectKey]) -> tuple[int, int]:
        """Count the marked claims without a copy, and all marked claims.

        Those that this process has just marked have not lost what they never had.
        """
        ours = self._making.ours - set(besides)
        return losses.bereft(self._sides, _MARKED, leaving=_LEAVING, besides=besides, without=ours)

    def copies_in(self, app_namespace: str) -> Sequence[ObjectKey]:
        """Return the places of the bound copies that belong to an app namespace."""
        return losses.copies_in(self._sides, _BOUND, app_namespace)

    def wake_everything(self) -> None:
        """Have all looked at that may have been held."""
        self._sides.wake_everything()

    def _claim_name(self, copy: Manifest) -> Sequence[str]:
        place = self.pair.claim_of(copy)
        return () if place is None else (place.name,)

    @staticmethod
    def _bound(names: Index) -> Index:
        return lambda copy: names(copy) if copies.is_managed(copy) else ()


def _marked(claim: Manifest) -> Sequence[str]:
    """Return the place of a claim that has, or had, a copy, as an index does."""
    return () if is_deleting(claim) else _leaving_or_marked(claim)


def _leaving(claim: Manifest) -> Sequence[str]:
    """Return the place of such a claim that is being deleted, as an index does."""
    return _leaving_or_marked(claim) if is_deleting(claim) else ()


def _living(claim: Manifest) -> Sequence[str]:
    """Return the app namespace where a developer wants something, as an index does."""
    stays = not is_deleting(claim) and not copies.is_providers(claim)
    return (namespace_of(claim),) if stays else ()


def _leaving_or_marked(claim: Manifest) -> Sequence[str]:
    return ("/".join(identity_of(claim)),) if copies.is_managed(claim) else ()


def _makes_a_copy(seen: Seen, decision: Decision) -> bool:
    living = seen.claim is not None and not is_deleting(seen.claim)
    return living and seen.copy is None and bool(decision.tasks)


def _waits(seen: Seen) -> bool:
    """Tell whether something is held up by what no event tells the end of."""
    homeless = seen.homeless and seen.copy is not None
    return bool(seen.deletes_held or seen.creates_held or seen.taken or homeless)


def _denied(error: ClusterError) -> Note:
    return Note("SyncDenied", f"The control plane refused this claim: {error}", "Warning")


def _key(place: ObjectKey) -> str:
    return f"{place.namespace}/{place.name}"

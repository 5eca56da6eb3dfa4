"""Which app cluster and which space these are, and so what may be deleted and made again."""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from konnector.decisions import guard
from konnector.decisions.guard import APP_NAMESPACES, Confirmations, Count, Identity
from konnector.homes import APP_NAMESPACE
from konnector.link import Ledger
from konnector.provider_views import NAME
from reconciler.core import keys, names
from reconciler.core.decision import Decision, Task
from reconciler.core.manifest import Manifest, annotations_of, uid_of
from reconciler.core.refs import NAMESPACE, ObjectKey, Ref
from reconciler.kube.cluster import Reader
from reconciler.kube.store import Store
from reconciler.loop.meters import Meters

# What was lost is a matter of proportion, and so of all that there is.
PENDING: Final = "not everything was read yet"
_SETTLED: Final = timedelta(seconds=150)  # after which what was not read is in trouble (A.7)
_RECOUNTED: Final = timedelta(seconds=5)  # while a guard is closed, at most so often


class Guardian:
    """The guards of one space (mapping.md 10). `secrets` are those that hold its kubeconfig.

    `changed` is called when there is something new to say in the ClusterBinding.
    """

    def __init__(  # noqa: PLR0913 - each is known to another part of the program
        self,
        app: Reader,
        plane: Reader,
        space: str,
        *,
        mappings: Store,
        cluster_bindings: Store,
        secrets: Callable[[], Iterable[Manifest]],
        now: Callable[[], datetime],
        meters: Meters,
        changed: Callable[[], None],
    ) -> None:
        self._app, self._plane, self._space = app, plane, space
        self._mappings, self._cluster_bindings = mappings, cluster_bindings
        self._secrets, self.now, self.meters, self.changed = secrets, now, meters, changed
        self.app_cluster_uid = ""
        self.space_uid = ""
        self._recorded: frozenset[str] | None = None  # None: a mapping has changed since
        self._confirmed = Confirmations()
        self._wards: list[Ward] = []
        self._began = now()
        mappings.subscribe(APP_NAMESPACE, self._mapping_changed)
        cluster_bindings.subscribe(NAME, self._cluster_binding_changed)

    async def look(self) -> None:
        """Read which clusters these are. Raises ClusterErrors, and keeps what was known then."""
        await self.look_at_app_cluster()
        await self.look_at_space()

    async def look_at_space(self) -> None:
        """Read which space this is. Raises ClusterErrors, and keeps what was known then."""
        space = await self._plane.get(
            Ref(self._plane.name, NAMESPACE, "", self._space), metadata_only=True
        )
        self.space_uid = uid_of(space or {})

    async def look_at_app_cluster(self) -> None:
        """Read which app cluster this is. Raises ClusterErrors, and keeps what was known then."""
        system = await self._app.get(
            Ref(self._app.name, NAMESPACE, "", names.KUBE_SYSTEM), metadata_only=True
        )
        self.app_cluster_uid = uid_of(system or {})

    @property
    def identity(self) -> Identity:
        """Return what is known, and what was recorded."""
        if self._recorded is None:
            self._recorded = guard.recorded(self._mappings.all(), keys.APP_CLUSTER_UID)
        return Identity(
            self._space,
            self.app_cluster_uid,
            self._recorded,
            self.space_uid,
            guard.recorded(self._secrets(), keys.SPACE_UID),
        )

    @property
    def confirmed(self) -> bool:
        """Whether a person allowed a mass delete."""
        return guard.is_confirmed(self._confirmed.mass_delete, self.now())

    @property
    def recreation_confirmed(self) -> bool:
        """Whether a person allowed that many lost copies are made again."""
        return guard.is_confirmed(self._confirmed.recreate, self.now())

    def deletes(self, count: Count) -> str:
        """Return why nothing of what was counted may be deleted, or ""."""
        return guard.deletes(self.identity, count, confirmations=self._confirmed, now=self.now())

    def recreations(self, count: Count) -> str:
        """Return why nothing of what was counted may be made again, or ""."""
        return guard.recreations(
            self.identity, count, confirmations=self._confirmed, now=self.now()
        )

    @property
    def pending(self) -> bool:
        """Whether more losses may come to light soon.

        Of a mapping nothing is lost; that something bound is not synced yet counts at first only,
        for that may last.
        """
        young = self.now() - self._began < _SETTLED
        return any(
            ward.ledger.pending for ward in self._wards if young or ward.what != APP_NAMESPACES
        )

    async def space_doubted(self) -> bool:
        """Tell whether the space may have lost what it had, so that what it lacks says nothing.

        Looks afresh at which space it is. Raises ClusterErrors.
        """
        await self.look_at_space()
        return any(self.recreations(ward.claims()) for ward in self._wards)

    def over(self, what: str, ledger: Ledger) -> "Ward":
        """Return the guard of one kind of things; `what` is as in a Count."""
        return Ward(self, what, ledger)

    def enter(self, ward: "Ward") -> Callable[[], None]:
        """Count with a ward, until what is returned is called."""
        self._wards.append(ward)
        return lambda: self._wards.remove(ward)

    def held_with(self, app_namespace: str) -> str:
        """Return why nothing goes that lies behind an app namespace, or "".

        With its service namespace go all copies in it. PENDING: not all of them are known yet.
        """
        found = [(ward, ward.ledger.copies_in(app_namespace)) for ward in self._wards]
        if any(ward.ledger.pending for ward, _ in found):
            return PENDING
        why = [ward.deletes_held(*places) for ward, places in found if places]
        return next(filter(None, why), "")

    def told(self, cluster_binding: Manifest) -> Decision:
        """Return what the ClusterBinding has to say of all this."""
        wards = [one for one in self._wards if one.ledger.read and not one.ledger.pending]
        seen = guard.Seen(
            cluster_binding,
            self.identity,
            copies=[ward.copies() for ward in wards],
            claims=[ward.claims() for ward in wards],
        )
        return guard.told(seen, now=self.now())

    def records(self) -> Decision:
        """Return the writes that record this space in the place of another, where that is allowed.

        For the first time it is recorded with what else is written to a Secret.
        """
        confirmed, identity = self.recreation_confirmed, self.identity
        marked = [one for one in self._secrets() if keys.SPACE_UID in annotations_of(one)]
        found = [guard.space_record(one, identity, confirmed=confirmed) for one in marked]
        return Decision(tuple(Task((patch,)) for patch in found if patch is not None))

    def _mapping_changed(self, app_namespace: str) -> None:
        del app_namespace
        self._recorded = None

    def _cluster_binding_changed(self, name: str) -> None:
        live = self._cluster_bindings.get(self._space, names.CLUSTER_BINDING)
        before, self._confirmed = self._confirmed, guard.confirmations_of(live)
        if before != self._confirmed:
            for ward in self._wards:
                ward.ledger.wake_everything()


class Ward:
    """What is guarded together: the copies of one kind, or the mappings.

    It is told which places would be deleted or filled again, and remembers for a while those that
    it let through: a loss shows bit by bit.
    """

    def __init__(self, guardian: Guardian, what: str, ledger: Ledger) -> None:
        self._guardian, self.what, self.ledger = guardian, what, ledger
        self._copies = _Tally(lambda besides: Count(what, *ledger.orphans(besides)), self._changed)
        self._claims = _Tally(lambda besides: Count(what, *ledger.bereft(besides)), self._changed)

    def enter(self) -> Callable[[], None]:
        """Be counted, until what is returned is called."""
        return self._guardian.enter(self)

    def deletes_held(self, *places: ObjectKey) -> str:
        """Return why copies in these places may not be deleted, or ""; their origins are gone."""
        if self._guardian.confirmed:
            return ""
        why = self._guardian.deletes(self.copies())
        return self._judged(why, self._copies, places, "delete")

    def deletion_held(self) -> str:
        """Return why a copy may not be deleted whose claim a person deleted, or ""."""
        return self._guardian.deletes(Count(self.what, 0, 0))

    async def deletes_still_held(self, *places: ObjectKey) -> str:
        """As `deletes_held`, after a fresh look at which app cluster this is.

        Raises ClusterErrors.
        """
        await self._guardian.look_at_app_cluster()
        return self.deletes_held(*places)

    def creates_held(self, place: ObjectKey) -> str:
        """Return why a lost copy may not be made again, or ""."""
        if self._guardian.recreation_confirmed:
            return ""
        return self._judged(self.recreation_held(), self._claims, (place,), "create")

    def recreation_held(self) -> str:
        """Return why no lost copy may be made again, or ""; nothing is let through by that."""
        return self._guardian.recreations(self.claims())

    def copies(self) -> Count:
        """Count the copies that lack their origin."""
        return self._copies.count(self._guardian.now())

    def claims(self) -> Count:
        """Count the claims that lack their copy."""
        return self._claims.count(self._guardian.now())

    def _judged(self, why: str, tally: "_Tally", places: Iterable[ObjectKey], verb: str) -> str:
        if why:
            self._guardian.meters.held(verb)
        else:
            tally.let_through(places, self._guardian.now())
        return why

    def _changed(self) -> None:
        self._guardian.changed()


class _Tally:
    """Counts a loss anew each time, with what was let through lately."""

    def __init__(
        self,
        count: Callable[[Collection[ObjectKey]], Count],
        changed: Callable[[], None],
    ) -> None:
        self._count, self._changed = count, changed
        self._let_through: dict[ObjectKey, datetime] = {}
        self._last: tuple[datetime, Count] | None = None

    def let_through(self, places: Iterable[ObjectKey], now: datetime) -> None:
        self._let_through |= dict.fromkeys(places, now)

    def count(self, now: datetime) -> Count:
        before = self._last is not None and self._last[1].is_mass
        if self._last is not None and before and abs(now - self._last[0]) < _RECOUNTED:
            return self._last[1]
        # What was let through, and is done, closes no guard for ever.
        held = before and self._count(()).lost > 0
        self._let_through = guard.still_lost(self._let_through, now=now, held=held)
        found = self._count(self._let_through.keys())
        self._last = (now, found)
        if before != found.is_mass:
            self._changed()
        return found

"""What everything that syncs between an app cluster and one space shares."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from konnector.decisions.reserved import is_reserved
from konnector.hands import Hands
from konnector.homes import Homes
from reconciler.core.decision import Note
from reconciler.core.manifest import Manifest
from reconciler.core.refs import ObjectKey, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.store import Store
from reconciler.loop.clock import Clock
from reconciler.loop.meters import Meters


class Recorder(Protocol):
    """Who tells Events in the app cluster."""

    def tell(self, ref: Ref, live: Manifest, note: Note) -> None:
        """Tell it, as soon as possible and as well as possible."""
        ...


class Ledger(Protocol):
    """What a sync can count for its guard. All places are in the app cluster."""

    @property
    def pending(self) -> bool:
        """Whether more may come to light soon."""
        ...

    @property
    def read(self) -> bool:
        """Whether the app cluster was read: while it was not, every copy counts as an orphan."""
        ...

    def orphans(self, besides: Collection[ObjectKey]) -> tuple[int, int]:
        """Count the copies without their origin, and all copies.

        What is `besides` and no longer there counts as both.
        """
        ...

    def bereft(self, besides: Collection[ObjectKey]) -> tuple[int, int]:
        """Count the claims that lost their copy, and all that had one.

        What is `besides` counts as lost though it has one again.
        """
        ...

    def copies_in(self, app_namespace: str) -> Sequence[ObjectKey]:
        """Return the places of the copies that belong to an app namespace."""
        ...

    def wake_everything(self) -> None:
        """Have all looked at that may have been held."""


class Ward(Protocol):
    """The guard of one kind. What it lets through, it takes for granted to be done."""

    def deletes_held(self, *places: ObjectKey) -> str:
        """Return why copies in these places may not be deleted, or ""; their origins are gone."""
        ...

    async def deletes_still_held(self, *places: ObjectKey) -> str:
        """As `deletes_held`, after a fresh look at which app cluster this is."""
        ...

    def deletion_held(self) -> str:
        """Return why a copy may not be deleted whose claim a person deleted, or ""."""
        ...

    def creates_held(self, place: ObjectKey) -> str:
        """Return why a lost copy may not be made again, or ""."""
        ...

    def recreation_held(self) -> str:
        """Return why no lost copy may be made again, or ""; nothing is let through by that."""
        ...

    def enter(self) -> Callable[[], None]:
        """Be counted, until what is returned is called."""
        ...


class Guards(Protocol):
    """Who knows whether something may be deleted, or made again (mapping.md 10)."""

    def over(self, what: str, ledger: Ledger) -> Ward:
        """Return the guard of one kind of things; `what` is as in `guard.Count`."""
        ...

    @property
    def pending(self) -> bool:
        """Whether more losses may come to light soon."""
        ...

    async def space_doubted(self) -> bool:
        """Tell whether the space may have lost what it had, so that what it lacks says nothing.

        Raises ClusterErrors.
        """
        ...


@dataclass(frozen=True, slots=True)
class Link:
    """The two clusters, the space, and the hands that write. `want` asks for a mapping.

    `namespaces` are those of the app cluster, of which metadata are held, `own_namespace` is the
    konnector's there.
    """

    app: Cluster
    plane: Cluster
    space: str
    space_uid: str
    homes: Homes
    namespaces: Store
    own_namespace: str
    want: Callable[[str], None]
    guards: Guards
    hands: Hands
    recorder: Recorder
    clock: Clock
    meters: Meters
    workers: int
    troubles: "Troubles" = field(default_factory=lambda: Troubles())

    def is_reserved(self, app_namespace: str) -> bool:
        """Tell whether an app namespace is one of the cluster's own programs."""
        return is_reserved(app_namespace, self.own_namespace)

    def now(self) -> datetime:
        """Return the time, aware and in UTC."""
        return self.clock.now()


class Troubles:
    """What developers should know, by export or claimed resource and by object."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, str]] = {}
        self._told: Callable[[str], None] = lambda _: None

    def follow(self, told: Callable[[str], None]) -> None:
        """Have `told(resource)` called when the first trouble comes, and when the last is over.

        What comes between shows at the next look, so that thousands of objects in the same trouble
        are not told one by one.
        """
        self._told = told

    def of(self, resource: str) -> dict[str, str]:
        """Return what is wrong, as a sentence for each object."""
        return self._said.get(resource, {})

    def say(self, resource: str, about: str, what: str) -> None:
        """Note what is wrong with one object; "" for nothing any more."""
        said = self._said.setdefault(resource, {})
        troubled = bool(said)
        if what:
            said[about] = what
        else:
            said.pop(about, None)
        if bool(said) != troubled:
            self._told(resource)

    def forget(self, resource: str) -> None:
        """Forget all that was said about a resource."""
        self._said.pop(resource, None)

"""What everything that syncs between an app cluster and one space shares."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from konnector.hands import Hands
from konnector.homes import Homes
from reconciler.core.decision import Note
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Cluster
from reconciler.loop.clock import Clock
from reconciler.loop.meters import Meters


class Recorder(Protocol):
    """Who tells Events in the app cluster."""

    def tell(self, ref: Ref, live: Manifest, note: Note) -> None:
        """Tell it, as soon as possible and as well as possible."""
        ...


class Guards(Protocol):
    """Who knows whether something may be deleted, or made again (mapping.md 10)."""

    def deletes_held(self, kind: Kind, count: Callable[[], tuple[int, int]] | None) -> str:
        """Return why nothing may be deleted on the control plane, or "".

        `count` tells how many copies of the kind lack their claim, and how many there are; None
        where a person deleted the claim.
        """
        ...

    def creates_held(self, kind: Kind, count: Callable[[], tuple[int, int]]) -> str:
        """Return why a lost copy may not be made again, or "".

        `count` tells how many claims of the kind lost their copy, and how many had one.
        """
        ...


@dataclass(frozen=True, slots=True)
class Link:
    """The two clusters, the space, and the hands that write. `want` asks for a mapping."""

    app: Cluster
    plane: Cluster
    space: str
    space_uid: str
    homes: Homes
    want: Callable[[str], None]
    guards: Guards
    hands: Hands
    recorder: Recorder
    clock: Clock
    meters: Meters
    workers: int
    troubles: "Troubles" = field(default_factory=lambda: Troubles())

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

"""Follows generations of objects from one side to the other and back, as traces.

`klutch.claim` lasts from the event of a claim's new generation to the write that brings the news
of its service being ready: `up`, `provider` (until the copy has news), `status.down`, as often as
there is news. A process that starts meanwhile knows no beginning, and traces none of it.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from reconciler.controller import tracing
from reconciler.controller.tracing import Ended, TraceId
from reconciler.core.manifest import Manifest, get_int, uid_of

CLAIM: Final = "klutch.claim"


@dataclass(frozen=True, slots=True)
class Write:
    """A write that was answered: when its event came, and when the answer. Unix times."""

    began: float
    ended: float


@dataclass(slots=True)
class _Trip:
    of: TraceId
    began: float
    answered: float


def trace_of(live: Manifest) -> TraceId:
    """Return the trace of the present generation of an object."""
    return TraceId.of(uid_of(live), get_int(live, "metadata", "generation") or 0)


class Trips:
    """The claims of one kind that are under way. `attributes` are those of all their spans."""

    def __init__(self, **attributes: str) -> None:
        self._attributes = attributes
        self._trips: dict[Hashable, _Trip] = {}

    def up(self, key: Hashable, claim: Manifest, write: Write) -> None:
        """Note that a claim was carried to the control plane."""
        of = trace_of(claim)
        trip = self._trips.get(key)
        if trip is None or trip.of != of:
            trip = self._trips[key] = _Trip(of, write.began, write.ended)
        trip.answered = write.ended
        self._record("up", of, write.began, write.ended)

    def down(self, key: Hashable, claim: Manifest, write: Write, *, is_ready: bool) -> None:
        """Note that the news of a copy was carried to its claim."""
        trip = self._trips.get(key)
        if trip is None or trip.of != trace_of(claim):
            return
        self._record("provider", trip.of, trip.answered, max(write.began, trip.answered))
        self._record("status.down", trip.of, write.began, write.ended)
        trip.answered = write.ended
        if is_ready:
            self._record(CLAIM, trip.of, trip.began, write.ended, is_root=True)
            del self._trips[key]

    def forget(self, key: Hashable) -> None:
        self._trips.pop(key, None)

    def _record(
        self, name: str, of: TraceId, began: float, ended: float, *, is_root: bool = False
    ) -> None:
        attributes: Mapping[str, str] = self._attributes
        made = Ended(
            name=name, of=of, began=began, ended=ended, is_root=is_root, attributes=attributes
        )
        tracing.record(made)


def secret_down(of: TraceId, write: Write) -> None:
    """Note that a Secret came into the app cluster, for the object that the trace is of."""
    tracing.record(Ended(name="secret.down", of=of, began=write.began, ended=write.ended))

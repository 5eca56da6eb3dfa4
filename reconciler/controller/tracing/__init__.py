"""Records spans of work if a collector is configured; otherwise it costs nothing.

A span of a claim belongs to the trace of `uid/generation`, which both sides of a sync can derive:
nothing is written on the wire. Attributes are names and words of ours, never texts.
"""

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Protocol

from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest, get_int, uid_of

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_NOTHING: Final = nullcontext()


@dataclass(frozen=True, slots=True)
class TraceId:
    """The identity of the trace of one generation of an object, and of its first span."""

    trace: int
    root: int

    @classmethod
    def of(cls, uid: str, generation: int) -> "TraceId":
        """Return that of an object: the first 16 and the next 8 bytes of a digest."""
        digest = hashlib.sha256(f"{uid}/{generation}".encode()).digest()
        return cls(int.from_bytes(digest[:16]), int.from_bytes(digest[16:24]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A span that has ended, of the trace of an object. Times are in seconds since 1970.

    `is_root`: it is the first span of that trace; the others are its children.
    """

    name: str
    of: TraceId
    began: float
    ended: float
    is_root: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)


class Tracer(Protocol):
    """A receiver of spans."""

    def span(self, name: str, attributes: Mapping[str, str]) -> AbstractContextManager[None]:
        """Open a span for the length of a block, within that which is open already."""
        ...

    def record(self, span: Ended) -> None: ...


_tracer: Tracer | None = None


def is_on() -> bool:
    return _tracer is not None


def span(name: str, **attributes: str) -> AbstractContextManager[None]:
    """Open a span for the length of a block, within that which is open already."""
    return _NOTHING if _tracer is None else _tracer.span(name, attributes)


def record(span: Ended) -> None:
    if _tracer is not None:
        _tracer.record(span)


@contextmanager
def collected(tracer: Tracer) -> Iterator[None]:
    """Let a tracer collect all spans for the length of the block."""
    global _tracer
    before, _tracer = _tracer, tracer
    try:
        yield
    finally:
        _tracer = before


@contextmanager
def exported(environ: Mapping[str, str], program: str) -> Iterator[None]:
    """Export spans by OTLP over HTTP for the length of the block, to the address in `environ`.

    Raises ConfigError where the extra `otel` is not installed.
    """
    if not any(environ.get(name) for name in ENDPOINTS):
        yield
        return
    try:
        from reconciler.controller.tracing import otel  # and nothing of it where nobody collects
    except ImportError:
        raise ConfigError(
            "is set, and OpenTelemetry is not installed",
            where=" or ".join(ENDPOINTS),
            hint="Install klutchctl[otel], or unset the variable",
        ) from None
    with otel.exporter(program) as tracer, collected(tracer):
        yield


# Follows generations of objects from one side to the other and back, as traces.
#
# `klutch.claim` lasts from the event of a claim's new generation to the write that brings the news
# of its service being ready: `up`, `provider` (until the copy has news), `status.down`, as often as
# there is news. A process that starts meanwhile knows no beginning, and traces none of it.

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
        record(made)


def secret_down(of: TraceId, write: Write) -> None:
    """Note that a Secret came into the app cluster, for the object that the trace is of."""
    record(Ended(name="secret.down", of=of, began=write.began, ended=write.ended))

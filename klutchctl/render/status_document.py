"""Writes the state of a fleet as a versioned JSON document, and parses it.

Of the document, a new minor version adds fields, a major breaks. It has the units, and where a
controller wrote it, what that knows of its source, its rounds and what waits. Not the files.
"""

from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeGuard, TypeVar

from pydantic import ConfigDict, Field, PlainSerializer, TypeAdapter
from pydantic.alias_generators import to_camel

from reconciler.apply import Outcome, Status
from reconciler.core import typed_json
from reconciler.core.errors import Origin
from reconciler.core.manifest import JSON, Manifest, indented
from reconciler.core.times import format_time
from reconciler.core.typed_json import Moment
from reconciler.fleet.values import UnitKey
from reconciler.health.board import Board, BoundUnit, ClusterHealth, PlaneHealth
from reconciler.health.verdict import State, UnitHealth
from reconciler.planning import planfile
from reconciler.planning.changes import Change, Tripped, UnseenCluster
from reconciler.watch.agenda import Task
from reconciler.watch.fleet_state import FleetState, RoundRecord, SourceView, Storm, Waiting

FORMAT: Final = "klutchctl.dev/status"
VERSION: Final = "1.2"
HINT: Final = "`klutchctl status -o json=FILE` writes one"

_HEALTH: Final = ("state", "reason", "message", "since", "sinceExact", "lastKnown")

T = TypeVar("T")
_Time: TypeAlias = Annotated[Moment, PlainSerializer(format_time, when_used="unless-none")]
_Line: TypeAlias = Annotated[Change, PlainSerializer(planfile.line, return_type=Any)]


def _as(kind: type[T], value: Any, **others: Any) -> T:
    """Return a dataclass of another kind with the fields of a value, but for `others`."""
    names = {one.name for one in fields(kind)} - others.keys()  # type: ignore[arg-type]
    return kind(**{name: getattr(value, name) for name in names}, **others)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitDocument:
    """A service bound in a cluster: its Binding, its resource, its state, and the state's start.

    `sinceExact` false: the state began at `since` or later. `lastKnown` is the state before an
    Unknown one. `leaving`: it is live, but not in the files. `origin` is the place in the files.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel)

    binding: str
    group: str
    resource: str
    state: State
    reason: str
    message: str
    since: _Time | None
    since_exact: bool
    last_known: State | None
    leaving: bool
    origin: Origin | None = None

    @classmethod
    def of(cls, unit: BoundUnit) -> "UnitDocument":
        health = unit.health
        named = {"group": health.unit.group, "resource": health.unit.resource}
        bound = {"binding": unit.binding, "leaving": unit.leaving, "origin": unit.origin}
        return _as(cls, health, since_exact=health.exact, **named, **bound)

    def unit(self, cluster: str) -> BoundUnit:
        key = UnitKey(cluster, self.group, self.resource)
        return _as(BoundUnit, self, health=_as(UnitHealth, self, unit=key, exact=self.since_exact))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDocument:
    """An app cluster. `state` is that of the cluster as a whole, where there is one."""

    name: str
    control_plane: str
    state: State | None
    message: str
    since: _Time | None
    units: tuple[UnitDocument, ...]

    @classmethod
    def of(cls, cluster: ClusterHealth) -> "ClusterDocument":
        return _as(cls, cluster, units=tuple(map(UnitDocument.of, cluster.units)))

    def cluster(self) -> ClusterHealth:
        return _as(ClusterHealth, self, units=tuple(one.unit(self.name) for one in self.units))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineDocument:
    """A line of the last plan that is not done, and its result; null: it was not tried."""

    change: _Line
    status: Status | None
    message: str

    @classmethod
    def of(cls, change: Change, outcome: Outcome | None) -> "LineDocument":
        status, message = (outcome.status, outcome.message) if outcome else (None, "")
        return cls(change=change, status=status, message=message)

    def line(self) -> tuple[Change, Outcome | None]:
        """Return the line, without its manifest."""
        return self.change, Outcome(self.change, self.status, self.message) if self.status else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingDocument:
    """The differences from the files after the last round."""

    plan_id: str
    lines: tuple[LineDocument, ...]
    held: tuple[Tripped, ...]
    unseen: tuple[UnseenCluster, ...]

    @classmethod
    def of(cls, waiting: Waiting) -> "WaitingDocument":
        return _as(cls, waiting, lines=tuple(LineDocument.of(*line) for line in waiting.lines))

    def read(self) -> Waiting:
        return _as(Waiting, self, lines=tuple(line.line() for line in self.lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDocument:
    """A controller's own state, beside the units."""

    source: SourceView
    waiting: WaitingDocument
    running: Task | None
    history: tuple[RoundRecord, ...]
    storms: tuple[Storm, ...]
    suspended: str
    shard: tuple[str, ...]
    applied_at: datetime | None
    looked_at: datetime | None = None

    @classmethod
    def of(cls, state: FleetState) -> "OperationDocument":
        return _as(cls, state, waiting=WaitingDocument.of(state.waiting))

    def state(self, board: Board) -> FleetState:
        named = {"name": board.fleet, "board": board, "fleet": None}
        return _as(FleetState, self, waiting=self.waiting.read(), **named)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDocument:
    """The state of a fleet at `time`. `unread` are the unreadable clusters; `summary` counts.

    `controlPlanes` are those with a problem that affects all their app clusters. `operation` is
    the state of the controller; null if there is none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel)

    format: str
    version: str
    time: _Time
    fleet: str
    revision: str
    clusters: tuple[ClusterDocument, ...]
    unread: tuple[UnseenCluster, ...]
    summary: Annotated[dict[str, int], Field(default_factory=dict)]
    control_planes: tuple[PlaneHealth, ...] = ()
    operation: OperationDocument | None = None

    def state(self) -> FleetState:
        clusters = tuple(one.cluster() for one in self.clusters)
        board = _as(Board, self, clusters=clusters, planes=self.control_planes, ahead=0.0)
        return _bare(board) if self.operation is None else self.operation.state(board)


_FORMAT: Final = typed_json.Format(FORMAT, VERSION, "a status document", HINT, StatusDocument)


def dump(board: Board, *, state: FleetState | None = None) -> str:
    """Return one JSON object and a newline; with the facts of a controller, if there is one."""
    document = _as(
        StatusDocument,
        board,
        format=FORMAT,
        version=VERSION,
        clusters=tuple(map(ClusterDocument.of, board.clusters)),
        summary=summary(board),
        control_planes=board.planes,
        operation=OperationDocument.of(state) if _is_operated(state) else None,
    )
    return indented(adapter().dump_python(document, mode="json", by_alias=True)).decode() + "\n"


def dump_state(state: FleetState, now: datetime) -> str:
    """Return the document of an operated fleet, also before anything was looked at."""
    return dump(state.board or Board(state.name, state.source.revision, now, ()), state=state)


def _bare(board: Board) -> FleetState:
    return FleetState(name=board.fleet, source=SourceView(revision=board.revision), board=board)


def _is_operated(state: FleetState | None) -> TypeGuard[FleetState]:
    return state is not None and (
        state.board is None or replace(state, fleet=None) != _bare(state.board)
    )


def summary(board: Board) -> dict[str, int]:
    """Return how many units are in each state, and how many clusters were not read."""
    counted = {state.value: count for state, count in board.counts().items()}
    return {**counted, "unread": len(board.unread)}


def unit_json(unit: BoundUnit) -> Manifest:
    """Return a unit as JSON, without its cluster."""
    document = UnitDocument.of(unit)
    written: dict[str, JSON] = _unit_adapter().dump_python(document, mode="json", by_alias=True)
    return written


def health_json(health: UnitHealth) -> dict[str, JSON]:
    written = unit_json(BoundUnit("", health))
    return {name: written[name] for name in _HEALTH}


def parse(content: str | bytes, source: str) -> FleetState:
    """Parse the output of `dump`, of any minor version, without `fleet`. `source` names the file.

    Raises ConfigError with the place for anything else, and for another major version.
    """
    _, document = _FORMAT.read(content, source)
    return document.state()


@cache
def adapter() -> TypeAdapter[StatusDocument]:
    return TypeAdapter(StatusDocument)


@cache
def _unit_adapter() -> TypeAdapter[UnitDocument]:
    return TypeAdapter(UnitDocument)

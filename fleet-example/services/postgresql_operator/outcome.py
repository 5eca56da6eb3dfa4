"""What follows from one look at one object: work in PostgreSQL, then writes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from postgresql_operator.wire import FINALIZER
from postgresql_server.works import Deprovision, LetIn, Provision, ShutOut
from reconciler.core.conditions import INFO, Cause, Condition, false
from reconciler.core.decision import NOTHING, Decision, Task, modification
from reconciler.core.manifest import JSON, Manifest, finalizers_of
from reconciler.core.refs import Kind

PENDING: Final = "Pending"
READY: Final = "Ready"
DELETING: Final = "Deleting"
RUNNING: Final = "Running"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"


@dataclass(frozen=True, slots=True)
class Dump:
    """There is a file named after `uid` that holds what the database holds."""

    uid: str
    job: str
    database: str


@dataclass(frozen=True, slots=True)
class Load:
    """The database holds what the file of `dump` holds, and `uid` is noted as done."""

    uid: str
    job: str
    dump: str
    database: str


@dataclass(frozen=True, slots=True)
class Discard:
    """There is no file of `uid`."""

    uid: str


Work: TypeAlias = Provision | Deprovision | LetIn | ShutOut | Dump | Load | Discard


@dataclass(frozen=True, slots=True)
class Outcome:
    """`works` are done in order; the decision holds if none fails."""

    works: tuple[Work, ...] = ()
    decision: Decision = NOTHING


def hold(cluster: str, kind: Kind, live: Manifest) -> Outcome:
    """Have the object wait for us before it goes, which comes before anything is made for it."""
    return Outcome(decision=Decision((_finalizers(cluster, kind, live, add=True),)))


def release(cluster: str, kind: Kind, live: Manifest) -> Task:
    """Let the object go."""
    return _finalizers(cluster, kind, live, add=False)


def holds(live: Manifest) -> bool:
    """Return whether the object waits for us, so that there may be something of it."""
    return FINALIZER in finalizers_of(live)


def waiting(condition: str, reason: str, message: str) -> Condition:
    """Return that something else has to happen first."""
    return false(Cause(condition, INFO, reason), message)


def reported(condition: Condition, fields: Mapping[str, JSON]) -> Outcome:
    """Return that the object's status says this, and nothing else happens."""
    return Outcome(decision=Decision(conditions=(condition,), fields=fields))


def _finalizers(cluster: str, kind: Kind, live: Manifest, *, add: bool) -> Task:
    rest = [one for one in finalizers_of(live) if one != FINALIZER]
    wanted = [*rest, FINALIZER] if add else rest
    return Task((modification(cluster, kind, live, metadata={"finalizers": wanted}),))

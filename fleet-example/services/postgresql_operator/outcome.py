"""What follows from one look at one object: work in PostgreSQL, then writes in the cluster. Pure.

Work can be done again: each kind of it ends in a state, whatever was there before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from postgresql_operator.wire import FINALIZER
from reconciler.core.conditions import INFO, Cause, Condition, false
from reconciler.core.decision import NOTHING, Decision, Task, modification
from reconciler.core.manifest import JSON, Manifest, finalizers_of
from reconciler.core.refs import Kind
from reconciler.core.secret import Secret

PENDING: Final = "Pending"
READY: Final = "Ready"
DELETING: Final = "Deleting"
RUNNING: Final = "Running"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"


@dataclass(frozen=True, slots=True)
class Provision:
    """There is this database, with an owner of the same name; nobody else gets in.

    Only a `new` one is made; one that was there and is lost meanwhile is not made again empty.
    `connections` is how many sessions it takes, `about` what it is to a person who finds it.
    """

    database: str
    connections: int
    about: str
    new: bool


@dataclass(frozen=True, slots=True)
class Deprovision:
    """There is neither the database nor its owner, whoever is connected."""

    database: str


@dataclass(frozen=True, slots=True)
class LetIn:
    """The role logs in with this password, acts as the owner of the database, and may no more."""

    role: str
    database: str
    password: Secret


@dataclass(frozen=True, slots=True)
class ShutOut:
    """There is no such role and no session of it; what it made belongs to the owner."""

    role: str


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
class Place:
    """Where clients find the server."""

    host: str
    port: int


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
    """Tell whether the object waits for us, so that there may be something of it."""
    return FINALIZER in finalizers_of(live)


def waiting(condition: str, reason: str, message: str) -> Condition:
    """Return that something else has to happen first."""
    return false(Cause(condition, INFO, reason), message)


def told(condition: Condition, fields: Mapping[str, JSON]) -> Outcome:
    """Return that the object's status says this, and nothing else happens."""
    return Outcome(decision=Decision(conditions=(condition,), fields=fields))


def _finalizers(cluster: str, kind: Kind, live: Manifest, *, add: bool) -> Task:
    rest = [one for one in finalizers_of(live) if one != FINALIZER]
    wanted = [*rest, FINALIZER] if add else rest
    return Task((modification(cluster, kind, live, metadata={"finalizers": wanted}),))

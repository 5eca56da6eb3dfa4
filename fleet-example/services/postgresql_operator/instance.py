"""How a Postgresql is served: a database while it is there, and when the database goes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from postgresql_operator.outcome import (
    DELETING,
    FAILED,
    READY,
    Outcome,
    hold,
    holds,
    release,
    told,
    waiting,
)
from postgresql_operator.wire import POSTGRESQL, database_of, key_of, phase_of
from postgresql_server.works import Deprovision, Place, Provision
from reconciler.core.conditions import ERROR, Cause, false, true
from reconciler.core.decision import Decision, Note
from reconciler.core.manifest import Manifest, get_int, get_text, is_deleting

PROVISIONED: Final = "Provisioned"
RELEASED: Final = "Released"
RESYNC: Final = timedelta(minutes=10)
_CONNECTIONS: Final = 20
_LOST: Final = (
    "the database {} was there and is not any more. It is not made again empty: bring it back, or "
    "delete this object and make another"
)
_RETAINED: Final = "the database {} stays, as spec.deletionPolicy says Retain"


@dataclass(frozen=True, slots=True)
class Seen:
    """`exists`: its database is there. `holders` are the ServiceBindings that may use it, by name.

    `dumping` are the Backups of it that have not ended. Both only matter once it is being deleted.
    """

    cluster: str
    instance: Manifest = field(repr=False)
    place: Place
    exists: bool
    holders: Sequence[str] = ()
    dumping: Sequence[str] = ()


def is_ready(instance: Manifest | None) -> bool:
    """Tell whether a Postgresql has a database to use, dump and restore, also while it goes."""
    if instance is None or phase_of(instance) not in (READY, DELETING):
        return False
    return get_text(instance, "status", "database") == database_of(instance)


def decide(seen: Seen) -> Outcome:
    """Return what is to be done for the object as it is now."""
    instance = seen.instance
    if is_deleting(instance):
        return _leaves(seen) if holds(instance) else Outcome()
    if not holds(instance):
        return hold(seen.cluster, POSTGRESQL, instance)
    database = database_of(instance)
    known = get_text(instance, "status", "database") == database
    if known and not seen.exists:
        lost = false(Cause(PROVISIONED, ERROR, "DatabaseLost"), _LOST.format(database))
        return told(lost, {"phase": FAILED})
    news = Note("Provisioned", f"the database {database} is there")
    about = f"Postgresql {key_of(instance)}"
    return Outcome(
        works=(Provision(database, _connections(instance), about, new=not known),),
        decision=Decision(
            conditions=(true(PROVISIONED),),
            fields={
                "phase": READY,
                "host": seen.place.host,
                "port": seen.place.port,
                "database": database,
            },
            notes=() if phase_of(instance) == READY else (news,),
            again=RESYNC,
        ),
    )


def _leaves(seen: Seen) -> Outcome:
    instance, database = seen.instance, database_of(seen.instance)
    policy = get_text(instance, "spec", "deletionPolicy")
    letting_go = Decision((release(seen.cluster, POSTGRESQL, instance),))
    if policy == "Retain":
        note = Note("Retained", _RETAINED.format(database), action="Delete")
        return Outcome(decision=replace(letting_go, notes=(note,)))
    if policy != "Immediate" and seen.holders:
        names = ", ".join(sorted(seen.holders))
        why = f"the database stays until these ServiceBindings are deleted: {names}"
        return _stays("StillBound", why)
    can_be_dumped = seen.exists and get_text(instance, "status", "database") == database
    if policy != "Immediate" and can_be_dumped and seen.dumping:
        names = ", ".join(sorted(seen.dumping))
        return _stays("StillDumping", f"the database stays until these Backups have ended: {names}")
    note = Note("Deprovisioned", f"the database {database} is deleted", action="Delete")
    return Outcome((Deprovision(database),), replace(letting_go, notes=(note,)))


def _stays(reason: str, why: str) -> Outcome:
    note = Note(reason, why, type="Warning", action="Delete")
    kept = told(waiting(RELEASED, reason, why), {"phase": DELETING})
    return replace(kept, decision=replace(kept.decision, notes=(note,)))


def _connections(instance: Manifest) -> int:
    return get_int(instance, "spec", "connections") or _CONNECTIONS

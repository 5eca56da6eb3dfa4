"""How a Postgresql is served: a database while it is there, and when the database goes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from postgresql_operator.outcome import (
    DELETING,
    FAILED,
    READY,
    Outcome,
    hold,
    holds,
    release,
    reported,
    waiting,
)
from postgresql_operator.wire import CLAIM, POSTGRESQL, database_of, key_of, phase_of
from postgresql_server.works import Deprovision, Place, Provision
from reconciler.core import conditions
from reconciler.core.conditions import ERROR, FALSE, Cause, Condition, false, true
from reconciler.core.decision import Decision, Note, Patch, Task, preconditions_of
from reconciler.core.manifest import Manifest, get_int, get_text, is_deleting, ref_of

PROVISIONED: Final = "Provisioned"
RELEASED: Final = "Released"
RESYNC: Final = timedelta(minutes=10)
_CONNECTIONS: Final = 20
_NAMED: Final = 10  # of what holds a database
_LOST: Final = (
    "the database {} was there and is not any more. It is not made again empty: bring it back, or "
    "delete this object and make another"
)
_RETAINED: Final = "the database {} stays, as spec.deletionPolicy says Retain"


@dataclass(frozen=True, slots=True)
class Seen:
    """`exists`: its database is there. `holders` are the ServiceBindings that may use it, by name.

    `dumping` are the Backups of it that have not ended; `claim` is what it is a part of. They only
    matter once it is being deleted.
    """

    cluster: str
    instance: Manifest = field(repr=False)
    place: Place
    exists: bool
    holders: Sequence[str] = ()
    dumping: Sequence[str] = ()
    claim: Manifest | None = field(default=None, repr=False)


def is_ready(instance: Manifest | None) -> bool:
    """Return whether a Postgresql has a database to use, dump and restore, also while it goes."""
    if instance is None or phase_of(instance) not in (READY, DELETING):
        return False
    return get_text(instance, "status", "database") == database_of(instance)


def decide(seen: Seen, *, now: datetime) -> Outcome:
    """Return what is to be done for the object as it is now."""
    instance = seen.instance
    if is_deleting(instance):
        return _leaves(seen, now) if holds(instance) else Outcome()
    if not holds(instance):
        return hold(seen.cluster, POSTGRESQL, instance)
    database = database_of(instance)
    known = get_text(instance, "status", "database") == database
    if known and not seen.exists:
        lost = false(Cause(PROVISIONED, ERROR, "DatabaseLost"), _LOST.format(database))
        return reported(lost, {"phase": FAILED})
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


def _leaves(seen: Seen, now: datetime) -> Outcome:
    instance, database = seen.instance, database_of(seen.instance)
    policy = get_text(instance, "spec", "deletionPolicy")
    letting_go = Decision((release(seen.cluster, POSTGRESQL, instance),))
    if policy == "Retain":
        note = Note("Retained", _RETAINED.format(database), action="Delete")
        return Outcome(decision=replace(letting_go, notes=(note,)))
    if policy != "Immediate" and seen.holders:
        why = "the database stays until these ServiceBindings are deleted"
        return _stays(seen, now, "StillBound", f"{why}: {_listed(seen.holders)}")
    can_be_dumped = seen.exists and get_text(instance, "status", "database") == database
    if policy != "Immediate" and can_be_dumped and seen.dumping:
        why = "the database stays until these Backups have ended"
        return _stays(seen, now, "StillDumping", f"{why}: {_listed(seen.dumping)}")
    note = Note("Deprovisioned", f"the database {database} is deleted", action="Delete")
    return Outcome((Deprovision(database),), replace(letting_go, notes=(note,)))


def _stays(seen: Seen, now: datetime, reason: str, why: str) -> Outcome:
    note = Note(reason, why, type="Warning", action="Delete")
    kept = reported(waiting(RELEASED, reason, why), {"phase": DELETING})
    passed_on = _passed_on(seen, Condition(RELEASED, FALSE, reason=reason, message=why), now)
    return replace(kept, decision=replace(kept.decision, tasks=passed_on, notes=(note,)))


def _passed_on(seen: Seen, condition: Condition, now: datetime) -> tuple[Task, ...]:
    """Say it in the status of the claim, too: Crossplane carries none up while that is deleted.

    From there it comes down to the developer who waits.
    """
    claim = seen.claim
    if claim is None or not is_deleting(claim):
        return ()
    said = conditions.of(claim)
    after = conditions.set_condition(said, condition, now=now)
    if after == conditions.ordered(said):
        return ()
    status: Manifest = {"conditions": conditions.dump(after)}
    body: Manifest = {"metadata": preconditions_of(claim), "status": status}
    return (Task((Patch(ref_of(seen.cluster, CLAIM, claim), body, subresource="status"),)),)


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(sorted(names)[:_NAMED])
    more = len(names) - _NAMED
    return f"{listed} and {more} more" if more > 0 else listed


def _connections(instance: Manifest) -> int:
    return get_int(instance, "spec", "connections") or _CONNECTIONS

"""How a Backup and a Restore are served: each runs once, when it can. Pure.

What was begun and not ended is begun again, so a crash in the middle only costs time. A Restore
that had its effect is marked as done before anything else can fail.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from postgresql_operator.instance import is_ready
from postgresql_operator.outcome import (
    COMPLETED,
    FAILED,
    PENDING,
    RUNNING,
    Discard,
    Dump,
    Load,
    Outcome,
    Work,
    hold,
    holds,
    release,
    reported,
    waiting,
)
from postgresql_operator.wire import BACKUP, RESTORE, database_of, job_of, phase_of
from postgresql_server.works import ShutOut
from reconciler.core.conditions import ERROR, Cause, false, true
from reconciler.core.decision import Decision, Note
from reconciler.core.manifest import JSON, Manifest, get_text, is_deleting, uid_of
from reconciler.core.refs import Kind
from reconciler.core.times import format_time

DONE: Final = "Completed"  # the condition
_ENDED: Final = (COMPLETED, FAILED)
_AT_ONCE: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class SeenBackup:
    """`size` is that of its file in bytes, None where there is none."""

    cluster: str
    backup: Manifest = field(repr=False)
    instance: Manifest | None = field(repr=False)
    size: int | None


@dataclass(frozen=True, slots=True)
class SeenRestore:
    """`source` is the Backup, `readable` tells whether its file is there, `done` whether it ran."""

    cluster: str
    restore: Manifest = field(repr=False)
    instance: Manifest | None = field(repr=False)
    source: Manifest | None = field(repr=False)
    readable: bool
    done: bool


def decide_backup(seen: SeenBackup, *, now: datetime) -> Outcome:
    """Return what is to be done for a Backup as it is now."""
    backup, instance = seen.backup, seen.instance
    if (usual := _usual(seen.cluster, BACKUP, backup)) is not None:
        return usual
    if seen.size is not None:
        return completed(now, {"size": seen.size})
    if instance is None or not is_ready(instance):
        return _waits("InstanceNotReady", _not_ready(backup))
    return _runs(backup, Dump(uid_of(backup), job_of(backup), database_of(instance)))


def decide_restore(seen: SeenRestore, *, now: datetime) -> Outcome:
    """Return what is to be done for a Restore as it is now."""
    restore, instance, source = seen.restore, seen.instance, seen.source
    if (usual := _usual(seen.cluster, RESTORE, restore)) is not None:
        return usual
    if seen.done:
        # The run may have ended with its role still there.
        return replace(completed(now, {}), works=(ShutOut(job_of(restore)),))
    if instance is None or not is_ready(instance):
        return _waits("InstanceNotReady", _not_ready(restore))
    wanted = get_text(restore, "spec", "backupRef")
    if source is None or phase_of(source) not in _ENDED:
        return _waits("BackupNotCompleted", f"Backup {wanted} is not there or not completed")
    if phase_of(source) == FAILED or not seen.readable:
        return failed(f"Backup {wanted} failed or its file is gone", now)
    load = Load(uid_of(restore), job_of(restore), uid_of(source), database_of(instance))
    return _runs(restore, load)


def has_ended(live: Manifest) -> bool:
    """Return whether a Backup or Restore came to its end, in one way or the other."""
    return phase_of(live) in _ENDED


def completed(now: datetime, fields: Manifest) -> Outcome:
    """Return that it came to its end, which it does not do twice."""
    said = {"phase": COMPLETED, "finishedAt": format_time(now), **fields}
    note = Note("Completed", "it is done")
    return Outcome(decision=Decision(conditions=(true(DONE),), fields=said, notes=(note,)))


def failed(why: str, now: datetime) -> Outcome:
    """Return that it failed for good; `why` holds no secret."""
    fields: dict[str, JSON] = {"phase": FAILED, "finishedAt": format_time(now)}
    condition = false(Cause(DONE, ERROR, "Failed"), why)
    note = Note("Failed", why, type="Warning")
    return Outcome(decision=Decision(conditions=(condition,), fields=fields, notes=(note,)))


def _usual(cluster: str, kind: Kind, live: Manifest) -> Outcome | None:
    """Return what follows for either kind, None where it should come to run."""
    if is_deleting(live):
        if not holds(live):
            return Outcome()
        works = (ShutOut(job_of(live)), Discard(uid_of(live)))
        return Outcome(works, Decision((release(cluster, kind, live),)))
    if has_ended(live):
        return Outcome()
    return None if holds(live) else hold(cluster, kind, live)


def _runs(live: Manifest, work: Work) -> Outcome:
    """Return that it is said first and done then; what came of it is seen at the next look."""
    if phase_of(live) != RUNNING:
        return reported(waiting(DONE, "Running", "it runs"), {"phase": RUNNING})
    return Outcome((work,), Decision(again=_AT_ONCE))


def _waits(reason: str, why: str) -> Outcome:
    return reported(waiting(DONE, reason, why), {"phase": PENDING})


def _not_ready(live: Manifest) -> str:
    return f"Postgresql {get_text(live, 'spec', 'instanceRef')} is not there or not ready"

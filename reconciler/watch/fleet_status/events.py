"""Decides which Events two states of a fleet after each other are worth, on its FleetStatus."""

from collections.abc import Iterator
from typing import Final

from reconciler.core.decision import Note
from reconciler.core.times import format_time
from reconciler.watch.fleet_state import FleetState, SourceProblem
from reconciler.watch.fleet_status.conditions import held_back, short
from reconciler.watch.fleet_status.texts import cut

_MOST: Final = 10  # of one kind at once
_LONGEST: Final = 900  # bytes of JSON; the API takes 1,024 of text
# What is held has its guards; a lock is that of a run at work.
_NO_FAILURE: Final = frozenset({"done", "nothing", "held", "locked"})


def notes_of(before: FleetState, after: FleetState) -> tuple[Note, ...]:
    """Return what happened from one state to the next, in order. No note holds a Secret."""
    found = (*_source(before, after), *_rounds(before, after), *_guards(before, after))
    return (*found, *_storms(before, after))


def _source(before: FleetState, after: FleetState) -> Iterator[Note]:
    old, new = before.source, after.source
    if new.revision and new.revision != old.revision:
        was = f", after {short(old.revision)}" if old.revision else ""
        by = f", signed by {new.signature.signer}" if new.signature else ""
        yield _note("SourceChanged", f"revision {short(new.revision)}{was}{by}")
    refused = (new.problem, new.refused) != (old.problem, old.refused)
    if new.problem is not SourceProblem.NONE and refused:
        commit = f"revision {short(new.refused)}: " if new.refused else ""
        yield _note("SourceRefused", f"{commit}{new.why}", warning=True)


def _rounds(before: FleetState, after: FleetState) -> Iterator[Note]:
    revision = short(after.source.revision)
    last = after.history[0] if after.history else None
    known = before.history[0].ended_at if before.history else None
    new = last is not None and last.ended_at != known
    if last is not None and new and last.result not in _NO_FAILURE:
        said = f": {last.why}" if last.why else ""
        counts = f"{last.result}, {last.done} done, {last.failed} failed"
        yield _note("ApplyFailed", f"revision {revision}, {counts}{said}", warning=True)
    elif after.applied_at is not None and before.applied_at is None:
        yield _note("Applied", f"revision {revision} is in place")
    elif last is not None and new and last.done:
        yield _note("Applied", f"revision {revision}: {last.done} done again, as they had changed")


def _guards(before: FleetState, after: FleetState) -> Iterator[Note]:
    known = {(one.guard, one.clusters) for one in held_back(before.waiting)}
    tripped = [one for one in held_back(after.waiting) if (one.guard, one.clusters) not in known]
    for one in tripped[:_MOST]:
        yield _note("GuardTripped", f"{one.guard}: {one.message}", warning=True)
    if len(tripped) > _MOST:
        yield _note("GuardTripped", f"and {len(tripped) - _MOST} more", warning=True)


def _storms(before: FleetState, after: FleetState) -> Iterator[Note]:
    known = {(one.cluster, one.object, one.until) for one in before.storms}
    for one in after.storms[:_MOST]:
        if (one.cluster, one.object, one.until) not in known:
            by = one.manager or "another manager"
            said = f"{one.cluster}: {one.object} was repaired {one.repairs} times and changed back "
            rest = f"by {by}; it rests until {format_time(one.until)}"
            yield _note("DriftStorm", f"{said}{rest}", warning=True)


def _note(reason: str, message: str, *, warning: bool = False) -> Note:
    return Note(reason, cut(message, _LONGEST), "Warning" if warning else "Normal")

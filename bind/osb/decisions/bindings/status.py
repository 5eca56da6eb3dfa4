"""Computes the status of a binding: phase, conditions, ids, times, Secret."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from bind.osb.decisions import causes, credentials, record
from bind.osb.decisions.bindings.seen import Seen, is_of_lost, is_same
from bind.osb.decisions.record import Record
from reconciler.blueprints.offering.outcomes import Done
from reconciler.core import conditions
from reconciler.core.conditions import Cause, Condition
from reconciler.core.decision import NOTHING, Decision
from reconciler.core.manifest import JSON, is_deleting
from reconciler.core.times import format_time

PENDING: Final = "Pending"
BINDING: Final = "Binding"
READY: Final = "Ready"
ROTATING: Final = "Rotating"
DELETING: Final = "Deleting"
FAILED: Final = "Failed"


def of(
    seen: Seen,
    *,
    true: Iterable[str] = (),
    false: Iterable[tuple[Cause, str]] = (),
    again: timedelta | None = None,
) -> Decision:
    """Return what a claim's status is to say; conditions that are not named stay."""
    if seen.binding.live is None:
        return replace(NOTHING, again=again)
    stated = [conditions.true(each) for each in true]
    stated += [conditions.false(cause, message) for cause, message in false]
    stated += _validity(seen)
    if is_same(seen):
        message = "the broker gives the same credentials to each binding, so no other follows"
        stated = [each for each in stated if each.type != causes.ROTATED]
        stated.append(conditions.false(causes.SAME_CREDENTIALS, message))
    fields = {"phase": _phase(seen), **_facts(seen)}
    return Decision(conditions=tuple(stated), fields=fields, again=again)


def _validity(seen: Seen) -> Sequence[Condition]:
    """Return whether the credentials that count are past their end, if they have one."""
    current = seen.current
    if current is None:
        return []
    if is_of_lost(seen.view, current):
        message = f"the instance of binding {current.id} was lost, and its credentials with it"
        return [conditions.false(causes.INSTANCE_LOST, message)]
    if current.expires_at is None:
        return conditions.mended(seen.claim, causes.VALID)
    if current.expires_at > seen.now:
        return [conditions.true(causes.VALID)]
    message = f"the credentials of binding {current.id} ended at {format_time(current.expires_at)}"
    return [conditions.false(causes.EXPIRED, message)]


def _phase(seen: Seen) -> str:
    if is_deleting(seen.claim):
        return DELETING
    candidate = seen.candidate
    is_open = candidate is not None and (candidate.is_open or candidate.state == record.PRESENT)
    if seen.current is not None:
        return ROTATING if is_open else READY
    if is_open:
        return BINDING
    intent = candidate.intent if candidate is not None else None
    is_over = intent is not None and intent.closed in (record.REFUSED, record.FAILED)
    return FAILED if is_over else PENDING


def _facts(seen: Seen) -> dict[str, JSON]:
    """Return what is known of a binding; None takes a field away."""
    current, older = seen.current, seen.older
    counts = current or seen.candidate
    facts: dict[str, JSON] = {
        "bindingID": counts.id if counts is not None else None,
        "binding": {"name": credentials.name_of(seen.claim)} if current is not None else None,
        "expiresAt": _time(current.expires_at) if current is not None else None,
        "renewBefore": _time(current.renew_before) if current is not None else None,
        "previous": {"bindingID": older[-1].id, "until": _time(older[-1].leave_at)}
        if older
        else None,
    }
    if current is None:
        facts["endpoints"] = None
    elif older:
        facts["rotatedAt"] = _time(current.made_at)
    return facts


def _time(time: datetime | None) -> str | None:
    return None if time is None else format_time(time)


def projected(seen: Seen, done: Done) -> Sequence[Condition]:
    """Return whether parts of a binding come into no Secret; Ready does not hang on it."""
    if done.ignored:
        message = f"{', '.join(done.ignored)} of the binding can be used by no Secret"
        return [Condition(causes.PROJECTED, conditions.UNKNOWN, "", "NotProjected", message)]
    return conditions.mended(seen.claim, causes.PROJECTED)


def trouble(seen: Seen, cause: Cause, problem: str, *, again: timedelta | None = None) -> Decision:
    """Return the status where no credentials come: those that are there stay as they are."""
    stated = cause if seen.current is None else causes.of_rotation(cause)
    return of(seen, false=[(stated, problem)], again=again)


def waiting(seen: Seen, problem: str, *, again: timedelta | None = None) -> Decision:
    """Return the status while a call waits. A broker that is down changes no Ready."""
    if seen.binding.live is None:
        return replace(NOTHING, again=again)
    if is_deleting(seen.claim):
        return of(seen, false=[(causes.NOT_DELETED, problem)], again=again)
    if seen.current is not None or _has_failed(seen):
        return of(seen, again=again)
    return of(seen, false=[(causes.BIND_WAITS, problem)], again=again)


def _has_failed(seen: Seen) -> bool:
    """Return whether the condition says already why no credentials came, which is worth more."""
    said = conditions.said(seen.claim, causes.BOUND)
    return said is not None and said.severity in (conditions.WARNING, conditions.ERROR)


def begun(seen: Seen) -> Decision:
    """Return the status while a bind is on its way."""
    if seen.current is not None or _has_failed(seen):
        return of(seen)
    return of(seen, false=[(causes.BINDING, "the broker is asked for it")])


def after_failure(seen: Seen, new: Record) -> Decision:
    """Return the status before the next try, or after the last one."""
    intent = new.intent
    assert intent is not None
    if intent.closed == record.FAILED and seen.current is None:
        message = (
            f"{new.number} bindings failed and were deleted again, the last one as said before"
        )
        said = conditions.said(seen.claim, causes.BOUND)
        if said is not None and said.reason == causes.BIND_RETRIES.reason:
            return of(seen, false=[(causes.BIND_FAILED, f"{message}: {said.message}")])
    return of(seen)

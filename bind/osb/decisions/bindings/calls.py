"""The call about a binding that is due, if one is: the same until its outcome is known."""

from dataclasses import replace
from datetime import datetime, timedelta

from bind.osb.decisions import record
from bind.osb.decisions.bindings import outcomes as become
from bind.osb.decisions.bindings import status
from bind.osb.decisions.bindings.seen import Seen, is_of_former, is_still_bound
from bind.osb.decisions.record import Record
from bind.osb.decisions.view import CLOSED, Ask, Next, due, parameters_of
from reconciler.blueprints.offering import messages
from reconciler.core.decision import Decision
from reconciler.core.secret import Secret


def bind(seen: Seen, candidate: Record) -> Next:
    """Ask for a binding, again where the outcome is not known."""
    intent, decision = candidate.intent, status.begun(seen)
    assert intent is not None
    wait = waits(seen, candidate, since=intent.since)
    if wait is None and (seen.view.place is None or seen.has_no_catalogue):
        wait = CLOSED
    if wait is not None:
        return Next(replace(decision, again=wait))
    return Next(decision, Ask(candidate.id, _bind_call(seen, candidate)))


def _bind_call(seen: Seen, candidate: Record) -> messages.Bind:
    """Return the bind; a broker that can rotate is told what it takes the place of."""
    assert seen.view.place is not None
    place, current = seen.view.place, seen.current
    plan = seen.plan(candidate.plan)
    is_rotatable = plan is not None and plan.binding_rotatable
    replaces = (
        current is not None
        and is_rotatable
        and current.instance == candidate.instance
        and not is_of_former(seen.view, current)
    )
    return messages.Bind(
        candidate.instance,
        candidate.id,
        candidate.service,
        candidate.plan,
        app=place.space,
        context=place.context(seen.view.name),
        parameters=parameters_of(seen.claim) or None,
        predecessor=current.id if current is not None and replaces else "",
    )


def poll(seen: Seen, one: Record) -> Next:
    """Ask how far an operation is, when that is due. One past its deadline is decided without.

    But no bind is, because its record may be old, and its credentials in use for long.
    """
    operation = one.operation
    assert operation is not None
    is_late = operation.deadline <= seen.now
    if is_late and one.state != record.INTENDED:
        return become.failed(seen, one, "it took too long")
    decision = status.of(seen)
    wait = waits(seen, one)
    if wait is not None:
        again = wait if is_late else min(wait, operation.deadline - seen.now)
        return Next(replace(decision, again=again))
    return Next(decision, Ask(one.id, _last_operation(one, operation.plan, operation.key)))


def _last_operation(one: Record, plan: str, key: Secret | None) -> messages.LastOperation:
    return messages.LastOperation(one.instance, one.service, plan, key, binding=one.id)


def unbind(seen: Seen, leaving: Record) -> Next:
    """Have a binding deleted at the broker, until that is confirmed."""
    operation = leaving.operation
    if operation is not None and not is_still_bound(leaving):
        return poll(seen, leaving)
    decision = status.of(seen)
    wait = waits(seen, leaving)
    if wait is not None:
        return Next(replace(decision, again=wait))
    if seen.pause(leaving).misses:  # it was busy: some brokers go on only while they are asked
        key = operation.key if operation is not None else None
        return Next(decision, Ask(leaving.id, _last_operation(leaving, leaving.plan, key)))
    call = messages.Unbind(leaving.instance, leaving.id, leaving.service, leaving.plan)
    return Next(decision, Ask(leaving.id, call))


def fetch(seen: Seen, one: Record, decision: Decision) -> Next:
    """Read a binding with its credentials, when that is due."""
    wait = waits(seen, one)
    if wait is not None:
        return Next(replace(decision, again=wait))
    call = messages.FetchBinding(one.instance, one.id, one.service, one.plan)
    return Next(decision, Ask(one.id, call))


def waits(seen: Seen, one: Record, *, since: datetime | None = None) -> timedelta | None:
    """Return how long a call waits, None where it is due."""
    pause = seen.pause(one)
    if since is not None and since > seen.now:
        return since - seen.now
    if not due(pause, seen.now):
        assert pause.until is not None
        return pause.until - seen.now
    return CLOSED if seen.broker is None or seen.broker.closed else None

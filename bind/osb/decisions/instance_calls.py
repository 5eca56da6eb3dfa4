"""The call about an instance that is due, if one is: the same until its outcome is known."""

from dataclasses import replace
from datetime import datetime

from bind.osb.decisions import causes, instance_status, record
from bind.osb.decisions import instance_wants as wants
from bind.osb.decisions.instance_moves import InstanceMoves
from bind.osb.decisions.record import Intent, Record, Sent
from bind.osb.decisions.view import Ask, InstanceView, Next, Pause, parameters_of, soon
from reconciler.blueprints.offering import messages


def send(  # noqa: PLR0911 - a row each
    view: InstanceView, current: Record, intent: Intent, now: datetime
) -> Next:
    """Send what an intent says, again where its outcome is not known."""
    target = wants.wanted(view, current.sent)
    pause = view.pause(current)
    decision = instance_status.begun(view, current, intent)
    if intent.since > now and not wants.is_as_wanted(intent.target, target):
        # It was never sent: what the claim says now is sent in its place, at once.
        changed = replace(intent, since=now, target=target)
        return soon(
            record.changed(current, intent=changed, plan=target.plan, asked=wants.asked(view))
        )
    if intent.verb == "Update" and not wants.is_as_wanted(intent.target, target):
        # Nobody knows whether the earlier wish was sent, so all of this one is.
        unknown = Sent(current.plan if current.sent is None else current.sent.plan)
        changed = replace(intent, target=target)
        return soon(record.changed(current, intent=changed, sent=unknown, asked=wants.asked(view)))
    wait = InstanceMoves(view, current, now).wait(intent.since)
    waits = None if wait is None else Next(replace(decision, again=wait))
    if (held := waits or _held(view, current, intent, target)) is not None:
        return held
    if intent.verb == "Update":
        return Next(decision, Ask(current.id, _update_call(view, current, intent, pause, target)))
    if pause.questions > 1:
        read = messages.FetchInstance(current.instance, current.service, current.plan)
        return Next(decision, Ask(current.id, read))
    if pause.questions or not wants.is_as_wanted(intent.target, target):
        call = messages.LastOperation(current.instance, current.service, current.plan)
        return Next(decision, Ask(current.id, call))
    return Next(decision, Ask(current.id, _provision_call(view, current, intent)))


def _held(view: InstanceView, current: Record, intent: Intent, target: Sent) -> Next | None:
    """Hold what the plan refuses back, unless it may have been sent: then that is found out."""
    is_update = intent.verb == "Update"
    if intent.tries:
        return None
    problem = wants.invalid(view, target, current.sent if is_update else None)
    cause = causes.UPDATE_INVALID if is_update else causes.INVALID
    phase = instance_status.READY if is_update else instance_status.PENDING
    held = instance_status.of(view, current, phase=phase, false=[(cause, problem)])
    return Next(held) if problem else None


def remove(view: InstanceView, leaving: Record, now: datetime) -> Next:
    """Have an instance deleted at the broker, until that is confirmed."""
    moves = InstanceMoves(view, leaving, now)
    if leaving.operation is not None:
        return moves.poll()
    call = messages.Deprovision(leaving.instance, leaving.service, leaving.plan)
    return moves.asks(instance_status.leaving(view, leaving), call)


def _provision_call(view: InstanceView, current: Record, intent: Intent) -> messages.Call:
    assert view.live is not None
    assert view.place is not None
    return messages.Provision(
        instance=current.instance,
        service=current.service,
        plan=intent.target.plan,
        organization=view.place.cluster,
        space=view.place.space,
        context=view.place.context(view.name),
        parameters=parameters_of(view.live) or None,
        maintenance=intent.target.maintenance,
    )


def _update_call(
    view: InstanceView, current: Record, intent: Intent, pause: Pause, target: Sent
) -> messages.Call:
    """Return the update; where an earlier one may have been done, what reads the instance."""
    sent = current.sent or Sent(current.plan)
    if intent.tries and pause.tried != intent.tries and wants.is_retrievable(view):
        return messages.FetchInstance(current.instance, current.service, current.plan)
    assert view.live is not None
    assert view.place is not None
    place, whole = view.place, not sent.digest or wants.drifts(view)
    differs = whole or target.digest != sent.digest
    return messages.Update(
        instance=current.instance,
        service=current.service,
        plan=target.plan,
        parameters=wants.changeable(view, target.plan) if differs else None,
        context=place.context(view.name),
        maintenance=target.maintenance if whole or target.maintenance != sent.maintenance else "",
        previous=messages.Previous(sent.plan, place.cluster, place.space, sent.maintenance),
    )

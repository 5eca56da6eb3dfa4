"""Decides about one ServiceInstance: which call is next, and what follows from its answer.

All is kept where provider-anynines keeps it, so that either goes on after the other: the ids and
the state in `status.atProvider`, an operation in `status.pendingOperation`, which is empty where
the broker gave it no key. The ids stand there before the first call. So a call that may have been
lost is made again, with the same id; and what was never asked for is not deleted.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from bind.osb import engine
from bind.osb.dataservices import managed, rules
from bind.osb.dataservices.managed import AVAILABLE, CREATING, DELETING, UNAVAILABLE
from bind.osb.dataservices.rules import Sent
from bind.osb.decisions.view import deletion_of
from reconciler.blueprints.offering import messages, validation
from reconciler.blueprints.offering.catalogue import Offering, Plan
from reconciler.core import manifest
from reconciler.core.decision import NOTHING, Decision
from reconciler.core.secret import Secret

if TYPE_CHECKING:
    from reconciler.core.manifest import JSON

from collections.abc import Sequence
from typing import Final

from bind.osb.decisions.record import identifier
from reconciler.core import keys
from reconciler.core.manifest import Manifest

# Words of the original, in `state`.
PROVISIONED: Final = ("provisioned", "available")
UNDER_WAY: Final = ("created", "deploying")


@dataclass(frozen=True, slots=True)
class Seen(rules.OfBroker):
    """One ServiceInstance. `bound` names the ServiceBindings that hold credentials of it."""

    bound: Sequence[str] = ()

    @property
    def state(self) -> str:
        """Its state, in words of the original."""
        return manifest.get_text(self.at_provider, "state")

    @property
    def id(self) -> str:
        """The id at the broker: what stands there, else its uid."""
        return manifest.get_text(self.at_provider, "instanceId") or self.uid

    @property
    def pending(self) -> str | None:
        """The key of the operation that goes on, None where none does."""
        return pending_of(self.live)

    @property
    def number(self) -> int:
        """Which one it is of those that were made for this object."""
        numbers = range(1, 100)
        return next((one for one in numbers if identifier(self.uid, one) == self.id), 0)

    @property
    def next_id(self) -> str:
        """The id of what would be made after it."""
        return identifier(self.uid, self.number + 1)

    @property
    def sent(self) -> rules.Sent | None:
        """What was asked for last, None where its status says it."""
        return rules.sent(self)

    @property
    def asks_again(self) -> bool:
        """Whether the user asks for another try that was not made yet."""
        last = self.sent
        return self.retry != ("" if last is None else last.retry)

    @property
    def was_there(self) -> bool:
        """Whether it was ever provisioned, and so may hold data."""
        return bool(manifest.get_text(self.at_provider, "provisionedAt"))

    @property
    def retry(self) -> str:
        """The text by which a user asks for another try."""
        return self.annotations.get(keys.OSB_RETRY, "")


def pending_of(live: Manifest) -> str | None:
    """Return the key of the operation of a ServiceInstance, None where none goes on."""
    held = manifest.get(live, "status", "pendingOperation")
    return held if isinstance(held, str) else None


def is_ready(live: Manifest) -> bool:
    """Tell whether an instance is there, and nothing goes on with it."""
    state = manifest.get_text(live, "status", "atProvider", "state")
    return state in PROVISIONED and pending_of(live) is None and not manifest.is_deleting(live)


Step: TypeAlias = Decision | messages.Call


@dataclass(frozen=True, slots=True)
class _Wanted:
    offering: Offering
    plan: Plan
    sent: Sent


def next_step(seen: Seen) -> Step:
    """Return the call that is next, or what follows without any."""
    if (framed := managed.framed(seen)) is not None:
        return framed
    if seen.rest and seen.catalogue is None:
        return Decision(again=seen.rest, sums_up=False)
    return _leaving(seen) if seen.is_deleting else _staying(seen)


def _staying(seen: Seen) -> Step:
    if is_polled(seen):
        return seen.paced(last_operation(seen))
    if seen.state in PROVISIONED:
        return _present(seen)
    if seen.state == "failed":
        return _failed(seen)
    if seen.state == "deleted" and (seen.was_there or seen.sent is None):
        return _missing(seen)
    return _absent(seen)


def is_polled(seen: Seen) -> bool:
    """Tell whether the broker is at work on it."""
    return seen.pending is not None or seen.state in UNDER_WAY


def is_retrievable(seen: Seen) -> bool:
    """Tell whether instances of its service can be read."""
    return seen.offering is not None and seen.offering.instances_retrievable


def _wanted(seen: Seen) -> _Wanted | str:
    """Return what the names and parameters mean, or why they mean nothing."""
    if seen.catalogue is None:
        return seen.unread or "The broker's catalogue was never read"
    wanted = seen.wanted
    service = manifest.get_text(wanted, "serviceName")
    known = seen.service_id if seen.state else ""
    found = rules.resolve(
        seen.catalogue, service, manifest.get_text(wanted, "planName"), service_id=known
    )
    if isinstance(found, str):
        return found
    offering, plan = found
    if known and not offering.name.startswith(service):
        return f"The service of an instance cannot be changed: it is one of {offering.name}"
    parameters = manifest.get_map(wanted, "parameters")
    return _Wanted(offering, plan, Sent(plan.id, parameters, seen.retry))


def _leaving(seen: Seen) -> Step:
    if not seen.service_id or (seen.state == "deleted" and not seen.was_there):
        return managed.released(seen, "Forgotten", "The broker was never asked for it")
    is_updating = seen.state in PROVISIONED and seen.now < engine.patient_until(
        seen.now + rules.POLL, deletion_of(seen.live, seen.now)
    )
    if seen.pending is not None and (seen.state == "deleting" or is_updating):
        return seen.paced(last_operation(seen))
    if seen.bound:
        names = ", ".join(sorted(seen.bound))
        return seen.failed(f"It is still bound: {names}", DELETING, again=None)
    return seen.paced(_deprovision(seen))


def _deprovision(seen: Seen) -> messages.Deprovision:
    return messages.Deprovision(seen.id, seen.service_id, seen.plan_id)


def last_operation(seen: Seen) -> messages.LastOperation:
    """Return the call that asks how far it is."""
    operation = Secret(seen.pending) if seen.pending else None
    return messages.LastOperation(seen.id, seen.service_id, seen.plan_id, operation)


def _absent(seen: Seen) -> Step:
    """Ask for an instance, once its ids are written down."""
    wanted = _wanted(seen)
    if isinstance(wanted, str):
        return seen.failed(wanted, CREATING, again=seen.pause())
    if not managed.may(seen.live, "Create"):
        return seen.failed("Its policies do not allow that it is made", CREATING, again=None)
    last = seen.sent
    if last is not None and last.refused and last.asks_for(wanted.sent):
        return NOTHING
    ids: dict[str, JSON] = {
        "instanceId": seen.id,
        "serviceId": wanted.offering.id,
        "planId": wanted.plan.id,
    }
    begins = not seen.is_held or not manifest.covers(seen.at_provider, ids)
    is_new = begins or (last is not None and last.refused)  # else it may be there
    problem = validation.of_create(wanted.plan, wanted.sent.parameters) if is_new else ""
    if problem:
        return seen.failed(problem, CREATING, again=rules.RESYNC)
    if begins:
        return managed.held(seen, ids, CREATING)
    return seen.paced(_provision(seen, wanted))


def _provision(seen: Seen, wanted: _Wanted) -> messages.Provision:
    return messages.Provision(
        seen.id,
        wanted.offering.id,
        wanted.plan.id,
        manifest.get_text(seen.wanted, "organizationGuid"),
        manifest.get_text(seen.wanted, "spaceGuid"),
        context=rules.context(seen),
        parameters=wanted.sent.parameters or None,
    )


def _failed(seen: Seen) -> Step:
    """Delete what could not be made, or begin anew where the user asks for something else.

    What was there once, or was made by somebody else, is never deleted.
    """
    last = seen.sent
    is_proven = last is not None and (last.term == seen.term or seen.asks_again)
    if last is None or seen.was_there or not (is_proven or last.refused):
        return seen.failed("The broker says that it failed", UNAVAILABLE, again=rules.RESYNC)
    if not last.refused:
        return seen.paced(_deprovision(seen))
    wanted = _wanted(seen)
    if isinstance(wanted, str) or last.asks_for(wanted.sent):
        return NOTHING
    anew: dict[str, JSON] = {"state": "", "instanceId": seen.next_id}
    return replace(managed.held(seen, anew, CREATING), again=rules.SOON)


def _missing(seen: Seen) -> Step:
    """Make nothing anew, which would be empty, until the user asks for that."""
    wanted = _wanted(seen)
    if isinstance(wanted, str):
        return seen.failed(wanted, again=seen.pause())
    if seen.asks_again:
        return seen.paced(_provision(seen, wanted))
    if wanted.offering.instances_retrievable:
        return seen.paced(fetch(seen))
    return NOTHING


def fetch(seen: Seen) -> messages.FetchInstance:
    """Return the call that reads it."""
    return messages.FetchInstance(seen.id, seen.service_id, seen.plan_id)


def _present(seen: Seen) -> Step:
    """Change what differs, else look whether the broker agrees."""
    wanted, last = _wanted(seen), seen.sent
    if isinstance(wanted, str):
        return seen.failed(wanted, AVAILABLE, again=seen.pause())
    call = _update(seen, wanted)
    differs = call.plan != seen.plan_id or call.parameters or seen.asks_again
    if differs and managed.may(seen.live, "Update"):
        if last is not None and last.refused and last.asks_for(wanted.sent):
            return NOTHING
        held = manifest.get_map(seen.at_provider, "parameters")
        changed = [
            name for name, value in (call.parameters or {}).items() if value != held.get(name)
        ]
        if problem := validation.of_update(wanted.plan, wanted.sent.parameters, changed):
            return seen.failed(problem, AVAILABLE, again=rules.RESYNC)
        return seen.paced(call)
    if seen.rest or (wanted.offering.instances_retrievable and managed.may(seen.live, "Observe")):
        return seen.paced(fetch(seen))
    return seen.said({}, AVAILABLE, managed.SUCCESS, again=rules.RESYNC)


def _update(seen: Seen, wanted: _Wanted) -> messages.Update:
    held, parameters = seen.plan_id, manifest.get_map(seen.at_provider, "parameters")
    changed = rules.changed_parameters(parameters, wanted.sent.parameters)
    organization = manifest.get_text(seen.wanted, "organizationGuid")
    space = manifest.get_text(seen.wanted, "spaceGuid")
    if seen.asks_again:
        changed = changed or dict(wanted.sent.parameters)
    return messages.Update(
        seen.id,
        wanted.offering.id,
        messages.Previous(held, organization, space),
        plan=wanted.plan.id,
        parameters=changed or None,
        context=rules.context(seen),
    )

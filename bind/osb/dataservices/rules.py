"""Rules of service instances and their bindings: names to ids, what differs, what was sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import orjson

from bind.osb.dataservices import managed, rules
from bind.osb.dataservices.managed import Seen
from reconciler.blueprints.offering import outcomes as answers
from reconciler.blueprints.offering.catalogue import Catalogue, Offering, Plan
from reconciler.blueprints.offering.messages import PLATFORM, OriginatingIdentity
from reconciler.core import keys, manifest
from reconciler.core.decision import Decision
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.times import moment

SOON: Final = timedelta(seconds=1)  # the next step is due
POLL: Final = timedelta(seconds=10)
_SLOWEST_POLL: Final = timedelta(minutes=1)
RESYNC: Final = timedelta(minutes=10)
_LONGEST_REQUEST: Final = timedelta(minutes=10)  # how long a broker may ask to be left alone
BUSY: Final = timedelta(minutes=1)  # after which an operation of others may have ended
DENIED: Final = timedelta(minutes=5)
_LONGEST_OPERATION: Final = timedelta(days=1)
# How long a broker may not know what it accepted, until that counts as failed.
UNKNOWN: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class OfBroker(Seen):
    """What a broker has. `catalogue` is the broker's, None where it was never read: `unread`.

    `confirmed`: the broker itself answered in the last minute, so that a 404 is its own.
    """

    catalogue: Catalogue | None = field(default=None, repr=False)
    confirmed: bool = False
    unread: str = ""

    @property
    def service_id(self) -> str:
        """The id of its service, "" where it was never asked for."""
        return _id(self.at_provider, "service")

    @property
    def plan_id(self) -> str:
        """The id of its plan."""
        return _id(self.at_provider, "plan")

    @property
    def offering(self) -> Offering | None:
        """Its service, None where the catalogue does not have it."""
        return None if self.catalogue is None else self.catalogue.offering(self.service_id)

    @property
    def plan(self) -> Plan | None:
        """Its plan, None where the catalogue does not have it."""
        return None if self.offering is None else self.offering.plan(self.plan_id)


def _id(at_provider: Manifest, of: str) -> str:
    """Return an id, whose name instances and bindings spell otherwise."""
    return manifest.get_text(at_provider, f"{of}Id") or manifest.get_text(at_provider, f"{of}ID")


def resolve(
    catalogue: Catalogue, service: str, plan: str, *, service_id: str = ""
) -> tuple[Offering, Plan] | str:
    """Return what names mean, or why they mean nothing.

    A service is the one of this name, else the only one whose name begins so: some brokers add
    their own to it. What is there keeps its `service_id`, whatever the names have become.
    """
    offering = catalogue.offering(service_id) if service_id else _offering(catalogue, service)
    if offering is None:
        return f"The broker's catalogue has no service with the id {service_id} any more"
    if isinstance(offering, str):
        return offering
    found = next((one for one in offering.plans if one.name == plan), None)
    if found is None:
        names = ", ".join(sorted(one.name for one in offering.plans))
        return f"The service {offering.name} has no plan {plan}; there are: {names}"
    return offering, found


def _offering(catalogue: Catalogue, name: str) -> Offering | str:
    exact = [one for one in catalogue.offerings if one.name == name]
    alike = exact or [one for one in catalogue.offerings if one.name.startswith(name)]
    if len(alike) == 1:
        return alike[0]
    names = ", ".join(sorted(one.name for one in alike or catalogue.offerings))
    if alike:
        return f"Several services have names that begin with {name}: {names}"
    return f"The broker's catalogue has no service {name}; there are: {names}"


@dataclass(frozen=True, slots=True)
class Sent:
    """What a broker was asked for last, as far as the status of the original does not say it.

    `refused`: it said no for good, or nothing came of it. Then the same is not asked again, until
    the plan, the parameters or the annotation osb-retry (`retry`) are others. So many `tries` had
    an unknown outcome; `term` is as that of a BrokerRecord.
    """

    plan: str
    parameters: Mapping[str, JSON] = field(default_factory=dict)
    retry: str = ""
    refused: bool = False
    tries: int = 0
    term: str = ""

    def text(self) -> str:
        """Return it as the annotation has it."""
        wire: dict[str, JSON] = {
            "planId": self.plan,
            "parameters": self.parameters,
            "retry": self.retry,
            "refused": self.refused,
            **({"tries": self.tries} if self.tries else {}),
            **({"term": self.term} if self.term else {}),
        }
        return manifest.canonical(wire).decode()

    def asks_for(self, other: "Sent") -> bool:
        """Tell whether both ask for the same."""
        same = (self.plan, self.retry) == (other.plan, other.retry)
        return same and are_alike(self.parameters, other.parameters)


def sent(seen: Seen) -> Sent | None:
    """Return what the annotation says, None where it says nothing."""
    read = read_json(seen.annotations.get(keys.OSB_SENT, ""))
    if read is None:
        return None
    term = manifest.get_text(read, "term")
    return Sent(
        manifest.get_text(read, "planId"),
        manifest.get_map(read, "parameters"),
        manifest.get_text(read, "retry"),
        manifest.get_bool(read, "refused"),
        manifest.get_int(read, "tries") or 0,
        seen.term if term in seen.terms else term,
    )


def read_json(text: str) -> Manifest | None:
    """Return the object that a text holds, None where it holds none."""
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return read if isinstance(read, dict) else None


def changed_parameters(held: Manifest, wanted: Manifest) -> dict[str, JSON]:
    """Return the parameters that make what is held into what is wanted, {} where it is.

    They are whole; those that are wanted no more are null.
    """
    gone = {key: None for key in held if key not in wanted}
    differ = gone or any(not are_alike(held.get(key), value) for key, value in wanted.items())
    return {**gone, **wanted} if differ else {}


def are_alike(one: JSON, other: JSON) -> bool:
    """Tell whether two parameters say the same; brokers keep lists in an order of their own."""
    return manifest.canonical(_sorted(one)) == manifest.canonical(_sorted(other))


def _sorted(value: JSON) -> JSON:
    if isinstance(value, Mapping):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return sorted(map(_sorted, value), key=manifest.canonical)
    return value


def poll_pause(now: datetime, since: str, asked: timedelta | None) -> timedelta:
    """Return when to ask again how far an operation is that began at a time."""
    if asked is not None:
        return min(max(asked, timedelta(seconds=1)), _LONGEST_REQUEST)
    began = moment(since)
    return POLL if began is None else min(max((now - began) / 2, POLL), _SLOWEST_POLL)


def is_overdue(now: datetime, since: str, plan: Plan | None) -> bool:
    """Tell whether an operation lasts for longer than its plan says, or a day."""
    stated = None if plan is None else plan.maximum_polling_duration
    began = moment(since)
    return began is not None and now - began > (stated or _LONGEST_OPERATION)


def context(seen: Seen) -> dict[str, JSON]:
    """Return what a broker is told about where a request comes from."""
    wanted = seen.wanted
    name = managed.composed_for(seen.live).name or manifest.name_of(seen.live)
    known: dict[str, JSON] = {} if seen.place is None else seen.place.context(name)
    for key, field_name in (("organization_guid", "organizationGuid"), ("space_guid", "spaceGuid")):
        if stated := manifest.get_text(wanted, field_name):
            known[key] = stated
    return {**known, **manifest.get_text_map(wanted, "context")}


def originating_identity(live: Manifest) -> OriginatingIdentity | None:
    """Return on whose behalf an object is served, where it says so as this platform does."""
    stated = manifest.get_map(live, "spec", "forProvider", "originatingIdentity")
    value = read_json(manifest.get_text(stated, "value"))
    platform = manifest.get_text(stated, "platform") or PLATFORM
    return OriginatingIdentity(value) if value is not None and platform == PLATFORM else None


def unusable(seen: managed.Seen, outcome: answers.Outcome) -> Decision | None:
    """Return what follows from an answer that says nothing about what was asked."""
    match outcome:
        case answers.Unsent(problem, retry_after):
            return seen.failed(problem, again=retry_after or seen.pause())
        case answers.Unknown():
            return seen.failed(outcome.problem, again=seen.pause())
        case answers.Denied():
            message = f"The broker does not let us in: {outcome.problem}"
            return seen.failed(message, again=rules.DENIED)
        case answers.Unsupported(problem):
            message = f"The broker does not speak this version of its API: {problem}"
            return seen.failed(message, again=rules.RESYNC)
        case answers.Busy():
            return Decision(again=rules.BUSY, sums_up=False)
    return None


def in_progress(
    seen: managed.Seen, outcome: answers.Outcome, since: str, *ready: managed.Condition
) -> Decision:
    """Return the decision to ask again how far an operation is that began at a time."""
    asked = outcome.retry_after if isinstance(outcome, answers.Progress) else None
    again = rules.poll_pause(seen.now, since, asked)
    if isinstance(outcome, answers.Progress):
        return seen.said({}, *ready, managed.SUCCESS, again=again)
    return seen.failed(refusal(outcome), again=again)


def refusal(outcome: answers.Outcome) -> str:
    """Return the broker's words, or ours where it has none."""
    match outcome:
        case answers.Refused() | answers.Conflict() | answers.MaintenanceConflict():
            return outcome.problem or "The broker refuses without a word"
        case answers.Gone():
            return "The broker says that it is gone"
        case answers.Absent():
            return "The broker does not know it"
    return "The broker answers something else than was asked"

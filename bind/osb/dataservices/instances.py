"""Reads and writes the record of a ServiceInstance in provider-anynines' fields.

The ids and the state are in `status.atProvider`. An operation is in `status.pendingOperation`,
empty if the broker gave no key. An annotation has the last request, and the number of tries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from bind.osb.dataservices import managed, rules
from bind.osb.dataservices.store import Kept, Stated, Store, Turn
from bind.osb.decisions import causes, instance, record
from bind.osb.decisions.record import Intent, Record, State, identifier
from bind.osb.decisions.view import Ask, BindingView, InstanceView, Next, stamped
from reconciler.api.osb import GeneratedKind
from reconciler.blueprints.offering import messages, outcomes
from reconciler.blueprints.offering.catalogue import Offering, Plan
from reconciler.blueprints.offering.messages import Call
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.core import keys, manifest
from reconciler.core.decision import Decision
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.times import format_time, moment

# Words of the original, in `state`.
PROVISIONED: Final = ("provisioned", "available")
UNDER_WAY: Final = ("created", "deploying")
_UNSAID: Final = ("", None)
_FIELDS: Final = (
    *("state", "instanceId", "serviceId", "planId", "parameters"),
    *("createdAt", "provisionedAt", "updatedAt"),
)


@dataclass(frozen=True, slots=True)
class Seen(rules.OfBroker):
    """A ServiceInstance. `bound` names the ServiceBindings with credentials of it."""

    bound: Sequence[str] = ()

    @property
    def state(self) -> str:
        """Its state, in words of the original."""
        return manifest.get_text(self.at_provider, "state")

    @property
    def id(self) -> str:
        """The id at the broker: the noted one, else its uid."""
        return manifest.get_text(self.at_provider, "instanceId") or self.uid

    @property
    def parameters(self) -> Manifest:
        return manifest.get_map(self.wanted, "parameters")

    @property
    def recorded(self) -> Manifest:
        return manifest.get_map(self.at_provider, "parameters")

    @property
    def is_polled(self) -> bool:
        return pending_of(self.live) is not None or self.state in UNDER_WAY

    @property
    def last(self) -> Manifest | None:
        """The last request, where its status does not state it, by its annotation.

        `refused`: the broker said no for good, or nothing came of it: the same is not asked again
        until the spec or the annotation osb-retry (`retry`) is another. So many `tries` had an
        unknown outcome; `term` is as that of a BrokerRecord. `unsure`: another request may have
        been done before, so that nobody knows what there is.
        """
        read = rules.read_json(self.annotations.get(keys.OSB_SENT, ""))
        is_of_us = read is not None and read.get("term") in self.terms
        return {**read, "term": self.term} if read and is_of_us else read

    @property
    def term_of_last(self) -> str:
        """The term in which it was asked for; without an annotation, this one."""
        return self.term if self.last is None else manifest.get_text(self.last, "term")

    @property
    def is_refused(self) -> bool:
        return manifest.get_bool(self.last, "refused")

    def time(self, name: str) -> datetime | None:
        return moment(manifest.get_text(self.at_provider, name))


def pending_of(live: Manifest) -> str | None:
    """Return the key of the operation of a ServiceInstance, None where none goes on."""
    key = manifest.get(live, "status", "pendingOperation")
    return key if isinstance(key, str) else None


def is_ready(live: Manifest) -> bool:
    state = manifest.get_text(live, "status", "atProvider", "state")
    return state in PROVISIONED and pending_of(live) is None and not manifest.is_deleting(live)


class Instances(Store[Seen]):
    """The records in ServiceInstances."""

    failed, stopped = causes.NOT_USABLE, causes.UPDATE_REFUSED

    def present(self, seen: Seen) -> Stated:
        at = {name: one for name in _FIELDS if (one := seen.at_provider.get(name)) not in _UNSAID}
        return Stated(at, seen.marks(keys.OSB_SENT, keys.OSB_ORIGIN), pending_of(seen.live))

    def records(self, seen: Seen) -> tuple[Record, ...]:
        if not seen.service_id:
            return ()
        one = rules.with_object(_with_begun(seen), seen.cluster)
        return (stamped(one, rules.broker_of(seen), seen.terms),)

    def stated(self, seen: Seen, records: tuple[Record, ...]) -> Stated:
        if not records:
            return self.present(seen)
        one, old = max(records, key=lambda each: each.number), self.present(seen)
        at = {**old.at, **_fields(seen, one)}
        if one.instance != seen.id:
            at.pop("createdAt", None)
        if one.state == record.PRESENT and any(
            at.get(name) != old.at.get(name) for name in ("planId", "parameters", "provisionedAt")
        ):
            at["updatedAt"] = format_time(seen.now)
        marks = {**old.annotations, keys.OSB_SENT: _note(seen, one), keys.OSB_ORIGIN: one.origin}
        key = None if one.operation is None else one.operation.key
        pending = None if one.operation is None else "" if key is None else key.reveal()
        if pending is None and _is_leaving(seen, one) and seen.state != "deleting":
            pending = old.pending  # until the DELETE is answered
        return Stated(
            {name: value for name, value in at.items() if value not in _UNSAID},
            {name: mark for name, mark in marks.items() if mark},
            pending,
        )

    def hindrance(self, seen: Seen) -> Decision | None:
        if seen.is_deleting or seen.is_polled:
            return None
        ready = () if seen.state in PROVISIONED else (managed.CREATING,)
        if isinstance(wanted := resolved(seen), str):
            return seen.failed(wanted, *ready, again=seen.pause())
        if seen.state not in PROVISIONED and not managed.may(seen.live, "Create"):
            return seen.failed(managed.NO_CREATE, *ready, again=None)
        return None

    def view(self, seen: Seen, kept: Kept) -> InstanceView:
        wanted, service, plans = resolved(seen), seen.service_id, {"": seen.plan_id}
        spec: dict[str, JSON] = {"plan": "", "parameters": rules.in_order(seen.recorded)}
        is_there = seen.state in PROVISIONED
        if not isinstance(wanted, str) and not (is_there and not managed.may(seen.live, "Update")):
            service, plans = wanted[0].id, {wanted[1].name: wanted[1].id}
            spec = {"plan": wanted[1].name, "parameters": rules.in_order(seen.parameters)}
        kind = GeneratedKind(seen.kind, managed.config_name(seen.live), service, plans)
        names = ({"metadata": {"name": name}} for name in seen.bound)
        bound = tuple(BindingView(seen.cluster, kind, one) for one in names)
        live = rules.dressed(seen.live, kept.conditions, spec)
        return rules.view_of(seen, kind, live, kept.records, bound, kept.pauses)

    def look(self, seen: Seen, kept: Kept) -> Next:
        return instance.look(replace(self.view(seen, kept), free=True))

    def answered(self, seen: Seen, kept: Kept, ask: Ask, outcome: Outcome) -> Turn:
        if isinstance(outcome, outcomes.Done) and outcome.parameters is not None:
            outcome = replace(outcome, parameters=rules.in_order(outcome.parameters))
        return Store.answered(self, seen, kept, ask, outcome)

    def call(self, seen: Seen, call: Call) -> Call:
        organization = manifest.get_text(seen.wanted, "organizationGuid")
        space = manifest.get_text(seen.wanted, "spaceGuid")
        if isinstance(call, messages.Provision):
            of = replace(call, organization=organization, space=space, context=rules.context(seen))
            return replace(of, parameters=seen.parameters or None)
        if not isinstance(call, messages.Update):
            return call
        changed = rules.changed_parameters(seen.recorded, seen.parameters) or call.parameters
        previous = messages.Previous(seen.plan_id, organization, space)
        return replace(call, previous=previous, context=rules.context(seen), parameters=changed)


INSTANCES: Final = Instances()


def resolved(seen: Seen) -> tuple[Offering, Plan] | str:
    """Return the ids of the names, or the reason why there are none."""
    if seen.catalogue is None:
        return seen.unread
    service = manifest.get_text(seen.wanted, "serviceName")
    known = seen.service_id if seen.state else ""
    plan = manifest.get_text(seen.wanted, "planName")
    found = rules.resolve(seen.catalogue, service, plan, service_id=known)
    if known and not isinstance(found, str) and not found[0].name.startswith(service):
        return f"The service of an instance cannot be changed: it is one of {found[0].name}"
    return found


def _state(seen: Seen) -> State:
    """Return the state of a record, in the word of the original.

    What failed is left to be deleted only where it surely has no data.
    """
    was_there = seen.time("provisionedAt") is not None
    is_left = seen.last is not None and not (seen.is_refused or was_there)
    is_ours = is_left and seen.term_of_last == seen.term
    match seen.state:
        case "provisioned" | "available":
            return record.PRESENT
        case "deleted" if was_there or seen.last is None:
            return record.PRESENT  # it is missing
        case "failed" if is_ours:
            return record.LEAVING
        case "deleting" if is_ours or seen.is_deleting:
            return record.LEAVING
    return record.INTENDED


def _with_begun(seen: Seen) -> Record:
    one = replace(
        rules.record_of(seen, record.INSTANCE, seen.id, seen.id),
        state=_state(seen),
        number=next((one for one in range(100) if identifier(seen.uid, one) == seen.id), 0),
        asked=manifest.get_text(seen.last, "retry"),
        made_at=seen.time("provisionedAt"),
        term=seen.term_of_last,
    )
    since = {record.PRESENT: "updatedAt", record.INTENDED: "createdAt"}.get(one.state, "")
    if seen.is_polled:
        key = pending_of(seen.live) or ""
        one = replace(one, operation=rules.operation_of(seen, key, one.plan, seen.time(since)))
    tries, refused = manifest.get_int(seen.last, "tries") or 0, seen.is_refused
    target = _sent(seen, seen.plan_id, seen.parameters)
    if seen.last is not None:
        plan = manifest.get_text(seen.last, "planId")
        target = _sent(seen, plan, manifest.get_map(seen.last, "parameters"))
    if seen.state == "failed" and not refused:
        tries, refused = max(tries, 1), True  # nobody knows whether it has data
        wanted = resolved(seen)
        plan = seen.plan_id if isinstance(wanted, str) else wanted[1].id
        target = _sent(seen, plan, seen.parameters)
    closed = (record.FAILED if tries else record.REFUSED) if refused and not seen.is_polled else ""
    intent = Intent("Provision", seen.now, target, tries, closed, seen.offered)
    sent = record.Sent(seen.plan_id)  # nobody knows with which parameters
    is_unsure = manifest.get_bool(seen.last, "unsure")
    if not is_unsure and (seen.recorded or not seen.parameters):
        sent = _sent(seen, seen.plan_id, seen.recorded)
    match one.state:
        case record.LEAVING:
            return one
        case record.PRESENT if seen.state == "deleted":
            missing = replace(intent, target=sent, tries=0, closed=record.MISSING)
            return replace(one, sent=sent, intent=missing)
        case record.PRESENT:
            is_open = one.operation is not None or closed or intent.target != sent
            return replace(
                one, sent=sent, intent=replace(intent, verb="Update") if is_open else None
            )
    if seen.state == "failed" and not tries:
        new, intent = identifier(seen.uid, one.number + 1), replace(intent, closed=record.FAILED)
        return replace(one, id=new, instance=new, number=one.number + 1, intent=intent)
    begun = seen.time("createdAt")
    if tries and (refused or begun is not None):
        one = replace(one, made_at=one.made_at or begun or seen.now)  # it may have data
    return replace(one, intent=intent)


def _sent(seen: Seen, plan: str, parameters: Mapping[str, JSON]) -> record.Sent:
    ordered, salt = rules.in_order(parameters), seen.uid
    return record.Sent(plan, record.digest_of(salt, ordered), "", record.digests_of(salt, ordered))


def _parameters(seen: Seen, sent: record.Sent) -> dict[str, JSON]:
    for one in (seen.recorded, manifest.get_map(seen.last, "parameters"), seen.parameters):
        if record.digest_of(seen.uid, rules.in_order(one)) == sent.digest:
            return dict(one)
    return {}


def _is_leaving(seen: Seen, one: Record) -> bool:
    """Return whether it goes with its object: until that is answered, its status stays."""
    return seen.is_deleting and one.state == record.LEAVING


def _fields(seen: Seen, one: Record) -> dict[str, JSON]:
    """Return the fields of `status.atProvider` for a record."""
    word = _word(seen, one)
    fields: dict[str, JSON] = {"instanceId": one.instance, "serviceId": one.service}
    fields |= {"planId": one.plan, "state": word}
    if word == "failed" and one.state == record.INTENDED and one.instance != seen.id:
        fields["instanceId"] = identifier(seen.uid, one.number - 1)
    if one.operation is not None and one.state != record.LEAVING:
        name = "updatedAt" if one.state == record.PRESENT else "createdAt"
        fields[name] = format_time(one.operation.since)
    if one.state != record.PRESENT or one.sent is None:
        return fields
    parameters = _parameters(seen, one.sent)
    if parameters or seen.recorded or seen.state not in PROVISIONED:
        fields["parameters"] = parameters
    if one.made_at is not None:
        fields["provisionedAt"] = format_time(one.made_at)
        fields["createdAt"] = seen.at_provider.get("createdAt") or fields["provisionedAt"]
    return fields


def _word(seen: Seen, one: Record) -> str:
    """Return the original's word for the state of a record; a synonym stays."""
    state, closed = seen.state, "" if one.intent is None else one.intent.closed
    if one.state == record.LEAVING:
        stays = one.operation is None and (state == "deleting" or seen.is_deleting)
        return state if stays else "failed" if one.operation is None else "deleting"
    if one.state == record.PRESENT:
        there = state if state in PROVISIONED else "provisioned"
        return "deleted" if closed == record.MISSING else there
    if one.operation is not None:
        return state if state in UNDER_WAY else "deploying"
    is_last = one.number and closed == record.FAILED and one.made_at is None
    if is_last or (state == "failed" and closed == record.FAILED):
        return "failed"
    return "deleted" if one.number and not closed else ""


def _note(seen: Seen, one: Record) -> str:
    """Return the annotation for a record, "" where the status holds all of it."""
    last, note = seen.last, seen.annotations.get(keys.OSB_SENT, "")
    intent, target, closed = one.intent, one.sent, ""
    tries = 0 if seen.is_refused else manifest.get_int(last, "tries")  # of a finished operation
    if intent is not None:
        closed, tries, target = intent.closed, intent.tries, intent.target
    if target is None:
        target = _sent(
            seen,
            one.plan,
            seen.parameters if last is None else manifest.get_map(seen.last, "parameters"),
        )
    refused = closed in (record.REFUSED, record.FAILED)
    wanted: dict[str, JSON] = {
        "planId": target.plan,
        "parameters": _parameters(seen, target),
        "retry": one.asked,
        "refused": refused,
        **({"tries": tries} if tries else {}),
        **({"unsure": True} if one.sent is not None and not one.sent.digest else {}),
        **({"term": one.term} if one.term else {}),
    }
    # Before it is asked for: an edit may come between a death and the answer.
    is_open = intent is not None and not intent.closed and one.operation is None
    is_begun = is_open or last is not None or one.state == record.LEAVING
    is_failed = seen.state == "failed" and closed == record.FAILED and one.instance == seen.id
    is_kept = wanted == last or (is_failed and not seen.is_refused)
    stays = is_kept or not is_begun or _is_leaving(seen, one)
    return note if stays else manifest.canonical(wanted).decode()

"""Reads and writes the records of a ServiceBinding in provider-anynines' fields.

The first binding has the uid of the object as its id; which others there are, and an operation,
stands in annotations. Its Secret is a connection Secret of Crossplane.
"""

import base64
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Final

from bind.osb.dataservices import connection, instances, managed, rules
from bind.osb.dataservices.connection import CREATED, Ledger, Seen
from bind.osb.dataservices.instances import INSTANCES
from bind.osb.dataservices.store import Kept, Stated, Store
from bind.osb.decisions import binding, causes, credentials, record
from bind.osb.decisions import binding_state as look_of
from bind.osb.decisions.record import Intent, Record, identifier
from bind.osb.decisions.view import BindingView, InstanceView, Next, ReadSecret, SecretForm
from reconciler.api.osb import GeneratedKind
from reconciler.blueprints.offering import messages, outcomes
from reconciler.blueprints.offering.messages import Call
from reconciler.blueprints.offering.outcomes import Outcome
from reconciler.core import conditions, keys, manifest
from reconciler.core.decision import Decision
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.times import format_time, moment

_WAS_READY: Final = (managed.AVAILABLE.reason, managed.MISSING.reason)
_MARKS: Final = (keys.OSB_BINDINGS, keys.OSB_OPERATION, keys.BINDING_CREATED, keys.OSB_ORIGIN)
_IDS: Final = ("instanceId", "serviceID")
_UNREAD: Final = "unread"  # in place of a digest, until the Secret is read
_OTHER: Final = "another"


class Bindings(Store[Seen]):
    """The records in ServiceBindings."""

    failed, stopped = causes.BIND_FAILED, causes.of_rotation(causes.BIND_REFUSED)

    def present(self, seen: Seen) -> Stated:
        at = {name: seen.at_provider[name] for name in _IDS if seen.at_provider.get(name)}
        return Stated(at, seen.marks(*_MARKS))

    def records(self, seen: Seen) -> tuple[Record, ...]:
        found = [rules.with_object(one, seen.cluster) for one in _records(seen)]
        return tuple(_closed(seen, found))

    def stated(self, seen: Seen, records: tuple[Record, ...]) -> Stated:
        old = self.present(seen)
        if not records:
            return old
        numbers = look_of.numbers_of(records, look_of.Numbers)
        first = numbers.current or records[0]
        is_created = numbers.current is not None or (seen.is_created and seen.is_deleting)
        at: dict[str, JSON] = dict(zip(_IDS, (first.instance, first.service), strict=True))
        marks = {
            keys.OSB_BINDINGS: _stated(seen, records, numbers).text(),
            keys.OSB_OPERATION: _begun(seen, records, numbers),
            keys.BINDING_CREATED: CREATED if is_created else "",
            keys.OSB_ORIGIN: first.origin,
        }
        return Stated(at, {name: mark for name, mark in marks.items() if mark})

    def hindrance(self, seen: Seen) -> Decision | None:
        if seen.is_deleting or (seen.catalogue is not None and seen.service_id):
            return None
        if seen.catalogue is None:
            return seen.failed(seen.unread, again=seen.pause())
        refused = "" if managed.may(seen.live, "Create") else managed.NO_CREATE
        problem = seen.lookup if seen.instance is None else refused
        return seen.failed(problem, managed.CREATING, again=None) if problem else None

    def view(self, seen: Seen, kept: Kept) -> InstanceView:
        made = () if seen.instance is None else INSTANCES.records(of_instance(seen, seen.instance))
        name = managed.config_name(seen.live)
        service = seen.service_id or next((one.service for one in made), "")
        kind, live = GeneratedKind(managed.SERVICE_INSTANCE, name, service, {}), None
        if seen.instance is not None:
            live = rules.dressed(seen.instance, INSTANCES.conditions(seen.instance), {})
        bound = _binding(seen, kept, _secret(seen, kept.records))
        return rules.view_of(seen, kind, live, made, (bound,), kept.pauses)

    def look(self, seen: Seen, kept: Kept) -> Next:
        view = self.view(seen, kept)
        free = not any(one.blocks(seen.now) for one in view.records)
        return binding.look(replace(view, free=free), view.bindings[0])

    def call(self, seen: Seen, call: Call) -> Call:
        if not isinstance(call, messages.Bind):
            return call
        app = manifest.get_text(seen.wanted, "bindResource", "appGuid")
        parameters = manifest.get_text_map(seen.wanted, "parameters") or None
        return replace(
            call,
            app=app or seen.space or seen.uid,
            context=rules.context(seen),
            parameters=None if call.predecessor else parameters,
        )

    def facts(self, seen: Seen, kept: Kept, outcome: Outcome | None) -> dict[str, JSON]:
        if seen.is_deleting:
            return {"state": "Deleting"}
        if look_of.numbers_of(kept.records, look_of.Numbers).current is None:
            if not kept.records or seen.service_id:
                return {}
            return {"state": "Pending", "planID": kept.records[0].plan}
        known = manifest.get_list(seen.at_provider, "connectionDetails")
        stored = {} if known else manifest.get_text_map(seen.secret or {}, "data")
        given = outcome.credentials if isinstance(outcome, outcomes.Done) else None
        texts = {key: connection.decoded(value) for key, value in stored.items()}
        texts = connection.flattened(given) if given is not None else texts
        details = connection.details(
            texts, manifest.labels_of(seen.live).get(keys.INSTANCE_TYPE, "")
        )
        stated: dict[str, JSON] = {"state": "Created", "planID": seen.plan_id}
        return {**stated, "connectionDetails": details} if details and details != known else stated


BINDINGS: Final = Bindings()


def of_instance(seen: Seen, live: Manifest) -> instances.Seen:
    facts = {one.name: getattr(seen, one.name) for one in fields(rules.OfBroker)}
    return instances.Seen(**{**facts, "kind": managed.SERVICE_INSTANCE, "live": live})


def needs_secret(seen: Seen, kept: Kept) -> bool:
    view = BINDINGS.view(seen, BINDINGS.recalled(seen, kept))
    return binding.needs_secret(view, view.bindings[0])


def _claim(seen: Seen, kept: Kept) -> Manifest:
    """Return a ServiceBinding as the claim of a generated kind would be."""
    place = connection.place(seen.live)
    parameters: dict[str, JSON] = dict(manifest.get_text_map(seen.wanted, "parameters"))
    spec: dict[str, JSON] = {"parameters": parameters, "rotation": {"request": seen.rotation}}
    spec["secretName"] = "" if place is None else place.name
    claim = rules.dressed(seen.live, kept.conditions, spec)
    current = look_of.numbers_of(kept.records, look_of.Numbers).current
    if current is None:
        return claim
    named: dict[str, JSON] = {"bindingID": current.id, "binding": {"name": "known"}}
    return {**claim, "status": {**manifest.get_map(claim, "status"), **named}}


def _secret(seen: Seen, records: tuple[Record, ...]) -> ReadSecret | None:
    """Return the Secret; where none is wanted, given credentials count as kept."""
    current, live = look_of.numbers_of(records, look_of.Numbers).current, seen.secret
    if connection.place(seen.live) is None:
        return ReadSecret(None if current is None or seen.is_deleting else _unwritten(current.id))
    if live is not None and current is not None and not credentials.named(live):
        live = manifest.put(live, current.id, "metadata", "annotations", keys.OSB_BINDING)
    return ReadSecret(live) if seen.has_read else None


def _unwritten(one: str) -> Manifest:
    """Return a Secret that nobody wants: no two bindings have equal ones."""
    data = {"binding": base64.b64encode(one.encode()).decode()}
    marks = {"annotations": {keys.OSB_BINDING: one}}
    return {"type": connection.SECRET_TYPE, "metadata": marks, "data": data}


def _binding(seen: Seen, kept: Kept, secret: ReadSecret | None = None) -> BindingView:
    """Return a ServiceBinding as its instance has it, with a connection Secret of Crossplane."""
    name, plural = managed.config_name(seen.live), managed.SERVICE_INSTANCE.plural
    kind = GeneratedKind(seen.kind, name, seen.service_id, {}, plural)
    form = SecretForm(connection.SECRET_TYPE, connection.place(seen.live), connection.flattened)
    return BindingView(seen.cluster, kind, _claim(seen, kept), kept.records, secret, form=form)


def _records(seen: Seen) -> Iterator[Record]:
    if not seen.service_id:
        return
    ledger, operation = seen.ledger, seen.operation
    top = max(ledger.number, ledger.coming)
    numbers = {identifier(seen.uid, one): one for one in range(top + 1)}
    named = [*ledger.old, identifier(seen.uid, ledger.number)]
    named += [identifier(seen.uid, ledger.coming)] if ledger.coming else []
    for one in dict.fromkeys(named):
        number = numbers.get(one, -1)
        base = rules.record_of(seen, record.BINDING, one, seen.instance_id)
        base = replace(base, number=number, asked=seen.rotation)
        if one in ledger.old:
            found = _old(seen, base, ledger.old[one])
        elif number == ledger.number and seen.is_created:
            found = _made(seen, base)
        else:
            found = replace(base, intent=Intent("Bind", seen.now, _sent(seen), ledger.tries))
        if manifest.get_text(operation, "binding") == one:
            key, since = (manifest.get_text(operation, name) for name in ("key", "since"))
            begun = rules.operation_of(seen, key, base.plan, moment(since))
            is_unbind = manifest.get_bool(operation, "unbind")
            found = replace(found, operation=begun)
            if is_unbind or found.state == record.LEAVING:
                intent = None if is_unbind else Intent("Bind", seen.now, _sent(seen))
                found = replace(found, state=record.LEAVING, intent=intent)
        yield found


def _sent(seen: Seen, secret: str = "") -> record.Sent:
    parameters: dict[str, JSON] = dict(manifest.get_text_map(seen.wanted, "parameters"))
    return record.Sent(seen.plan_id, record.digest_of(seen.uid, parameters), secret=secret)


def _made(seen: Seen, one: Record) -> Record:
    """Return the binding whose credentials were handed out, when it became ready at the latest."""
    ready, ledger = conditions.get(seen.live, managed.READY), seen.ledger
    since = ready.last_transition_time if ready and ready.reason in _WAS_READY else ""
    made_at = moment(ledger.made or since)
    sent = _sent(seen, _digest_of_secret(seen, one.id))
    return replace(one, state=record.PRESENT, sent=sent, asked=ledger.rotate, made_at=made_at)


def _digest_of_secret(seen: Seen, counts: str) -> str:
    """Return the digest of a binding's credentials: the noted one, else of the first reading."""
    is_wanted = connection.place(seen.live) is not None
    if is_wanted and (seen.ledger.content or not seen.has_read):
        return seen.ledger.content or _UNREAD
    secret = seen.secret if is_wanted else _unwritten(counts)
    if secret is None or credentials.named(secret) not in ("", counts):
        return _OTHER
    return credentials.digest(seen.live, secret)


def _old(seen: Seen, one: Record, text: str) -> Record:
    """Return a binding that leaves, or whose credentials still count beside those that replaced it.

    Without a time they are equal to those.
    """
    ledger, at = seen.ledger, moment(text)
    is_older = seen.is_created and 0 <= one.number < ledger.number
    if is_older and not text:
        sent = _sent(seen, _digest_of_secret(seen, identifier(seen.uid, ledger.number)))
        return replace(one, state=record.PRESENT, sent=sent)
    is_later = at is not None and at > seen.now
    if is_older and is_later:
        return replace(one, state=record.PRESENT, sent=_sent(seen, one.id), leave_at=at)
    since = at if is_later or seen.operation else None  # one operation at a time
    paused = Intent("Unbind", since, _sent(seen), closed=record.PAUSED) if since else None
    return replace(one, state=record.LEAVING, intent=paused)


def _closed(seen: Seen, records: list[Record]) -> Iterator[Record]:
    """Yield these records; a refused wish is not asked for again before it changes."""
    is_refused = bool(seen.ledger.refused) and seen.ledger.refused == seen.asked
    for one in records:
        is_open = one.state == record.INTENDED and one.operation is None
        if not (is_refused and is_open) or one.intent is None:
            yield one
            continue
        view = BINDINGS.view(seen, Kept(tuple(records)))
        catalog = look_of.circumstances(look_of.seen(view, view.bindings[0]), record.FAILED)
        yield replace(one, intent=replace(one.intent, closed=record.FAILED, catalog=catalog))


def _stated(seen: Seen, records: tuple[Record, ...], numbers: look_of.Numbers) -> Ledger:
    ledger, current, candidate = seen.ledger, numbers.current, numbers.candidate
    if seen.is_deleting:
        return _left(seen, records)
    counts = current or candidate
    intent = None if candidate is None else candidate.intent
    is_refused = intent is not None and intent.closed in (record.REFUSED, record.FAILED)
    rest = (one for one in records if one is not current and one is not candidate)
    made_at = None if current is None else current.made_at
    digest = "" if current is None or current.sent is None else current.sent.secret
    return Ledger(
        ledger.number if counts is None else counts.number,
        candidate.number if current is not None and candidate is not None else 0,
        {one.id: _leaves(seen, one) for one in rest},
        ledger.rotate if current is None else current.asked,
        seen.asked if is_refused else "",
        0 if intent is None else intent.tries,
        "" if made_at is None else format_time(made_at),
        "" if digest in (_UNREAD, _OTHER) else digest,
    )


def _leaves(seen: Seen, one: Record) -> str:
    """Return when a binding leaves, "" for one that has the credentials that count."""
    if look_of.is_bound(one):
        return "" if one.leave_at is None else format_time(one.leave_at)
    if one.state == record.LEAVING and one.intent is not None and one.intent.verb == "Unbind":
        return format_time(one.intent.since)
    return seen.ledger.old.get(one.id) or format_time(seen.now)


def _left(seen: Seen, records: tuple[Record, ...]) -> Ledger:
    """Return the bindings that are left of an object that goes."""
    ledger, there = seen.ledger, {one.number: one.id for one in records}
    number = ledger.number if ledger.number in there else max(there, default=ledger.number)
    coming = ledger.coming if ledger.coming in there and ledger.coming != number else 0
    old = {one: text for one, text in ledger.old.items() if one in there.values()}
    return replace(ledger, number=max(number, 0), coming=coming, old=old)


def _begun(seen: Seen, records: tuple[Record, ...], numbers: look_of.Numbers) -> str:
    """Return the running operation; of a binding that is not read yet, the one that made it."""
    for one in sorted(records, key=lambda each: each.state != record.LEAVING):
        if one.operation is not None:
            wire: dict[str, JSON] = {"binding": one.id, "since": format_time(one.operation.since)}
            is_unbind = one.state == record.LEAVING and not look_of.is_still_bound(one)
            wire |= {"unbind": True} if is_unbind else {}
            wire |= {"key": key.reveal()} if (key := one.operation.key) is not None else {}
            return manifest.canonical(wire).decode()
    candidate, made_by = numbers.candidate, manifest.get_text(seen.operation, "binding")
    if candidate is None or (candidate.state, candidate.id) != (record.PRESENT, made_by):
        return ""
    return seen.annotations[keys.OSB_OPERATION]

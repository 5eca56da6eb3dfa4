"""Decides about one ServiceBinding: which call is next.

The first binding has the uid of the object as its id, as with provider-anynines; another one takes
its place where a user asks for that, or where its credentials cannot be had any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from bind.osb import engine
from bind.osb.dataservices import connection, managed, rules
from bind.osb.dataservices.instance import decide as instances
from bind.osb.dataservices.managed import AVAILABLE, CREATING, DELETING, SUCCESS
from bind.osb.decisions.record import identifier
from bind.osb.decisions.view import deletion_of
from reconciler.blueprints.offering import validation
from reconciler.blueprints.offering.messages import Bind, Call, FetchBinding, LastOperation, Unbind
from reconciler.core import keys, manifest
from reconciler.core.decision import NOTHING, Decision, Patch, Task, deletion
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import SECRET
from reconciler.core.secret import Secret
from reconciler.core.times import format_time, moment

CREATED: Final = "true"


@dataclass(frozen=True, slots=True)
class Ledger:
    """Which bindings there are beside the first, whose id is the uid, as the annotation has it.

    `number` is that of the binding whose credentials count, `coming` that of one in its place, 0
    without. `old` are ids of bindings that leave, and when. `rotate` is the request that was
    answered last. `refused` is what was asked when the broker said no for good. So many `tries` of
    the binding that is being made had an unknown outcome.
    """

    number: int = 0
    coming: int = 0
    old: Mapping[str, str] = field(default_factory=dict)
    rotate: str = ""
    refused: str = ""
    tries: int = 0

    def text(self) -> str | None:
        """Return the annotation, None where the original's rules say all of it."""
        if self == Ledger():
            return None
        wire: dict[str, JSON] = {"number": self.number, "coming": self.coming, "old": self.old}
        wire |= {"rotate": self.rotate, "refused": self.refused}
        return manifest.canonical(wire | ({"tries": self.tries} if self.tries else {})).decode()

    def without(self, binding: str) -> "Ledger":
        """Return it without a binding that is gone."""
        return replace(self, old={key: at for key, at in self.old.items() if key != binding})


def _ledger(text: str) -> Ledger:
    read = rules.read_json(text)
    if read is None:
        return Ledger()
    return Ledger(
        manifest.get_int(read, "number") or 0,
        manifest.get_int(read, "coming") or 0,
        manifest.get_text_map(read, "old"),
        manifest.get_text(read, "rotate"),
        manifest.get_text(read, "refused"),
        manifest.get_int(read, "tries") or 0,
    )


@dataclass(frozen=True, slots=True)
class Operation:
    """What the broker does meanwhile, as the annotation has it."""

    binding: str
    is_unbind: bool
    since: str
    key: Secret | None = None

    def text(self) -> str:
        """Return the annotation."""
        wire: dict[str, JSON] = {"binding": self.binding, "since": self.since}
        if self.is_unbind:
            wire["unbind"] = True
        if self.key is not None:
            wire["key"] = self.key.reveal()
        return manifest.canonical(wire).decode()


@dataclass(frozen=True, slots=True)
class Seen(rules.OfBroker):
    """One ServiceBinding. `instance` is its ServiceInstance; `lookup` says why there is not one.

    `secret` is its connection Secret, None where it is absent, or was not read: `has_read`.
    """

    instance: Manifest | None = field(default=None, repr=False)
    lookup: str = ""
    secret: Manifest | None = field(default=None, repr=False)
    has_read: bool = False

    @property
    def ledger(self) -> Ledger:
        """Which bindings there are."""
        return _ledger(self.annotations.get(keys.OSB_BINDINGS, ""))

    @property
    def operation(self) -> Operation | None:
        """The operation that goes on, None without."""
        read = rules.read_json(self.annotations.get(keys.OSB_OPERATION, ""))
        if read is None:
            return None
        key = manifest.get_text(read, "key")
        return Operation(
            manifest.get_text(read, "binding"),
            manifest.get_bool(read, "unbind"),
            manifest.get_text(read, "since"),
            Secret(key) if key else None,
        )

    @property
    def is_created(self) -> bool:
        """Whether its credentials were handed out."""
        return self.annotations.get(keys.BINDING_CREATED) == CREATED

    @property
    def instance_id(self) -> str:
        """The id of its instance, "" where it was never asked for."""
        return manifest.get_text(self.at_provider, "instanceId")

    @property
    def plan_id(self) -> str:
        """The id of its instance's plan, which may have changed since."""
        at = manifest.get_map(self.instance, "status", "atProvider")
        if at and manifest.get_text(at, "instanceId") == self.instance_id:
            return manifest.get_text(at, "planId")
        return manifest.get_text(self.at_provider, "planID")

    @property
    def is_retrievable(self) -> bool:
        """Whether bindings can be read."""
        return self.offering is not None and self.offering.bindings_retrievable

    @property
    def target(self) -> int:
        """The number of the binding that is being made, or counts."""
        return self.ledger.coming or self.ledger.number

    @property
    def rotation(self) -> str:
        """The text by which a user asks for new credentials."""
        return self.annotations.get(keys.OSB_ROTATE, "")

    @property
    def is_lost(self) -> bool:
        """Whether the Secret should be there, and is not."""
        wants = connection.place(self.live) is not None
        return self.has_read and self.secret is None and wants and self.is_created

    @property
    def asked(self) -> str:
        """What a refusal is about: another spec or annotation asks for something else."""
        generation = manifest.get_int(self.live, "metadata", "generation") or 0
        return f"{generation} {self.annotations.get(keys.OSB_RETRY, '')} {self.rotation}"

    def id(self, number: int) -> str:
        """Return the id at the broker of a binding of this object."""
        return identifier(self.uid, number)

    def due(self) -> str:
        """Return the id of a binding whose time has come, "" without."""
        leaving = sorted((at, key) for key, at in self.ledger.old.items())
        return next((key for at, key in leaving if not _is_later(at, self.now)), "")

    def noted(
        self, ledger: Ledger, operation: Operation | None, *, created: bool = False
    ) -> Patch | None:
        """Return the write of what the annotations say of the bindings, if it says more."""
        wanted: dict[str, str | None] = {
            keys.OSB_BINDINGS: ledger.text(),
            keys.OSB_OPERATION: None if operation is None else operation.text(),
            **({keys.BINDING_CREATED: CREATED} if created else {}),
        }
        held = self.annotations
        changed = {key: value for key, value in wanted.items() if held.get(key) != value}
        return managed.annotated(self, changed) if changed else None


def _is_later(text: str, now: datetime) -> bool:
    at = moment(text)
    return at is not None and at > now


Step: TypeAlias = Decision | Call


def next_step(seen: Seen) -> Step:
    """Return the call that is next, or what follows without any."""
    if (framed := managed.framed(seen)) is not None:
        return framed
    operation, ids = seen.operation, (seen.instance_id, seen.service_id, seen.plan_id)
    is_waited_for = seen.now < engine.patient_until(
        seen.now + rules.POLL, deletion_of(seen.live, seen.now)
    )
    if operation is not None and (is_waited_for or operation.is_unbind):
        return seen.paced(LastOperation(*ids, operation.key, binding=operation.binding))
    if seen.is_deleting:
        return _leaving(seen)
    if old := seen.due():
        return seen.paced(unbind(seen, old))
    return _bound(seen) if seen.is_created else _unbound(seen)


def unbind(seen: Seen, binding: str) -> Unbind:
    """Return the call that deletes a binding."""
    return Unbind(seen.instance_id, binding, seen.service_id, seen.plan_id)


def fetch(seen: Seen, number: int) -> FetchBinding:
    """Return the call that reads a binding."""
    return FetchBinding(seen.instance_id, seen.id(number), seen.service_id, seen.plan_id)


def bind(seen: Seen, number: int) -> Bind:
    """Return the call that makes a binding, in the place of the one that counts if there is one."""
    app = manifest.get_text(seen.wanted, "bindResource", "appGuid")
    space = "" if seen.place is None else seen.place.space
    rotates = number != seen.ledger.number and seen.plan is not None and seen.plan.binding_rotatable
    parameters = manifest.get_text_map(seen.wanted, "parameters")
    return Bind(
        seen.instance_id,
        seen.id(number),
        seen.service_id,
        seen.plan_id,
        app=app or space or seen.uid,
        context=rules.context(seen),
        parameters=None if rotates else parameters or None,
        predecessor=seen.id(seen.ledger.number) if rotates else "",
    )


def _leaving(seen: Seen) -> Step:
    """Unbind all, the first last: without it nobody would look for the others."""
    if not seen.service_id:
        return managed.released(seen, "Forgotten", "The broker was never asked for it")
    ledger = seen.ledger
    coming = [seen.id(ledger.coming)] if ledger.coming else []
    binding = [*sorted(ledger.old), *coming, seen.id(ledger.number)][0]
    call = seen.paced(unbind(seen, binding))
    if isinstance(call, Decision):
        return seen.said({"state": "Deleting"}, DELETING, again=call.again)
    return call


def left(seen: Seen) -> Decision:
    """Let the object go, with its Secret."""
    released = managed.released(seen, "Unbound", "The broker deleted the credentials")
    secret = seen.secret
    if secret is None or connection.taken(seen, secret):
        return released
    step = deletion(seen.cluster, SECRET, secret)
    return replace(released, tasks=(Task((step,), managed.WRITE_FAILED), *released.tasks))


def _unbound(seen: Seen) -> Step:
    """Ask for credentials, once the ids are written down."""
    if (hindrance := _hindrance(seen)) is not None:
        return hindrance
    if seen.ledger.refused == seen.asked:
        return NOTHING
    ids = _ids(seen)
    if not seen.is_held or not manifest.covers(seen.at_provider, ids):
        if problem := _invalid(seen):
            return seen.failed(problem, CREATING, again=rules.RESYNC)
        return managed.held(seen, {**ids, "state": "Pending"}, CREATING)
    return seen.paced(bind(seen, seen.target))


def _hindrance(seen: Seen) -> Decision | None:
    if seen.instance is None:
        return seen.failed(seen.lookup, CREATING, again=None)
    if not instances.is_ready(seen.instance):
        return seen.failed("The service instance is not ready", CREATING, again=None)
    if not managed.may(seen.live, "Create"):
        return seen.failed("Its policies do not allow that it is made", CREATING, again=None)
    if problem := connection.taken(seen, seen.secret):
        return seen.failed(problem, CREATING, again=rules.RESYNC)
    return None


def _invalid(seen: Seen) -> str:
    """Return why the plan of its instance refuses what is asked for, "" where it may not."""
    at = manifest.get_map(seen.instance, "status", "atProvider")
    catalogue, service = seen.catalogue, manifest.get_text(at, "serviceId")
    offering = None if catalogue is None else catalogue.offering(service)
    plan = None if offering is None else offering.plan(manifest.get_text(at, "planId"))
    parameters = manifest.get_text_map(seen.wanted, "parameters")
    return "" if plan is None else validation.of_bind(plan, parameters)


def _ids(seen: Seen) -> dict[str, JSON]:
    """Return the ids of the instance, in the words of a ServiceBinding."""
    at = manifest.get_map(seen.instance, "status", "atProvider")
    return {
        "instanceId": manifest.get_text(at, "instanceId"),
        "serviceID": manifest.get_text(at, "serviceId"),
        "planID": manifest.get_text(at, "planId"),
    }


def _bound(seen: Seen) -> Step:
    """Rotate where that is asked for; else look whether all is still there."""
    ledger = seen.ledger
    rotates = bool(seen.rotation) and seen.rotation != ledger.rotate
    if ledger.refused == seen.asked:
        return Decision(again=lasts(seen), sums_up=False)
    if ledger.coming and managed.may(seen.live, "Update"):
        return seen.paced(bind(seen, ledger.coming))
    if (rotates or (seen.is_lost and not seen.is_retrievable)) and managed.may(seen.live, "Update"):
        return _succession(seen)
    if seen.rest or (seen.is_retrievable and managed.may(seen.live, "Observe")):
        return seen.paced(fetch(seen, ledger.number))
    return steady(seen)


def _succession(seen: Seen) -> Decision:
    """Write down that another binding takes the place of the one that counts, before it does."""
    if seen.instance is not None and not instances.is_ready(seen.instance):
        return seen.failed("The service instance is not ready", again=None)
    number = seen.ledger.number
    step = seen.noted(replace(seen.ledger, coming=number + 1), None)
    tasks = () if step is None else (Task((step,), managed.WRITE_FAILED),)
    return Decision(tasks=tasks, again=rules.SOON, sums_up=False)


def steady(seen: Seen) -> Decision:
    """Say that all is well."""
    at: dict[str, JSON] = {"state": "Created", "planID": seen.plan_id}
    if not manifest.get_list(seen.at_provider, "connectionDetails"):
        texts = connection.texts_of(seen.secret)
        at |= reached(seen, connection.details(texts, instance_type(seen)))
    return seen.said(at, AVAILABLE, SUCCESS, again=lasts(seen))


def reached(seen: Seen, details: list[JSON]) -> dict[str, JSON]:
    """Return what is said of where the service is reached."""
    known = manifest.get_list(seen.at_provider, "connectionDetails")
    return {"connectionDetails": details} if details and details != known else {}


def instance_type(seen: Seen) -> str:
    """Return what the label of the object says its instance is of."""
    return manifest.labels_of(seen.live).get(keys.INSTANCE_TYPE, "")


def lasts(seen: Seen, ledger: Ledger | None = None) -> timedelta:
    """Return when to look again: at the next look at all, or when a binding's time has come."""
    old = (seen.ledger if ledger is None else ledger).old.values()
    times = [at - seen.now for at in map(moment, old) if at is not None]
    return max(min([rules.RESYNC, *times]), rules.SOON)


def leaving(seen: Seen, ledger: Ledger, binding: str, overlap: timedelta) -> Ledger:
    """Return the ledger in which a binding leaves after a while."""
    return replace(ledger, old={**ledger.old, binding: format_time(seen.now + overlap)})

"""BrokerRecords: what a broker has, or may have, for a claim; read, and written.

A record is there before the first call about its id, and goes after a confirmed one: a broker has
no list of what it made.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal, TypeAlias, cast

from reconciler.api.osb import BROKER_RECORD
from reconciler.core import manifest
from reconciler.core.decision import Create, Delete, Patch, deletion, merge_diff, modification
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.secret import Secret
from reconciler.core.times import format_time, moment

Verb: TypeAlias = Literal["Provision", "Update", "Deprovision", "Bind", "Unbind"]
State: TypeAlias = Literal["Intended", "Present", "Leaving", "Retained", "Orphaned"]

INTENDED: Final = "Intended"
PRESENT: Final = "Present"
LEAVING: Final = "Leaving"
RETAINED: Final = "Retained"
ORPHANED: Final = "Orphaned"

STATES: Final = (INTENDED, PRESENT, LEAVING, RETAINED, ORPHANED)

_CLAIM: Final = ("group", "kind", "namespace", "name", "uid")

INSTANCE: Final = "Instance"
BINDING: Final = "Binding"

# Why an intent is closed: it is not tried again until what it answers changes.
REFUSED: Final = "Refused"
FAILED: Final = "Failed"
MISSING: Final = "Missing"  # it was there, and the broker knows it no more
PAUSED: Final = "Paused"  # until `since`; meanwhile others of the instance go on


@dataclass(frozen=True, slots=True)
class Claim:
    """What a record is for."""

    group: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Sent:
    """What the broker is asked for. `digest` is of all parameters, `parameters` has one for each.

    `secret` is the digest of the credentials that a Secret holds; only bindings have one.
    """

    plan: str
    digest: str = ""
    maintenance: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Intent:
    """What is asked, or was last. It is due at `since`; `tries` had an unknown outcome.

    `closed` says why it is not tried again (PAUSED: not before `since`), "" while it is open;
    `catalog` is the digest of the catalogue under which it was refused; of an open one, under which
    its version of maintenance was.
    """

    verb: Verb
    since: datetime
    target: Sent
    tries: int = 0
    closed: str = ""
    catalog: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """What the broker does meanwhile. `plan` is that of the instance before it began."""

    key: Secret | None
    plan: str
    since: datetime
    deadline: datetime


@dataclass(frozen=True, slots=True)
class Record:
    """One id at a broker. `asked` is the wish (annotation, `rotation.request`) that it answers.

    `term` is that of the process that wrote it, where all before it are known to be of one life
    of the cluster; `broker_uid` and `origin` say which broker has the id, "" where that is not
    known. `live` is the object that it was read of, None for a record that is to be made.
    """

    id: str
    broker: str
    kind: str  # INSTANCE or BINDING
    instance: str
    service: str
    plan: str
    claim: Claim
    state: State
    number: int = 0
    sent: Sent | None = None
    intent: Intent | None = None
    operation: Operation | None = None
    asked: str = ""
    leave_at: datetime | None = None
    made_at: datetime | None = None
    expires_at: datetime | None = None
    renew_before: datetime | None = None
    term: str = ""
    broker_uid: str = ""
    origin: str = ""
    live: Manifest | None = field(default=None, repr=False, compare=False)
    cluster: str = field(default="", compare=False)

    @property
    def is_open(self) -> bool:
        """Whether something has been begun about it whose outcome is not known."""
        if self.operation is not None or (self.state == LEAVING and self.intent is None):
            return True
        return self.intent is not None and not self.intent.closed

    def is_late(self, now: datetime) -> bool:
        """Whether the broker makes it for longer than it may. That may never end."""
        operation = self.operation
        return self.state == INTENDED and operation is not None and operation.deadline <= now

    def holds_turn(self, now: datetime) -> bool:
        """Whether others of its instance wait for it."""
        return self.is_open and not self.is_late(now)

    @property
    def is_unstamped(self) -> bool:
        """Whether its object is to say first of which broker, or of which term it is."""
        said = manifest.get_map(self.live, "spec")
        stamps = {"brokerUID": self.broker_uid, "origin": self.origin}
        if self.state == INTENDED:
            stamps["term"] = self.term
        return any(said.get(name, "") != stamp for name, stamp in stamps.items())

    @property
    def mark(self) -> Mapping[str, str]:
        """The annotations of the object."""
        return {} if self.live is None else manifest.annotations_of(self.live)


def identifier(uid: str, number: int) -> str:
    """Return the id of a claim at the broker: its uid, and one made of it for each further one."""
    return uid if number == 0 else str(uuid.uuid5(uuid.UUID(uid), str(number)))


def digest_of(salt: str, value: JSON) -> str:
    """Return the digest of parameters or credentials, which nobody finds by trying in two claims.

    `salt` is the uid of the claim.
    """
    return manifest.digest([salt, value])


def digests_of(salt: str, parameters: Mapping[str, JSON]) -> dict[str, str]:
    """Return the digest of each parameter."""
    return {name: digest_of(salt, value) for name, value in parameters.items()}


def read(live: Manifest, cluster: str) -> Record:
    """Return what a BrokerRecord says; its CRD keeps what must be there."""
    text, sent = manifest.get_text, manifest.get_map(live, "spec", "sent")
    return Record(
        cluster=cluster,
        id=manifest.name_of(live),
        broker=text(live, "spec", "broker"),
        kind=text(live, "spec", "kind"),
        instance=text(live, "spec", "instanceID"),
        service=text(live, "spec", "serviceID"),
        plan=text(live, "spec", "planID"),
        claim=Claim(*(text(live, "spec", "claim", part) for part in _CLAIM)),
        state=cast("State", text(live, "spec", "state")),
        number=manifest.get_int(live, "spec", "number") or 0,
        sent=_target(sent) if sent else None,
        intent=_intent(manifest.get_map(live, "spec", "intent")),
        operation=_operation(manifest.get_map(live, "spec", "operation")),
        asked=text(live, "spec", "asked"),
        leave_at=moment(text(live, "spec", "leaveAt")),
        made_at=moment(text(live, "spec", "madeAt")),
        expires_at=moment(text(live, "spec", "expiresAt")),
        renew_before=moment(text(live, "spec", "renewBefore")),
        term=text(live, "spec", "term"),
        broker_uid=text(live, "spec", "brokerUID"),
        origin=text(live, "spec", "origin"),
        live=live,
    )


def created(record: Record, namespace: str) -> Create:
    """Return the step that makes a record, in the namespace of its ServiceBroker."""
    body: Manifest = {
        "apiVersion": BROKER_RECORD.api_version,
        "kind": BROKER_RECORD.kind,
        "metadata": {"namespace": namespace, "name": record.id},
        "spec": _spec(record),
    }
    return Create(BROKER_RECORD, body)


def changed(record: Record, **fields: object) -> Patch | None:
    """Return the step that makes a record say this, exactly as it was looked at; None if it does.

    `fields` are those of Record.
    """
    assert record.live is not None
    after = replace(record, **fields)  # type: ignore[arg-type]
    difference = merge_diff(manifest.get_map(record.live, "spec"), _spec(after))
    if not difference:
        return None
    return modification(record.cluster, BROKER_RECORD, record.live, spec=difference)


def deleted(record: Record) -> Delete:
    """Return the step that deletes a record, exactly as it was looked at."""
    assert record.live is not None
    return deletion(record.cluster, BROKER_RECORD, record.live)


def _target(said: Manifest) -> Sent:
    return Sent(
        manifest.get_text(said, "planID"),
        manifest.get_text(said, "parametersDigest"),
        manifest.get_text(said, "maintenanceVersion"),
        manifest.get_text_map(said, "parameters"),
        manifest.get_text(said, "secretDigest"),
    )


def _intent(said: Manifest) -> Intent | None:
    since = moment(manifest.get_text(said, "since"))
    if since is None:
        return None
    return Intent(
        cast("Verb", manifest.get_text(said, "verb")),
        since,
        _target(said),
        manifest.get_int(said, "tries") or 0,
        manifest.get_text(said, "closed"),
        manifest.get_text(said, "catalog"),
    )


def _operation(said: Manifest) -> Operation | None:
    since = moment(manifest.get_text(said, "since"))
    deadline = moment(manifest.get_text(said, "deadline"))
    if since is None or deadline is None:
        return None
    key = manifest.get_text(said, "key")
    plan = manifest.get_text(said, "planID")
    return Operation(Secret(key) if key else None, plan, since, deadline)


def _spec(record: Record) -> dict[str, JSON]:
    spec: dict[str, JSON] = {
        "broker": record.broker,
        "kind": record.kind,
        "instanceID": record.instance,
        "serviceID": record.service,
        "planID": record.plan,
        "number": record.number,
        "claim": {part: getattr(record.claim, part) for part in _CLAIM},
        "state": record.state,
        "sent": None if record.sent is None else _sent_body(record.sent),
        "intent": None if record.intent is None else _intent_body(record.intent),
        "operation": None if record.operation is None else _operation_body(record.operation),
        "asked": record.asked or None,
        "leaveAt": _time(record.leave_at),
        "madeAt": _time(record.made_at),
        "expiresAt": _time(record.expires_at),
        "renewBefore": _time(record.renew_before),
        "term": record.term or None,
        "brokerUID": record.broker_uid or None,
        "origin": record.origin or None,
    }
    return {name: value for name, value in spec.items() if value is not None}


def _sent_body(sent: Sent) -> dict[str, JSON]:
    return _stated(
        {
            "planID": sent.plan,
            "parametersDigest": sent.digest,
            "maintenanceVersion": sent.maintenance,
            "parameters": dict(sent.parameters),
            "secretDigest": sent.secret,
        }
    )


def _intent_body(intent: Intent) -> dict[str, JSON]:
    return _stated(
        {
            **_sent_body(intent.target),
            "verb": intent.verb,
            "since": _time(intent.since),
            "tries": intent.tries,
            "closed": intent.closed,
            "catalog": intent.catalog,
        }
    )


def _operation_body(operation: Operation) -> dict[str, JSON]:
    return _stated(
        {
            "key": "" if operation.key is None else operation.key.reveal(),
            "planID": operation.plan,
            "since": _time(operation.since),
            "deadline": _time(operation.deadline),
        }
    )


def _stated(body: dict[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in body.items() if value not in ("", None, {})}


def _time(time: datetime | None) -> str | None:
    return None if time is None else format_time(time)

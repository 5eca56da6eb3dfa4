"""Reads and writes BrokerRecords: the state of a claim's object at a broker.

A record is there before the first call about its id, and goes after a confirmed one: a broker has
no list of what it made.
"""

import dataclasses
import functools
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from reconciler.api.osb import BROKER_RECORD
from reconciler.core import manifest
from reconciler.core.decision import Create, Delete, Patch, deletion, merge_diff, modification
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import Kind
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

INSTANCE: Final = "Instance"
BINDING: Final = "Binding"

# Reasons of a closed intent: it is not tried again until the claim changes.
REFUSED: Final = "Refused"
FAILED: Final = "Failed"
MISSING: Final = "Missing"  # it existed, and the broker has no record of it now
PAUSED: Final = "Paused"  # until `since`; meanwhile others of the instance go on


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a record."""

    group: str
    kind: str
    namespace: str
    name: str
    uid: str


def claim_of(kind: Kind, live: Manifest) -> Claim:
    return Claim(kind.group, kind.kind, *manifest.identity_of(live), manifest.uid_of(live))


@dataclass(frozen=True, slots=True)
class Sent:
    """The request to a broker. `digest` is of all parameters, `parameters` has one for each.

    `secret` is the digest of the credentials that a Secret holds; only bindings have one.
    """

    plan: str
    digest: str = ""
    maintenance: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    secret: str = ""

    def changed(self, before: "Sent") -> set[str]:
        """Return the parameters that are others than before."""
        one, other = self.parameters, before.parameters
        return {name for name in {*one, *other} if one.get(name) != other.get(name)}


@dataclass(frozen=True, slots=True)
class Intent:
    """The open request, or the last one. It is due at `since`; `tries` had an unknown outcome.

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
    """An operation of the broker. `plan` is that of the instance before it began."""

    key: Secret | None
    plan: str
    since: datetime
    deadline: datetime


@dataclass(frozen=True, slots=True)
class Record:
    """An id at a broker. `asked` is the wish (annotation, `rotation.request`) that it answers.

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

    def blocks(self, now: datetime) -> bool:
        """Whether others of its instance wait for it."""
        return self.is_open and not self.is_late(now)

    def was_never_sent(self, now: datetime) -> bool:
        """Return whether the broker surely has nothing of it: no call was made, or all refused."""
        intent = self.intent
        if (
            self.state != INTENDED
            or intent is None
            or self.operation
            or self.made_at
            or intent.tries
        ):
            return False
        return bool(intent.closed) or intent.since > now

    @property
    def is_unstamped(self) -> bool:
        """Whether its object lacks the stamp of its broker, or of its term."""
        spec = manifest.get_map(self.live, "spec")
        stamps = {"brokerUID": self.broker_uid, "origin": self.origin}
        if self.state == INTENDED:
            stamps["term"] = self.term
        return any(spec.get(name, "") != stamp for name, stamp in stamps.items())

    @property
    def mark(self) -> Mapping[str, str]:
        return {} if self.live is None else manifest.annotations_of(self.live)


_MOMENTS: Final = ("leave_at", "made_at", "expires_at", "renew_before")


def identifier(uid: str, number: int) -> str:
    """Return the id of a claim at the broker: its uid, and one made of it for each further one."""
    return uid if number == 0 else str(uuid.uuid5(uuid.UUID(uid), str(number)))


def further(gone: Record, intent: Intent, **fields: object) -> Record:
    """Return the record of the next number, after this one failed and is gone."""
    number = gone.number + 1
    new = {"id": identifier(gone.claim.uid, number), "number": number, "state": INTENDED}
    left = dict.fromkeys(("sent", "operation", *_MOMENTS, "live"))
    return replace(gone, intent=intent, **{**new, **left, **fields})  # type: ignore[arg-type]


def digest_of(salt: str, value: JSON) -> str:
    """Return the digest of parameters or credentials, which nobody finds by trying in two claims.

    `salt` is the uid of the claim.
    """
    return manifest.digest([salt, value])


def digests_of(salt: str, parameters: Mapping[str, JSON]) -> dict[str, str]:
    return {name: digest_of(salt, value) for name, value in parameters.items()}


def read(live: Manifest, cluster: str) -> Record:
    """Read a BrokerRecord; its CRD keeps the required fields."""
    values = values_of(Record, manifest.get_map(live, "spec"))
    return Record(id=manifest.name_of(live), live=live, cluster=cluster, **values)


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
    """Return the step that changes a record, exactly as it was seen; None if it agrees.

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


# Fields are named on the wire as here, but for case and these.
_NAMES: Final = {
    "instance": "instanceID",
    "service": "serviceID",
    "plan": "planID",
    "digest": "parametersDigest",
    "maintenance": "maintenanceVersion",
    "secret": "secretDigest",
    "broker_uid": "brokerUID",
}
_UNWRITTEN: Final = ("id", "live", "cluster")
_TIMES: Final = {Intent: ("since",), Operation: ("since", "deadline")}


_Reader: TypeAlias = Callable[[Manifest, str], Any]


def _moment(fields: Manifest, name: str) -> datetime | None:
    return moment(manifest.get_text(fields, name))


_READERS: Final[Mapping[Any, _Reader]] = {
    datetime: _moment,
    datetime | None: _moment,
    int: lambda fields, name: manifest.get_int(fields, name) or 0,
    Secret | None: lambda fields, name: (
        Secret(key) if (key := manifest.get_text(fields, name)) else None
    ),
    Mapping[str, str]: manifest.get_text_map,
    Claim: lambda fields, name: _part(Claim, manifest.get_map(fields, name)),
    Sent: lambda fields, _: _part(Sent, fields),  # an intent has its target beside the rest
    Sent | None: lambda fields, name: _part(Sent, manifest.get_map(fields, name)),
    Intent | None: lambda fields, name: _part(Intent, manifest.get_map(fields, name)),
    Operation | None: lambda fields, name: _part(Operation, manifest.get_map(fields, name)),
}


@functools.cache
def _fields(of: Any) -> list[tuple[str, str, _Reader]]:
    """Return name, name on the wire and reader of each field."""
    found = []
    for one in dataclasses.fields(of):
        first, *rest = one.name.split("_")
        name = _NAMES.get(one.name) or first + "".join(map(str.capitalize, rest))
        if one.name not in _UNWRITTEN:
            found.append((one.name, name, _READERS.get(one.type, manifest.get_text)))
    return found


def values_of(of: Any, fields: Manifest) -> dict[str, Any]:
    """Return the fields of a dataclass in an object."""
    return {one: read(fields, name) for one, name, read in _fields(of)}


def _part(of: Any, fields: Manifest) -> Any:
    """Return a value within another, None where that is absent; intents have a time."""
    values = values_of(of, fields) if fields else {}
    return None if not fields or None in map(values.get, _TIMES.get(of, ())) else of(**values)


def _body(value: Any) -> dict[str, JSON]:
    """Return a value in its form on the wire, without unstated fields."""
    body: dict[str, JSON] = {}
    of: Any = type(value)
    for one, name, _ in _fields(of):
        stated = _stated(getattr(value, one))
        body |= manifest.get_map(stated) if one == "target" else {name: stated}
    return {name: stated for name, stated in body.items() if stated not in ("", None, {})}


def _stated(value: Any) -> JSON:
    match value:
        case datetime():
            return format_time(value)
        case Secret():
            return value.reveal()
        case Mapping():
            return dict(value)
    return _body(value) if dataclasses.is_dataclass(value) else value


def _spec(record: Record) -> dict[str, JSON]:
    return {"planID": record.plan, **_body(record)}

"""The values of a look at an instance with its bindings, and of a turn.

A turn belongs to an instance: one call that changes anything at the broker at a time, bindings
included, because brokers may count a bind as a change of the instance.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from bind.osb.decisions.record import Record
from reconciler.api.osb import BrokerSpec, GeneratedKind
from reconciler.blueprints.offering.catalogue import Catalogue, Offering, Plan
from reconciler.blueprints.offering.messages import Call, OriginatingIdentity
from reconciler.core import keys
from reconciler.core.decision import NOTHING, Decision, Note, Step, writes
from reconciler.core.manifest import JSON, Manifest, get_map, get_text
from reconciler.core.refs import ObjectKey
from reconciler.core.secret import Secret
from reconciler.core.times import moment


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a claim, in the words of brokers. `namespace` is the app cluster's.

    `cluster` identifies the app cluster, `space` is the uid of the service namespace.
    """

    namespace: str
    cluster: str
    space: str
    identity: OriginatingIdentity | None = None

    def context(self, name: str) -> dict[str, JSON]:
        """Return the context of an instance (OSB profile of Kubernetes)."""
        return {
            "platform": "kubernetes",
            "namespace": self.namespace,
            "clusterid": self.cluster,
            "instance_name": name,
        }


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as far as it is known. `catalogue` is the last good one; None: none was read yet.

    `closed` says why its calls wait, "" where they do not; `is_fresh`, whether the catalogue was
    read in the last minute: a gateway's 404 proves nothing. `mass_delete` is the time when a
    person let claims go with their CRD. `origin` is where it is, "" where that
    is not known; `takes_over`: somebody says that it has what records of other origins are about;
    `moved` says why this look may not ask it, "" where it may.
    """

    spec: BrokerSpec
    catalogue: Catalogue | None = None
    closed: str = ""
    is_fresh: bool = False
    mass_delete: str = ""
    origin: str = ""
    takes_over: bool = False
    moved: str = ""

    @property
    def unready(self) -> str:
        """Why nothing new is asked of it, "" where it may be."""
        why = self.closed or ("" if self.catalogue else "its catalogue was not read yet")
        return why and f"ServiceBroker {self.spec.name}: {why}"

    def offering(self, kind: GeneratedKind) -> Offering | None:
        return self.catalogue.offering(kind.offering) if self.catalogue else None


@dataclass(frozen=True, slots=True)
class Pause:
    """This process's memory of an id: the time of the next request, and the pauses before.

    `count` is of pauses in a row, `misses` of answers in a row that know nothing of an operation;
    `checked` is when the id was last read at the broker or, of a binding, its Secret was; `tried`
    how many tries of an intent there were then; `questions` how many were asked about a 409.
    """

    until: datetime | None = None
    count: int = 0
    misses: int = 0
    checked: datetime | None = None
    tried: int = 0
    questions: int = 0

    def is_over(self, now: datetime) -> bool:
        return self.until is None or self.until <= now


@dataclass(frozen=True, slots=True)
class ReadSecret:
    """The Secret of a binding, as it was read. `data` is decoded in no log and no text."""

    live: Manifest | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SecretForm:
    """The form of Secrets that are none of a Provisioned Service.

    `place` is None where no Secret is wanted; `texts` makes its values of credentials.
    """

    type: str
    place: ObjectKey | None
    texts: Callable[[Secret], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class BindingView:
    """A binding claim, or its remains, with its records by number.

    `secret` is None where it was not read in this look. `crd_is_deleting`: its kind is being
    deleted, with all claims. `form` is that of its Secret, None for a Provisioned Service.
    """

    cluster: str
    kind: GeneratedKind
    live: Manifest | None
    records: tuple[Record, ...] = ()
    secret: ReadSecret | None = None
    crd_is_deleting: bool = False
    form: SecretForm | None = None


@dataclass(frozen=True, slots=True)
class InstanceView:
    """An instance claim, or its remains, with its records by number, and its bindings.

    `others` are records of this place whose claim has another uid. `crd_is_deleting`: its kind is
    being deleted, with all claims. `unsure` says why the view of CRDs may be old, "" where it is
    not. `name` and `namespace` also where `live` is None. `term` is what records say that are of
    this life of the cluster. `free`: something may begin that changes the instance at the broker.
    """

    cluster: str
    kind: GeneratedKind
    namespace: str
    name: str
    live: Manifest | None
    place: Place | None = None
    broker: Broker | None = None
    records: tuple[Record, ...] = ()
    others: tuple[Record, ...] = ()
    bindings: tuple[BindingView, ...] = ()
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    crd_is_deleting: bool = False
    unsure: str = ""
    term: str = ""
    now: datetime = field(kw_only=True)
    free: bool = False

    @property
    def current(self) -> Record | None:
        """The record of the instance that counts: that of the highest number."""
        return max(self.records, key=lambda record: record.number, default=None)

    @property
    def offering(self) -> Offering | None:
        """Its offering, None where no catalogue has it."""
        return None if self.broker is None else self.broker.offering(self.kind)

    def plan(self, plan_id: str) -> Plan | None:
        return None if self.offering is None else self.offering.plan(plan_id)

    def pause(self, record: Record) -> Pause:
        return self.pauses.get(record.id, NO_PAUSE)


def stamped(one: Record, broker: Broker | None, terms: Sequence[str]) -> Record:
    """Return a record with the stamp of its broker and term.

    `terms`: the present one, then what it follows without a gap. What another life wrote stays
    marked as that. A record without an origin takes the first whose catalogue has its service.
    """
    term = terms[0] if one.term in terms else one.term
    if broker is None or broker.catalogue is None or not broker.origin:
        return replace(one, term=term)
    is_of_it = one.origin == broker.origin or broker.takes_over
    if not (is_of_it or (not one.origin and broker.catalogue.offering(one.service))):
        return replace(one, term=term)
    return replace(one, term=term, broker_uid=broker.spec.uid, origin=broker.origin)


def asked(
    broker: Broker | None, records: Iterable[Record], configured: str = "ServiceBroker"
) -> Broker | None:
    """Return a broker as far as it may be asked about these records: not about another's.

    `configured` is the kind of object that says where it is.
    """
    if broker is None or not broker.origin:
        return broker
    former = next((one for one in records if one.origin not in ("", broker.origin)), None)
    if former is None:
        return broker
    name = broker.spec.name
    moved = (
        f"{former.id} is of {former.origin}, and {configured} {name} is at "
        f"{broker.origin} now; if that has the same instances, annotate the {configured} with "
        f"{keys.OSB_MOVED}: {broker.origin}"
    )
    return replace(broker, closed=moved, moved=moved)


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that is due, about the record of this id."""

    record: str
    call: Call


@dataclass(frozen=True, slots=True)
class Next:
    """The decision for a claim: writes and status, or a call with an answer to decide about.

    `begins`: the writes open an intent, so that nothing else of this instance may begin.
    `pauses` are remembered by id of record. Where `ask` is there, the decision is executed first.
    `reads_catalogue`: what follows hangs on what the broker offers now.
    """

    decision: Decision = NOTHING
    ask: Ask | None = None
    begins: bool = False
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    reads_catalogue: bool = False

    def within(self, wait: timedelta) -> "Next":
        """Return the same with a next look after this time at most."""
        again = self.decision.again
        if self.ask is not None or again is None or again <= wait:
            return self
        return replace(self, decision=replace(self.decision, again=wait))


NO_PAUSE: Final = Pause()
CLOSED: Final = timedelta(seconds=30)  # until it is seen again whether a broker takes calls
BUSY: Final = "another operation of this instance is in progress"
SOON: Final = timedelta()  # look again at once: the next step of the same claim is due


def soon(step: Step | None, *notes: Note, begins: bool = False) -> Next:
    return Next(replace(writes(step), notes=notes, again=SOON), begins=begins)


def begun(one: str, step: Step | None) -> Next:
    """Return a step that opens an intent, of which this process remembers that nothing was sent."""
    return replace(soon(step, begins=True), pauses={one: NO_PAUSE})


def deletion_of(live: Manifest, now: datetime) -> datetime:
    """Return since when an object is being deleted."""
    return moment(get_text(live, "metadata", "deletionTimestamp")) or now


def parameters_of(live: Manifest) -> dict[str, JSON]:
    return dict(get_map(live, "spec", "parameters"))


def plan_name(live: Manifest) -> str:
    """Return the plan that a claim states, by name."""
    return get_text(live, "spec", "plan")

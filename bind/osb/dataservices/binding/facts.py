"""What a ServiceBinding says about itself, and what it is about."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from bind.osb.dataservices import connection, managed, rules
from bind.osb.decisions.record import identifier
from reconciler.blueprints.offering.catalogue import Offering, Plan
from reconciler.core import keys, manifest
from reconciler.core.decision import Patch
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.secret import Secret
from reconciler.core.times import moment

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
    def service_id(self) -> str:
        """The id of its instance's service."""
        return manifest.get_text(self.at_provider, "serviceID")

    @property
    def plan_id(self) -> str:
        """The id of its instance's plan, which may have changed since."""
        at = manifest.get_map(self.instance, "status", "atProvider")
        if at and manifest.get_text(at, "instanceId") == self.instance_id:
            return manifest.get_text(at, "planId")
        return manifest.get_text(self.at_provider, "planID")

    @property
    def offering(self) -> Offering | None:
        """The service of its instance."""
        return None if self.catalogue is None else self.catalogue.offering(self.service_id)

    @property
    def plan(self) -> Plan | None:
        """The plan of its instance."""
        return None if self.offering is None else self.offering.plan(self.plan_id)

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

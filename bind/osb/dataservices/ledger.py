"""Stores a ServiceBinding's bindings at its broker in an annotation."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from bind.osb.dataservices import managed, rules
from reconciler.core import keys, manifest
from reconciler.core.manifest import Manifest

CREATED: Final = "true"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The bindings beside the first one, which has the uid as its id, by the annotation.

    `number` is that of the binding whose credentials count, made at `made`, `coming` that of one in
    its place, 0 without. `old` are ids of bindings that leave, and when; "": not before another one
    replaced them. `rotate` is the request that was answered last. `refused` is what was asked when
    the broker said no for good. So many `tries` of the binding that is being made had an unknown
    outcome.
    """

    number: int = 0
    coming: int = 0
    old: Mapping[str, str] = field(default_factory=dict)
    rotate: str = ""
    refused: str = ""
    tries: int = 0
    made: str = ""

    def text(self) -> str:
        """Return the annotation, "" where the original's rules say all of it."""
        if self == Ledger():
            return ""
        wire = asdict(self)
        absent = [name for name in ("tries", "made") if not wire[name]]
        return manifest.canonical({key: wire[key] for key in wire.keys() - {*absent}}).decode()


def ledger_of(text: str) -> Ledger:
    read = rules.read_json(text)
    return Ledger(
        manifest.get_int(read, "number") or 0,
        manifest.get_int(read, "coming") or 0,
        manifest.get_text_map(read, "old"),
        manifest.get_text(read, "rotate"),
        manifest.get_text(read, "refused"),
        manifest.get_int(read, "tries") or 0,
        manifest.get_text(read, "made"),
    )


@dataclass(frozen=True, slots=True)
class Seen(rules.OfBroker):
    """A ServiceBinding. `instance` is its ServiceInstance; `lookup` says why there is not one.

    `secret` is its connection Secret, None where it is absent, or was not read: `has_read`.
    """

    instance: Manifest | None = field(default=None, repr=False)
    lookup: str = ""
    secret: Manifest | None = field(default=None, repr=False)
    has_read: bool = False

    @property
    def ledger(self) -> Ledger:
        return ledger_of(self.annotations.get(keys.OSB_BINDINGS, ""))

    @property
    def operation(self) -> Manifest:
        """The operation that goes on, as its annotation has it; {} without."""
        return rules.read_json(self.annotations.get(keys.OSB_OPERATION, "")) or {}

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
    def rotation(self) -> str:
        """The text by which a user asks for new credentials."""
        wish = self.annotations.get(keys.OSB_ROTATE, "")
        return wish if managed.may(self.live, "Update") else self.ledger.rotate

    @property
    def asked(self) -> str:
        """The subject of a refusal: another spec or annotation asks for something else."""
        generation = manifest.get_int(self.live, "metadata", "generation") or 0
        wish = self.annotations.get(keys.OSB_ROTATE, "")
        return f"{generation} {self.annotations.get(keys.OSB_RETRY, '')} {wish}"

"""A plan as a value: everything that would happen, what is held back, and what is unknown."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from reconciler.core.diff import FieldChange
from reconciler.core.manifest import Manifest
from reconciler.core.origin import Origin
from reconciler.core.refs import Ref
from reconciler.fleet.values import UnitKey


class Action(StrEnum):
    """What would be done to one object or unit; the values are the words that people read."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    ADOPT = "adopt"
    RELEASE = "release"
    DELETE = "delete"
    NOOP = "noop"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Step:
    """One of the steps of a release, replace or delete, in the order in which they are done."""

    verb: str  # create, apply, patch, delete, wait
    ref: Ref
    note: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a plan.

    `cluster` is the app cluster in whose section the line stands, `subject` what the line is
    about for people: a Binding's name, `space`, `konnector` or `cluster`. `before` is the digest
    of the live object (mapping.md 0), "" where there is none. `after` is what would be written,
    Secrets redacted, with `(known after apply)` where only the apply can know; None for what
    writes nothing. `reason` explains and is never branched on.
    """

    cluster: str
    subject: str
    ref: Ref
    action: Action
    reason: str
    origin: Origin | None = None
    unit: UnitKey | None = None
    before: str = ""
    uid: str = ""
    after: Manifest | None = None
    fields: tuple[FieldChange, ...] = ()
    steps: tuple[Step, ...] = ()
    # A replace of a request alone: export, binding and data stay (mapping.md 5).
    keeps_data: bool = False


@dataclass(frozen=True, slots=True)
class WidenedClaim:
    """A permission claim that would reach further than it does now."""

    unit: UnitKey
    binding: str
    claim: str  # e.g. "secrets"
    before: str  # e.g. "names [orders-creds]"
    after: str  # e.g. "all"
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A guard that tripped: which, why, and which lines it holds back."""

    guard: str  # max-deletes, in-use, allow-empty, identity, suspended, block, ...
    message: str
    clusters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnseenCluster:
    """A cluster that the plan knows nothing of."""

    name: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that would happen. `id` is a digest of all but `revision`, `clusters_read`.

    `changes` are sorted by cluster, then by the order of application; noops are counted, and
    listed too. `sections` maps an app cluster to its control plane. `warnings` and `notes` are
    sentences ("offered, not accepted ...").
    """

    fleet: str
    revision: str
    digest: str  # of the files
    changes: tuple[Change, ...]
    sections: Mapping[str, str]
    widened: tuple[WidenedClaim, ...] = ()
    held: tuple[Held, ...] = ()
    unseen: tuple[UnseenCluster, ...] = ()
    warnings: tuple[str, ...] = ()
    clusters_total: int = 0
    id: str = ""

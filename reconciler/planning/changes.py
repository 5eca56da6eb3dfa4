"""A plan as a value: its changes, the guards that stop some, and unread clusters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

import pydantic
from pydantic import GetPydanticSchema
from pydantic_core import core_schema

from reconciler.core.decision import FieldChange
from reconciler.core.errors import Origin
from reconciler.core.refs import CLUSTER_ROLE, Kind, Ref
from reconciler.core.typed_json import AnyJSON, JSONObject
from reconciler.fleet.values import UnitKey
from reconciler.fleet.wanted import Placement, Wanted


def _stands_as(form: type, value: Callable[[Any], object]) -> GetPydanticSchema:
    """Return the annotation of a value that is made of another form."""
    return GetPydanticSchema(
        lambda _, handler: core_schema.no_info_after_validator_function(
            value, handler.generate_schema(form)
        )
    )


@dataclass(frozen=True, slots=True)
class _FlatRef:
    cluster: str
    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    namespace: str
    name: str

    def ref(self) -> Ref:
        kind = Kind(self.group, self.version, self.kind, self.plural, self.namespaced)
        return Ref(self.cluster, kind, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class _Field:
    path: str
    before: AnyJSON = None
    after: AnyJSON = None

    def change(self) -> FieldChange:
        return FieldChange(self.path, self.before, self.after)


FlatRef: TypeAlias = Annotated[Ref, _stands_as(_FlatRef, _FlatRef.ref)]
Field: TypeAlias = Annotated[FieldChange, _stands_as(_Field, _Field.change)]
UNSAVED: Final = GetPydanticSchema(lambda *_: core_schema.none_schema())


class Action(StrEnum):
    """The action on one object or unit; the values are the words that people read."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    ADOPT = "adopt"
    RELEASE = "release"
    DELETE = "delete"
    NOOP = "noop"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


_IDLE: Final = frozenset({Action.NOOP, Action.BLOCKED, Action.UNKNOWN})
_LEAVING: Final = frozenset({Action.RELEASE, Action.DELETE})


class Verb(StrEnum):
    """The action of one step. Each is idempotent: a done one is left as it is."""

    CREATE = "create"
    DELETE = "delete"
    ORPHAN = "delete-orphaning"  # what the object owns stays: a CRD, and with it every instance
    POLICY = "set-deletion-policy"  # so that a konnector knows that nothing is to be deleted
    OWN = "own"  # the CRD of a service gets its binding as the owner again
    REMEMBER = "remember"  # that the unit is being let go, where the unit is known from
    FORGET = "forget"
    AWAIT_STOP = "await-stop"  # until the konnector has said that it syncs no longer
    AWAIT_GONE = "await-gone"
    RELEASE_COPIES = "release-copies"
    FREE_INSTANCES = "free-instances"
    DELETE_INSTANCES = "delete-instances"
    AWAIT_NO_INSTANCES = "await-no-instances"
    CHECK_NO_INSTANCES = "check-no-instances"  # or nothing is deleted
    DELETE_CRD = "delete-crd"  # after a fresh count of its instances
    UNLIST = "unlist"  # takes one unit out of an AppClusterBinding
    RETIRE = "retire"  # marks what a cluster stood on as released
    NOTE = "note-credential"  # what a kubeconfig is, for plans that may not read it
    REVOKE = "revoke"  # deletes the Secrets of ours that lead from a cluster that leaves
    DELETE_EMPTY = "delete-empty"  # once no instance of any kind is left


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a release, replace or delete, in their order."""

    verb: Verb
    ref: FlatRef
    note: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A line of a plan.

    `cluster` is the app cluster of the line's section. `subject` is a name for people: that of a
    Binding, `space`, `konnector` or `cluster`. `before` is the digest of the live object, "" if
    there is none. `after` is the object to write, without Secrets; None if nothing is written.
    Values that only the apply knows are `(known after apply)`. `reason` is for people only.
    """

    cluster: str
    subject: str
    ref: FlatRef
    action: Action
    reason: str
    origin: Origin | None = None
    unit: UnitKey | None = None
    before: str = ""
    uid: str = ""
    after: JSONObject | None = None
    fields: tuple[Field, ...] = ()
    steps: tuple[Step, ...] = ()
    # How many instances are deleted along, at most; None where none are, or they were not counted.
    instances: int | None = None
    # A replace of a request alone: export, binding and data stay (mapping.md 5).
    keeps_data: Annotated[bool, pydantic.Field(alias="keepsData")] = False
    # The Bindings whose units in this cluster have to be Ready before this line is done.
    waits_for: Annotated[tuple[str, ...], pydantic.Field(alias="waitsFor")] = ()
    # The guards that hold this line back in this run, by their names.
    held: tuple[str, ...] = ()
    # What an apply needs beyond what a plan says. Never saved, and no part of what is said.
    wanted: Annotated[Wanted | None, UNSAVED] = field(default=None, repr=False, compare=False)
    placement: Annotated[Placement | None, UNSAVED] = field(default=None, repr=False, compare=False)

    @property
    def acts(self) -> bool:
        """Whether an apply would write anything for this line."""
        return self.action not in _IDLE

    @property
    def undecided(self) -> bool:
        """Whether an apply decides, which may read the credentials that this is about."""
        return self.action is Action.ADOPT and self.after is None

    @property
    def only_notes(self) -> bool:
        """Whether it writes nothing but notes about credentials."""
        return bool(self.steps) and all(step.verb is Verb.NOTE for step in self.steps)

    @property
    def leaves(self) -> bool:
        """Whether it is about units that the files no longer name."""
        return self.action in _LEAVING

    @property
    def changes_rights(self) -> bool:
        """Whether a konnector that runs would have other rights than before."""
        return self.ref.kind == CLUSTER_ROLE and self.action is Action.UPDATE


@dataclass(frozen=True, slots=True)
class WidenedClaim:
    """A permission claim that would permit more than it does now."""

    unit: UnitKey
    binding: str
    claim: str  # e.g. "secrets"
    before: str  # e.g. "names [orders-creds]"
    after: str  # e.g. "all"
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Tripped:
    """A guard that tripped: which, why, and in which clusters. Lines name it as `held`."""

    guard: str  # max-deletes, in-use, allow-empty, identity, suspended, block, ...
    message: str
    clusters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnseenCluster:
    """A cluster that could not be read."""

    name: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes that an apply would make. `id` is a digest of the whole plan.

    `changes` are sorted by cluster, then by the order of application. They include noops.
    `sections` maps an app cluster to its control plane. `warnings` and `notes` are sentences
    ("offered, not accepted ...").
    """

    fleet: str
    revision: str
    digest: Annotated[str, pydantic.Field(alias="files")]
    # No repr: there may be tens of thousands, and asyncio logs results that are never awaited.
    changes: tuple[Change, ...] = field(repr=False)
    sections: Mapping[str, str]
    widened: tuple[WidenedClaim, ...] = ()
    held: tuple[Tripped, ...] = ()
    unseen: tuple[UnseenCluster, ...] = ()
    warnings: tuple[str, ...] = ()
    clusters_total: Annotated[int, pydantic.Field(alias="clusters")] = 0
    id: str = ""
    # The folder that it was made from, for an apply of the saved plan; "" where it was not saved.
    repository: str = ""

"""A checked and resolved fleet as values, each with its place in the files.

`fleet.load` makes these from files. Everything later (compile, planning, rendering) reads only
these; nothing here knows YAML.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from reconciler.core import names
from reconciler.core.errors import Origin
from reconciler.core.manifest import Manifest
from reconciler.core.refs import GroupResource


class Mode(StrEnum):
    """The creator of the binding space on a control plane."""

    DIRECT = "Direct"
    APP_CLUSTER_BINDING = "AppClusterBinding"


class DeletionPolicy(StrEnum):
    """The fate of a unit that is removed from the files."""

    RELEASE = "Release"
    DELETE = "Delete"
    BLOCK = "Block"


class PruneMode(StrEnum):
    """The reaction to units that left the files."""

    OFF = "off"
    REPORT = "report"
    AUTO = "auto"


# Each from the strictest to the loosest.
_MODES: Final = (PruneMode.OFF, PruneMode.REPORT, PruneMode.AUTO)
_LEAVES: Final = (DeletionPolicy.BLOCK, DeletionPolicy.RELEASE, DeletionPolicy.DELETE)


class Rbac(StrEnum):
    """The rights of a deployed konnector in its app cluster."""

    MINIMAL = "Minimal"
    FULL = "Full"


class Owner(StrEnum):
    """The side that a claimed object belongs to."""

    PROVIDER = "Provider"
    CONSUMER = "Consumer"


@dataclass(frozen=True, slots=True)
class Access:
    """The way klutchctl reaches a cluster: exactly one of the three."""

    context: str = ""
    secret: tuple[str, str] | None = None  # name, key
    in_cluster: bool = False

    def __str__(self) -> str:
        """As in the annotation `access` (mapping.md 1)."""
        if self.secret is not None:
            return f"secret/{self.secret[0]}/{self.secret[1]}"
        return "in-cluster" if self.in_cluster else f"context/{self.context}"


@dataclass(frozen=True, slots=True)
class Konnector:
    """The deployment of a konnector, if any; the fleet's defaults are already in it."""

    deploy: bool = False
    image: str = ""
    rbac: Rbac = Rbac.MINIMAL
    overrides: Manifest = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """`ca` is PEM text or "" (that of our own access); `endpoint` likewise.

    Fields that a document does not state have the defaults of here. `template_namespaces`: where
    templates have to be that say what it offers; (): anywhere.
    """

    name: str
    origin: Origin
    access: Access
    mode: Mode
    namespace: str
    ca: str = ""
    endpoint: str = ""
    pretty_name: str = ""
    template_namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AppCluster:
    """`identity` is the uid that its kube-system must have, or "". `suspended`: why, or None.

    `adopt` names the binding space that the files give to it, or is "".
    """

    name: str
    origin: Origin
    labels: Mapping[str, str]
    access: Access
    control_plane: str
    konnector: Konnector
    app_cluster_binding: tuple[str, str]  # namespace, name; defaults are already in it
    identity: str = ""
    endpoint: str = ""
    ca: str = ""
    suspended: str | None = None
    adopt: str = ""


@dataclass(frozen=True, slots=True, order=True)
class UnitKey:
    """The identity of a unit: its cluster and its resource."""

    cluster: str
    group: str
    resource: str

    @property
    def service(self) -> GroupResource:
        return GroupResource(self.group, self.resource)

    @property
    def name(self) -> str:
        """`plural.group`, the name of request, export, binding and CRD."""
        return names.resource_name(self.resource, self.group)

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A permission claim that the files accept or reject (mapping.md 6). "*" stands alone."""

    group: str
    resource: str
    version: str
    owner: Owner
    names: tuple[str, ...]
    namespaces: tuple[str, ...]
    labels: tuple[tuple[tuple[str, str], ...], ...]  # any of these label maps
    accepted: bool
    origin: Origin


@dataclass(frozen=True, slots=True)
class Unit:
    """A resource bound in a cluster. `binding` names the Binding document it comes from.

    `parameters` have their `${...}` replaced for this cluster. `claims` are those that the
    Binding states, or its Template's; empty for none. Which of them concern this unit's
    resource is known only with the export or template of the control plane.
    """

    key: UnitKey
    binding: str
    origin: Origin
    template: str
    parameters: Manifest
    claims: tuple[Claim, ...]
    deletion_policy: DeletionPolicy
    depends_on: tuple[UnitKey, ...]
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Guards:
    """The guard rails of `Fleet.spec.prune`."""

    mode: PruneMode = PruneMode.AUTO
    max_deletes: int = 10
    max_delete_percent: int = 5
    allow_empty: bool = False
    keep_if_in_use: bool = True
    on_cluster_leave: DeletionPolicy = DeletionPolicy.RELEASE

    def stricter(self, base: "Guards") -> "Guards":
        """Return guards that let nothing happen that these or those of a base would not.

        A looser mode is shown, and not done; a looser `onClusterLeave` waits for a person.
        """
        shown = max(base.mode, PruneMode.REPORT, key=_MODES.index)
        looser = _LEAVES.index(self.on_cluster_leave) > _LEAVES.index(base.on_cluster_leave)
        return Guards(
            mode=min(self.mode, shown, key=_MODES.index),
            max_deletes=min(base.max_deletes, self.max_deletes),
            max_delete_percent=min(base.max_delete_percent, self.max_delete_percent),
            allow_empty=base.allow_empty and self.allow_empty,
            keep_if_in_use=base.keep_if_in_use or self.keep_if_in_use,
            on_cluster_leave=DeletionPolicy.BLOCK if looser else self.on_cluster_leave,
        )


@dataclass(frozen=True, slots=True)
class Fleet:
    """A whole repository. `digest` covers paths and bytes of the files read.

    `revision` is a commit, with "+dirty" for a changed working tree, or "" without Git; it is
    shown and never hashed. `documents` counts those of each kind. `suspended`: why nothing of it is
    changed, or None; each cluster says so, too. `elsewhere` are clusters of the files that another
    process keeps, with their identity or "". `ways_elsewhere` lead to those without: their names,
    by ways as annotations say them.
    """

    name: str
    origin: Origin
    guards: Guards
    control_planes: Mapping[str, ControlPlane]
    clusters: Mapping[str, AppCluster]
    units: Mapping[UnitKey, Unit]
    digest: str
    revision: str
    documents: Mapping[str, int] = field(default_factory=dict)
    suspended: str | None = None
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    ways_elsewhere: Mapping[str, str] = field(default_factory=dict)

    def has_document(self, cluster: str) -> bool:
        """Return whether the files name a cluster, whoever keeps it."""
        return cluster in self.clusters or cluster in self.elsewhere


def read_unit_policies(text: str) -> Mapping[str, DeletionPolicy]:
    pairs = (entry.partition("=") for entry in text.split(",") if entry)
    return {
        name: DeletionPolicy(policy) if policy in set(DeletionPolicy) else DeletionPolicy.RELEASE
        for name, _, policy in pairs
    }


def unit_policies_text(units: Mapping[str, DeletionPolicy]) -> str:
    """Return the text that `read_unit_policies` reads, "" for no units."""
    return ",".join(f"{name}={units[name].value}" for name in sorted(units))

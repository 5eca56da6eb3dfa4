"""Models the live state of clusters: each one read completely, or unavailable.

`observe` makes these from API servers, `parse_live` from a snapshot; planning reads only these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from reconciler.core import typed_json
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import JSON, Manifest, canonical
from reconciler.core.names import resource_name
from reconciler.core.refs import Kind, Ref
from reconciler.core.typed_json import JSONObject


@dataclass(frozen=True, slots=True)
class Address:
    """Our own way to a cluster, which others get where the files name none."""

    server: str
    ca: str
    tls_server_name: str = ""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster, read completely for every kind in `objects` (mapping.md 12).

    `uid` is that of its kube-system namespace. Kinds in `unserved` have no CRD there, which
    the cluster's discovery confirmed; they are known to be empty. `objects` of Namespaces,
    exports and CRDs are metadata only. No Secret holds a value: digests stand there instead, or
    `api.kubeconfig_value`. managedFields are those of our managers, without times; there is no
    resourceVersion. `in_use` counts the instances of a kind by `instances`, where planning asked
    for it, and `bodies` holds exports without their versions, likewise.
    `silent` are the spaces of a control plane whose konnector had sent no heartbeat for longer
    than `api.SILENCE` when they were read, or never. `unreadable` are Secrets, by namespace and
    name, that objects name and the account may not read. `bindings_cluster_scoped` is the
    scope of the live CRD `apiservicebindings` of an app cluster.
    """

    uid: str
    address: Address
    objects: Mapping[Kind, Sequence[Manifest]] = field(repr=False)
    unserved: frozenset[Kind] = frozenset()
    in_use: Mapping[Kind, int] = field(default_factory=dict)
    bodies: Mapping[Ref, Manifest | None] = field(default_factory=dict, repr=False)
    bindings_cluster_scoped: bool = False
    silent: frozenset[str] = frozenset()
    unreadable: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A cluster that could not be read completely: the reason, and the remedy."""

    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """All clusters of a fleet, by their names in the files.

    `leaving` are app clusters that no document names any more, found by our labels and reached
    by the annotation `access`.
    """

    control_planes: Mapping[str, ClusterState | Unavailable] = field(repr=False)
    clusters: Mapping[str, ClusterState | Unavailable] = field(repr=False)
    leaving: Mapping[str, ClusterState | Unavailable] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of planning beyond the reads of every plan.

    `in_use`: app clusters by name, and a kind whose instances there are to be counted; the
    version in it is not looked at. `bodies`: exports to be read whole, or known to be absent;
    accounts to be made, answered with a `message` where an earlier space of that name left
    something; and the Lease of a control plane's backend, which is answered only where that has
    stopped or, as absent, where nothing shows that there is one.
    """

    in_use: frozenset[tuple[str, Kind]] = frozenset()
    bodies: frozenset[Ref] = frozenset()


def control_plane_ref_name(name: str) -> str:
    """Return the `Ref.cluster` of a control plane; app clusters have their bare name there.

    Both kinds of document may bear one name, and "/" is in neither.
    """
    return f"control-plane/{name}"


def plane_unseen(control_plane: str, reason: str = "") -> str:
    """Return the reason why a cluster is unseen: its control plane is, for this reason."""
    why = f": {reason}" if reason else ""
    return f"its control plane {control_plane} is unseen{why}"


def instances(group: str, resource: str) -> Kind:
    """Return the kind that stands for a service in `Questions.in_use` and `ClusterState.in_use`.

    It has no version: that is for the live CRD to say.
    """
    return Kind(group, "", resource_name(resource, group), resource)


# A snapshot as a file: for planning without the clusters, and for reports of defects. The same
# state gives the same bytes. The file holds no time, no credentials and no value of a Secret,
# because `Live` has none.

FORMAT: Final = "klutchctl.dev/live"
VERSION: Final = 1
HINT: Final = "`klutchctl snapshot` writes one"


def dump_live(live: Live) -> bytes:
    """Return the snapshot as JSON, with sorted keys and a line break at the end."""
    document: JSON = {
        "format": FORMAT,
        "version": VERSION,
        "controlPlanes": _dump_part(live.control_planes),
        "clusters": _dump_part(live.clusters),
        "leaving": _dump_part(live.leaving),
    }
    return canonical(document) + b"\n"


def parse_live(content: bytes, source: str) -> Live:
    """Parse the output of `dump_live`; `source` names it in errors.

    Raises ConfigError for anything else, and for a version that is not ours.
    """
    _, snapshot = _FORMAT.read(content, source)
    return Live(
        control_planes=_part(snapshot.control_planes, f"{source}: /controlPlanes"),
        clusters=_part(snapshot.clusters, f"{source}: /clusters"),
        leaving=_part(snapshot.leaving, f"{source}: /leaving"),
    )


def _dump_part(part: Mapping[str, ClusterState | Unavailable]) -> JSON:
    return {
        name: {"unseen": {"reason": verdict.reason, "remedy": verdict.remedy}}
        if isinstance(verdict, Unavailable)
        else {"seen": _dump_seen(verdict)}
        for name, verdict in part.items()
    }


def _dump_seen(seen: ClusterState) -> JSON:
    return {
        "uid": seen.uid,
        "address": {
            "server": seen.address.server,
            "ca": seen.address.ca,
            "tlsServerName": seen.address.tls_server_name,
        },
        "bindingsClusterScoped": seen.bindings_cluster_scoped,
        "objects": [
            {"kind": asdict(kind), "items": seen.objects[kind]} for kind in sorted(seen.objects)
        ],
        "unserved": [asdict(kind) for kind in sorted(seen.unserved)],
        "silent": sorted(seen.silent),
        "inUse": [
            {"kind": asdict(kind), "count": seen.in_use[kind]} for kind in sorted(seen.in_use)
        ],
        "bodies": [{"ref": asdict(ref), "object": seen.bodies[ref]} for ref in sorted(seen.bodies)],
        # Earlier versions read snapshots without it.
        **({"unreadable": sorted(map(list, seen.unreadable))} if seen.unreadable else {}),
    }


@dataclass(frozen=True, slots=True)
class _Address:
    server: str
    ca: str
    tls_server_name: Annotated[str, Field(alias="tlsServerName")]


@dataclass(frozen=True, slots=True)
class _Objects:
    kind: Kind
    items: tuple[JSONObject, ...]


@dataclass(frozen=True, slots=True)
class _InUse:
    kind: Kind
    count: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class _Body:
    ref: Ref
    object: JSONObject | None


@dataclass(frozen=True, slots=True)
class _State:
    uid: str
    address: _Address
    cluster_scoped: Annotated[bool, Field(alias="bindingsClusterScoped")]
    objects: tuple[_Objects, ...]
    unserved: frozenset[Kind]
    silent: frozenset[str]
    in_use: Annotated[tuple[_InUse, ...], Field(alias="inUse")]
    bodies: tuple[_Body, ...]
    unreadable: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A state or a failure; one of the two is there."""

    seen: _State | None = None
    unseen: Unavailable | None = None


_Part: TypeAlias = dict[str, _Verdict]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    control_planes: Annotated[_Part, Field(alias="controlPlanes")]
    clusters: _Part
    leaving: _Part


_FORMAT: Final = typed_json.Format(FORMAT, VERSION, "a snapshot", HINT, _Snapshot)


def _part(part: _Part, where: str) -> dict[str, ClusterState | Unavailable]:
    states: dict[str, ClusterState | Unavailable] = {}
    for name, verdict in part.items():
        if verdict.seen is not None and verdict.unseen is None:
            states[name] = _state(verdict.seen)
        elif verdict.unseen is not None and verdict.seen is None:
            states[name] = verdict.unseen
        else:
            raise ConfigError("must be either seen or unseen", where=f"{where}/{name}")
    return states


def _state(state: _State) -> ClusterState:
    address = state.address
    return ClusterState(
        uid=state.uid,
        address=Address(address.server, address.ca, address.tls_server_name),
        objects={entry.kind: entry.items for entry in state.objects},
        unserved=state.unserved,
        silent=state.silent,
        unreadable=state.unreadable,
        in_use={entry.kind: entry.count for entry in state.in_use},
        bodies={entry.ref: entry.object for entry in state.bodies},
        bindings_cluster_scoped=state.cluster_scoped,
    )

"""Limits tenants: services, Pods, object counts and cached sizes of a space. Pure.

A Namespace is a space by its annotation, or by the labels of its ClusterBinding, which no konnector
may write: a ClusterBinding elsewhere makes no space. Service namespaces have quotas, too. A quota
below the present number of objects stops none of them: it only refuses new ones.

A konnector may write hundreds of objects of 1.5 MiB, and all informers share one memory (rule T9).
So they keep only the fields that the backend reads. Longer texts and lists than any sensible one
are cut, and still show that they are too long.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from reconciler import api
from reconciler.blueprints.objects import build
from reconciler.core import conditions, keys, manifest, names
from reconciler.core.decision import Create, Step, modification
from reconciler.core.documents import takes
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.normalize import canonical_quantity
from reconciler.core.refs import CONFIG_MAP, LEASE, NAMESPACE, RESOURCE_QUOTA, SECRET
from reconciler.core.times import created

# No Pod there can be root, or reach into its node (trust.md T5).
RESTRICTED: Final = {keys.POD_SECURITY_ENFORCE: keys.POD_SECURITY_RESTRICTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The settings of the backend's operator.

    `restricted`: spaces admit no other Pods. So many objects of each of our kinds may be
    `in_space`, and of each kind that its konnector may write `in_service_namespace`; 0: any number.
    """

    restricted: bool = True
    in_space: int = 500
    in_service_namespace: int = 500


UNBOUNDED: Final = Bounds(restricted=False, in_space=0, in_service_namespace=0)

# Objects in a space that a konnector or an author of AppClusterBindings causes.
IN_SPACE: Final = tuple(
    kind.resource
    for kind in (
        api.API_SERVICE_EXPORT_REQUEST,
        api.API_SERVICE_NAMESPACE,
        api.API_SERVICE_BINDING,
        LEASE,
        SECRET,
    )
)
_BUILT_IN: Final = frozenset({LEASE.resource, SECRET.resource, CONFIG_MAP.resource})
_LONGEST_COUNTED: Final = 63  # of a name in a quota; a kind with a longer one cannot be counted
_SETTLED: Final = timedelta(minutes=2)  # since its CRD was made

# One more than a request may name, so that too many are noticed.
MOST_RESOURCES: Final = 100
_LONGEST_NAME: Final = 254  # one more than any resource has
_LONGEST_NOTE: Final = 1024
_LARGEST_STATUS: Final = 64 * 1024  # octets of memory
_LONGEST_TEXT: Final = 512
_FEW: Final = 8  # finalizers of others, which are only counted and shown

_IDENTITY: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
)
_LABELS: Final = (keys.APP_CLUSTER_BINDING_NAME, keys.APP_CLUSTER_BINDING_NAMESPACE)
_OF_BINDINGS: Final = (keys.DELETION_POLICY, keys.DRAINING)
_OF_MAPPINGS: Final = (keys.APP_NAMESPACE_UID,)
_OF_SPACES: Final = (keys.APP_CLUSTER_UID,)


def is_space(namespace: Manifest, binding: Manifest) -> bool:
    if keys.IDENTITY in manifest.annotations_of(namespace):
        return True
    labels = manifest.labels_of(binding)
    owner = (
        labels.get(keys.APP_CLUSTER_BINDING_NAMESPACE, ""),
        labels.get(keys.APP_CLUSTER_BINDING_NAME, ""),
    )
    return all(owner) and names.app_cluster_binding_space(*owner) == manifest.name_of(namespace)


def bound_at_door(namespace: Manifest) -> frozenset[str] | None:
    """Return the resources that the front door let a space have; None where it noted none.

    It is the Namespace that says so, which no konnector may write. A space that a fleet has taken
    over is that fleet's to fill, whatever was noted before.
    """
    note = manifest.annotations_of(namespace).get(keys.MAY_BIND)
    if note is None or is_of_fleet(namespace):
        return None
    return frozenset(filter(None, map(str.strip, note.split(","))))


def is_of_fleet(namespace: Manifest) -> bool:
    """Return whether a fleet holds a space; the label stays when the fleet has let it go."""
    let_go = keys.RELEASED in manifest.annotations_of(namespace)
    return keys.FLEET in manifest.labels_of(namespace) and not let_go


def door_note(resources: Iterable[str]) -> dict[str, str]:
    return {keys.MAY_BIND: ",".join(sorted(resources))}


def pod_security(cluster: str, namespace: Manifest) -> tuple[Step, ...]:
    """Return the labels by which a space admits restricted Pods alone.

    One that says something else got it from an administrator, whose decision it is.
    """
    if manifest.is_deleting(namespace) or keys.POD_SECURITY_ENFORCE in manifest.labels_of(
        namespace
    ):
        return ()
    return (modification(cluster, NAMESPACE, namespace, metadata={"labels": RESTRICTED}),)


@dataclass(frozen=True, slots=True)
class Countable:
    """The resources that a quota may count now; `again` is when there may be more of them."""

    resources: frozenset[str] = frozenset()
    again: timedelta | None = None


NONE_COUNTED: Final = Countable()


def countable(resources: Iterable[str], crds: Mapping[str, Manifest], now: datetime) -> Countable:
    """Return those of these resources that a quota may count.

    Of a kind that the control plane's quota controller does not know yet nobody can tell how many
    there are, and then the API server lets none in. It looks for new CRDs every half minute.
    """
    found, waits = set[str](), list[timedelta]()
    for one in resources:
        if len(one) > _LONGEST_COUNTED:
            continue
        made = created(crds[one]) if one in crds else None
        if one in _BUILT_IN or (made is not None and now - made >= _SETTLED):
            found.add(one)
        elif made is not None:
            waits.append(_SETTLED - (now - made))
    return Countable(frozenset(found), min(waits, default=None))


def hard(number: int, counted: Countable) -> Mapping[str, int]:
    """Return a quota of so many objects of each kind; 0 is for none."""
    return {f"count/{one}": number for one in sorted(counted.resources)} if number else {}


def quota(
    cluster: str, live: Manifest | None, namespace: str, wanted: Mapping[str, int]
) -> tuple[Step, ...]:
    """Return the steps that give a namespace this quota. Counts of others there stay.

    An annotation notes how many of a resource were there when the quota first counted it: its
    number is at least twice that, so that no upgrade stops a tenant who had many before.
    """
    if not wanted or (live is not None and manifest.is_deleting(live)):
        return ()
    found = {
        **manifest.get_map(live, "status", "used"),
        **dict(one.split("=", 1) for one in _noted(live)),
    }
    read = {one: _number(found.get(one)) for one in wanted}
    counts = {one: number for one, number in read.items() if number is not None}
    numbers = {one: max(least, 2 * counts.get(one, 0)) for one, least in wanted.items()}
    spec: dict[str, JSON] = {"hard": {one: str(number) for one, number in numbers.items()}}
    if live is None:
        return (
            Create(
                RESOURCE_QUOTA, build(RESOURCE_QUOTA, names.QUOTA, namespace=namespace, spec=spec)
            ),
        )
    limits = manifest.get_map(live, "spec", "hard")
    note = sorted({*_noted(live), *(f"{one}={number}" for one, number in counts.items())})
    if note == _noted(live) and all(
        _number(limits.get(one)) == each for one, each in numbers.items()
    ):
        return ()
    noted: Manifest = {"annotations": {keys.COUNTED: ",".join(note)}}
    return (modification(cluster, RESOURCE_QUOTA, live, metadata=noted, spec=spec),)


def _noted(live: Manifest | None) -> list[str]:
    note = manifest.annotations_of(live or {}).get(keys.COUNTED, "")
    return sorted(one for one in note.split(",") if "=" in one)


def _number(quantity: JSON) -> int | None:
    """Return a quantity as a number: a server writes `5k` for 5000."""
    if not isinstance(quantity, str | int | float):
        return None
    with contextlib.suppress(ValueError):
        return int(canonical_quantity(quantity))
    return None


def trimmed_request(live: Manifest) -> Manifest:
    """Return the kept part of an APIServiceExportRequest: of `spec` the requested resources."""
    asked = manifest.get_maps(live, "spec", "resources")[: MOST_RESOURCES + 1]
    resources: list[JSON] = [
        {part: manifest.get_text(one, part)[:_LONGEST_NAME] for part in ("group", "resource")}
        for one in asked
    ]
    return _kept(live, spec={"resources": resources}, status=_status(live))


def trimmed_service_namespace(live: Manifest) -> Manifest:
    named = manifest.get_text(live, "status", "namespace")
    return _kept(live, notes=_OF_MAPPINGS, status={"namespace": named} if named else {})


def trimmed_cluster_binding(live: Manifest) -> Manifest:
    spec = manifest.get_map(live, "spec")
    read = {
        part: spec[part] for part in ("kubeconfigSecretRef", "providerPrettyName") if part in spec
    }
    return _kept(live, notes=_OF_SPACES, spec=read, status=_status(live))


def trimmed_export(live: Manifest) -> Manifest:
    """Return the kept part of an APIServiceExport, of which a konnector writes the status."""
    kept = manifest.drop(live, "metadata", "managedFields")
    return {**kept, "status": _status(live)} if "status" in live else kept


def _status(live: Manifest) -> Manifest:
    """Return the status; of one that is longer than any of ours, the fields with known names.

    A writer of conditions writes all that it knows: then what nobody reads is gone for good.
    """
    status = manifest.get_map(live, "status")
    if takes(status) <= _LARGEST_STATUS:
        return status
    known: dict[str, JSON] = {
        one.type: {part: manifest.get_text(raw, part)[:_LONGEST_TEXT] for part in raw}
        for raw in manifest.get_maps(status, "conditions")
        for one in conditions.parse([raw])
        if one.type in conditions.TYPES
    }
    rest = {part: value for part, value in status.items() if takes(value) <= 4 * _LONGEST_TEXT}
    return {**rest, "conditions": list(known.values())}


def trimmed_binding(live: Manifest) -> Manifest:
    """Return the kept part of an APIServiceBinding: of its claims, whether it has any.

    Its finalizers are all there: those of others are written again as they are.
    """
    spec = manifest.get_map(live, "spec")
    read: dict[str, JSON] = {"kubeconfigSecretRef": manifest.get(spec, "kubeconfigSecretRef")}
    if "permissionClaims" in spec:
        read["permissionClaims"] = []
    return _kept(live, notes=_OF_BINDINGS, finalizers=len(manifest.finalizers_of(live)), spec=read)


def trimmed_marks(live: Manifest) -> Manifest:
    """Return the kept part of an object of which only metadata are read."""
    return _kept(live)


def _kept(
    live: Manifest, *, notes: Iterable[str] = (), finalizers: int = _FEW, **parts: Manifest
) -> Manifest:
    whole = manifest.get_map(live, "metadata")
    metadata: dict[str, JSON] = {part: whole[part] for part in _IDENTITY if part in whole}
    labels, annotations = manifest.labels_of(live), manifest.annotations_of(live)
    shown: dict[str, JSON] = {
        "labels": {key: labels[key] for key in _LABELS if key in labels},
        "annotations": {
            key: annotations[key][:_LONGEST_NOTE] for key in notes if key in annotations
        },
        "finalizers": list(manifest.finalizers_of(live)[:finalizers]),
    }
    metadata |= {part: value for part, value in shown.items() if value}
    kept = {part: live[part] for part in ("apiVersion", "kind") if part in live}
    return {**kept, "metadata": metadata, **{part: value for part, value in parts.items() if value}}


def owner_of(annotation: str) -> str:
    """Return the owner of the space with this annotation; "" for one that the door did not make.

    No id of an app cluster holds a `#`, and subjects may.
    """
    owner, separator, _ = annotation.rpartition("#")
    return owner if separator else ""

"""Computes the fewest steps that bring RBAC objects to the state of `blueprints.rbac`. Pure.

It compares rules, subjects and roleRef as sets: labels of others stay, and the order of the
original is no difference.

The role of all konnectors also notes the resources that konnectors ever had rights for. A service
may be withdrawn, with its templates, its exports and the backend's right to list it, while its data
stay in service namespaces. The note says that such a namespace may hold hidden data. The role is
the only object of no tenant that the backend writes anyway.
"""

from collections.abc import Sequence, Set

from reconciler.api import permission_claims_of
from reconciler.core import keys, manifest
from reconciler.core.decision import Create, Step, deletion, modification
from reconciler.core.manifest import Manifest
from reconciler.core.normalize import normalize
from reconciler.core.refs import CLUSTER_ROLE, Kind


def role(cluster: str, kind: Kind, live: Manifest | None, wanted: Manifest) -> tuple[Step, ...]:
    return _list(cluster, kind, live, wanted, field="rules")


def role_binding(
    cluster: str, kind: Kind, live: Manifest | None, wanted: Manifest
) -> tuple[Step, ...]:
    """Return the steps that give a (Cluster)RoleBinding the wanted subjects and role.

    A roleRef cannot be changed: with another one the object is made again (F41).
    """
    if live is not None and not manifest.is_deleting(live) and _role_of(live) != _role_of(wanted):
        return (deletion(cluster, kind, live), Create(kind, wanted))
    return _list(cluster, kind, live, wanted, field="subjects")


def belongs_to(live: Manifest, owner: Manifest) -> bool:
    """Return whether an object names exactly that owner, and not an earlier one of its name."""
    uid = manifest.uid_of(owner)
    owners = manifest.get_maps(live, "metadata", "ownerReferences")
    return bool(uid) and any(one.get("uid") == uid for one in owners)


def noted(role: Manifest | None) -> frozenset[str]:
    """Return the resources (`plural.group`, `plural` of the core group) that the role names."""
    text = manifest.annotations_of(role or {}).get(keys.EVER_EXPORTED, "")
    return frozenset(one.strip() for one in text.split(",")) - {""}


def granted(export: Manifest) -> Sequence[str]:
    """Return the resources to which an export gives rights: its own, and claimed ones."""
    return [manifest.name_of(export), *map(_claimed, permission_claims_of(export))]


def note(cluster: str, role: Manifest | None, resources: Set[str]) -> tuple[Step, ...]:
    """Return the patch that adds missing parts to a live role's note; none is ever taken away."""
    before = noted(role)
    if role is None or manifest.is_deleting(role) or resources <= before:
        return ()
    notes = {keys.EVER_EXPORTED: ",".join(sorted(before | resources))}
    return (modification(cluster, CLUSTER_ROLE, role, metadata={"annotations": notes}),)


def _list(
    cluster: str, kind: Kind, live: Manifest | None, wanted: Manifest, *, field: str
) -> tuple[Step, ...]:
    if live is None:
        return (Create(kind, wanted),)
    # An object in deletion cannot be repaired. After its DELETED event, it is created again.
    if manifest.is_deleting(live) or _set(live, wanted, field) == _set(wanted, wanted, field):
        return ()
    return (modification(cluster, kind, live, **{field: manifest.get_list(wanted, field)}),)


def _set(live: Manifest, like: Manifest, field: str) -> bytes:
    # Items of a list carry no kind of their own.
    typed = {**live, **{key: like[key] for key in ("apiVersion", "kind")}}
    return manifest.canonical(manifest.get_list(normalize(typed), field))


def _role_of(binding: Manifest) -> tuple[str, ...]:
    role = manifest.get_map(binding, "roleRef")
    return tuple(str(role.get(key, "")) for key in ("kind", "name"))


def _claimed(claim: Manifest) -> str:
    group, plural = manifest.get_text(claim, "group"), manifest.get_text(claim, "resource")
    return f"{plural}.{group}" if group else plural

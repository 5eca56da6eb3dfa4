"""Which resources konnectors ever had rights to, noted on ClusterRole klutch-binder. Pure.

A service may be withdrawn, with its templates, its exports and the backend's own right to list it,
while data of it stay in service namespaces. Before one of these goes somebody has to know that it
may hold what nobody is shown any more. The note stands on the one object that the backend writes
anyway and that belongs to no tenant.
"""

from collections.abc import Sequence, Set

from reconciler.api.exports import permission_claims_of
from reconciler.core import keys
from reconciler.core.decision import Patch, Step, preconditions_of
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    get_text,
    is_deleting,
    name_of,
    ref_of,
)
from reconciler.core.refs import CLUSTER_ROLE


def noted(role: Manifest | None) -> frozenset[str]:
    """Return the resources (`plural.group`, `plural` of the core group) that the role names."""
    said = annotations_of(role or {}).get(keys.EVER_EXPORTED, "")
    return frozenset(one.strip() for one in said.split(",")) - {""}


def granted(export: Manifest) -> Sequence[str]:
    """Return the resources to which an export gives rights: its own, and what it claims."""
    return [name_of(export), *map(_claimed, permission_claims_of(export))]


def note(cluster: str, role: Manifest | None, resources: Set[str]) -> tuple[Step, ...]:
    """Return what adds to a live role's note what is not in it yet; nothing is ever taken away."""
    before = noted(role)
    if role is None or is_deleting(role) or resources <= before:
        return ()
    notes = {keys.EVER_EXPORTED: ",".join(sorted(before | resources))}
    body: Manifest = {"metadata": {**preconditions_of(role), "annotations": notes}}
    return (Patch(ref_of(cluster, CLUSTER_ROLE, role), body),)


def _claimed(claim: Manifest) -> str:
    group, plural = get_text(claim, "group"), get_text(claim, "resource")
    return f"{plural}.{group}" if group else plural

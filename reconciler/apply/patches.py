"""Computes the patches of steps from the live object. Pure.

Each returns a merge patch, without its preconditions, or None where nothing is to be done.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeAlias

from reconciler import api
from reconciler.api import claim_status
from reconciler.blueprints import objects
from reconciler.core import keys, manifest
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import Ref
from reconciler.core.times import format_time
from reconciler.fleet.values import DeletionPolicy, unit_policies_text
from reconciler.planning import prune_units
from reconciler.planning.app_cluster_bindings import policies_of

Decide: TypeAlias = Callable[[Manifest], Manifest | None]


class Stale(Exception):
    """The object is not as the plan saw it. Nothing was written."""


def annotate(key: str, value: str) -> Decide:
    """Return the patch that sets one annotation, or removes it for ""; nothing where it is so."""

    def decide(live: Manifest) -> Manifest | None:
        if manifest.annotations_of(live).get(key, "") == value:
            return None
        return {"metadata": {"annotations": {key: value or None}}}

    return decide


def remember(unit: str, policies: Mapping[str, DeletionPolicy]) -> Decide:
    """Note how a unit is being let go, or that it is no longer, for no policy."""

    def decide(live: Manifest) -> Manifest | None:
        known = dict(prune_units.remembered(live))
        known.pop(unit, None)
        return annotate(keys.LEAVING, unit_policies_text({**known, **policies}))(live)

    return decide


def unlist(ref: Ref, unit: str, *, uid: str) -> Decide:
    """Take a unit out of an AppClusterBinding. Raises Stale for another uid."""

    def decide(live: Manifest) -> Manifest | None:
        _check(ref, live, uid)
        listed = manifest.get_maps(live, "spec", "apiExports")
        kept: list[JSON] = [
            resource for resource in listed if api.listed_resource(resource).name != unit
        ]
        if len(kept) == len(listed):
            return None
        policies = dict(policies_of(live))
        policies.pop(unit, None)
        forgotten = annotate(keys.UNIT_POLICIES, unit_policies_text(policies))(live) or {}
        return {"spec": {"apiExports": kept}, **forgotten}

    return decide


def retire(ref: Ref, *, uid: str, now: datetime) -> Decide:
    """Mark the root of a cluster as released, once. Raises Stale for another uid."""

    def decide(live: Manifest) -> Manifest | None:
        _check(ref, live, uid)
        if keys.RELEASED in manifest.annotations_of(live):
            return None
        emptied: Manifest = {}
        if ref.kind == api.APP_CLUSTER_BINDING:
            emptied = {"spec": {"apiExports": [], "konnector": {"deploy": False}}}
        return {**emptied, **(annotate(keys.RELEASED, format_time(now))(live) or {})}

    return decide


def own(binding: Manifest | None) -> Decide:
    """Make a binding, if any, the owner of its service's CRD, where a konnector installed that.

    A konnector calls a CRD foreign whose owner is another binding, also one of that name that
    was deleted (protocol-konnector.md C.3, H15). A CRD that no konnector made stays as it is.
    """
    owner = manifest.controller_to(api.API_SERVICE_BINDING, binding or {})

    def decide(live: Manifest) -> Manifest | None:
        owners = manifest.get_maps(live, "metadata", "ownerReferences")
        others: list[JSON] = [other for other in owners if not api.is_binding_reference(other)]
        if binding is None or not api.is_from_konnector(live) or owner in owners:
            return None
        return {"metadata": {"ownerReferences": [*others, owner]}}

    return decide


def unserved(crd: Manifest) -> Manifest | None:
    """Return the patch by which a konnector's CRD warns users of a kind that is bound no more."""
    change = claim_status.unserved(crd)
    return None if change is None else {"spec": change}


def unfinalized(finalizer: str) -> Decide:
    def decide(live: Manifest) -> Manifest | None:
        found = manifest.finalizers_of(live)
        kept = [one for one in found if one != finalizer]
        return {"metadata": {"finalizers": kept}} if len(kept) < len(found) else None

    return decide


def unbind(now: datetime) -> Decide:
    """Mark a copy as released in place of bound."""

    def decide(live: Manifest) -> Manifest | None:
        if not objects.is_to_release(live):
            return None
        return {"metadata": objects.released(live, now)}

    return decide


def _check(ref: Ref, live: Manifest, uid: str) -> None:
    if manifest.uid_of(live) != uid:
        raise Stale(f"{ref.object} was deleted and made again")

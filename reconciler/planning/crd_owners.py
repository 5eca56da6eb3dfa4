"""Gives a service's CRD in an app cluster back to the binding that is live there.

A konnector that finds another owner, or none, on a CRD calls it foreign and follows it no more
(protocol-konnector.md C.3, H15). So it is after a binding was deleted and made again.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from reconciler.api.bindings import API_SERVICE_BINDING
from reconciler.api.exports import is_from_konnector
from reconciler.core.manifest import Manifest, get_maps, get_text, is_deleting, uid_of
from reconciler.core.refs import CRD
from reconciler.fleet.values import Mode, Unit
from reconciler.planning.changes import Action, Change, Step, Verb
from reconciler.planning.compare import before_digest
from reconciler.planning.units import Site

_LEFT_AS_IT_IS: Final = frozenset({Action.NOOP, Action.UPDATE})


def owner_changes(site: Site, unit: Unit, changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the line that gives a CRD its binding as the owner again, where that is due.

    `changes` are the other lines of the unit. Those that make a binding see to the CRD
    themselves, and one that is adopted is left as it is. A CRD that no konnector made, or that
    another live binding owns, is not touched.
    """
    bound = next((change for change in changes if change.ref.kind == API_SERVICE_BINDING), None)
    if bound is None or bound.action not in _LEFT_AS_IT_IS or _may_not_own(site, unit):
        return ()
    index = site.app if bound.ref.cluster == site.app.name else site.control_plane
    live, crd = index.at(bound.ref), site.app.get(CRD, "", unit.key.name)
    if live is None or crd is None or is_deleting(crd) or not is_from_konnector(crd):
        return ()
    owners = _owners(crd)
    if uid_of(live) in owners or owners & _live_bindings(site):
        return ()
    line = replace(
        bound,
        ref=site.app.ref(CRD, crd),
        action=Action.UPDATE,
        reason="its binding was made again, and the konnector takes the CRD for another's",
        before=before_digest(crd, {}),
        uid=uid_of(crd),
        after=None,
        fields=(),
        steps=(Step(Verb.OWN, site.app.ref(CRD, crd), "ownerReference to the binding"),),
    )
    return (line,)


def _may_not_own(site: Site, unit: Unit) -> bool:
    """Tell whether the garbage collector would miss a cluster-scoped owner, and delete the CRD."""
    plane = site.fleet.clusters[unit.key.cluster].control_plane
    direct = site.fleet.control_planes[plane].mode is Mode.DIRECT
    return not direct and site.placement.bindings_cluster_scoped


def _owners(crd: Manifest) -> set[str]:
    """Return the uids of the bindings that own a CRD: `observe.objects` keeps no other owners."""
    return {get_text(owner, "uid") for owner in get_maps(crd, "metadata", "ownerReferences")}


def _live_bindings(site: Site) -> set[str]:
    return {
        uid_of(binding)
        for index in (site.app, site.control_plane)
        for binding in index.all(API_SERVICE_BINDING)
    }

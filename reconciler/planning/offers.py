"""Finds what a control plane offers of a resource: by its export, else by its template."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.api.exports import (
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_TEMPLATE,
    by_resource,
    permission_claims_of,
)
from reconciler.core.live import ClusterState
from reconciler.core.manifest import Manifest, namespace_of
from reconciler.core.normalize import normalize_claim
from reconciler.core.refs import CRD, GroupResource, Ref
from reconciler.fleet.values import ControlPlane, Unit
from reconciler.planning.index import Index


@dataclass(frozen=True, slots=True)
class Offer:
    """The claims that the control plane offers for a resource, or why it offers none.

    The claims say everything (`normalize_claim`).
    """

    claims: Sequence[Manifest]
    problem: str = ""
    bodies: frozenset[Ref] = field(default_factory=frozenset)


def counted(plane: ControlPlane, seen: ClusterState) -> ClusterState:
    """Return what was seen of a control plane with only the templates that count.

    In a namespace that is not named, anybody with rights there could offer claims of his own.
    """
    if not plane.template_namespaces:
        return seen
    kind = API_SERVICE_EXPORT_TEMPLATE
    templates = seen.objects.get(kind, ())
    found = tuple(
        template for template in templates if namespace_of(template) in plane.template_namespaces
    )
    return replace(seen, objects={**seen.objects, kind: found})


def offer_of(control_plane: Index, space: str, unit: Unit) -> Offer:
    """Return what the export offers; before there is one, what its template does."""
    cp, key = control_plane, unit.key
    export = Ref(cp.name, API_SERVICE_EXPORT, space, key.name)
    offered = cp.once("offers", _by_resource)
    claims = offered.get(GroupResource(key.group, key.resource))
    if cp.at(export) is not None:
        body = cp.seen.bodies.get(export)
        if body is not None:
            return Offer(_claims(body))
        return Offer(claims or (), bodies=frozenset({export}) if unit.claims else frozenset())
    if claims is None:
        listed = ", ".join(sorted(resource.name for resource in offered)) or "nothing"
        problem = f"the control plane offers no template for {key.name}; it offers {listed}"
        return Offer((), problem=problem)
    if cp.get(CRD, "", key.name) is None:
        problem = f"the control plane has a template for {key.name} and no CRD of that name"
        return Offer((), problem=problem)
    return Offer(claims)


def _by_resource(control_plane: Index) -> Mapping[GroupResource, Sequence[Manifest]]:
    """Return what each template that counts offers."""
    templates = control_plane.all(API_SERVICE_EXPORT_TEMPLATE)
    return {resource: _claims(template) for resource, template in by_resource(templates).items()}


def _claims(offering: Manifest) -> Sequence[Manifest]:
    return [normalize_claim(claim) for claim in permission_claims_of(offering)]

"""What a control plane offers of a resource: by its export, else by its template."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_template import API_SERVICE_EXPORT_TEMPLATE
from reconciler.core.manifest import Manifest, get_maps, get_text, name_of, namespace_of
from reconciler.core.refs import CRD, Ref
from reconciler.fleet.values import Unit
from reconciler.planning.index import Index


@dataclass(frozen=True, slots=True)
class Offer:
    """What the control plane offers of a unit's resource: claims, or why it offers nothing."""

    claims: Sequence[Manifest]
    problem: str = ""
    bodies: frozenset[Ref] = field(default_factory=frozenset)


def offer_of(control_plane: Index, space: str, unit: Unit) -> Offer:
    """An export is what is offered; before there is one, its template is."""
    cp, key = control_plane, unit.key
    export = Ref(cp.name, API_SERVICE_EXPORT, space, key.name)
    template = _template(cp, unit)
    if cp.at(export) is not None:
        body = cp.seen.bodies.get(export)
        if body is not None:
            return Offer(get_maps(body, "spec", "permissionClaims"))
        known = [] if template is None else get_maps(template, "spec", "permissionClaims")
        return Offer(known, bodies=frozenset({export}) if unit.claims else frozenset())
    if template is None:
        offered = ", ".join(sorted(_offered(cp))) or "nothing"
        problem = f"the control plane offers no template for {key.name}; it offers {offered}"
        return Offer((), problem=problem)
    if cp.get(CRD, "", key.name) is None:
        problem = f"the control plane has a template for {key.name} and no CRD of that name"
        return Offer((), problem=problem)
    return Offer(get_maps(template, "spec", "permissionClaims"))


def _template(control_plane: Index, unit: Unit) -> Manifest | None:
    """Return the template of a resource, the first by name where there are several."""
    wanted = (unit.key.group, unit.key.resource)
    templates = control_plane.all(API_SERVICE_EXPORT_TEMPLATE)
    found = [one for one in templates if _selects(one) == wanted]
    return min(found, key=lambda one: (namespace_of(one), name_of(one)), default=None)


def _selects(template: Manifest) -> tuple[str, str]:
    selector = ("spec", "APIServiceSelector")
    return get_text(template, *selector, "group"), get_text(template, *selector, "resource")


def _offered(control_plane: Index) -> set[str]:
    pairs = map(_selects, control_plane.all(API_SERVICE_EXPORT_TEMPLATE))
    return {f"{resource}.{group}" if group else resource for group, resource in pairs}

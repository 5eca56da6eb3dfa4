"""Plans one unit: its request in Direct mode, and its binding (mapping.md 3, 5, 6, 8)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler import api
from reconciler.blueprints.consent import reserved
from reconciler.blueprints.objects import parameters_digest
from reconciler.core import conditions, keys, manifest, names
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.normalize import normalize_claim
from reconciler.core.refs import CRD, SECRET, GroupResource, Ref
from reconciler.fleet.compile import unit_objects
from reconciler.fleet.values import Claim, Unit
from reconciler.fleet.wanted import Placement, Wanted
from reconciler.planning import permission_claims
from reconciler.planning.changes import Action, Change, Step, Verb, WidenedClaim
from reconciler.planning.objects import before_digest, draft_of, obstacle, owned_changes, sealed
from reconciler.planning.permission_claims import offer_of
from reconciler.planning.placement import same_way
from reconciler.planning.site import Site

_LEFT_AS_IT_IS: Final = frozenset({Action.NOOP, Action.UPDATE})


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """The lines of one unit. `bodies` are exports that must be read whole to know better.

    `unoffered` are claims of its Binding that are not for this resource, or for none. `bound` is
    its wanted binding.
    """

    changes: tuple[Change, ...] = ()
    widened: tuple[WidenedClaim, ...] = ()
    warnings: tuple[str, ...] = ()
    bodies: frozenset[Ref] = field(default_factory=frozenset)
    unoffered: tuple[Claim, ...] = ()
    bound: Wanted | None = None


def plan_unit(site: Site, unit: Unit) -> UnitPlan:
    """Decide about one unit that the files want."""
    offer = offer_of(site.control_plane, site.placement.space, unit)
    division = permission_claims.divide(unit.claims, offer.claims)
    *requests, binding = unit_objects(
        site.fleet, unit, _own_way(site, unit), claims=division.taken, required=division.required
    )
    problem = (
        offer.problem
        or _claim_problem(unit, division)
        or _obstacle(site, unit, requests, binding)
        or _other_owner(site, binding)
    )
    if problem:
        return UnitPlan((line_of(unit, binding.ref, Action.BLOCKED, problem),), bodies=offer.bodies)
    live = _live(site, binding)
    differs = live is None or _claims(live) != _claims(binding.manifest)
    bound = _bound_changes if site.is_direct else _listed_changes
    return UnitPlan(
        changes=(
            *(_request_change(site, unit, request) for request in requests),
            *(sealed(change, live, binding) for change in bound(site, unit, binding)),
        ),
        widened=_widened(unit, live, binding) if differs else (),
        warnings=(*_unaccepted(unit, division), *(_opened(unit, binding) if differs else ())),
        bodies=offer.bodies if differs else frozenset(),
        unoffered=division.unoffered,
        bound=binding,
    )


def _live(site: Site, wanted: Wanted) -> Manifest | None:
    return (site.app if wanted.ref.cluster == site.app.name else site.control_plane).at(wanted.ref)


def _claim_problem(unit: Unit, division: permission_claims.Division) -> str:
    """Return why a unit's claims cannot be accepted, or ""."""
    if not division.wider:
        return ""
    claim = division.wider[0]
    return (
        f"the claim on {claim.resource} ({claim.origin}) reaches further than the control plane "
        f"offers for {unit.key.name}"
    )


def _own_way(site: Site, unit: Unit) -> Placement:
    """Keep the Secret of a live binding where that leads to the space as well as K does."""
    placement = site.placement
    if not site.is_direct:
        return placement
    live = _live_binding(site, unit)
    namespace, name = ("", "") if live is None else api.secret_of(live)
    if name == placement.consumer_secret:
        return placement
    secret = site.app.get(SECRET, namespace, name)
    source = site.control_plane.get(
        SECRET, placement.kubeconfig_namespace, placement.kubeconfig_name
    )
    # A konnector that lives mirrors the source; what was noted before it did is not compared.
    lives = placement.space not in site.control_plane.seen.silent
    unread = site.app.blind and (secret is None or lives)
    unknown = unread and site.control_plane.at(site.carrier) is not None
    same = unknown or same_way(secret, source, placement.space)
    if namespace == names.KLUTCH_NAMESPACE and same:
        return replace(placement, consumer_secret=name)
    return placement


def _obstacle(site: Site, unit: Unit, requests: Sequence[Wanted], binding: Wanted) -> str:
    """Return the reason why the live objects of a unit in mode Direct cannot be judged, or ""."""
    if not site.is_direct:
        return ""
    export = Ref(
        site.control_plane.name, api.API_SERVICE_EXPORT, site.placement.space, unit.key.name
    )
    placed = [(site.control_plane, ref) for ref in (*(one.ref for one in requests), export)]
    for index, ref in (*placed, (site.app, binding.ref)):
        live = index.at(ref)
        if live is not None and (refused := obstacle(live, fleet=site.fleet.name)):
            return f"{ref.kind.kind} {ref.name}: {refused}"
    live = site.app.at(binding.ref)
    # What we do not know to be ours is not replaced.
    if live is None or site.owns(live) or not _leads_elsewhere(live, binding):
        return ""
    return f"APIServiceBinding {unit.key.name} is not ours, and its kubeconfig leads elsewhere"


def _other_owner(site: Site, binding: Wanted) -> str:
    """Return why a binding is another AppClusterBinding's; names of spaces are ambiguous."""
    live = None if site.is_direct else _live(site, binding)
    if live is None:
        return ""
    labels, (namespace, name) = manifest.labels_of(live), site.placement.app_cluster_binding
    owner = (
        labels.get(keys.APP_CLUSTER_BINDING_NAMESPACE, namespace),
        labels.get(keys.APP_CLUSTER_BINDING_NAME, name),
    )
    if owner == (namespace, name):
        return ""
    return f"the binding in {site.placement.space} belongs to AppClusterBinding {'/'.join(owner)}"


def _request_change(site: Site, unit: Unit, wanted: Wanted) -> Change:
    """Decide about the request, by the table of mapping.md 5."""
    live = site.control_plane.at(wanted.ref)
    return sealed(_requested(site, unit, wanted, live), live, wanted)


def _requested(site: Site, unit: Unit, wanted: Wanted, live: Manifest | None) -> Change:
    export = site.control_plane.get(api.API_SERVICE_EXPORT, site.placement.space, unit.key.name)
    change = draft_of(wanted, live, unit.binding, "the export exists")
    if parameters := _parameters_changed(site, unit, live):
        reason = f"{parameters} (this backend may ignore parameters)"
        made = replace(change, after=wanted.manifest)
        return replace(_replaced(made, live, reason), keeps_data=True)
    if export is not None:
        return change
    if live is None:
        return replace(change, action=Action.CREATE, reason="new", after=wanted.manifest)
    phase = manifest.get_text(live, "status", "phase")
    if phase in ("Succeeded", "Failed"):
        reason = f"the request is {phase} and there is no export: neither ever resumes"
        return _replaced(replace(change, after=wanted.manifest), live, reason)
    return replace(change, reason=f"waiting: {_waits_for(live)}")


def _replaced(change: Change, live: Manifest | None, reason: str) -> Change:
    removal = () if live is None else (Step(Verb.DELETE, change.ref, "the old request"),)
    steps = (*removal, Step(Verb.CREATE, change.ref, "a new request"))
    return replace(change, action=Action.REPLACE, reason=reason, steps=steps)


def _waits_for(request: Manifest) -> str:
    found = conditions.get(request, "ExportsReady")
    if found is None or not found.reason:
        return "the backend has not answered the request yet"
    return f"ExportsReady is {found.status}, {found.reason}: {found.message}"


def _parameters_changed(site: Site, unit: Unit, request: Manifest | None) -> str:
    """Return `request: parameters OLD -> NEW` by digests, or "" where they agree.

    The binding's annotation tells what was asked for last, unless a request of ours still says
    it: the request is written before the annotation, and a run may have ended between the two.
    """
    binding = _live_binding(site, unit)
    if binding is None:
        return ""
    before = manifest.annotations_of(binding).get(keys.PARAMETERS, "")
    if request is not None and site.owns(request):
        before = parameters_digest(manifest.get_map(request, "spec", "parameters"))
    after = parameters_digest(unit.parameters)
    if before == after:
        return ""
    return f"request: parameters {before or '{}'} -> {after or '{}'} (export and data untouched)"


def _live_binding(site: Site, unit: Unit) -> Manifest | None:
    namespace = "" if site.placement.bindings_cluster_scoped else names.KLUTCH_NAMESPACE
    return site.app.get(api.API_SERVICE_BINDING, namespace, unit.key.name)


def _bound_changes(site: Site, unit: Unit, wanted: Wanted) -> tuple[Change, ...]:
    """Decide about a binding that we write, in mode Direct."""
    live = site.app.at(wanted.ref)
    draft = draft_of(wanted, live, unit.binding)
    if live is not None and _leads_elsewhere(live, wanted):
        crd = Ref(site.app.name, CRD, "", unit.key.name)
        steps = (
            Step(Verb.ORPHAN, wanted.ref, "the CRD stays, and every instance"),
            Step(Verb.CREATE, wanted.ref),
            Step(Verb.OWN, crd, "ownerReference to the new binding"),
        )
        reason = "kubeconfigSecretRef differs and cannot be changed"
        after = wanted.manifest
        return (replace(draft, action=Action.REPLACE, reason=reason, steps=steps, after=after),)
    return owned_changes(draft, live, wanted, fleet=site.fleet.name)


def _listed_changes(site: Site, unit: Unit, wanted: Wanted) -> tuple[Change, ...]:
    """Decide about a binding that the backend makes, once the unit is listed."""
    live, root = site.control_plane.at(wanted.ref), site.live_root
    draft = draft_of(wanted, live, unit.binding)
    if live is not None:
        return owned_changes(draft, live, wanted, fleet=site.fleet.name)
    resource = GroupResource(unit.key.group, unit.key.resource)
    if root is not None and resource in api.listed_resources(root):
        return (replace(draft, reason="waiting: the backend has not made the binding yet"),)
    reason = "new" if root is None else "new: its claims follow once the backend has made it"
    return (replace(draft, action=Action.CREATE, reason=reason, after=wanted.manifest),)


def _leads_elsewhere(live: Manifest, wanted: Wanted) -> bool:
    return api.secret_of(live) != api.secret_of(wanted.manifest)


def _claims(binding: Manifest) -> list[JSON]:
    found: list[JSON] = [
        *map(normalize_claim, manifest.get_maps(binding, "spec", "permissionClaims"))
    ]
    return sorted(found, key=manifest.digest) if len(found) > 1 else found


def _widened(unit: Unit, live: Manifest | None, wanted: Wanted) -> tuple[WidenedClaim, ...]:
    """Return the claims that would reach further than the live binding lets them."""
    if live is None:
        return ()
    old = [normalize_claim(claim) for claim in manifest.get_maps(live, "spec", "permissionClaims")]
    found = []
    for claim in map(
        normalize_claim, manifest.get_maps(wanted.manifest, "spec", "permissionClaims")
    ):
        if permission_claims.is_wider(claim, old):
            before = [permission_claims.reach(one) for one in permission_claims.alike(claim, old)]
            found.append(
                WidenedClaim(
                    unit=unit.key,
                    binding=unit.binding,
                    claim=permission_claims.title(claim),
                    before=", ".join(sorted(before)) or "nothing",
                    after=permission_claims.reach(claim),
                    origin=unit.origin,
                )
            )
    return tuple(found)


def _unaccepted(unit: Unit, division: permission_claims.Division) -> tuple[str, ...]:
    """Return a sentence for each claim that is offered and not named."""
    place = f"{unit.key} ({unit.origin})"
    sentences = [
        f"{place}: {name} is offered, not accepted"
        + (" though the provider calls it required" if name in division.missing else "")
        for name in division.unnamed
    ]
    return tuple(sentences)


def _opened(unit: Unit, binding: Wanted) -> tuple[str, ...]:
    """Return a sentence where claims that are to be written open the cluster itself."""
    opened = reserved(manifest.get_maps(binding.manifest, "spec", "permissionClaims"))
    if not opened:
        return ()
    warning = "its claims reach namespaces of the cluster itself"
    return (f"{unit.key} ({unit.origin}): {warning}: {', '.join(opened)}",)


def line_of(unit: Unit, ref: Ref, action: Action, reason: str) -> Change:
    return Change(
        cluster=unit.key.cluster,
        subject=unit.binding,
        ref=ref,
        action=action,
        reason=reason,
        origin=unit.origin,
        unit=unit.key,
    )


def owner_changes(site: Site, unit: Unit, planned: UnitPlan) -> tuple[Change, ...]:
    """Return the line that gives a CRD its binding as the owner again, where that is due.

    The other lines of the unit that make a binding see to the CRD themselves, and one that is
    adopted is left as it is. A CRD that no konnector made, or another live binding owns, stays.
    """
    bound = next((one for one in planned.changes if one.ref.kind == api.API_SERVICE_BINDING), None)
    # The garbage collector would miss a cluster-scoped owner, and delete the CRD.
    if not site.is_direct and site.placement.bindings_cluster_scoped:
        return ()
    if bound is None or bound.action not in _LEFT_AS_IT_IS:
        return ()
    index = site.app if bound.ref.cluster == site.app.name else site.control_plane
    live, crd = index.at(bound.ref), site.app.get(CRD, "", unit.key.name)
    if live is None or crd is None or manifest.is_deleting(crd) or not api.is_from_konnector(crd):
        return ()
    # `observe.objects` keeps the owners that are bindings, and no others.
    owned = manifest.get_maps(crd, "metadata", "ownerReferences")
    owners = {manifest.get_text(one, "uid") for one in owned}
    both = site.app, site.control_plane
    bindings = [live, *(one for at in both for one in at.all(api.API_SERVICE_BINDING))]
    if owners & {*map(manifest.uid_of, bindings)}:
        return ()
    line = replace(
        bound,
        ref=site.app.ref(CRD, crd),
        action=Action.UPDATE,
        reason="its binding was made again, and the konnector takes the CRD for another's",
        before=before_digest(crd, {}),
        uid=manifest.uid_of(crd),
        after=None,
        fields=(),
        steps=(Step(Verb.OWN, site.app.ref(CRD, crd), "ownerReference to the binding"),),
        wanted=planned.bound,
    )
    return (line,)

"""Finds live bindings that no file names, and writes them as files (`klutchctl import`). Pure.

What is not ours of them (mapping.md 0, Ownership) is listed and never touched until then.
A take-over changes nothing that is in force, so only what the files can say exactly as it is live
is imported. The command plans with the new files, and `settled` drops what would change. A Binding
takes a Template of the files whose ceiling holds just its claims, else a new one with the claims
that are accepted now as the most there may be.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import Final, TypeAlias

from pydantic import ValidationError

from reconciler import api
from reconciler.blueprints.objects import parameters_digest
from reconciler.core import keys, manifest
from reconciler.core.live import Live
from reconciler.core.manifest import JSON, Manifest, canonical
from reconciler.core.refs import SECRET
from reconciler.fleet import base_model
from reconciler.fleet.base_model import NAME, REFERENCE_MARK
from reconciler.fleet.files import Patterns
from reconciler.fleet.load import Loaded
from reconciler.fleet.models import API_VERSION, BindingDocument
from reconciler.fleet.service_models import CeilingClaim
from reconciler.fleet.values import Fleet, UnitKey
from reconciler.planning import app_cluster_bindings, placement, preflight, prune_units
from reconciler.planning.changes import Action, Change, Plan
from reconciler.planning.permission_claims import ANY, title
from reconciler.planning.placement import Blocked
from reconciler.planning.preflight import Preflight
from reconciler.planning.prune_units import unit_of
from reconciler.planning.site import Site

FileClaim: TypeAlias = Mapping[str, JSON]  # as in a Binding's spec.claims
Document: TypeAlias = Mapping[str, JSON]

_ACCEPTED: Final = "Accepted"


@dataclass(frozen=True, slots=True)
class UnnamedBinding:
    """A live binding that no file names. `ours`: it left the files.

    `binding` is the APIServiceBinding, None where the backend has not made it. `request` is its
    live request. `elsewhere`: its kubeconfig leads to another space than the cluster's own, ""
    where it leads there.
    """

    unit: UnitKey
    binding: Manifest | None
    request: Manifest | None
    elsewhere: str = ""
    ours: bool = False


def unmanaged_units(
    fleet: Fleet, live: Live, *, only: Collection[str] | None = None
) -> tuple[UnitKey, ...]:
    """Return the units that are bound beside the files, without those that left them."""
    sites = _preflights(fleet, live, only).values()
    return tuple(binding.unit for binding in _unnamed_bindings(sites) if not binding.ours)


def _preflights(fleet: Fleet, live: Live, only: Collection[str] | None) -> Mapping[str, Preflight]:
    """Return where each app cluster, or `only` some, stands, of those that were seen."""
    names = sorted(name for name in fleet.clusters if only is None or name in only)
    return preflight.preflights(fleet, live, preflight.control_planes(fleet, live), names)


def _unnamed_bindings(sites: Iterable[Preflight]) -> list[UnnamedBinding]:
    """Return the bindings that no file names, by unit: beside the files, or since it left them."""
    bindings = (
        binding
        for site in sites
        if isinstance(site, Site)
        for binding in (_direct(site) if site.is_direct else _listed(site))
    )
    return sorted(bindings, key=lambda binding: binding.unit)


def _direct(site: Site) -> Iterator[UnnamedBinding]:
    space = site.placement.space
    for binding in prune_units.unnamed_bindings(site):
        unit = unit_of(site.app.name, manifest.name_of(binding))
        secret = site.app.get(SECRET, *api.secret_of(binding))
        unread = site.app.blind and secret is None
        there = placement.leads_to(secret) or (space if unread else "an unknown place")
        request = site.control_plane.get(api.API_SERVICE_EXPORT_REQUEST, space, unit.name)
        ours = site.owns(binding)
        yield UnnamedBinding(unit, binding, request, "" if there == space else there, ours)


def _listed(site: Site) -> Iterator[UnnamedBinding]:
    live = site.live_root
    if live is None:
        return
    ours = {prune.key for prune in app_cluster_bindings.prunes(site)}
    for resource in api.listed_resources(live):
        unit = UnitKey(site.app.name, resource.group, resource.plural)
        if unit not in site.fleet.units:
            bound = site.control_plane.get(api.API_SERVICE_BINDING, site.placement.space, unit.name)
            yield UnnamedBinding(unit, bound, None, ours=unit in ours)


class Unsayable(Exception):
    """A live binding cannot be expressed in files."""


@dataclass(frozen=True, slots=True)
class Import:
    """A resource that is bound alike in some clusters, sorted."""

    group: str
    resource: str
    clusters: tuple[str, ...]
    claims: tuple[FileClaim, ...]
    parameters: Manifest


@dataclass(frozen=True, slots=True)
class Imports:
    """The importable bindings, in order, and the others: each name and its reason."""

    found: tuple[Import, ...]
    left: tuple[tuple[str, str], ...] = ()


def imports(fleet: Fleet, live: Live, *, only: Collection[str] | None = None) -> Imports:
    """Return the bindings beside the files in all app clusters, or `only` some.

    What left the files is no binding: a plan lets it go. But files that name no unit at all have
    lost them, as a plan sees it too, which lets nothing go then (`prune.allowEmpty`).
    """
    alike: dict[tuple[str, str, bytes], list[tuple[str, Import]]] = defaultdict(list)
    sites = _preflights(fleet, live, only)
    left = [(name, site.reason) for name, site in sites.items() if isinstance(site, Blocked)]
    for binding in _unnamed_bindings(sites.values()):
        try:
            if binding.ours and fleet.units:
                raise Unsayable(
                    "it left the files of this fleet, and a plan lets it go; to keep it, put its"
                    " Binding back"
                )
            one = _import(binding)
        except Unsayable as reason:
            left.append((str(binding.unit), str(reason)))
            continue
        content = canonical({"claims": list(one.claims), "parameters": one.parameters})
        alike[one.group, one.resource, content].append((binding.unit.cluster, one))
    found = (
        replace(some[0][1], clusters=tuple(sorted(name for name, _ in some)))
        for _, some in sorted(alike.items(), key=lambda item: item[0])
    )
    return Imports(tuple(found), tuple(sorted(left)))


def settled(made: Imports, plan: Plan) -> Imports:
    """Return the imports whose units the plan of their files takes over as they are.

    The others are left alone. Equal to `made` where all are.
    """
    lines: dict[UnitKey, list[Change]] = defaultdict(list)
    for change in plan.changes:
        if change.unit is not None:
            lines[change.unit].append(change)
    kept, left = [], list(made.left)
    for entry in made.found:
        staying = []
        for cluster in entry.clusters:
            unit = UnitKey(cluster, entry.group, entry.resource)
            if reason := _change_of(lines[unit]):
                left.append((str(unit), reason))
            else:
                staying.append(cluster)
        if staying:
            kept.append(replace(entry, clusters=tuple(staying)))
    return Imports(tuple(kept), tuple(sorted(left)))


def _change_of(lines: Sequence[Change]) -> str:
    """Return the change of a unit beside its marks, or ""."""
    for line in lines:
        touched = [field.path for field in line.fields if not field.path.startswith("/metadata/")]
        if line.action is Action.UPDATE and touched:
            return f"taking it over would change {', '.join(touched)}"
        if line.action in (Action.CREATE, Action.REPLACE):
            return f"taking it over would {line.action.value} {line.ref.kind.kind}: {line.reason}"
        if line.action in (Action.BLOCKED, Action.UNKNOWN):
            return line.reason
    return ""


def _import(unnamed: UnnamedBinding) -> Import:
    unit, binding = unnamed.unit, unnamed.binding
    if unnamed.elsewhere:
        raise Unsayable(
            f"its kubeconfig leads to {unnamed.elsewhere}, not to the binding space of its cluster"
        )
    if binding is None:
        raise Unsayable("the backend has not made its APIServiceBinding yet")
    claims = [file_claim(claim) for claim in manifest.get_maps(binding, "spec", "permissionClaims")]
    claimed, parameters = sorted(claims, key=canonical), _parameters(binding, unnamed.request)
    return _sayable(Import(unit.group, unit.resource, (unit.cluster,), (*claimed,), parameters))


def _sayable(one: Import) -> Import:
    """Return an import. Raises Unsayable where its document would be refused, with all others."""
    document = _binding("any", "any", one, ())
    if REFERENCE_MARK.encode() in canonical(document):
        raise Unsayable(f"files would replace the {REFERENCE_MARK} in it")
    try:
        BindingDocument.model_validate(document)
    except ValidationError as error:
        place = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
        raise Unsayable(f"files cannot have its {place}") from None
    return one


def _parameters(binding: Manifest, request: Manifest | None) -> Manifest:
    """Return those of the request, where the binding reports that they are in force.

    Others stay with their request: to state them would replace it.
    """
    parameters = manifest.get_map(request or {}, "spec", "parameters")
    known = manifest.annotations_of(binding).get(keys.PARAMETERS, "")
    if known and known != parameters_digest(parameters):
        raise Unsayable("its parameters are known by their digest only")
    return parameters if known else {}


def file_claim(wire: Manifest) -> FileClaim:
    owner, state = manifest.get_text(wire, "selector", "owner"), manifest.get_text(wire, "state")
    if not owner:
        raise Unsayable(f"its claim on {title(wire)} names no owner, and one in files has to")
    if state not in ("Accepted", "Rejected"):
        raise Unsayable(f"its claim on {title(wire)} is neither accepted nor rejected")
    if manifest.get_list(wire, "selector", "fieldSelectors"):
        raise Unsayable(f"its claim on {title(wire)} selects by fields, and one in files cannot")
    return dict(_fields(wire, owner, state))


def _fields(wire: Manifest, owner: str, state: str) -> Iterator[tuple[str, JSON]]:
    yield from ((key, manifest.get_text(wire, key)) for key in ("group", "resource", "version"))
    yield "owner", owner
    for key in ("names", "namespaces"):
        listed = manifest.get_texts(wire, "selector", key)
        # No names are all names; no namespaces are those of objects that are in none.
        none = key == "namespaces" and manifest.get(wire, "selector", key) == []
        yield key, sorted(listed) if listed or none else [ANY]
    labels = [
        manifest.get_text_map(selector)
        for selector in manifest.get_maps(wire, "selector", "labelSelectors")
    ]
    if labels:
        yield "labels", sorted(labels, key=canonical)
    yield "state", state


def documents(loaded: Loaded, found: Sequence[Import]) -> list[Document]:
    """Return the documents that name all of `found`, Templates first."""
    taken = {kind: set(loaded.references.names(kind)) for kind in ("Template", "Binding")}
    by_resource = manifest.grouped(found, lambda one: (one.group, one.resource))
    templates: list[Document] = []
    bindings: list[Document] = []
    for (group, resource), alike in by_resource.items():
        ceiling = _union([_ceiling(one) for one in alike])
        known = _fitting(loaded, group, resource, ceiling)
        if known is None:
            template = _free_name(resource, taken["Template"])
            templates.append(_template(template, group, resource, ceiling))
            most: Sequence[FileClaim] = ceiling
        else:
            template, most = known
        bindings.extend(
            _binding(_free_name(resource, taken["Binding"]), template, one, most) for one in alike
        )
    return [*templates, *bindings]


def _template(name: str, group: str, resource: str, claims: Sequence[FileClaim]) -> dict[str, JSON]:
    spec: dict[str, JSON] = {"resources": [{"group": group, "resource": resource}]}
    if claims:
        spec["claims"] = list(claims)
    return _document("Template", name, spec)


def _binding(name: str, template: str, one: Import, most: Sequence[FileClaim]) -> dict[str, JSON]:
    spec: dict[str, JSON] = {"template": template, "clusters": {"names": list(one.clusters)}}
    if one.parameters:
        spec["parameters"] = one.parameters
    # Absent claims are those of the Template.
    all_of_it = [{**claim, "state": _ACCEPTED} for claim in most]
    if sorted(map(canonical, one.claims)) != sorted(map(canonical, all_of_it)):
        spec["claims"] = list(one.claims)
    return _document("Binding", name, spec)


def _document(kind: str, name: str, spec: Document) -> dict[str, JSON]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _ceiling(one: Import) -> list[FileClaim]:
    """Return the accepted claims as a Template states them."""
    return [
        {key: value for key, value in claim.items() if key != "state"}
        for claim in one.claims
        if claim["state"] == _ACCEPTED
    ]


def _union(lists: Sequence[Sequence[FileClaim]]) -> list[FileClaim]:
    known = {canonical(claim): claim for claims in lists for claim in claims}
    return [known[key] for key in sorted(known)]


def _fitting(
    loaded: Loaded, group: str, resource: str, claims: Sequence[FileClaim]
) -> tuple[str, Sequence[FileClaim]] | None:
    """Return a Template for this resource alone with all the claims, and its claims."""
    for template in sorted(loaded.templates, key=lambda one: one.name):
        spec = template.model.spec
        if [(one.group, one.resource) for one in spec.resources] != [(group, resource)]:
            continue
        most = [dict(_of_model(claim)) for claim in spec.claims]
        if {*map(canonical, claims)} <= {*map(canonical, most)}:
            return template.name, most
    return None


def _of_model(claim: CeilingClaim) -> Iterator[tuple[str, JSON]]:
    yield "group", claim.group
    yield "resource", claim.resource
    yield "version", claim.version
    yield "owner", claim.owner
    yield "names", sorted(claim.names)
    yield "namespaces", sorted(claim.namespaces)
    if claim.labels:
        yield "labels", sorted(claim.labels, key=canonical)


def _free_name(wish: str, taken: set[str]) -> str:
    """Return a name like `wish` that is free, and take it."""
    name = next(one for one in _names(wish) if one not in taken)
    taken.add(name)
    return name


def _names(wish: str) -> Iterator[str]:
    yield wish[: NAME.most].rstrip("-")
    for number in count(2):
        end = f"-{number}"
        yield wish[: NAME.most - len(end)].rstrip("-") + end


def units_of(found: Collection[Import]) -> int:
    return sum(len(one.clusters) for one in found)


def belongs(loaded: Loaded, path: str) -> bool:
    """Return whether a file at this path of the repository would be part of the fleet."""
    return not base_model.path_problem(path) and Patterns(_includes(loaded)).matches(path)


def place(loaded: Loaded, file: str) -> str | None:
    """Return a path that ends in `file` and belongs to the fleet, among Bindings if it may be."""
    folders = [include.rpartition("/")[0].split("/") for include in _includes(loaded)]
    literal = {"/".join(takewhile(lambda one: not {*one} & {*"*?["}, folder)) for folder in folders}
    paths = [f"{folder}/{file}" if folder else file for folder in sorted(literal)]
    fitting = [path for path in paths if belongs(loaded, path)]
    return min(fitting, key=lambda path: (not path.startswith("bindings/"), path), default=None)


def _includes(loaded: Loaded) -> list[str]:
    return [include.glob for include in loaded.repository.fleet.model.spec.include]

"""Writes imports as documents of a fleet repository: Bindings, and Templates for them.

Pure. Decides names, and which Template a Binding takes: one of the files whose ceiling holds
just these claims, else a new one with the claims that are accepted now as the most there may be.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Final, TypeAlias

from reconciler.core.manifest import JSON, canonical
from reconciler.fleet import globs
from reconciler.fleet.documents.base_model import NAME
from reconciler.fleet.documents.models import API_VERSION
from reconciler.fleet.documents.service_models import CeilingClaim
from reconciler.fleet.globs import Patterns
from reconciler.fleet.load import Loaded
from reconciler.reports.imports import FileClaim, Import

Document: TypeAlias = Mapping[str, JSON]

_ACCEPTED: Final = "Accepted"
_BINDINGS: Final = "bindings/"


def documents(loaded: Loaded, found: Sequence[Import]) -> list[Document]:
    """Return the documents that name all of `found`, Templates first."""
    taken = {kind: set(loaded.references.names(kind)) for kind in ("Template", "Binding")}
    by_resource: dict[tuple[str, str], list[Import]] = defaultdict(list)
    for one in found:
        by_resource[one.group, one.resource].append(one)
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
        for one in alike:
            name = _free_name(resource, taken["Binding"])
            bindings.append(_binding(name, template, one, most))
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
    """Return a Template for this resource alone that has all the claims, and what it has."""
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
    """Return how many units the imports have."""
    return sum(len(one.clusters) for one in found)


def belongs(loaded: Loaded, path: str) -> bool:
    """Tell whether a file at this path of the repository would be part of the fleet."""
    return not globs.path_problem(path) and Patterns(_includes(loaded)).matches(path)


def place(loaded: Loaded, file: str) -> str | None:
    """Return a path that ends in `file` and belongs to the fleet, among Bindings if it may be."""
    folders = [include.rpartition("/")[0].split("/") for include in _includes(loaded)]
    literal = {"/".join(takewhile(_is_literal, folder)) for folder in folders}
    paths = [f"{folder}/{file}" if folder else file for folder in sorted(literal)]
    fitting = [path for path in paths if belongs(loaded, path)]
    return min(fitting, key=lambda path: (not path.startswith(_BINDINGS), path), default=None)


def _includes(loaded: Loaded) -> list[str]:
    return [include.glob for include in loaded.repository.fleet.model.spec.include]


def _is_literal(segment: str) -> bool:
    return not set(segment) & set("*?[")

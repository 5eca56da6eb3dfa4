"""Finds the permission claims that a control plane offers, and assigns a Binding's to units.

Mapping.md 6.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler import api
from reconciler.core import manifest
from reconciler.core.live import ClusterState
from reconciler.core.manifest import Manifest
from reconciler.core.names import is_reserved
from reconciler.core.normalize import normalize_claim
from reconciler.core.refs import CRD, GroupResource, Ref
from reconciler.fleet.values import Claim, ControlPlane, Unit
from reconciler.planning.site import Index

ANY = "*"


@dataclass(frozen=True, slots=True)
class Offer:
    """The claims that the control plane offers for a resource, or why it offers none.

    The claims say everything (`normalize_claim`).
    """

    claims: Sequence[Manifest]
    problem: str = ""
    bodies: frozenset[Ref] = field(default_factory=frozenset)


def counted(plane: ControlPlane, seen: ClusterState) -> ClusterState:
    """Return the state of a control plane with only the templates that count.

    In a namespace that is not named, anybody with rights there could offer claims of his own.
    """
    if not plane.template_namespaces:
        return seen
    kind = api.API_SERVICE_EXPORT_TEMPLATE
    templates = seen.objects.get(kind, ())
    found = tuple(
        template
        for template in templates
        if manifest.namespace_of(template) in plane.template_namespaces
    )
    return replace(seen, objects={**seen.objects, kind: found})


def offer_of(control_plane: Index, space: str, unit: Unit) -> Offer:
    """Return the claims that the export offers, or its template where there is no export yet."""
    cp, key = control_plane, unit.key
    export = Ref(cp.name, api.API_SERVICE_EXPORT, space, key.name)
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
    """Return the claims that each template that counts offers."""
    templates = control_plane.all(api.API_SERVICE_EXPORT_TEMPLATE)
    return {
        resource: _claims(template) for resource, template in api.by_resource(templates).items()
    }


def _claims(offering: Manifest) -> Sequence[Manifest]:
    return [normalize_claim(claim) for claim in api.permission_claims_of(offering)]


@dataclass(frozen=True, slots=True)
class Division:
    """The permission claims of a Binding, divided for one unit.

    `wider` are claims that the provider offers, but not so far, and `unoffered` those that it
    does not offer here; `unnamed` are offered and not accepted, `missing` those of them that the
    provider calls required. `required` are those taken that it calls so.
    """

    taken: tuple[Claim, ...]
    required: tuple[Claim, ...]
    wider: tuple[Claim, ...]
    unoffered: tuple[Claim, ...]
    unnamed: tuple[str, ...]
    missing: tuple[str, ...]


_NOTHING: Final = Division((), (), (), (), (), ())


def divide(claims: Sequence[Claim], offered: Sequence[Manifest]) -> Division:
    """Match the claims of the files with the offers of an export or its template (normalized)."""
    if not claims and not offered:
        return _NOTHING
    pairs = [(claim, [one for one in offered if _same_kind(claim, one)]) for claim in claims]
    named = {id(one) for _, found in pairs for one in found}
    unnamed = [claim for claim in offered if id(claim) not in named]
    fits = [(claim, [one for one in found if _inside(claim, one)]) for claim, found in pairs]
    return Division(
        taken=tuple(claim for claim, fitting in fits if fitting),
        required=tuple(
            claim
            for claim, fitting in fits
            if any(manifest.get_bool(one, "required") for one in fitting)
        ),
        unoffered=tuple(claim for claim, found in pairs if not found),
        wider=tuple(
            claim
            for (claim, found), (_, fitting) in zip(pairs, fits, strict=True)
            if found and not fitting
        ),
        unnamed=tuple(sorted({title(one) for one in unnamed})),
        missing=tuple(
            sorted({title(one) for one in unnamed if manifest.get_bool(one, "required")})
        ),
    )


def offered_by(control_plane: Index, claim: Claim) -> list[str]:
    """Return the resources whose templates offer a claim of this kind, by their names."""
    offers = control_plane.once("offers", _by_resource)
    return sorted(
        resource.name
        for resource, claims in offers.items()
        if any(_same_kind(claim, one) for one in claims)
    )


def title(claim: Manifest) -> str:
    """Return the subject of a claim on the wire, such as `secrets` or `things.shop.example`."""
    group = manifest.get_text(claim, "group")
    return ".".join(part for part in (manifest.get_text(claim, "resource"), group) if part)


def reach(claim: Manifest) -> str:
    """Return how far a claim on the wire reaches, for people: `all`, `names [a, b]`."""
    names = manifest.get_texts(claim, "selector", "names")
    namespaces = manifest.get_texts(claim, "selector", "namespaces")
    parts = []
    if names and ANY not in names:
        parts.append(f"names [{', '.join(sorted(names))}]")
    if namespaces != [ANY]:
        parts.append(places(namespaces))
    if manifest.get_list(claim, "selector", "labelSelectors"):
        parts.append("labels")
    return " ".join(parts) or "all"


def places(namespaces: Iterable[str]) -> str:
    """Return the namespaces of a claim, those of the cluster itself marked, as `*` reaches none."""
    marked = (f"{one} (RESERVED)" if is_reserved(one) else one for one in sorted(namespaces))
    return f"namespaces [{', '.join(marked)}]"


def is_wider(claim: Manifest, than: Sequence[Manifest]) -> bool:
    """Return whether a claim on the wire reaches further than the ones accepted so far do."""
    return _accepted(claim) and not any(_reaches(other, claim) for other in alike(claim, than))


def alike(claim: Manifest, others: Sequence[Manifest]) -> list[Manifest]:
    """Return the others that are accepted, and about the same objects and side."""
    return [one for one in others if _key(one) == _key(claim) and _accepted(one)]


def _accepted(claim: Manifest) -> bool:
    return manifest.get_text(claim, "state") == "Accepted"


def _key(claim: Manifest) -> tuple[str, ...]:
    texts = (manifest.get_text(claim, key) for key in ("group", "resource", "version"))
    return (*texts, manifest.get_text(claim, "selector", "owner"))


def _reaches(one: Manifest, other: Manifest) -> bool:
    """Return whether `one` reaches everything that `other` reaches."""
    return (
        set(_by_fields(one)) <= set(_by_fields(other))
        and _covers(
            manifest.get_texts(one, "selector", "names"),
            manifest.get_texts(other, "selector", "names"),
        )
        and _opens(other) <= _opens(one)
        and _covers_places(one, manifest.get_texts(other, "selector", "namespaces"))
        and _labels_cover(
            manifest.get_maps(one, "selector", "labelSelectors"),
            manifest.get_maps(other, "selector", "labelSelectors"),
        )
    )


def _by_fields(claim: Manifest) -> list[str]:
    """Return the field selectors of a claim; each makes it narrower."""
    return manifest.get_texts(claim, "selector", "fieldSelectors")


def _opens(claim: Manifest) -> set[str]:
    """Return the namespaces of the cluster itself that a claim reaches: those that it names."""
    return set(filter(is_reserved, manifest.get_texts(claim, "selector", "namespaces")))


def _covers_places(wide: Manifest, narrow: Sequence[str]) -> bool:
    # None at all are those of objects that are in none.
    listed = manifest.get_texts(wide, "selector", "namespaces")
    return _covers(listed, narrow) if listed else not narrow


def _covers(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    # Nothing said means everything, as in the CRDs' defaults.
    if not wide or ANY in wide:
        return True
    return bool(narrow) and ANY not in narrow and set(narrow) <= set(wide)


def _labels_cover(wide: Sequence[Manifest], narrow: Sequence[Manifest]) -> bool:
    """Compare alternatives of label maps; one with more labels is narrower."""
    if not wide:
        return True
    return bool(narrow) and all(
        any(one.items() <= other.items() for one in wide) for other in narrow
    )


def _same_kind(claim: Claim, offer: Manifest) -> bool:
    owner = manifest.get_text(offer, "selector", "owner")
    return (claim.group, claim.resource, claim.version) == tuple(
        manifest.get_text(offer, key) for key in ("group", "resource", "version")
    ) and owner in ("", claim.owner.value)


def _inside(claim: Claim, offer: Manifest) -> bool:
    return (
        # Files cannot say which fields select, so a claim is wider than one that does.
        not _by_fields(offer)
        and _covers(manifest.get_texts(offer, "selector", "names"), claim.names)
        and _covers_places(offer, claim.namespaces)
        and _labels_cover(
            manifest.get_maps(offer, "selector", "labelSelectors"),
            [dict(labels) for labels in claim.labels],
        )
    )

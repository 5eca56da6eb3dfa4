"""Builds an APIServiceExport from a provider's CRD and its template (protocol-bind.md C.3).

Decides what of a CRD goes to app clusters, and when nothing usable would. Does not know which
exports exist and whether a template is still there.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from reconciler.api import API_SERVICE_EXPORT, served_versions
from reconciler.blueprints import machinery
from reconciler.blueprints.machinery import CLOSED, Opening
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, manifest, names
from reconciler.core.manifest import JSON, Manifest

Scope: TypeAlias = Literal["Namespaced", "Cluster"]
Isolation: TypeAlias = Literal["Prefixed", "Namespaced", "None"]

_OF_CRD: Final = ("group", "names", "scope")
OF_VERSION: Final = (
    "name",
    "served",
    "deprecated",
    "deprecationWarning",
    "schema",
    "additionalPrinterColumns",
)
# Of a CRD and its versions, the fields that an export carries, or has in its own way.
_KNOWN: Final = frozenset({*_OF_CRD, "versions", "conversion"})
_OF_VERSION_KNOWN: Final = frozenset({*OF_VERSION, "storage", "subresources"})
_VERSION: Final = re.compile(r"v[1-9][0-9]*([a-z]+[1-9][0-9]*)?")  # of exports; CRDs allow more
_RANKED: Final = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?")
_STAGES: Final = ("alpha", "beta", None)


@dataclass(frozen=True, slots=True)
class Terms:
    """The backend's options: `--consumer-scope` and `--cluster-scoped-isolation` (B.1)."""

    informer_scope: Scope = "Namespaced"
    isolation: Isolation = "Prefixed"


@dataclass(frozen=True, slots=True)
class Unexportable:
    """The reason why a CRD cannot be exported, and what its provider can do: a sentence."""

    why: str


def exported(crd: Manifest, opened: Opening = CLOSED) -> Manifest | Unexportable:
    """Return group, names, scope and versions of an export's spec, as they follow from a CRD.

    Served versions only, in their order, and with conversion by webhook only one of them, because
    app clusters cannot call it. Exactly one is the storage version: where the provider stores in
    a version that goes not along, it is the one that Kubernetes ranks first (F25). Crossplane's
    machinery stays behind, but for what is `opened`.
    """
    name, spec = manifest.name_of(crd), manifest.get_map(crd, "spec")
    served = served_versions(crd)
    if not served:
        return Unexportable(f"CustomResourceDefinition {name} serves no version")
    stored = next((version for version in served if manifest.get_bool(version, "storage")), None)
    storage = manifest.get_text(stored or max(served, key=rank), "name")
    if manifest.get_text(spec, "conversion", "strategy") == "Webhook":
        served = [
            candidate for candidate in served if manifest.get_text(candidate, "name") == storage
        ]
    for version in served:
        if problem := _problem(version):
            return Unexportable(f"CustomResourceDefinition {name}: {problem}")
    versions = [_version(machinery.narrowed(one, opened), storage) for one in served]
    return {key: spec.get(key) for key in _OF_CRD} | {"versions": versions}


def source_hash(spec: Manifest) -> str:
    """Return the digest of an exported CRD, as an annotation for backends.

    Another text than the original's for the same spec (G.2).
    """
    return names.base62_digest(manifest.canonical(spec))


def scope_problem(crd: Manifest, informer_scope: Scope | str) -> str:
    """Return why a CRD cannot be exported with that informer scope (CEL of A.3), or ""."""
    if manifest.get_text(crd, "spec", "scope") != "Cluster" or informer_scope == "Cluster":
        return ""
    return (
        f"CustomResourceDefinition {manifest.name_of(crd)} is cluster-scoped, and this backend "
        "exports to namespaces only (--consumer-scope=Namespaced)"
    )


def new_export(
    space: str,
    spec: Manifest,
    claims: Sequence[Manifest],
    *,
    terms: Terms,
    crd: Manifest | None = None,
    opened: Opening = CLOSED,
) -> Manifest:
    """Return the export in a space; `spec` is what `exported` returned, `claims` are offered."""
    more: dict[str, JSON] = {"informerScope": terms.informer_scope}
    if claims:
        more["permissionClaims"] = claims
    if spec.get("scope") == "Cluster":
        more["clusterScopedIsolation"] = terms.isolation
    notes = {key: value for key, value in notes_of(crd or {}, opened).items() if value}
    return build(
        API_SERVICE_EXPORT,
        f"{manifest.get_text(spec, 'names', 'plural')}.{manifest.get_text(spec, 'group')}",
        namespace=space,
        marks=Marks(annotations={keys.SOURCE_SPEC_HASH: source_hash(spec), **notes}),
        spec={**spec, **more},
    )


def notes_of(crd: Manifest, opened: Opening = CLOSED) -> dict[str, str | None]:
    """Return the annotations that an export takes from its CRD; None where it has none."""
    approval = manifest.annotations_of(crd).get(keys.API_APPROVED)
    left = machinery.texts(_machinery(crd, opened)) or None
    return {keys.CRD_UID: manifest.uid_of(crd), keys.API_APPROVED: approval, keys.LEFT_OUT: left}


def left_behind(crd: Manifest, spec: Manifest, opened: Opening) -> str:
    """Return a sentence about the parts of a CRD that its export leaves out, or ""."""
    whole, served = manifest.get_map(crd, "spec"), served_versions(crd)
    sent = {manifest.get_text(one, "name") for one in manifest.get_maps(spec, "versions")}
    fields = {key for key in whole if key not in _KNOWN and whole[key]}
    fields |= {key for one in served for key in one if key not in _OF_VERSION_KNOWN and one[key]}
    left_out = [
        *(
            f"version {name}"
            for one in served
            if (name := manifest.get_text(one, "name")) not in sent
        ),
        *(["conversion by webhook"] if len(sent) < len(served) else []),
        *sorted(fields),
        *sorted(machinery.texts(_machinery(crd, opened)).split(",")),
    ]
    return f"Not in this export: {', '.join(filter(None, left_out))}" if any(left_out) else ""


def _machinery(crd: Manifest, opened: Opening) -> Iterator[machinery.Path]:
    for version in served_versions(crd):
        yield from machinery.paths(version, opened)


def _problem(version: Manifest) -> str:
    name = manifest.get_text(version, "name")
    if not _VERSION.fullmatch(name):
        return f"version {name!r} is not named like v1 or v1beta1, as exports need it"
    if not manifest.get_map(version, "schema", "openAPIV3Schema"):
        return f"version {name} has no schema"
    return ""


def _version(version: Manifest, storage: str) -> Manifest:
    kept = {key: version[key] for key in OF_VERSION if version.get(key) is not None}
    return {
        **kept,
        "storage": version.get("name") == storage,
        "subresources": manifest.get_map(version, "subresources"),
    }


def rank(version: Manifest) -> tuple[int, int, int]:
    """Rank as Kubernetes does: v2, v1, v1beta2, v1alpha1, and then other names."""
    found = _RANKED.fullmatch(manifest.get_text(version, "name"))
    if found is None:
        return (-1, 0, 0)
    return (_STAGES.index(found[2]), int(found[1]), int(found[3] or 0))

"""Lists the services of the door: each template with a CRD. Pure; protocol-bind.md B.3.

Of two templates for one CRD, the first by namespace and name counts, as it does for requests.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from bind.door.identity import Refused
from reconciler import api
from reconciler.blueprints.export import Scope, rank
from reconciler.core import keys, manifest
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import GroupResource

_CLUSTER: Final = "Cluster"


@dataclass(frozen=True, slots=True)
class Offer:
    """A template that counts, and its CRD.

    `scope` is `Cluster` or `Namespaced`; `claims` are the permission claims of the template as the
    wire has them; `versions` the served versions, the newest first.
    """

    namespace: str
    name: str
    resource: GroupResource
    kind: str
    singular: str
    scope: str
    title: str = ""
    description: str = ""
    docs_url: str = ""
    claims: Sequence[Manifest] = ()
    versions: Sequence[str] = ()


def offers(
    templates: Iterable[Manifest], crds: Iterable[Manifest], *, consumer_scope: Scope
) -> list[Offer]:
    """Return the offers to app clusters, by the names of the CRDs.

    What the consumer scope does not allow is not offered: its requests would wait for ever.
    """
    every = _every(templates, crds)
    return [offer for offer in every if _fits(offer, consumer_scope)]


def offered(
    templates: Iterable[Manifest],
    crds: Iterable[Manifest],
    resource: GroupResource,
    *,
    consumer_scope: Scope,
) -> Offer:
    """Return the offer of one resource. Raises Refused where there is none, or of another scope."""
    offer = offer_of(_every(templates, crds), resource.group, resource.plural)
    if offer is None:
        raise Refused("not_found", f"{resource.name} is not offered here", reason="template")
    if not _fits(offer, consumer_scope):
        sentence = f"{resource.name} is cluster-scoped, and this provider binds namespaced ones"
        raise Refused("conflict", sentence, reason="scope")
    return offer


def shown(crd: Manifest) -> Manifest:
    """Return the part of a CRD in an offer: without its schemas, of which there may be hundreds."""
    versions: list[JSON] = [
        {
            "name": manifest.get(version, "name"),
            "served": manifest.get(version, "served"),
            "schema": {"openAPIV3Schema": {"description": _described(version)}},
        }
        for version in manifest.get_maps(crd, "spec", "versions")
    ]
    spec = manifest.get_map(crd, "spec")
    kept = {part: spec[part] for part in ("group", "names", "scope") if part in spec}
    return {"metadata": crd["metadata"], "spec": {**kept, "versions": versions}}


def offer_of(offers: Iterable[Offer], group: str, resource: str) -> Offer | None:
    """Return the offer of one resource, or None."""
    wanted = GroupResource(group, resource)
    return next((offer for offer in offers if offer.resource == wanted), None)


def _every(templates: Iterable[Manifest], crds: Iterable[Manifest]) -> list[Offer]:
    known = {manifest.name_of(crd): crd for crd in crds if not manifest.is_deleting(crd)}
    counting = api.by_resource(templates)
    return [
        _offer(template, resource, known[resource.name])
        for resource, template in sorted(counting.items(), key=lambda one: one[0].name)
        if resource.name in known
    ]


def _fits(offer: Offer, consumer_scope: Scope) -> bool:
    return consumer_scope == _CLUSTER or offer.scope != _CLUSTER


def _offer(template: Manifest, resource: GroupResource, crd: Manifest) -> Offer:
    notes = manifest.annotations_of(template)
    docs = notes.get(keys.DOCS_URL, "")  # a page may link to it: no other scheme runs there
    served = sorted(api.served_versions(crd), key=rank, reverse=True)
    kind = manifest.get_text(crd, "spec", "names", "kind")
    namespace, name = manifest.identity_of(template)
    return Offer(
        namespace,
        name,
        resource,
        kind=kind,
        singular=manifest.get_text(crd, "spec", "names", "singular") or kind.lower(),
        scope=manifest.get_text(crd, "spec", "scope"),
        title=notes.get(keys.TITLE) or kind,
        description=notes.get(keys.DESCRIPTION) or next(filter(None, map(_described, served)), ""),
        docs_url=docs if docs.startswith("https://") else "",
        claims=tuple(api.permission_claims_of(template)),
        versions=tuple(manifest.get_text(version, "name") for version in served),
    )


def _described(version: Manifest) -> str:
    return manifest.get_text(version, "schema", "openAPIV3Schema", "description")

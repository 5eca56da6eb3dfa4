"""Which kinds a konnector may have copied into a service namespace, now or ever.

Exports and templates come and go while their copies stay, so every namespaced CRD counts, and
what any export or template claims.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bind.export import history
from bind.informers import Informers
from reconciler.api.exports import (
    kind_of,
    offered_resource,
    permission_claims_of,
    preferred_version,
    served_versions,
)
from reconciler.core import names
from reconciler.core.manifest import (
    Manifest,
    get_text,
    name_of,
    resource_version_of,
    uid_of,
)
from reconciler.core.refs import CONFIG_MAP, CRD, SECRET, Kind


@dataclass(frozen=True, slots=True)
class Kinds:
    """`all` are the kinds to look at; `exported` the resources (`plural.group`) that ever were."""

    all: frozenset[Kind]
    exported: frozenset[str]


class Copied:
    """Knows the kinds of all CRDs, and reads CRDs anew only where one changed."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._stamps: frozenset[tuple[str, str]] = frozenset()
        self._defined: Mapping[str, Kind] = {}

    async def kinds(self) -> Kinds:
        """Return them. Raises ClusterErrors where the CRDs cannot be read."""
        informers, defined = self._informers, await self._crds()
        offers = [*informers.exports.all(), *informers.templates.all()]
        claims = [claim for offer in offers for claim in permission_claims_of(offer)]
        claimed = {kind.resource: kind for kind in map(_claimed, claims)}
        known = {one.resource: one for one in (CONFIG_MAP, SECRET)}
        named = {offered_resource(template).name for template in informers.templates.all()}
        named |= {name_of(export) for export in informers.exports.all()}
        role = informers.cluster_roles.get("", names.BINDER)
        return Kinds(
            all=frozenset({**claimed, **known, **defined}.values()),
            exported=frozenset({*named, *claimed, *known, *history.noted(role)}),
        )

    async def _crds(self) -> Mapping[str, Kind]:
        if self._stamps != _stamps(self._informers.crds.all()):
            listing = await self._informers.cluster.list(CRD)
            self._stamps = _stamps(listing.items)
            self._defined = {one.resource: one for crd in listing.items for one in _kinds(crd)}
        return self._defined


def _stamps(crds: Iterable[Manifest]) -> frozenset[tuple[str, str]]:
    return frozenset((uid_of(one), resource_version_of(one)) for one in crds)


def _kinds(crd: Manifest) -> Iterable[Kind]:
    version = preferred_version(served_versions(crd))
    if version and get_text(crd, "spec", "scope") == "Namespaced":
        yield kind_of(crd, version)


def _claimed(claim: Manifest) -> Kind:
    version = get_text(claim, "version") or "v1"
    return Kind(get_text(claim, "group"), version, "", get_text(claim, "resource"))

"""Reads what is left of the sync of a binding that is being let go (mapping.md 9).

Nothing is taken from views here: what is let go is listed anew at each look, after the sync ended.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from konnector.binding import crd, drain
from konnector.binding.crd import Owner
from konnector.binding.drain import Held, Seen
from konnector.claim import copies
from konnector.context import Link, Tools
from konnector.permission_claim import rules as permission_claim_rules
from konnector.permission_claim.rules import Rule
from konnector.provider.provider import Provider
from reconciler.core import keys
from reconciler.core.errors import ClusterError, NotServed
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    identity_of,
    name_of,
    uid_of,
)
from reconciler.core.refs import CRD, Kind, ObjectKey, Ref
from reconciler.kube.cache.store import Store
from reconciler.kube.cluster import Cluster


async def look(
    tools: Tools,
    home: Cluster,
    bindings: Store,
    live: Manifest,
    provider: Provider | None,
    *,
    has_namesake: bool,
) -> Seen:
    """Return what there is to do about a binding; `bindings` are all of them.

    `has_namesake`: the same provider serves another binding of this name.
    """
    seen = Seen(home=home.name, binding=live, kind=bindings.kind)
    if not drain.is_held(live):
        return seen
    if provider is None or provider.link is None or provider.syncs is None:
        return replace(seen, unsure="its service provider cluster is not reached")
    seen = replace(
        seen,
        space=provider.space,
        service_namespaces=frozenset(map(provider.link.homes.service, provider.link.homes.all())),
        mappings=provider.link.homes.mappings(),
        syncing=provider.syncs.wants(name_of(live)),
        told=provider.has_told_the_end(name_of(live)),
    )
    try:
        found = _Left(tools, provider.link, bindings, live)
        return await found.added_to(seen, has_namesake=has_namesake)
    except ClusterError as error:
        return replace(seen, unsure=str(error))


class _Left:
    """What is left of one binding's sync, as it is read now."""

    def __init__(self, tools: Tools, link: Link, bindings: Store, live: Manifest) -> None:
        self._tools, self._link, self._bindings, self._live = tools, link, bindings, live

    async def added_to(self, seen: Seen, *, has_namesake: bool) -> Seen:
        """Return it in a Seen. Raises ClusterErrors.

        Nothing is left of a binding whose CRD is another's: what there is is that one's.
        """
        app = self._tools.app
        body = await app.get(Ref(app.name, CRD, "", name_of(self._live)))
        if body is None:
            return replace(seen, copied=await self._copied())
        kind = crd.instance_kind(body)
        if crd.is_anothers(body, self._owner()):
            if has_namesake:  # which goes on with the copies, and tells so
                return replace(seen, mappings=(), syncing=False, told=True)
            return replace(seen, copies=await self._copies(kind, seen.service_namespaces))
        return replace(
            seen,
            copies=await self._copies(kind, seen.service_namespaces),
            instances=await _held(app, kind, ""),
            copied=await self._copied(),
            crd=body,
        )

    def _owner(self) -> Owner:
        live = frozenset(uid_of(one) for one in self._bindings.all())
        marks = self._tools.control_plane_mode
        return Owner(self._live, live, self._link.space_uid, marks=marks)

    async def _copies(self, kind: Kind, service_namespaces: frozenset[str]) -> Sequence[Held]:
        """Return the copies, in whichever version the control plane has them.

        The CRD of the app cluster may be behind: that its version is served no more does not tell
        that there is nothing.
        """
        places = sorted(service_namespaces) if kind.namespaced else [""]
        try:
            return await _all_in(self._link.plane, kind, places)
        except NotServed:
            other = await _in_any_version(self._link.plane, kind)
        return [] if other is None else await _all_in(self._link.plane, other, places)

    async def _copied(self) -> Sequence[Held]:
        """Return what came down by this binding's claims, and would by no other's."""
        if annotations_of(self._live).get(keys.DELETION_POLICY) != drain.DELETE:
            return ()
        own = [rule for rule in permission_claim_rules.rules_of(self._live).rules if rule.goes_down]
        others = [
            rule
            for one in self._bindings.all()
            if uid_of(one) != uid_of(self._live)
            for rule in permission_claim_rules.rules_of(one).rules
        ]
        kinds = {(rule.group, rule.version, rule.resource) for rule in own}
        found: list[Held] = []
        for asked in sorted(kinds):
            try:
                kind = await self._tools.app.kind(*asked)
            except NotServed:
                continue  # nothing came by a claim of what is not served (H18)
            for held in await _held(self._tools.app, kind, ""):
                ours = self._came_by(held, _of(kind, own))
                if ours and not self._came_by(held, _of(kind, others)):
                    found.append(held)
        return found

    def _came_by(self, held: Held, rules: Sequence[Rule]) -> bool:
        _, live = held
        place = ObjectKey(*identity_of(live))
        mark = annotations_of(live).get(keys.ORIGIN_SPACE_UID, self._link.space_uid)
        provided = copies.owner_of(live) == keys.OWNER_PROVIDER and mark == self._link.space_uid
        mapped = bool(self._link.homes.service(place.namespace))
        return provided and mapped and any(rule.reaches(place) for rule in rules)


def _of(kind: Kind, rules: Sequence[Rule]) -> list[Rule]:
    return [rule for rule in rules if (rule.group, rule.resource) == (kind.group, kind.plural)]


async def _all_in(cluster: Cluster, kind: Kind, namespaces: Sequence[str]) -> list[Held]:
    """Return the objects of a kind in these namespaces. Raises NotServed."""
    return [
        (kind, one)
        for namespace in namespaces
        for one in (await cluster.list(kind, namespace=namespace, metadata_only=True)).items
    ]


async def _in_any_version(cluster: Cluster, kind: Kind) -> Kind | None:
    """Return a kind in a version in which a cluster serves it; None: it does so in none."""
    for version in await cluster.versions(kind.group):
        with suppress(NotServed):
            return await cluster.kind(kind.group, version, kind.plural)
    return None


async def _held(cluster: Cluster, kind: Kind, namespace: str) -> list[Held]:
    """Return the objects of a kind; none where the cluster does not serve it."""
    try:
        found = await cluster.list(kind, namespace=namespace, metadata_only=True)
    except NotServed:
        return []
    return [(kind, one) for one in found.items]

"""Reconciles APIServiceNamespaces and their service namespaces.

A Namespace that says it belongs to one brings its key up, too: so those that were left behind
while nobody looked are found at the start (protocol-bind.md F46).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from bind.bounds import Bounds, Countable, countable
from bind.informers import GRANTED, MAPPED, NAME, SPACE, TARGET, Informers
from bind.rbac_changes import granted, noted
from bind.service_namespace import decide, facts
from bind.service_namespace.facts import Contents, Mapped, Removal, Seen
from reconciler import api
from reconciler.blueprints.export import Scope
from reconciler.controller.controller import ObjectReconciler, Queue, enqueue_mapped
from reconciler.controller.executor import Executor, Observed
from reconciler.controller.fence import Stopped
from reconciler.core import keys, manifest, names, refs
from reconciler.core.decision import Decision, writes_each
from reconciler.core.errors import Forbidden, KlutchError, NotServed
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, ObjectKey, Ref
from reconciler.kube.requests import ListQuery
from reconciler.kube.turns import Party, Turns, current_party

_PAGE: Final = 500
_SEARCHES: Final = 2  # at once, of all owners


class ServiceNamespaces(ObjectReconciler[ObjectKey, Seen]):
    """The controller `servicenamespace` of protocol-bind.md C.4."""

    def __init__(
        self,
        informers: Informers,
        executor: Executor,
        *,
        scope: Scope,
        bounds: Bounds,
        hashing: bool,
    ) -> None:
        super().__init__(executor, informers.recent(informers.service_namespaces))
        self._informers = informers
        self._scope, self._bounds, self._hashing = scope, bounds, hashing
        self._copied = _Copied(informers)
        # Which is searched now, by owners, and which have to wait for that.
        self._searching: dict[str, ObjectKey] = {}
        self._waiting: Turns[ObjectKey] = Turns()
        # The uids of Namespaces that were seen beside their mapping.
        self._beside: dict[ObjectKey, str] = {}
        self._granted: dict[str, Sequence[str]] = {}  # exports are large, and change seldom

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        informers, mappings = self._informers, self._informers.service_namespaces
        self._enqueue = queue.enqueue
        by_target = enqueue_mapped(queue, mappings, TARGET)
        by_space = enqueue_mapped(queue, mappings, SPACE)

        def left_in(space: str) -> None:
            for one in informers.namespaces.by(SPACE, space):
                mark = manifest.annotations_of(one)[keys.API_SERVICE_NAMESPACE]
                if key := facts.key_of(mark):
                    queue.enqueue(ObjectKey(key.space, key.name))

        mappings.subscribe_keys(queue.enqueue)
        informers.namespaces.subscribe(MAPPED, queue.enqueue)
        informers.namespaces.subscribe(NAME, by_target)
        informers.namespaces.subscribe(NAME, by_space)
        informers.namespaces.subscribe(NAME, left_in)
        informers.role_bindings.subscribe(SPACE, by_target)
        informers.accounts.subscribe(SPACE, by_space)
        informers.quotas.subscribe(SPACE, by_target)
        informers.exports.subscribe(SPACE, self._forget)
        informers.exports.subscribe(SPACE, by_space)

    async def reconcile(self, key: ObjectKey) -> timedelta | None:
        """Reconcile, and let the next one be searched."""
        try:
            return await super().reconcile(key)
        finally:
            owner = current_party().owner
            if self._searching.get(owner) == key:
                del self._searching[owner]
            with suppress(KeyError):
                self._enqueue(self._waiting.pop(self._may_search)[1])

    def _may_search(self, party: Party) -> bool:
        """Return whether a party's search may begin; other work has workers at all times."""
        return party.owner not in self._searching and len(self._searching) < _SEARCHES

    async def look(self, key: ObjectKey) -> tuple[Observed, Seen] | None:
        """Return one app namespace, its mapping and where it leads. Raises ClusterErrors."""
        granted_here = counted(self._informers, self._grants(key.namespace), self.executor.now())
        seen = known(self._informers, Mapped(*key), hashing=self._hashing)
        seen = replace(seen, counted=granted_here)
        leaving = facts.leaving(seen)
        seen = replace(seen, witnessed=self._witnessed(key, seen, leaving))
        # Rights end before anything is searched.
        if leaving is not None and not seen.unsure and not any(decide.revocations(seen)):
            # One owner has one search at a time: forty of its namespaces may end at once.
            party = current_party()
            if self._searching.get(party.owner) != key and not self._may_search(party):
                self._waiting.discard(key)
                self._waiting.append(key, party)
                return None
            self._searching[party.owner] = key
            seen = await self._searched(seen, manifest.name_of(leaving))
        cluster = self._informers.cluster.name
        if seen.mapping is not None:
            ref = manifest.ref_of(cluster, api.API_SERVICE_NAMESPACE, seen.mapping)
            return Observed(ref, seen.mapping), seen
        for about in (*filter(None, [leaving]), *facts.marked(seen)):
            return Observed(manifest.ref_of(cluster, refs.NAMESPACE, about), about), seen
        return None

    async def _searched(self, seen: Seen, namespace: str) -> Seen:
        """Return it with the facts that are proved before data go, where they are known."""
        seen = replace(seen, removal=await self._removal(seen.key))
        if seen.removal is None or not decide.needs_search(seen):
            return seen
        contents = await self._contents(namespace, bound_stays=not decide.goes_with_space(seen))
        # The search takes long enough for a konnector to bring its mapping back.
        mapping = await self._mapping(seen.key)
        return replace(seen, removal=replace(seen.removal, contents=contents, mapping=mapping))

    def decide(self, view: Seen, now: datetime) -> Decision:
        return decide.decide(view, scope=self._scope, bounds=self._bounds, now=now)

    def _witnessed(self, key: ObjectKey, seen: Seen, leaving: Manifest | None) -> bool:
        """Note a Namespace beside its mapping; return whether one that is left was noted."""
        if leaving is not None:
            return self._beside.get(key) == manifest.uid_of(leaving)
        if seen.mapping is None:
            self._beside.pop(key, None)
        elif (beside := facts.own(seen)) is not None:
            self._beside[key] = manifest.uid_of(beside)
        return False

    def _grants(self, space: str) -> Sequence[str]:
        if space not in self._granted:
            exports = self._informers.exports.inside(space)
            self._granted[space] = [one for export in exports for one in granted(export)]
        return self._granted[space]

    def _forget(self, space: str) -> None:
        self._granted.pop(space, None)

    async def _removal(self, key: Mapped) -> Removal | None:
        """Return the proven facts without which no data go, or None where they are in doubt."""
        cluster = self._informers.cluster
        crd = Ref(cluster.name, refs.CRD, "", api.API_SERVICE_NAMESPACE.resource)
        try:
            return Removal(
                mapping=await self._mapping(key), crd=await cluster.get(crd, metadata_only=True)
            )
        except (Forbidden, NotServed):
            return None

    async def _mapping(self, key: Mapped) -> Manifest | None:
        cluster = self._informers.cluster
        return await cluster.get(Ref(cluster.name, api.API_SERVICE_NAMESPACE, key.space, key.name))

    async def revoke(self) -> None:
        """End the rights in service namespaces whose space is gone, before any other work.

        What fails is tried again by the controller, as its keys come up.
        """
        for rights in self._informers.role_bindings.all():
            live = self._informers.namespaces.get("", manifest.namespace_of(rights))
            mark = manifest.annotations_of(live or {}).get(keys.API_SERVICE_NAMESPACE, "")
            if key := facts.key_of(mark):
                seen = known(self._informers, key, hashing=self._hashing)
                with suppress(KlutchError, Stopped):
                    await self.executor.execute(writes_each(decide.revocations(seen)))

    async def _contents(self, namespace: str, *, bound_stays: bool) -> Contents:
        """Search a namespace until something is found that keeps it. Raises ClusterErrors."""

        def keeps(one: Manifest) -> bool:
            return is_released(one) or (bound_stays and decide.is_bound(one))

        hidden, (exported, others) = "", await self._copied.kinds()
        for kind in (*exported, *others):
            try:
                if kind in others and await self._copied.is_clean(kind):
                    continue
                found = await self._copied.first(kind, namespace, keeps)
            except NotServed:  # nothing of it can be there
                continue
            except Forbidden:
                hidden = kind.resource
                continue
            if found is not None and is_released(found):
                return Contents(released=True)
            if found is not None:
                return Contents(released=False, bound=f"{kind.resource} {manifest.name_of(found)}")
        return Contents(released=False, hidden=hidden)


def is_released(live: Manifest) -> bool:
    """Return whether an object is kept for nobody's sake but its own."""
    return keys.RELEASED in manifest.annotations_of(live)


def counted(informers: Informers, resources: Iterable[str], now: datetime) -> Countable:
    found = {one: informers.crds.get("", one) for one in resources}
    return countable(found, {name: crd for name, crd in found.items() if crd is not None}, now)


def known(informers: Informers, key: Mapped, *, hashing: bool) -> Seen:
    """Return the view of one app namespace, but for `counted`."""
    account = informers.accounts.get(key.space, names.BINDER)
    seen = Seen(
        informers.cluster.name,
        key,
        mapping=informers.recent(informers.service_namespaces).get(key.space, key.name),
        space=informers.namespaces.get("", key.space),
        account="" if account is None else manifest.uid_of(account),
        hashing=hashing,
        unsure=informers.trouble(informers.service_namespaces),
    )
    places = (key.target, facts.named(seen), *facts.hashed_names(key, seen.space))
    beside = (informers.namespaces.get("", name) for name in places if name)
    marked = informers.namespaces.by(MAPPED, ObjectKey(key.space, key.name))
    found = {manifest.name_of(one): one for one in (*marked, *beside) if one is not None}
    rights = (informers.role_bindings.get(name, names.BINDER) for name in found)
    seen = replace(
        seen,
        namespaces=[found[name] for name in sorted(found)],
        role_bindings=[one for one in rights if one is not None],
    )
    return replace(seen, quota=informers.quotas.get(facts.chosen(seen), names.QUOTA))


class _Copied:
    """Knows the kinds that a konnector may have copied into a service namespace, now or ever.

    Exports and templates come and go while their copies stay, so every namespaced CRD counts, and
    what any export or template claims. CRDs are read again only where one changed. A kind that
    nothing says was ever exported is searched once, everywhere, and for good: without rights
    konnectors copy nothing of it.
    """

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._stamps: frozenset[tuple[str, str]] = frozenset()
        self._defined: Mapping[str, Kind] = {}
        self._clean = set[str]()  # resources of which nothing is copied anywhere
        informers.exports.subscribe(GRANTED, self._clean.discard)

    async def kinds(self) -> tuple[Sequence[Kind], Sequence[Kind]]:
        """Return those that were ever exported, as far as is known, and others to be searched.

        Raises ClusterErrors.
        """
        informers, defined = self._informers, await self._crds()
        offers = [*informers.exports.all(), *informers.templates.all()]
        claims = [claim for offer in offers for claim in api.permission_claims_of(offer)]
        claimed = {kind.resource: kind for kind in map(_claimed, claims)}
        known = {one.resource: one for one in (refs.CONFIG_MAP, refs.SECRET)}
        named = {api.offered_resource(template).name for template in informers.templates.all()}
        named |= {manifest.name_of(export) for export in informers.exports.all()}
        named |= {*claimed, *known, *noted(informers.cluster_roles.get("", names.BINDER))}
        every = {**claimed, **known, **defined}
        exported = sorted(named & every.keys())
        others = sorted(every.keys() - named - self._clean)
        return [every[one] for one in exported], [every[one] for one in others]

    async def first(
        self, kind: Kind, namespace: str, wanted: Callable[[Manifest], bool]
    ) -> Manifest | None:
        """Return the first object of a kind that is wanted. Raises ClusterErrors."""
        cluster = self._informers.cluster
        ref, query = (
            Ref(cluster.name, kind, namespace, ""),
            ListQuery(limit=_PAGE, metadata_only=True),
        )
        async with aclosing(cluster.pages(ref, query)) as pages:
            async for page in pages:
                for one in filter(wanted, page.items):
                    return one
        return None

    async def is_clean(self, kind: Kind) -> bool:
        """Return whether nothing of a kind was copied anywhere. Raises ClusterErrors."""
        try:
            found = await self.first(kind, "", lambda one: is_released(one) or decide.is_bound(one))
        except Forbidden:
            found = None  # konnectors have no rights that klutch-bind has not
        if found is None:
            self._clean.add(kind.resource)
        return found is None

    async def _crds(self) -> Mapping[str, Kind]:
        if self._stamps != _stamps(self._informers.crds.all()):
            listing = await self._informers.cluster.list(refs.CRD)
            self._stamps = _stamps(listing.items)
            self._defined = {one.resource: one for crd in listing.items for one in _kinds(crd)}
        return self._defined


def _stamps(crds: Iterable[Manifest]) -> frozenset[tuple[str, str]]:
    return frozenset((manifest.uid_of(one), manifest.resource_version_of(one)) for one in crds)


def _kinds(crd: Manifest) -> Iterable[Kind]:
    version = api.preferred_version(api.served_versions(crd))
    if version and manifest.get_text(crd, "spec", "scope") == "Namespaced":
        yield api.kind_of(crd, version)


def _claimed(claim: Manifest) -> Kind:
    version = manifest.get_text(claim, "version") or "v1"
    return Kind(
        manifest.get_text(claim, "group"), version, "", manifest.get_text(claim, "resource")
    )

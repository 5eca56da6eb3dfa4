"""Service namespaces of app namespaces, by the places of their APIServiceNamespaces.

A Namespace that says it belongs to one brings its key up, too: so those that were left behind
while nobody looked are found at the start (protocol-bind.md F46).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from bind.bounds import Bounds, Countable, countable
from bind.informers import HOME, NAME, SPACE, TARGET, Informers
from bind.rbac_changes import granted, noted
from bind.service_namespace import decide
from bind.service_namespace.decide import Contents, Home, Removal, Seen
from reconciler import api
from reconciler.blueprints.export import Scope
from reconciler.controller.controller import ObjectReconciler, Queue, enqueue_mapped
from reconciler.controller.executor import Executor, Observed
from reconciler.core import keys, manifest, names, refs
from reconciler.core.decision import Decision
from reconciler.core.errors import Forbidden, NotServed
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, ObjectKey, Ref


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
        # The uids of Namespaces that were seen beside their mapping.
        self._beside: dict[ObjectKey, str] = {}
        self._granted: dict[str, Sequence[str]] = {}  # exports are large, and change seldom

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        informers, mappings = self._informers, self._informers.service_namespaces
        by_target = enqueue_mapped(queue, mappings, TARGET)
        by_space = enqueue_mapped(queue, mappings, SPACE)

        def left_in(space: str) -> None:
            for one in informers.namespaces.by(SPACE, space):
                mark = manifest.annotations_of(one)[keys.API_SERVICE_NAMESPACE]
                if home := decide.home_of(mark):
                    queue.enqueue(ObjectKey(home.space, home.name))

        mappings.subscribe_keys(queue.enqueue)
        informers.namespaces.subscribe(HOME, queue.enqueue)
        informers.namespaces.subscribe(NAME, by_target)
        informers.namespaces.subscribe(NAME, by_space)
        informers.namespaces.subscribe(NAME, left_in)
        informers.role_bindings.subscribe(SPACE, by_target)
        informers.quotas.subscribe(SPACE, by_target)
        informers.exports.subscribe(SPACE, self._forget)
        informers.exports.subscribe(SPACE, by_space)

    async def look(self, key: ObjectKey) -> tuple[Observed, Seen] | None:
        """Return one app namespace, its mapping and where it leads. Raises ClusterErrors."""
        granted_here = counted(self._informers, self._grants(key.namespace), self.executor.now())
        seen = known(self._informers, Home(*key), hashing=self._hashing)
        seen = replace(seen, counted=granted_here)
        leaving = decide.leaving(seen)
        seen = replace(seen, witnessed=self._witnessed(key, seen, leaving))
        if leaving is not None and not seen.unsure:
            seen = replace(seen, removal=await self._removal(seen.home))
            if seen.removal is not None and decide.needs_search(seen):
                contents = await self._contents(
                    manifest.name_of(leaving), bound_stays=not decide.goes_with_space(seen)
                )
                # The search takes long enough for a konnector to bring its mapping back.
                mapping = await self._mapping(seen.home)
                removal = replace(seen.removal, contents=contents, mapping=mapping)
                seen = replace(seen, removal=removal)
        cluster = self._informers.cluster.name
        if seen.mapping is not None:
            ref = manifest.ref_of(cluster, api.API_SERVICE_NAMESPACE, seen.mapping)
            return Observed(ref, seen.mapping), seen
        if leaving is not None:
            return Observed(manifest.ref_of(cluster, refs.NAMESPACE, leaving), leaving), seen
        return None

    def decide(self, view: Seen, now: datetime) -> Decision:
        """Return what follows."""
        return decide.decide(view, scope=self._scope, bounds=self._bounds, now=now)

    def _witnessed(self, key: ObjectKey, seen: Seen, leaving: Manifest | None) -> bool:
        """Note a Namespace beside its mapping; tell whether one that is left was noted."""
        if leaving is not None:
            return self._beside.get(key) == manifest.uid_of(leaving)
        if seen.mapping is None:
            self._beside.pop(key, None)
        elif (beside := decide.target(seen)) is not None:
            self._beside[key] = manifest.uid_of(beside)
        return False

    def _grants(self, space: str) -> Sequence[str]:
        if space not in self._granted:
            exports = self._informers.exports.inside(space)
            self._granted[space] = [one for export in exports for one in granted(export)]
        return self._granted[space]

    def _forget(self, space: str) -> None:
        self._granted.pop(space, None)

    async def _removal(self, home: Home) -> Removal | None:
        """Return what has to be known beyond doubt before data go, or None where it is not."""
        cluster = self._informers.cluster
        crd = Ref(cluster.name, refs.CRD, "", api.API_SERVICE_NAMESPACE.resource)
        try:
            return Removal(
                mapping=await self._mapping(home),
                crd=await cluster.get(crd, metadata_only=True),
            )
        except (Forbidden, NotServed):
            return None

    async def _mapping(self, home: Home) -> Manifest | None:
        cluster = self._informers.cluster
        return await cluster.get(
            Ref(cluster.name, api.API_SERVICE_NAMESPACE, home.space, home.name)
        )

    async def _contents(self, namespace: str, *, bound_stays: bool) -> Contents:
        """Search a namespace until something is found that keeps it. Raises ClusterErrors."""
        hidden, kinds = "", await self._copied.kinds()
        for kind in sorted(kinds.all):
            try:
                listing = await self._informers.cluster.list(
                    kind, namespace=namespace, metadata_only=True
                )
            except NotServed:  # nothing of it can be there
                continue
            except Forbidden:
                # A kind that was never exported is no konnector's: it had its rights from us.
                if kind.resource in kinds.exported:
                    hidden = kind.resource
                continue
            if any(keys.RELEASED in manifest.annotations_of(one) for one in listing.items):
                return Contents(released=True)
            held = filter(decide.is_bound, listing.items)
            bound = next((f"{kind.resource} {manifest.name_of(one)}" for one in held), "")
            if bound and bound_stays:
                return Contents(released=False, bound=bound)
        return Contents(released=False, hidden=hidden)


def counted(informers: Informers, resources: Iterable[str], now: datetime) -> Countable:
    """Return which of these resources a quota may count."""
    found = {one: informers.crds.get("", one) for one in resources}
    crds = {name: crd for name, crd in found.items() if crd is not None}
    return countable(found, crds, now)


def known(informers: Informers, home: Home, *, hashing: bool) -> Seen:
    """Return what the views tell about one app namespace, but for `counted`."""
    mapping = informers.recent(informers.service_namespaces).get(home.space, home.name)
    named = manifest.get_text(mapping, "status", "namespace")
    elsewhere = named if named and named != home.target else ""
    space = informers.namespaces.get("", home.space)
    ours = informers.namespaces.by(HOME, ObjectKey(home.space, home.name))
    hashed = next((one for one in ours if decide.is_hashed(one, home)), None)
    if hashed is None and (name := decide.hashed_name(home, space)):
        hashed = informers.namespaces.get("", name)
    seen = Seen(
        informers.cluster.name,
        home,
        mapping=mapping,
        space=space,
        namespace=informers.namespaces.get("", home.target),
        elsewhere=informers.namespaces.get("", elsewhere) if elsewhere else None,
        hashed=hashed,
        hashing=hashing,
        unsure=informers.trouble(informers.service_namespaces),
    )
    place = decide.chosen(seen)
    return replace(
        seen,
        role_binding=informers.role_bindings.get(place, names.BINDER),
        quota=informers.quotas.get(place, names.QUOTA),
    )


@dataclass(frozen=True, slots=True)
class _CopiedKinds:
    """`all` are the kinds to look at; `exported` the resources (`plural.group`) that ever were."""

    all: frozenset[Kind]
    exported: frozenset[str]


class _Copied:
    """Knows which kinds a konnector may have copied into a service namespace, now or ever.

    Exports and templates come and go while their copies stay, so every namespaced CRD counts, and
    what any export or template claims. CRDs are read anew only where one changed.
    """

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._stamps: frozenset[tuple[str, str]] = frozenset()
        self._defined: Mapping[str, Kind] = {}

    async def kinds(self) -> _CopiedKinds:
        """Return them. Raises ClusterErrors where the CRDs cannot be read."""
        informers, defined = self._informers, await self._crds()
        offers = [*informers.exports.all(), *informers.templates.all()]
        claims = [claim for offer in offers for claim in api.permission_claims_of(offer)]
        claimed = {kind.resource: kind for kind in map(_claimed, claims)}
        known = {one.resource: one for one in (refs.CONFIG_MAP, refs.SECRET)}
        named = {api.offered_resource(template).name for template in informers.templates.all()}
        named |= {manifest.name_of(export) for export in informers.exports.all()}
        role = informers.cluster_roles.get("", names.BINDER)
        return _CopiedKinds(
            all=frozenset({**claimed, **known, **defined}.values()),
            exported=frozenset({*named, *claimed, *known, *noted(role)}),
        )

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

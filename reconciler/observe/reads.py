"""Reads the objects that a plan needs of a control plane or app cluster (mapping.md 12).

All are lists and gets of what klutchctl or its peers write; nothing here follows the contents
of a cluster beyond that. Secrets are read for an apply alone: who may plan holds no credential of
anybody (trust.md T2).
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from reconciler import api
from reconciler.api import leases
from reconciler.blueprints import rbac
from reconciler.blueprints.objects import build
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, names, refs
from reconciler.core import manifest as m
from reconciler.core.errors import ClusterError, Forbidden, NotServed, Rejected
from reconciler.core.live import ClusterState
from reconciler.core.manifest import Manifest, identity_of, namespace_of, uid_of
from reconciler.core.names import KUBE_SYSTEM
from reconciler.core.refs import NAMESPACE, Kind, Ref
from reconciler.fleet.values import Fleet
from reconciler.kube.cluster import Listing, Reader
from reconciler.observe import agents, objects, read_scope
from reconciler.observe.objects import observing
from reconciler.observe.visits import NoIdentity, Visit, together

WHOLE: Final = (
    api.CLUSTER_BINDING,
    api.API_SERVICE_EXPORT_REQUEST,
    api.API_SERVICE_EXPORT_TEMPLATE,
    api.APP_CLUSTER_BINDING,
    api.API_SERVICE_BINDING,
)
_METADATA: Final = (api.API_SERVICE_EXPORT, refs.CRD)
_OURS: Final = frozenset({keys.KLUTCH_GROUP, keys.TEMPLATE_GROUP})

T = TypeVar("T")


class Reading:
    """The objects of a cluster, as read so far in one visit."""

    def __init__(self, visit: Visit) -> None:
        self.cluster: Reader = visit.reached.cluster
        self._visit = visit
        self._slots = asyncio.Semaphore(visit.width)
        self._objects: dict[Kind, dict[tuple[str, str], Manifest]] = defaultdict(dict)
        self._unserved: set[Kind] = set()
        self._unreadable: set[tuple[str, str]] = set()

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        name: str = "",
        labels: str = "",
        metadata_only: bool = False,
        within: Collection[str] | None = None,
    ) -> None:
        """Read all objects of a kind, or those of one name in whichever namespace.

        With `within`, those in other namespaces are not looked at.
        A Klutch kind that the cluster does not serve is known to be empty.
        """
        self._objects[kind] = self._objects[kind]
        fields = f"metadata.name={name}" if name else ""

        def read() -> Awaitable[Listing]:
            return self.cluster.list(
                kind, namespace=namespace, labels=labels, fields=fields, metadata_only=metadata_only
            )

        try:
            found = await self.one(Ref(self.cluster.name, kind, namespace, name), read)
        except NotServed:
            if kind.group not in _OURS:
                raise
            self._unserved.add(kind)
            return
        self._keep(
            kind, (item for item in found.items if within is None or namespace_of(item) in within)
        )

    async def get(
        self, kind: Kind, name: str, *, namespace: str = "", metadata_only: bool = False
    ) -> None:
        """Read one object, which may be absent."""
        self._objects[kind] = self._objects[kind]
        ref = Ref(self.cluster.name, kind, namespace, name)
        found = await self.one(ref, lambda: self.cluster.get(ref, metadata_only=metadata_only))
        if found is not None:
            self._keep(kind, (found,))

    async def named_secret(self, namespace: str, name: str) -> None:
        """Read a Secret that an object names. One out of reach is no reason to see nothing else."""
        if read_scope.may_be_secret(namespace, name):
            with suppress(Forbidden, Rejected):
                return await self.list(refs.SECRET, namespace=namespace, name=name)
        self._unreadable.add((namespace, name))

    async def one(self, ref: Ref, read: Callable[[], Awaitable[T]]) -> T:
        """Make any other read. It stays in `Visit.waiting` where it is cancelled."""
        async with self._slots:
            self._visit.waiting.append(ref.object)
            try:
                answer = await read()
            except ClusterError:
                self._visit.waiting.remove(ref.object)
                raise
            self._visit.waiting.remove(ref.object)
            return answer

    def take(self, earlier: ClusterState) -> None:
        """Keep a state of this cluster that was read a moment ago."""
        self._unserved |= earlier.unserved
        self._unreadable |= earlier.unreadable
        for kind, items in earlier.objects.items():
            self._objects[kind] |= ((identity_of(item), item) for item in items)

    def of(self, kind: Kind) -> Sequence[Manifest]:
        """Return the objects of a kind that were read so far, by namespace and name."""
        found = self._objects.get(kind, {})
        return tuple(found[key] for key in sorted(found))

    def serves(self, kind: Kind) -> bool:
        return kind in self._objects and kind not in self._unserved

    def seen(
        self, *, bindings_cluster_scoped: bool = False, silent: frozenset[str] = frozenset()
    ) -> ClusterState:
        """Return all that was read. Raises NoIdentity."""
        system = self._objects[NAMESPACE].get(("", KUBE_SYSTEM))
        if system is None or not uid_of(system):
            raise NoIdentity
        return ClusterState(
            uid=uid_of(system),
            address=self._visit.reached.address,
            objects={kind: self.of(kind) for kind in sorted(self._objects)},
            unserved=frozenset(self._unserved),
            bindings_cluster_scoped=bindings_cluster_scoped,
            silent=silent,
            unreadable=frozenset(self._unreadable),
        )

    def _keep(self, kind: Kind, items: Iterable[Manifest]) -> None:
        kept = observing(kind)
        self._objects[kind] |= {identity_of(item): kept(item) for item in items}


async def control_plane(
    visit: Visit, fleet: Fleet, name: str, *, credentials: bool
) -> ClusterState:
    """Read all of a control plane; `credentials`: also the Secrets with kubeconfigs."""
    reading = Reading(visit)
    # The first read also shows whether the cluster answers at all.
    await reading.list(refs.NAMESPACE, metadata_only=True)
    async with visit.turn.slot():
        await together(
            *(reading.list(kind, metadata_only=True) for kind in _METADATA),
            *(reading.list(kind) for kind in WHOLE),
            reading.list(refs.SERVICE_ACCOUNT, name=names.BINDER),
        )
        if credentials:
            await _secrets_of_control_plane(reading, fleet, name)
    return reading.seen(silent=_silent_spaces(reading))


async def shared_part(visit: Visit, fleet: Fleet) -> ClusterState:
    """Read the objects of a control plane that all clusters share, and the marks of its spaces.

    As with `spaces`, the rights to read all are enough.
    """
    reading = Reading(visit)
    await reading.list(refs.NAMESPACE, name=names.KUBE_SYSTEM, metadata_only=True)
    ours = f"{keys.FLEET}={fleet.name}"
    async with visit.turn.slot():
        await together(
            reading.list(refs.NAMESPACE, labels=ours, metadata_only=True),
            reading.list(api.APP_CLUSTER_BINDING, labels=ours),
            reading.list(refs.CRD, metadata_only=True),
            reading.list(api.API_SERVICE_EXPORT_TEMPLATE),
            # Whichever of them may own a CRD in an app cluster.
            reading.list(api.API_SERVICE_BINDING),
        )
    return reading.seen()


async def spaces(
    visit: Visit, shared: ClusterState, spaces: Iterable[str], *, credentials: bool
) -> ClusterState:
    """Read the objects in some binding spaces that the shared part does not have."""
    reading = Reading(visit)
    reading.take(shared)
    ordered = sorted(spaces)
    async with visit.turn.slot():
        await together(*(_space(reading, space) for space in ordered))
        if credentials:
            await together(*(_secrets_of_space(reading, space) for space in ordered))
    return reading.seen(silent=_silent_spaces(reading))


async def app_cluster(visit: Visit, fleet: Fleet, name: str, *, credentials: bool) -> ClusterState:
    """Read an app cluster; `credentials`: also kubeconfigs of konnectors and tokens beside them."""
    reading = Reading(visit)
    bind = names.KLUTCH_NAMESPACE
    await reading.get(refs.NAMESPACE, names.KUBE_SYSTEM)
    async with visit.turn.slot():
        await together(
            reading.get(refs.NAMESPACE, bind),
            # The path of all namespaces is also that of cluster-scoped bindings (Klutch <= 1.5.0).
            reading.list(api.API_SERVICE_BINDING),
            reading.list(refs.CRD, metadata_only=True),
            *(
                reading.get(kind, object_name, namespace=bind if kind.namespaced else "")
                for kind, object_name in read_scope.konnector_objects(fleet, name)
            ),
        )
        if not reading.serves(api.API_SERVICE_BINDING):  # a konnector may be about to install it
            await reading.get(refs.DEPLOYMENT, names.KONNECTOR, namespace=bind)
        if credentials:
            await reading.list(refs.SECRET, namespace=bind)
        cluster_scoped = await _binds_cluster_scoped(reading)
    return reading.seen(bindings_cluster_scoped=cluster_scoped)


async def answers(
    visit: Visit, seen: ClusterState, questions: Collection[Kind | Ref]
) -> ClusterState:
    """Answer the questions of planning: counts, whole exports, obstacles, a backend's Lease."""
    kinds = sorted(question for question in questions if isinstance(question, Kind))
    backend = leases.of_backend(visit.reached.cluster.name)
    named = sorted(one for one in questions if isinstance(one, Ref) and one != backend)
    exports = [one for one in named if one.kind == api.API_SERVICE_EXPORT]
    accounts = [one for one in named if one.kind == refs.SERVICE_ACCOUNT]
    reading = Reading(visit)
    async with visit.turn.slot():
        counts = await together(*(_count(reading, kind) for kind in kinds))
        bodies = await together(*(_export_body(reading, ref) for ref in exports))
        left = await _left_over(reading, accounts)
    missing = await agents.missing_backend(visit) if backend in questions else {}
    return replace(
        seen,
        in_use={**seen.in_use, **dict(zip(kinds, counts, strict=True))},
        bodies={**seen.bodies, **dict(zip(exports, bodies, strict=True)), **left, **missing},
    )


async def _secrets_of_control_plane(reading: Reading, fleet: Fleet, name: str) -> None:
    """Read the kubeconfigs of binding spaces and of our app clusters. Raises Incomplete."""
    spaces = {
        m.namespace_of(binding) for binding in reading.of(api.CLUSTER_BINDING)
    } | _spaces_begun(reading)
    await together(
        *(reading.list(refs.SECRET, name=secret, within=spaces) for secret in read_scope.SECRETS)
    )
    further = {
        *read_scope.secrets_of_cluster_bindings(reading.of(api.CLUSTER_BINDING)),
        *read_scope.secrets_of_app_cluster_bindings(
            reading.of(api.APP_CLUSTER_BINDING), fleet, name, reading.of(refs.NAMESPACE)
        ),
    }
    await together(*(reading.named_secret(*secret) for secret in sorted(further)))


async def _space(reading: Reading, space: str) -> None:
    await together(
        # It may be there without our labels.
        reading.list(refs.NAMESPACE, name=space, metadata_only=True),
        reading.list(api.CLUSTER_BINDING, namespace=space),
        reading.list(api.API_SERVICE_EXPORT_REQUEST, namespace=space),
        reading.list(api.API_SERVICE_EXPORT, namespace=space, metadata_only=True),
        reading.list(refs.SERVICE_ACCOUNT, namespace=space, name=names.BINDER),
    )


async def _secrets_of_space(reading: Reading, space: str) -> None:
    bindings = [
        binding for binding in reading.of(api.CLUSTER_BINDING) if m.namespace_of(binding) == space
    ]
    is_ours = bool(bindings) or space in _spaces_begun(reading)
    # That they were asked for has to be known also where none is.
    await together(
        reading.list(refs.SECRET, namespace=space, name=names.KUBECONFIG, within=()),
        *(
            reading.list(refs.SECRET, namespace=space, name=name)
            for name in (read_scope.SECRETS if is_ours else ())
        ),
        *(
            reading.named_secret(*secret)
            for secret in sorted(read_scope.secrets_of_cluster_bindings(bindings))
        ),
    )


def _spaces_begun(reading: Reading) -> set[str]:
    """Return the spaces that we made: an apply that died there made its Secrets first."""
    return {
        m.name_of(namespace)
        for namespace in reading.of(refs.NAMESPACE)
        if keys.FLEET in m.labels_of(namespace)
    }


def _silent_spaces(reading: Reading) -> frozenset[str]:
    """Return the spaces with a konnector that cannot be counted on now."""
    now = SystemClock().now()
    return frozenset(
        m.namespace_of(binding)
        for binding in reading.of(api.CLUSTER_BINDING)
        if api.liveness(api.heartbeat_of(binding), now, timeout=api.SILENCE)
        is not api.Liveness.ALIVE
    )


async def _binds_cluster_scoped(reading: Reading) -> bool:
    """Return whether `apiservicebindings` are cluster-scoped. Only the CRD knows where none is."""
    bindings = reading.of(api.API_SERVICE_BINDING)
    if bindings or not reading.serves(api.API_SERVICE_BINDING):
        return any(not m.namespace_of(binding) for binding in bindings)
    crd = await _definition(reading, api.API_SERVICE_BINDING)
    return m.get_text(crd, "spec", "scope") == "Cluster"


async def _definition(reading: Reading, kind: Kind) -> Manifest | None:
    """Return the whole CRD of a kind, or None where there is none."""
    ref = Ref(reading.cluster.name, refs.CRD, "", kind.resource)
    return await reading.one(ref, lambda: reading.cluster.get(ref))


async def _count(reading: Reading, kind: Kind) -> int:
    """Count the objects of a kind, in whichever version the cluster serves.

    A CRD that is there and not served may still have objects: that is an error, never 0.
    """
    cluster = reading.cluster
    crd = await _definition(reading, kind)
    if crd is None:
        return 0
    kind = Kind(kind.group, api.preferred_version(api.served_versions(crd)), kind.kind, kind.plural)
    ref = Ref(cluster.name, kind, "", "")
    if not kind.version:
        raise NotServed("the CRD serves no version", ref=ref, verb="list")
    return await reading.one(ref, lambda: cluster.count(kind))


async def _export_body(reading: Reading, ref: Ref) -> Manifest | None:
    """Return an export as `ClusterState.bodies` has it, or None where it is absent."""
    found = await reading.one(ref, lambda: reading.cluster.get(ref))
    return None if found is None else objects.export_body(ref.kind, found)


async def _left_over(reading: Reading, accounts: Sequence[Ref]) -> dict[Ref, Manifest | None]:
    """Return the leavings of earlier spaces, by the accounts that new ones of their names get."""
    bindings = (refs.ROLE_BINDING, refs.CLUSTER_ROLE_BINDING)
    if accounts:
        await reading.list(NAMESPACE, metadata_only=True)
        await together(*(reading.list(kind) for kind in bindings))
    namespaces = {m.name_of(one): one for one in reading.of(NAMESPACE)}
    given = [one for kind in bindings for one in reading.of(kind)]
    found = dict[Ref, Manifest | None]()
    for ref in accounts:
        space = namespaces.get(ref.namespace) or build(NAMESPACE, ref.namespace)
        left = rbac.left_over(space, namespaces.values(), given)
        found[ref] = {"message": left} if left else None
    return found

"""Informers of klutch-osb: brokers, records, generated kinds, and their claims.

The claims of a generated kind are followed while its CRD exists. Brokers know the origin of a claim
as app cluster, namespace, and identity.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from bind import bounds
from bind.informers import party_of, trimmed_namespace
from bind.osb.decisions import record
from bind.osb.decisions.view import Place
from reconciler import api
from reconciler.api import osb
from reconciler.api.osb import GeneratedKind
from reconciler.blueprints.offering.messages import OriginatingIdentity
from reconciler.controller.controller import Queue
from reconciler.controller.manager import ClusterInformers, InformerSet
from reconciler.controller.metrics import Metrics
from reconciler.core import keys, manifest, names, refs
from reconciler.core.manifest import Manifest, annotations_of, name_of, namespace_of, uid_of
from reconciler.core.refs import NAMESPACE, Kind, ObjectKey, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import Informer, ReadYourWrites
from reconciler.kube.limits import OF_CLAIMS, USUAL
from reconciler.kube.store import Index, Store, without_managed_fields
from reconciler.kube.turns import Party

# Names of indexes.
BROKER: Final = "name of a ServiceBroker"
PLACE: Final = "the place of an instance's claim"
OF_INSTANCE: Final = "id of the instance that a binding is of"
INSTANCE: Final = "the place of the instance that is bound"
TARGET: Final = "service namespace"
KIND: Final = "group and kind"


class InstanceKey(NamedTuple):
    """An instance claim by its place, whether it is there or not."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group} {self.namespace}/{self.name}"


def key_of(kind: GeneratedKind, place: ObjectKey) -> InstanceKey:
    return InstanceKey(kind.kind.group, kind.kind.kind, *place)


class Informers(ClusterInformers):
    """The views of a control plane that klutch-osb needs, and those of generated kinds.

    ServiceBrokers and records count in one namespace. Of Namespaces only metadata are held, of
    CRDs what names a kind.
    """

    def __init__(self, cluster: Cluster, namespace: str, metrics: Metrics) -> None:
        super().__init__(cluster)
        self.namespace = namespace
        self.claims: InformerSet[Kind] = InformerSet(metrics)
        self.brokers = self._view(osb.SERVICE_BROKER, {}, namespace=namespace)
        self.records = self._view(
            osb.BROKER_RECORD,
            {
                BROKER: lambda live: [manifest.get_text(live, "spec", "broker")],
                PLACE: place_of,
                OF_INSTANCE: _instance_id,
            },
            namespace=namespace,
        )
        self.crds = self._view(
            refs.CRD,
            {BROKER: lambda crd: [manifest.labels_of(crd).get(keys.OSB_BROKER, "")], KIND: _kind},
            labels=keys.OSB_BROKER,
            trim=_names,
        )
        # A look asks for several kinds, and reading one of its CRD takes as long as the rest of it.
        self._kinds: dict[str, GeneratedKind | None] = {}
        self.crds.subscribe_keys(self._forget_kind)
        self.mappings = self._view(
            api.API_SERVICE_NAMESPACE, {TARGET: _target}, trim=bounds.trimmed_service_namespace
        )
        self.cluster_bindings = self._view(
            api.CLUSTER_BINDING, {}, trim=bounds.trimmed_cluster_binding
        )
        self.namespaces = self._view(refs.NAMESPACE, {}, metadata_only=True, trim=trimmed_namespace)

    @property
    def unsure(self) -> str:
        """Why the view of CRDs may be old, "" where it is not."""
        return self.trouble(self.crds)

    def kind(self, group: str, kind: str) -> GeneratedKind | None:
        found = map(self._generated, self.crds.keys_by(KIND, (group, kind)))
        return next((one for one in found if one is not None), None)

    def kinds(self, broker: str) -> list[GeneratedKind]:
        found = map(self._generated, self.crds.keys_by(BROKER, broker))
        return [one for one in found if one is not None]

    def troubles(self, broker: str) -> list[str]:
        """Return why claims of a broker's kinds cannot be read."""
        found = (self.claims.get(kind.kind) for kind in self.kinds(broker))
        return [each.view.trouble for each in found if each is not None and each.view.trouble]

    def binding_kinds(self, instances: GeneratedKind) -> list[GeneratedKind]:
        return [
            one
            for one in self.kinds(instances.broker)
            if one.instances == instances.kind.plural and one.kind.group == instances.kind.group
        ]

    def _generated(self, key: ObjectKey) -> GeneratedKind | None:
        if key.name not in self._kinds:
            crd = self.crds.get("", key.name)
            self._kinds[key.name] = None if crd is None else osb.generated_kind(crd)
        return self._kinds[key.name]

    def _forget_kind(self, key: ObjectKey) -> None:
        self._kinds.pop(key.name, None)

    def follow(self, kind: GeneratedKind, on_synced: Callable[[], None]) -> ReadYourWrites:
        index: Mapping[str, Index] = {INSTANCE: _instance} if kind.is_binding else {}
        informer = Informer(self.cluster, kind.kind, indexes=index, budget=OF_CLAIMS)
        return self.claims.add(kind.kind, informer, on_synced=on_synced)

    def _view(self, kind: Kind, indexes: Mapping[str, Index], **more: Any) -> Store:
        budget = OF_CLAIMS if kind.group == keys.KLUTCH_GROUP else USUAL
        return super()._view(kind, indexes, budget=budget, **more)


def _names(crd: Manifest) -> Manifest:
    """Return the names of a kind: of a CRD with many plans the schema is large, and not read."""
    kept = without_managed_fields(crd)
    spec = manifest.get_map(crd, "spec")
    versions = [
        {part: one.get(part) for part in ("name", "served", "storage")}
        for one in manifest.get_maps(spec, "versions")
    ]
    names = {"group": spec.get("group"), "names": spec.get("names"), "versions": versions}
    return {**kept, "spec": names, "status": {}}


def _kind(crd: Manifest) -> Iterable[tuple[str, str]]:
    spec = manifest.get_map(crd, "spec")
    return [(manifest.get_text(spec, "group"), manifest.get_text(spec, "names", "kind"))]


def place_of(live: Manifest) -> Iterable[InstanceKey]:
    if manifest.get_text(live, "spec", "kind") != record.INSTANCE:
        return []
    claim = manifest.get_map(live, "spec", "claim")
    parts = (manifest.get_text(claim, part) for part in ("group", "kind", "namespace", "name"))
    return [InstanceKey(*parts)]


def _instance_id(live: Manifest) -> Iterable[str]:
    if manifest.get_text(live, "spec", "kind") != record.BINDING:
        return []
    return [manifest.get_text(live, "spec", "instanceID")]


def _instance(binding: Manifest) -> Iterable[ObjectKey]:
    name = manifest.get_text(binding, "spec", "instanceRef")
    return [ObjectKey(manifest.namespace_of(binding), name)]


def _target(mapping: Manifest) -> Iterable[str]:
    namespace = manifest.get_text(mapping, "status", "namespace")
    return [namespace] if namespace else []


class Places:
    """Service namespaces as APIServiceNamespaces know them; others stand for themselves."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._own_uid = ""

    def space(self, namespace: str) -> str:
        """Return the binding space of a service namespace; else the namespace itself."""
        mapping = self._mapping(namespace)
        return namespace if mapping is None else namespace_of(mapping)

    def party(self, namespace: str) -> Party:
        """Return for whom a claim in a namespace is served."""
        space, informers = self.space(namespace), self._informers
        binding = informers.cluster_bindings.get(space, names.CLUSTER_BINDING)
        return party_of(space, informers.namespaces.get("", space), binding)

    async def of(self, namespace: str) -> Place:
        """Return the place of a namespace. Raises ClusterErrors."""
        mapping = self._mapping(namespace)
        space_uid = self._uid(namespace)
        if mapping is None:
            return Place(namespace, await self._control_plane(), space_uid)
        space = namespace_of(mapping)
        cluster = self._app_cluster(space)
        # The account by which the app cluster writes.
        identity = OriginatingIdentity(
            {
                "username": f"system:serviceaccount:{space}:{names.BINDER}",
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{space}"],
                "extra": {"clusterid": [cluster], "namespace": [name_of(mapping)]},
            }
        )
        return Place(name_of(mapping), cluster, space_uid, identity)

    def _mapping(self, namespace: str) -> Manifest | None:
        return next(iter(self._informers.mappings.by(TARGET, namespace)), None)

    def _uid(self, namespace: str) -> str:
        live = self._informers.namespaces.get("", namespace)
        return "" if live is None else uid_of(live)

    def _app_cluster(self, space: str) -> str:
        """Return the uid of an app cluster as its space has it, else that of the space."""
        namespace = self._informers.namespaces.get("", space)
        binding = self._informers.cluster_bindings.get(space, names.CLUSTER_BINDING)
        carriers = (each for each in (namespace, binding) if each is not None)
        known = (annotations_of(each).get(keys.APP_CLUSTER_UID, "") for each in carriers)
        return next(filter(None, known), "") or self._uid(space)

    async def _control_plane(self) -> str:
        """Return the uid of this cluster: that of kube-system, which does not change."""
        if not self._own_uid:
            cluster = self._informers.cluster
            ref = Ref(cluster.name, NAMESPACE, "", names.KUBE_SYSTEM)
            live = await cluster.get(ref, metadata_only=True)
            self._own_uid = "" if live is None else uid_of(live)
        return self._own_uid


class Kinds:
    """The reconciler of generated CRDs, by name."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._followed: dict[str, GeneratedKind] = {}
        self._claims: Queue[InstanceKey] | None = None
        self._brokers: Queue[str] | None = None

    def subscribe(self, queue: Queue[str], claims: Queue[InstanceKey], brokers: Queue[str]) -> None:
        """Have the CRDs enqueued that change, and of kinds that are followed claims and broker."""
        self._claims, self._brokers = claims, brokers
        self._informers.crds.subscribe_keys(lambda key: queue.enqueue(key.name))

    async def reconcile(self, name: str) -> timedelta | None:
        """Follow the claims of a kind, or no more."""
        crd = self._informers.crds.get("", name)
        kind = None if crd is None else osb.generated_kind(crd)
        before = self._followed.get(name)
        if before is not None and (kind is None or kind.kind != before.kind):
            self._informers.claims.drop(before.kind)
            del self._followed[name]
        if kind is not None and name not in self._followed:
            self._followed[name] = kind
            self._follow(kind)
        gone = before if kind is None else None
        self._look_at(kind)
        if gone is not None:
            self.look_at_broker(gone.broker)  # its records have no claims any more
        return None

    def _enqueue(self, key: InstanceKey) -> None:
        if self._claims is not None:
            self._claims.enqueue(key)

    def _follow(self, kind: GeneratedKind) -> None:
        def synced() -> None:
            self._look_at(kind)
            for each in self._informers.kinds(kind.broker):
                self._look_at(each)
            if self._brokers is not None:
                self._brokers.enqueue(kind.broker)  # its condition reports unserved kinds

        store = self._informers.follow(kind, synced).view.store
        if not kind.is_binding:
            store.subscribe_keys(lambda key: self._enqueue(key_of(kind, key)))
            return

        def of_binding(place: ObjectKey) -> None:
            for each in self._informers.kinds(kind.broker):
                if each.kind.plural == kind.instances and each.kind.group == kind.kind.group:
                    self._enqueue(key_of(each, place))

        store.subscribe(INSTANCE, of_binding)

    def _look_at(self, kind: GeneratedKind | None) -> None:
        """Have all instances of a kind looked at, those without claim as well."""
        if kind is None or kind.is_binding:
            return
        recent = self._informers.claims.get(kind.kind)
        for place in [] if recent is None else recent.view.store.keys():
            self._enqueue(key_of(kind, place))

    def look_at_broker(self, broker: str) -> None:
        for kind in self._informers.kinds(broker):
            self._look_at(kind)
        for live in self._informers.records.by(BROKER, broker):
            for key in place_of(live):
                self._enqueue(key)

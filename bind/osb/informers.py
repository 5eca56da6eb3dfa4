"""Informers of klutch-osb: brokers, records, generated kinds, and the claims of each kind."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bind import bounds, parties
from bind.osb.decisions import record
from reconciler import api
from reconciler.api import osb
from reconciler.api.osb import GeneratedKind
from reconciler.controller.manager import InformerSet
from reconciler.controller.metrics import Metrics
from reconciler.core import keys, manifest, refs
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, ObjectKey
from reconciler.kube.budgets import OF_CLAIMS, USUAL
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import Informer, ReadYourWrites
from reconciler.kube.store import Index, Store, without_managed_fields

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


class Views:
    """Views of a control plane."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._recents: dict[Store, ReadYourWrites] = {}

    @property
    def informers(self) -> Sequence[Informer]:
        return [recent.view for recent in self._recents.values()]

    def recent(self, view: Store) -> ReadYourWrites:
        """Return one of these views together with what this process wrote of it just now."""
        return self._recents[view]

    def _kept(self, informer: Informer) -> Store:
        self._recents[informer.store] = ReadYourWrites(informer)
        return informer.store


class Informers(Views):
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
            {
                BROKER: lambda crd: [manifest.labels_of(crd).get(keys.OSB_BROKER, "")],
                KIND: _kind,
            },
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
        self.namespaces = self._view(
            refs.NAMESPACE, {}, metadata_only=True, trim=parties.trimmed_namespace
        )

    @property
    def unsure(self) -> str:
        """Why the view of CRDs may be old, "" where it is not."""
        return self._recents[self.crds].view.trouble

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
        informer = Informer(self.cluster, kind, indexes=indexes, budget=budget, **more)
        return self._kept(informer)


def _names(crd: Manifest) -> Manifest:
    """Return what names a kind: of a CRD with many plans the schema is large, and not read."""
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

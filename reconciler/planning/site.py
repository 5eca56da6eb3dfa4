"""A site is an app cluster and its control plane, both read, with indexes for look-ups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reconciler import api
from reconciler.core import keys, names
from reconciler.core import manifest as m
from reconciler.core.live import ClusterState
from reconciler.core.manifest import Manifest
from reconciler.core.refs import NAMESPACE, SECRET, Kind, Ref
from reconciler.fleet.values import AppCluster, Fleet
from reconciler.fleet.wanted import Placement
from reconciler.planning.objects import is_of

T = TypeVar("T")


class Index:
    """A seen cluster. `name` is its `Ref.cluster`."""

    def __init__(self, name: str, seen: ClusterState) -> None:
        self.name = name
        self.seen = seen
        self._by_name: dict[Kind, Mapping[tuple[str, str], Manifest]] = {}
        self._by_text: dict[tuple[Kind, tuple[str, ...]], dict[str, list[Manifest]]] = {}
        self._made: dict[str, Any] = {}

    @property
    def blind(self) -> bool:
        """Whether no Secret of it was read (trust.md T2)."""
        return SECRET not in self.seen.objects

    def all(self, kind: Kind) -> Sequence[Manifest]:
        """Return all objects of a kind; none where the kind is not served."""
        return self.seen.objects.get(kind, ())

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """Return one object, or None where it is absent.

        Where no Secret was read, what is noted of a kubeconfig stands in its place.
        """
        named = self._by_name.get(kind)
        if named is None:
            blind = kind == SECRET and self.blind
            found = {m.identity_of(item): item for item in self.all(kind)}
            named = self._by_name[kind] = noted_secrets(self) if blind else found
        return named.get((namespace, name))

    def at(self, ref: Ref) -> Manifest | None:
        """Return the object of a ref, or None where it is absent."""
        return self.get(ref.kind, ref.namespace, ref.name)

    def inside(self, kind: Kind, namespace: str) -> Sequence[Manifest]:
        return self._by(kind, "metadata", "namespace").get(namespace, ())

    def labelled(self, kind: Kind, label: str) -> Mapping[str, Sequence[Manifest]]:
        """Return the objects of a kind by the value of a label; "" is also of those without it."""
        return self._by(kind, "metadata", "labels", label)

    def _by(self, kind: Kind, *path: str) -> Mapping[str, Sequence[Manifest]]:
        if (kind, path) not in self._by_text:
            found = m.grouped(self.all(kind), lambda item: m.get_text(item, *path))
            self._by_text[kind, path] = found
        return self._by_text[kind, path]

    def once(self, name: str, make: Callable[["Index"], T]) -> T:
        """Return the result of `make` for this cluster, made at the first call for this name."""
        if name not in self._made:
            self._made[name] = make(self)
        made: T = self._made[name]
        return made

    def ref(self, kind: Kind, manifest: Manifest) -> Ref:
        return Ref(self.name, kind, *m.identity_of(manifest))


def noted_secrets(index: Index) -> Mapping[tuple[str, str], Manifest]:
    """Return the facts of Secrets in the annotation `credential`, by their namespace and name.

    Tenants write AppClusterBindings in namespaces of theirs, and APIServiceBindings in spaces and
    in app namespaces: of a Secret that is not beside it, none of those replaces what is known.
    Where the carrier of a cluster says nothing, they are not believed about its Secrets either.
    """
    own: dict[tuple[str, str], Manifest] = {}
    others: dict[tuple[str, str], Manifest] = {}
    place = "" if index.seen.bindings_cluster_scoped else names.KLUTCH_NAMESPACE
    for carrier in (
        *index.all(api.CLUSTER_BINDING),
        *index.all(api.APP_CLUSTER_BINDING),
        *index.inside(api.API_SERVICE_BINDING, place),
    ):
        facts = api.noted_facts(m.annotations_of(carrier).get(keys.CREDENTIAL, ""))
        if facts is not None:
            beside = m.namespace_of(carrier)
            secret = api.secret_of(carrier)
            namespace, name = secret.namespace or beside, secret.name or names.KUBECONFIG
            noted = own if namespace == beside else others
            noted[namespace, name] = {
                "apiVersion": SECRET.api_version,
                "kind": SECRET.kind,
                "metadata": {"name": name, "namespace": namespace},
                "data": {names.KUBECONFIG: api.kubeconfig_value(facts)},
            }
    return others | own


@dataclass(frozen=True, slots=True)
class Site:
    """An app cluster on its control plane, both seen."""

    fleet: Fleet
    placement: Placement
    control_plane: Index
    app: Index

    @property
    def cluster(self) -> AppCluster:
        """The document of the app cluster, which one that left has not."""
        return self.fleet.clusters[self.app.name]

    @property
    def is_direct(self) -> bool:
        """Whether the units are bound in Direct mode, else by an AppClusterBinding."""
        return self.placement.app_cluster_binding == ("", "")

    @property
    def root(self) -> Ref:
        """The carrier of the app cluster on its control plane, live or to be made."""
        if self.is_direct:
            return Ref(self.control_plane.name, NAMESPACE, "", self.placement.space)
        return Ref(
            self.control_plane.name, api.APP_CLUSTER_BINDING, *self.placement.app_cluster_binding
        )

    @property
    def live_root(self) -> Manifest | None:
        return self.control_plane.at(self.root)

    @property
    def carrier(self) -> Ref:
        """The object that names the kubeconfig of klutchctl, and has the note of its content."""
        if not self.is_direct:
            return self.root
        space = self.placement.space
        return Ref(self.control_plane.name, api.CLUSTER_BINDING, space, names.CLUSTER_BINDING)

    def owns(self, live: Manifest) -> bool:
        """Return whether an object of this cluster, or in its space, is ours."""
        return is_of(live, self.fleet, self.app.name)

    @property
    def undecided(self) -> bool:
        """Whether only a reader of Secrets knows the facts of the cluster's credentials."""
        live = self.control_plane.at(self.carrier)
        blind = self.control_plane.blind and live is not None
        return (
            blind and api.noted_facts(m.annotations_of(live or {}).get(keys.CREDENTIAL, "")) is None
        )

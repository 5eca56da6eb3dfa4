"""Names the place of a claim for brokers: app cluster, namespace, and identity."""

from bind import parties
from bind.osb.decisions.view import Place
from bind.osb.informers import TARGET, Informers
from reconciler.blueprints.offering.messages import OriginatingIdentity
from reconciler.core import keys, names
from reconciler.core.manifest import Manifest, annotations_of, name_of, namespace_of, uid_of
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.kube.turns import Party


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
        return parties.party_of(space, informers.namespaces.get("", space), binding)

    async def of(self, namespace: str) -> Place:
        """Return the place of a namespace. Raises ClusterErrors."""
        mapping = self._mapping(namespace)
        space_uid = self._uid(namespace)
        if mapping is None:
            return Place(namespace, await self._control_plane(), space_uid)
        space = namespace_of(mapping)
        cluster = self._app_cluster(space)
        identity = _identity(space, cluster, name_of(mapping))
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


def _identity(space: str, cluster: str, namespace: str) -> OriginatingIdentity:
    """Return on whose behalf a call is made: the account by which the app cluster writes."""
    return OriginatingIdentity(
        {
            "username": f"system:serviceaccount:{space}:{names.BINDER}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{space}"],
            "extra": {"clusterid": [cluster], "namespace": [namespace]},
        }
    )

"""How one app cluster stands on its control plane: what its objects depend on beside the files.

A plan makes it from what is live (mapping.md 4); `default_footing` is that of a first apply.
Refuses to know the objects that are made from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.blueprints.binding import Resource
from reconciler.core import names
from reconciler.core.live import Address
from reconciler.core.secret import Secret
from reconciler.fleet.values import AppCluster, DeletionPolicy, Fleet, Mode


@dataclass(frozen=True, slots=True)
class Footing:
    """None is "known after apply". In AppClusterBinding mode `consumer_secret` is "".

    `kubeconfig_namespace` and `kubeconfig_name` are the Secret that the ClusterBinding `cluster`
    or the AppClusterBinding names; that reference is immutable, so a live one is kept.
    """

    space: str  # the namespace on the control plane
    kubeconfig_namespace: str
    kubeconfig_name: str
    consumer_secret: str  # the Secret in namespace klutch-bind of the app cluster
    # The identity annotation that klutchctl gives, or once gave, to the space. "" where another
    # made the space: then that one's annotation is left alone.
    identity: str
    # providerPrettyName of the live ClusterBinding, for a control plane whose document has none.
    pretty_name: str = ""
    # The live scope of `apiservicebindings` in the app cluster. Klutch up to 1.5.0: True.
    bindings_cluster_scoped: bool = False
    cluster_uid: str | None = None  # of the app cluster's kube-system
    # Where the kubeconfig leads to unless the files say so: a control plane in Direct mode, else
    # the app cluster. A live kubeconfig's own address, or that of our own access.
    address: Address | None = None
    token: Secret | None = None  # the one in the kubeconfig
    # AppClusterBinding mode: where that object is (namespace, name). A live one keeps its place.
    app_cluster_binding: tuple[str, str] = ("", "")
    # AppClusterBinding mode: every unit accepts all that its template offers (mapping.md 8).
    accepts_all_offered: bool = False
    # AppClusterBinding mode: what a live one lists, the files do not, and stays (mapping.md 4).
    unmanaged: frozenset[Resource] = frozenset()
    # What the Bindings of these said, by `plural.group`; what is not named is Release.
    policies: Mapping[str, DeletionPolicy] = field(default_factory=dict)


def default_footing(fleet: Fleet, cluster: AppCluster) -> Footing:
    """Return what a first apply would use where nothing is live yet."""
    uid = cluster.identity or None
    if fleet.control_planes[cluster.control_plane].mode is Mode.DIRECT:
        space = names.direct_space(fleet.name, cluster.name)
        return Footing(
            space=space,
            kubeconfig_namespace=space,
            kubeconfig_name=names.KUBECONFIG,
            consumer_secret=names.kubeconfig_secret(space),
            identity=names.direct_identity(fleet.name, cluster.name),
            cluster_uid=uid,
        )
    namespace, name = cluster.app_cluster_binding
    return Footing(
        space=names.app_cluster_binding_space(namespace, name),
        kubeconfig_namespace=namespace,
        kubeconfig_name=names.app_cluster_kubeconfig_secret(cluster.name),
        consumer_secret="",
        identity="",
        cluster_uid=uid,
        app_cluster_binding=cluster.app_cluster_binding,
    )

"""The objects that a fleet wants in each cluster, and how a plan compares them.

Also their parts: marks, rights, claims, the way to a cluster. Translates fleet values into what
blueprints take. Does not know which objects there are.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from reconciler.blueprints import objects, rbac
from reconciler.blueprints.objects import Marks, ownership_labels
from reconciler.blueprints.rbac import Claimed
from reconciler.core import keys, names
from reconciler.core.errors import Origin
from reconciler.core.live import Address
from reconciler.core.manifest import JSON, KNOWN_AFTER_APPLY, Manifest, name_of, namespace_of
from reconciler.core.refs import GroupResource, Kind, Ref
from reconciler.core.secret import Secret
from reconciler.fleet import values


class Rule(Enum):
    """The treatment of an object that exists already (mapping.md 3, 5, 8)."""

    CREATE_ONLY = "create-only"  # nothing, whatever it holds
    OWNED = "owned"  # fields that differ are written
    KUBECONFIG = "kubeconfig"  # the same; its data is compared by where it leads, not by bytes
    REQUEST = "request"  # the table of mapping.md 5


@dataclass(frozen=True, slots=True)
class KubeconfigSource:
    """The parts of a kubeconfig, once there is a token.

    `token` is the Secret of a service account, in whose namespace the kubeconfig's context is.
    `server` and `ca` are what the files say, "" for what they leave open.
    """

    token: Ref
    server: str
    ca: str
    fallback: Address | None

    def address(self, live: Address | None = None) -> Address | None:
        """Return where the kubeconfig leads, None while that is not known.

        What the files leave open, a live kubeconfig keeps, and a new one gets from `fallback`. A
        TLS name belongs to the server that it comes with.
        """
        own = live or self.fallback or Address("", "")
        server, ca = self.server or own.server, self.ca or own.ca
        if not server or not (self.ca or live or self.fallback):
            return None
        return Address(server, ca, "" if self.server else own.tls_server_name)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A desired object, as it is created, with only the fields that we state.

    `cluster` is the app cluster that it is wanted for; `ref.cluster` is where it stands. `step`
    is its place in the order of application for one cluster. `unit` is None for what a cluster
    needs once. `compared` is what a live object is compared with, and gets, where that is less
    than the whole manifest.
    """

    cluster: str
    ref: Ref
    manifest: Manifest = field(repr=False)  # may hold the payload of a Secret
    origin: Origin
    step: int
    unit: values.UnitKey | None
    rule: Rule
    compared: Manifest | None = field(default=None, repr=False)
    kubeconfig: KubeconfigSource | None = None

    @property
    def stated(self) -> Manifest:
        """The fields that a live object is compared with, and gets."""
        return self.manifest if self.compared is None else self.compared


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the order of application: where its objects stand, and by which rule.

    `cluster` is the name in a Ref: of an app cluster, or of a control plane.
    """

    number: int
    cluster: str
    rule: Rule = Rule.OWNED

    def want(
        self,
        owner: values.AppCluster | values.Unit,
        kind: Kind,
        manifest: Manifest,
        *,
        compared: Manifest | None = None,
        kubeconfig: KubeconfigSource | None = None,
    ) -> Wanted:
        """Want an object that a cluster needs once, or one of its units."""
        return Wanted(
            cluster=owner.key.cluster if isinstance(owner, values.Unit) else owner.name,
            ref=Ref(self.cluster, kind, namespace_of(manifest), name_of(manifest)),
            manifest=manifest,
            origin=owner.origin,
            step=self.number,
            unit=owner.key if isinstance(owner, values.Unit) else None,
            rule=self.rule,
            compared=compared,
            kubeconfig=kubeconfig,
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of a cluster's objects on its control plane, and their other premises.

    A plan makes it from what is live (mapping.md 4). None is "known after apply". In
    AppClusterBinding mode `consumer_secret` is "".

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
    # The spec of the live ClusterBinding: its fields that no document states are kept.
    cluster_binding: Manifest = field(default_factory=dict)
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
    unmanaged: frozenset[GroupResource] = frozenset()
    # What the Bindings of these said, by `plural.group`; what is not named is Release.
    policies: Mapping[str, values.DeletionPolicy] = field(default_factory=dict)


def default_placement(fleet: values.Fleet, cluster: values.AppCluster) -> Placement:
    """Return the placement of a first apply, where nothing is live yet."""
    uid = cluster.identity or None
    if fleet.control_planes[cluster.control_plane].mode is values.Mode.DIRECT:
        space = names.direct_space(fleet.name, cluster.name)
        return Placement(
            space=space,
            kubeconfig_namespace=space,
            kubeconfig_name=names.KUBECONFIG,
            consumer_secret=names.kubeconfig_secret(space),
            identity=names.direct_identity(fleet.name, cluster.name),
            cluster_uid=uid,
        )
    namespace, name = cluster.app_cluster_binding
    return Placement(
        space=names.app_cluster_binding_space(namespace, name),
        kubeconfig_namespace=namespace,
        kubeconfig_name=names.app_cluster_kubeconfig_secret(cluster.name),
        consumer_secret="",
        identity="",
        cluster_uid=uid,
        app_cluster_binding=cluster.app_cluster_binding,
    )


def ownership(
    fleet: values.Fleet,
    cluster: str,
    *,
    binding: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Marks:
    """Return the labels and annotations of objects that we create or adopt."""
    return Marks(ownership_labels(fleet.name, cluster, binding=binding), annotations or {})


def provenance(cluster: values.AppCluster, placement: Placement) -> dict[str, str]:
    """Return the annotations by which a cluster is found without its document (mapping.md 1)."""
    uid = KNOWN_AFTER_APPLY if placement.cluster_uid is None else placement.cluster_uid
    return {keys.APP_CLUSTER_UID: uid, keys.ACCESS: str(cluster.access)}


def deletion_policy(policy: values.DeletionPolicy) -> dict[str, str]:
    """Return the annotation `deletion-policy`: all that is left to know once a Binding is gone.

    `Block` stands there too, so that the unit is held (mapping.md 9). To a konnector or backend
    all but `Delete` is Release: what is blocked is not deleted either.
    """
    return {keys.DELETION_POLICY: policy.value}


def policies_of_units(units: Mapping[str, values.DeletionPolicy]) -> dict[str, str]:
    """Return the annotation `unit-policies`: the policy of each Binding, for when it is gone.

    What is not named is Release, and so is all of an object without the annotation.
    """
    special = {
        name: policy
        for name, policy in units.items()
        if policy is not values.DeletionPolicy.RELEASE
    }
    return {keys.UNIT_POLICIES: values.unit_policies_text(special)} if special else {}


def kubeconfig_secret(
    place: tuple[str, str], source: KubeconfigSource, placement: Placement, marks: Marks
) -> Manifest:
    """Return the Secret at `place` (namespace, name) as far as it is known before an apply."""
    address, token = source.address(), placement.token
    if address is None or token is None:
        return objects.kubeconfig_secret(*place, content=None, marks=marks)
    content = objects.kubeconfig(address, token, namespace=source.token.namespace)
    return objects.kubeconfig_secret(*place, content=content, marks=marks)


def konnector_rules(
    cluster: values.AppCluster, units: Iterable[values.Unit]
) -> tuple[Manifest, ...] | None:
    """Return the rules of a konnector of these units in the app cluster; None for all."""
    if cluster.konnector.rbac is values.Rbac.FULL:
        return None
    listed = list(units)
    bound = [unit.key.service for unit in listed]
    return rbac.minimal(bound, [kind for unit in listed for kind in claimed(unit)])


def claimed(unit: values.Unit) -> tuple[Claimed, ...]:
    """Return the kinds that the accepted permission claims of a unit name."""
    return tuple(
        Claimed(claim.group, claim.resource, down=claim.owner is values.Owner.PROVIDER)
        for claim in unit.claims
        if claim.accepted
    )


def wire_claims(
    claims: Sequence[values.Claim], required: Collection[values.Claim]
) -> list[Manifest]:
    """Return claims as an APIServiceBinding holds them (mapping.md 6), in one order."""
    return [_wire_claim(claim, required=claim in required) for claim in sorted(claims, key=_rank)]


def _rank(claim: values.Claim) -> tuple[object, ...]:
    kind = (claim.group, claim.resource, claim.version, claim.owner)
    return (*kind, claim.names, claim.namespaces, claim.labels, claim.accepted)


def _wire_claim(claim: values.Claim, *, required: bool) -> Manifest:
    selector: dict[str, JSON] = {
        "names": sorted(claim.names),
        "namespaces": sorted(claim.namespaces),
        "owner": claim.owner.value,
    }
    if claim.labels:
        selector["labelSelectors"] = [dict(labels) for labels in sorted(claim.labels)]
    return {
        "group": claim.group,
        "resource": claim.resource,
        "version": claim.version,
        "required": required,
        "selector": selector,
        "state": "Accepted" if claim.accepted else "Rejected",
    }

"""One object that a fleet wants, and how it is held against a live one."""

from dataclasses import dataclass, field
from enum import Enum

from reconciler.core.live import Address
from reconciler.core.manifest import Manifest, name_of, namespace_of
from reconciler.core.origin import Origin
from reconciler.core.refs import Kind, Ref
from reconciler.fleet.values import AppCluster, Unit, UnitKey


class Rule(Enum):
    """What is done about an object that is there already (mapping.md 3, 5, 8)."""

    CREATE_ONLY = "create-only"  # nothing, whatever it holds
    OWNED = "owned"  # fields that differ are written
    KUBECONFIG = "kubeconfig"  # the same; its data is compared by where it leads, not by bytes
    REQUEST = "request"  # the table of mapping.md 5


@dataclass(frozen=True, slots=True)
class KubeconfigSource:
    """What a kubeconfig is made of, once there is a token.

    `token` is the Secret of a service account. `server` and `ca` are what the files say, "" for
    what they leave open: then a live kubeconfig keeps its own, and a new one gets `fallback`.
    """

    token: Ref
    namespace: str
    server: str
    ca: str
    fallback: Address | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """One desired object, as it is created, with only the fields that we state.

    `cluster` is the app cluster that it is wanted for; `ref.cluster` is where it stands. `step`
    is its place in the order of application for one cluster. `unit` is None for what a cluster
    needs once. `compared` is what a live object is held against, and gets, where that is less
    than the whole manifest.
    """

    cluster: str
    ref: Ref
    manifest: Manifest = field(repr=False)  # may hold the payload of a Secret
    origin: Origin
    step: int
    unit: UnitKey | None
    rule: Rule
    compared: Manifest | None = field(default=None, repr=False)
    kubeconfig: KubeconfigSource | None = None

    @property
    def stated(self) -> Manifest:
        """What a live object is held against, and gets."""
        return self.manifest if self.compared is None else self.compared


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the order of application: where its objects stand, and by which rule.

    `cluster` is the name in a Ref: of an app cluster, or of a control plane.
    """

    number: int
    cluster: str
    rule: Rule = Rule.OWNED

    def of_cluster(
        self,
        cluster: AppCluster,
        kind: Kind,
        manifest: Manifest,
        *,
        compared: Manifest | None = None,
        kubeconfig: KubeconfigSource | None = None,
    ) -> Wanted:
        """Want an object that the cluster needs once."""
        return Wanted(
            cluster=cluster.name,
            ref=_ref(self.cluster, kind, manifest),
            manifest=manifest,
            origin=cluster.origin,
            step=self.number,
            unit=None,
            rule=self.rule,
            compared=compared,
            kubeconfig=kubeconfig,
        )

    def of_unit(
        self, unit: Unit, kind: Kind, manifest: Manifest, *, compared: Manifest | None = None
    ) -> Wanted:
        """Want an object of one unit."""
        return Wanted(
            cluster=unit.key.cluster,
            ref=_ref(self.cluster, kind, manifest),
            manifest=manifest,
            origin=unit.origin,
            step=self.number,
            unit=unit.key,
            rule=self.rule,
            compared=compared,
        )


def _ref(cluster: str, kind: Kind, manifest: Manifest) -> Ref:
    return Ref(cluster, kind, namespace_of(manifest), name_of(manifest))

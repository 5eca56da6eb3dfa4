"""The flags of `klutch-bind`, as one value (protocol-bind.md B.1, and our own).

`unserved` names those that have no effect. With a flag of an identity provider, the door opens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from bind.bounds import Bounds
from bind.door import settings as door
from bind.door.settings import DoorSettings
from reconciler.blueprints.export import Isolation, Scope
from reconciler.controller import flags
from reconciler.controller.flags import Operation
from reconciler.core.errors import ConfigError
from reconciler.kube import networks
from reconciler.kube.networks import ANYWHERE, Networks

_WORKERS: Final = 4
_QPS: Final = 100.0
_BURST: Final = 300
_SCOPES: Final = {"namespaced": "Namespaced", "cluster": "Cluster"}
# Which fields spec.konnector.overrides of an AppClusterBinding may set.
_OVERRIDES: Final = {"restricted": "Restricted", "all": "All"}
_NAMES: Final = {"plain": "Plain", "hashed": "Hashed"}
_ISOLATIONS: Final = {"prefixed": "Prefixed", "namespaced": "Namespaced", "none": "None"}
# Of the original's tests.
_IDLE: Final = ("testing-auto-select",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Operation):
    """The settings of a backend."""

    consumer_scope: Scope = "Namespaced"
    isolation: Isolation = "Prefixed"
    template_namespace: str = ""
    hashed_names: bool = False
    control_plane_mode: bool = False
    konnector_image: str = ""
    konnector_image_prefixes: tuple[str, ...] = ()
    allow_cross_namespace_secrets: bool = False
    all_overrides: bool = False
    networks: Networks = ANYWHERE  # where kubeconfigs of app clusters may lead
    space_quota: int = 500
    service_namespace_quota: int = 500
    export_grace: timedelta = timedelta(minutes=10)
    drain_deadline: timedelta = timedelta(minutes=10)
    lease_namespace: str = ""
    door: DoorSettings | None = None
    workers: int = _WORKERS
    qps: float = _QPS
    burst: int = _BURST

    @property
    def bounds(self) -> Bounds:
        """The limits of spaces and service namespaces."""
        return Bounds(
            restricted=not self.all_overrides,
            in_space=self.space_quota,
            in_service_namespace=self.service_namespace_quota,
        )

    @property
    def open_door(self) -> bool:
        """Whether each signed-in identity may bind all offers."""
        return self.door is not None and self.door.authorization == "Authenticated"


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings of these arguments.

    Raises ConfigError for a wrong one, and SystemExit(0) after --help and --version.
    """
    given = _parser().parse_args(list(arguments))
    return Settings(
        consumer_scope=cast("Scope", _one_of(given.consumer_scope, _SCOPES, "--consumer-scope")),
        isolation=cast(
            "Isolation",
            _one_of(given.cluster_scoped_isolation, _ISOLATIONS, "--cluster-scoped-isolation"),
        ),
        template_namespace=given.template_namespace,
        hashed_names=_one_of(given.service_namespace_names, _NAMES, "--service-namespace-names")
        == "Hashed",
        control_plane_mode=given.control_plane_mode,
        konnector_image=given.konnector_image,
        konnector_image_prefixes=tuple(filter(None, given.konnector_image_prefix)),
        allow_cross_namespace_secrets=given.allow_cross_namespace_secrets,
        all_overrides=_one_of(given.konnector_overrides, _OVERRIDES, "--konnector-overrides")
        == "All",
        # The backend's network differs from that of konnectors.
        networks=networks.of_flags(given.allow_networks, given.deny_networks, in_cluster=False),
        space_quota=flags.at_least(0, given.space_quota, "--space-quota"),
        service_namespace_quota=flags.at_least(
            0, given.service_namespace_quota, "--service-namespace-quota"
        ),
        export_grace=_seconds(given.export_grace, "--export-grace"),
        drain_deadline=_seconds(given.drain_deadline, "--drain-deadline"),
        lease_namespace=given.lease_namespace,
        door=door.of(given),
        **flags.operation(given, idle=_IDLE),
    )


def _parser() -> flags.Parser:
    parser = flags.Parser(
        "klutch-bind",
        "The backend of Klutch on a control plane: binding spaces, rights, exports.",
    )
    text = parser.add_argument
    parser.access("control plane")
    parser.section("spaces and exports")
    text("--consumer-scope", default="Namespaced", metavar="SCOPE", help=_SCOPE)
    text("--cluster-scoped-isolation", default="Prefixed", metavar="ISOLATION", help=_ISOLATION)
    text("--template-namespace", default="", metavar="NAMESPACE", help=_TEMPLATES)
    text("--service-namespace-names", default="Plain", metavar="Plain|Hashed", help=_NEW_NAMES)
    text("--space-quota", type=int, default=500, metavar="NUMBER", help=_SPACE_QUOTA)
    text("--service-namespace-quota", type=int, default=500, metavar="NUMBER", help=_QUOTA)
    text("--export-grace", type=float, default=600, metavar="SECONDS", help=_GRACE)
    text("--drain-deadline", type=float, default=600, metavar="SECONDS", help=_DRAIN)
    parser.section("control-plane mode")
    parser.switch("--control-plane-mode", default=False, help="serve AppClusterBindings")
    text(
        "--konnector-image", default="", metavar="IMAGE", help="image of konnectors that it deploys"
    )
    text("--konnector-image-prefix", action="append", default=[], metavar="PLACE", help=_PREFIX)
    parser.switch("--allow-cross-namespace-secrets", default=False, help=_ANY_NAMESPACE)
    text("--konnector-overrides", default="Restricted", metavar="WHICH", help=_ALLOWED)
    for name, meaning in _NETWORKS.items():
        text(name, action="append", default=[], metavar="CIDR[,CIDR]", help=meaning)
    parser.operation(probe_address="", workers=_WORKERS, qps=_QPS, burst=_BURST)
    text("--lease-namespace", default="", metavar="NAMESPACE", help=_LEASES)
    door.add(parser)
    parser.ignore(_IDLE)
    return parser


_SCOPE: Final = (
    "rights of konnectors: Namespaced, or Cluster: in all namespaces (default: Namespaced)"
)
_ISOLATION: Final = "of cluster-scoped kinds: Prefixed, Namespaced or None (default: Prefixed)"
_TEMPLATES: Final = "offer only the templates of this namespace (default: of all namespaces)"
_NEW_NAMES: Final = (
    "names of new service namespaces; another app cluster cannot take a hashed one first "
    "(default: Plain)"
)
_SPACE_QUOTA: Final = (
    "limit for a binding space: objects of each of our kinds, and Secrets; 0: none (default: 500)"
)
_QUOTA: Final = (
    "limit for a service namespace: objects of each exported or claimed kind; 0: none "
    "(default: 500)"
)
_GRACE: Final = "keep an export for this time after its CRD is gone (default: 600)"
_DRAIN: Final = "report a deletion without progress after this time (default: 600)"
_PREFIX: Final = "AppClusterBindings may also name images below this: REGISTRY/PATH"
_ANY_NAMESPACE: Final = "an AppClusterBinding may name a Secret of any namespace, without a grant"
_ALLOWED: Final = (
    "Restricted, or All: an author of an AppClusterBinding may run any container here "
    "(default: Restricted)"
)
_NETWORKS: Final = {
    "--deny-networks": "refuse these addresses in kubeconfigs of AppClusterBindings",
    "--allow-networks": "exceptions from --deny-networks",
}
_LEASES: Final = "namespace of the leader's Lease (default: the pod's own)"


def _one_of(text: str, known: dict[str, str], where: str) -> str:
    if text.lower() not in known:
        expected = " or ".join(known.values())
        raise ConfigError(f"{text!r} is not {expected}", where=where)
    return known[text.lower()]


def _seconds(value: float, where: str) -> timedelta:
    if not 0 <= value <= 86_400 * 365:
        raise ConfigError(f"{value} is not a number of seconds within a year", where=where)
    return timedelta(seconds=value)

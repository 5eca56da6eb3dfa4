"""The flags of `klutch-bind`, as one value (protocol-bind.md B.1, and our own).

`unserved` names those that have no effect. With a flag of an identity provider, the door opens.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from bind.bounds import Bounds
from bind.door import settings as door
from bind.door.settings import DoorSettings
from reconciler.blueprints.export import Isolation, Scope
from reconciler.controller import flags
from reconciler.controller.flags import Flag, Operation
from reconciler.core.errors import ConfigError
from reconciler.kube import networks
from reconciler.kube.networks import ANYWHERE, Networks

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
    workers: int = 4
    qps: float = 100.0
    burst: int = 300

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
        consumer_scope=cast("Scope", _one_of(given, "consumer_scope", _SCOPES)),
        isolation=cast("Isolation", _one_of(given, "cluster_scoped_isolation", _ISOLATIONS)),
        template_namespace=given.template_namespace,
        hashed_names=_one_of(given, "service_namespace_names", _NAMES) == "Hashed",
        control_plane_mode=given.control_plane_mode,
        konnector_image=given.konnector_image,
        konnector_image_prefixes=tuple(filter(None, given.konnector_image_prefix)),
        allow_cross_namespace_secrets=given.allow_cross_namespace_secrets,
        all_overrides=_one_of(given, "konnector_overrides", _OVERRIDES) == "All",
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
        example="--context control-plane --template-namespace offers --leader-election=false",
    )
    parser.access("control plane")
    parser.section("spaces and exports")
    parser.table(
        consumer_scope=Flag(
            "rights of konnectors: Namespaced, or Cluster: in all namespaces", "SCOPE", "Namespaced"
        ),
        cluster_scoped_isolation=Flag(
            "of cluster-scoped kinds: Prefixed, Namespaced or None", "ISOLATION", "Prefixed"
        ),
        template_namespace=Flag(
            "offer only the templates of this namespace (default: of all namespaces)", "NAMESPACE"
        ),
        service_namespace_names=Flag(
            "names of new service namespaces; another app cluster cannot take a hashed one first",
            "Plain|Hashed",
            "Plain",
        ),
        space_quota=Flag(
            "limit for a binding space: objects of each of our kinds, and Secrets; 0: none",
            "NUMBER",
            500,
        ),
        service_namespace_quota=Flag(
            "limit for a service namespace: objects of each exported or claimed kind; 0: none",
            "NUMBER",
            500,
        ),
        export_grace=Flag("keep an export for this time after its CRD is gone", "SECONDS", 600.0),
        drain_deadline=Flag("report a deletion without progress after this time", "SECONDS", 600.0),
    )
    parser.section("control-plane mode")
    parser.table(
        control_plane_mode=Flag("serve AppClusterBindings", default=False),
        konnector_image=Flag("image of konnectors that it deploys", "IMAGE"),
        konnector_image_prefix=Flag(
            "AppClusterBindings may also name images below this: REGISTRY/PATH", "PLACE", []
        ),
        allow_cross_namespace_secrets=Flag(
            "an AppClusterBinding may name a Secret of any namespace, without a grant",
            default=False,
        ),
        konnector_overrides=Flag(
            "Restricted, or All: an author of an AppClusterBinding may run any container here",
            "WHICH",
            "Restricted",
        ),
        deny_networks=Flag(
            "refuse these addresses in kubeconfigs of AppClusterBindings", "CIDR[,CIDR]", []
        ),
        allow_networks=Flag("exceptions from --deny-networks", "CIDR[,CIDR]", []),
    )
    parser.operation(Settings, probe_address="")
    parser.table(
        lease_namespace=Flag(
            "namespace of the leader's Lease (default: the pod's own)", "NAMESPACE"
        )
    )
    door.add(parser)
    parser.ignore(_IDLE)
    return parser


def _one_of(given: Namespace, field: str, known: dict[str, str]) -> str:
    text = getattr(given, field)
    if text.lower() not in known:
        expected = " or ".join(known.values())
        raise ConfigError(f"{text!r} is not {expected}", where=f"--{field.replace('_', '-')}")
    return known[text.lower()]


def _seconds(value: float, where: str) -> timedelta:
    if not 0 <= value <= 86_400 * 365:
        raise ConfigError(f"{value} is not a number of seconds within a year", where=where)
    return timedelta(seconds=value)

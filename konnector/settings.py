"""The flags and environment of `konnector`, as one value (protocol-konnector.md A.1).

The original's flags keep their names and defaults, so that its manifests start this program.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from reconciler.controller import flags
from reconciler.controller.flags import Address, Flag, Operation
from reconciler.controller.lease import holder_here
from reconciler.core import names
from reconciler.core.errors import ConfigError
from reconciler.core.times import span
from reconciler.kube import networks
from reconciler.kube.networks import ANYWHERE, Networks

_SECRET_NAME: Final = "app-cluster-kubeconfig-secret-name"
_SECRET_NAMESPACE: Final = "app-cluster-kubeconfig-secret-namespace"
_SECRET_KEY: Final = "app-cluster-kubeconfig-secret-key"
_SPACE: Final = "binding-root-namespace"
_BINDINGS: Final = "binding-namespace"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneMode:
    """The settings of a konnector that runs beside the control plane.

    `space` holds the ClusterBinding, the exports, the APIServiceBindings and what they refer to.
    The Secret, on the control plane, holds the app cluster's kubeconfig under `secret_key`.
    """

    space: str
    secret_namespace: str
    secret_name: str
    secret_key: str = names.KUBECONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Operation):
    """The settings of a konnector.

    `kubeconfig` leads to the app cluster, in control-plane mode to the control plane.
    APIServiceBindings of `binding_namespace` alone are served, with "" those of all; that has no
    meaning for cluster-scoped ones, nor beside the control plane.
    `namespace` is the pod's own. `orphan_grace`: when a copy without its origin goes, None: never.
    """

    control_plane_mode: ControlPlaneMode | None = None
    binding_namespace: str = ""
    lease_name: str = names.KONNECTOR_LEASE
    lease_namespace: str = names.KUBE_SYSTEM
    namespace: str = ""
    lease_identity: str
    probes: Address | None = ("", 8080)
    # Objects wait for API servers, and some for slow webhooks; none is to wait for another.
    workers: int = 32
    # More than one process can send: API priority and fairness of the server is the limit.
    qps: float = 2000.0
    burst: int = 4000
    orphan_grace: timedelta | None = None
    networks: Networks = ANYWHERE  # where kubeconfigs in Secrets may lead


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Return the settings of these arguments, and of the environment.

    Of that, POD_NAME, POD_NAMESPACE and BINDING_NAMESPACE count, what klutch-bind says of networks,
    and whether it is that of a pod.

    Raises ConfigError for a wrong one, and SystemExit(0) after --help and --version.
    """
    given = _parser().parse_args(list(arguments))
    mode = _control_plane_mode(given) if given.control_plane_mode else None
    idle = _OF_THE_MODE if mode is None else (_BINDINGS,)
    return Settings(
        control_plane_mode=mode,
        binding_namespace=given.binding_namespace or environ.get("BINDING_NAMESPACE", ""),
        lease_name=given.lease_name or names.KONNECTOR_LEASE,
        lease_namespace=given.lease_namespace
        or environ.get("POD_NAMESPACE", "")
        or names.KUBE_SYSTEM,
        namespace=environ.get("POD_NAMESPACE", ""),
        lease_identity=environ.get("POD_NAME", "") or holder_here(),
        orphan_grace=_grace(given.orphan_grace),
        networks=_networks(given, environ),
        **flags.operation(given, idle=idle),
    )


def _networks(given: argparse.Namespace, environ: Mapping[str, str]) -> Networks:
    stated = networks.of_flags(
        given.allow_networks, given.deny_networks, in_cluster=networks.IN_CLUSTER in environ
    )
    return replace(stated, beside=networks.of_environment(environ))


_OF_THE_MODE: Final = (_SECRET_NAME, _SECRET_NAMESPACE, _SECRET_KEY, _SPACE)


def _control_plane_mode(given: argparse.Namespace) -> ControlPlaneMode:
    key = given.app_cluster_kubeconfig_secret_key
    mode = ControlPlaneMode(
        space=given.binding_root_namespace or "",
        secret_namespace=given.app_cluster_kubeconfig_secret_namespace or "",
        secret_name=given.app_cluster_kubeconfig_secret_name or "",
        secret_key=names.KUBECONFIG if key is None else key,
    )
    required = {
        _SECRET_NAME: mode.secret_name,
        _SECRET_NAMESPACE: mode.secret_namespace,
        _SPACE: mode.space,
    }
    missing = [f"--{name}" for name, value in required.items() if not value]
    if missing:
        raise ConfigError("required when --control-plane-mode is on", where=", ".join(missing))
    if not mode.secret_key:
        raise ConfigError(
            "cannot be empty when --control-plane-mode is on", where=f"--{_SECRET_KEY}"
        )
    return mode


def _grace(text: str) -> timedelta | None:
    if not text:
        return None
    if not (grace := span(text)):
        raise ConfigError(f"{text[:60]!r} is no time such as 30d or 12h", where="--orphan-grace")
    return grace


def _parser() -> flags.Parser:
    parser = flags.Parser(
        "konnector",
        "The agent of Klutch: claims go up to the control plane, status and credentials come down. "
        "`konnector detach` removes finalizers after the control plane is gone for good.",
        example="--context app-1 --leader-election=false -v 4",
    )
    parser.access("clusters", _KUBECONFIG)
    parser.table(
        binding_namespace=Flag(
            "serve APIServiceBindings there only (default: $BINDING_NAMESPACE, or all)",
            "NAMESPACE",
            None,
        ),
        deny_networks=Flag(
            "refuse these addresses in kubeconfigs of Secrets (in a pod: also loopback)",
            "CIDR[,CIDR]",
            [],
        ),
        allow_networks=Flag("exceptions from --deny-networks", "CIDR[,CIDR]", []),
        orphan_grace=Flag(
            "delete a copy if its claim is absent for this time, such as 30d (default: never)",
            "DURATION",
        ),
    )
    parser.section("control-plane mode")
    parser.table(
        control_plane_mode=Flag("run beside the control plane", default=False),
        app_cluster_kubeconfig_secret_name=Flag(
            "Secret on the control plane with the app cluster's kubeconfig", "NAME", None
        ),
        app_cluster_kubeconfig_secret_namespace=Flag("namespace of that Secret", "NAMESPACE", None),
        app_cluster_kubeconfig_secret_key=Flag(
            "key in that Secret (default: kubeconfig)", "KEY", None
        ),
        binding_root_namespace=Flag("the binding space", "NAMESPACE", None),
    )
    parser.operation(Settings, probe_address=":8080")
    parser.table(
        lease_name=Flag("the leader's Lease", default=names.KONNECTOR_LEASE),
        lease_namespace=Flag("namespace of that Lease (default: $POD_NAMESPACE, or kube-system)"),
    )
    return parser


_KUBECONFIG: Final = (
    f"of the app cluster; in control-plane mode, that of the control plane ({flags.KUBECONFIG})"
)
